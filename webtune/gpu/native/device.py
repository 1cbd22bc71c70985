"""A device of wgpu-py as a webtune device: it blocks inside its async methods and never suspends.

It works with any package that has wgpu-py's API (wgpu, wgpudawn): the device object brings its own
library, so this module imports neither.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

from webtune.errors import ArgumentError, LaunchError, UsageError
from webtune.gpu.base import (
    COPY_DST,
    COPY_SRC,
    MAP_READ,
    STORAGE,
    UNIFORM,
    Clock,
    Copy,
    Dispatch,
    Handle,
    Identity,
    Program,
    Shot,
    Span,
    check_bindable,
    check_read,
    check_write,
    padded_bytes,
)
from webtune.gpu.native.link import Link
from webtune.gpu.native.programs import NativeProgram, Programs
from webtune.gpu.native.timing import encode_copies, encode_pass, open_timer

_IDENTIFYING_LIMITS = (
    "maxComputeWorkgroupStorageSize",
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupSizeX",
    "maxComputeWorkgroupSizeY",
    "maxComputeWorkgroupSizeZ",
    "maxComputeWorkgroupsPerDimension",
    "maxStorageBufferBindingSize",
    "maxStorageBuffersPerShaderStage",
)
_IDENTIFYING_INFO = (
    "vendor",
    "architecture",
    "device",
    "description",
    "vendor_id",
    "device_id",
    "adapter_type",
    "backend_type",
)
_SHOT_S = 0.25
_SPELLING = {"subgroup": "subgroups"}
_ENDED = "must not have ended"
"""How wgpu-native says that a pass is over: no attribute of a pass tells it before."""


class NativeDevice:
    """webtune's view of a wgpu device.

    `owned` says that webtune opened it and destroys it on `close`. One lock makes measuring
    exclusive: while `time` runs, every other call on this object waits. Work that a caller submits
    through its own reference to the raw device is outside that lock.

    Time-out: `read`, `drain` and `time` (with 0.25 s more for each shot) end after `timeout_s` with
    `DeviceTimeout`. The work itself cannot be called back, so the device is then lost for good and
    never destroyed, since drivers wait for running work there. `compile`, `submit`, `write` and
    `copy` have no limit where a driver blocks inside them.
    """

    def __init__(self, raw: Any, *, owned: bool, timeout_s: float = 30.0) -> None:
        """Opens the clock too, which takes some 10 to 40 ms. `DeviceLost` when `raw` is gone."""
        self.raw = raw
        self.owned = owned
        self.timeout_s = timeout_s
        self._link = Link(raw, timeout_s)
        # Weak, so that a buffer which its user forgot is freed with its last reference.
        self._made: WeakValueDictionary[int, Handle] = WeakValueDictionary()
        self._programs = Programs(self._link)
        if self._link.probe():
            self._link.check()
        self.features = frozenset(_SPELLING.get(name, name) for name in raw.features)
        self.limits: Mapping[str, int] = MappingProxyType(
            {_camel_case(name): int(value) for name, value in dict(raw.limits).items()}
        )
        self.identity = _identify(raw, self.features, self.limits)
        self._timer = open_timer(self._link, self._programs, self)

    @property
    def clock(self) -> Clock:
        return self._timer.clock

    @property
    def lost(self) -> str | None:
        return self._link.probe()

    # ---- buffers ---------------------------------------------------------------------------

    def create_buffer(self, nbytes: int, *, uniform: bool = False, label: str = "") -> Handle:
        usage = STORAGE | COPY_SRC | COPY_DST | (UNIFORM if uniform else 0)
        handle = self._link.buffer(padded_bytes(nbytes, 16 if uniform else 4), usage, label)
        self._made[handle.uid] = handle
        return handle

    def adopt(self, raw: Any) -> int | None:
        kind = getattr(sys.modules[_package(self.raw)], "GPUBuffer", None)
        if kind is None or not isinstance(raw, kind):
            return None
        check_bindable(raw.usage)
        try:
            self._link.watch(raw)
            self._link.check_handles((raw,))
        except LaunchError as error:
            raise ArgumentError(f"this GPU buffer cannot be bound: {error}") from error
        return int(raw.size)

    def write(self, handle: Handle, data: memoryview, offset_bytes: int = 0) -> None:
        if not data.nbytes:
            return
        check_write(handle.size, data.nbytes, offset_bytes)
        short = -data.nbytes % 4
        flat = data.cast("B")
        with self._link.busy, self._link.guard() as raw:
            self._link.check_handles((handle,))
            padded = bytes(flat) + bytes(short) if short else flat
            raw.queue.write_buffer(handle, offset_bytes, padded)

    async def read(self, handle: Handle, nbytes: int) -> memoryview:
        self._link.check()
        if nbytes == 0:
            return memoryview(b"")
        span_bytes = padded_bytes(nbytes)
        check_read(handle.size, span_bytes)
        with self._link.busy:
            self._link.check_handles((handle,))
            data = self._link.bounded(lambda: self._read(handle, span_bytes))
        return data[:nbytes]

    def _read(self, handle: Handle, span_bytes: int) -> memoryview:
        staging = self._link.buffer(span_bytes, MAP_READ | COPY_DST, "webtune read")
        with self._link.commands() as encoder:
            encoder.copy_buffer_to_buffer(handle, 0, staging, 0, span_bytes)
        data = self._link.fetch(staging, span_bytes)
        staging.destroy()
        return data

    def copy(self, copies: Sequence[Copy]) -> None:
        with self._link.busy:
            self._check_copies(copies)
            with self._link.commands() as encoder:
                encode_copies(encoder, copies)

    def destroy_buffer(self, handle: Handle) -> None:
        # A buffer that is not on the list is the caller's own, or gone already.
        if self._made.pop(handle.uid, None) is not None and self._link.lost is None:
            self._link.destroy_buffer(handle)

    # ---- programs --------------------------------------------------------------------------

    async def compile(self, dispatches: Sequence[Dispatch]) -> Program:
        return self.compile_now(dispatches)

    def compile_now(self, dispatches: Sequence[Dispatch]) -> Program:
        # Waits for a measurement under way, and lets several threads compile at once.
        with self._link.busy:
            self._link.check()
        return self._programs.build(self, dispatches)

    def submit(self, program: Program, before: Sequence[Copy] = ()) -> None:
        with self._link.busy:
            native = self._own(program)
            self._check_copies(before)
            with self._link.commands() as encoder:
                encode_copies(encoder, before)
                encode_pass(encoder, native, 1)

    def encode(self, compute_pass: Any, program: Program) -> None:
        native = self._own(program)
        if not hasattr(compute_pass, "dispatch_workgroups"):
            kind = type(compute_pass).__name__
            raise ArgumentError(f"compute_pass is of type {kind}; pass a GPUComputePassEncoder")
        try:
            with self._link.guard():
                native.encode(compute_pass)
        except LaunchError as error:
            if _ENDED not in str(error):
                raise
            raise ArgumentError(
                "compute_pass has ended; record into it between begin_compute_pass() and end()"
            ) from error

    def release(self, program: Program) -> None:
        if isinstance(program, NativeProgram) and program.owner is self:
            program.release()

    # ---- timing ----------------------------------------------------------------------------

    async def time(self, shots: Sequence[Shot]) -> Sequence[Span]:
        with self._link.busy:
            self._link.check()
            for shot in shots:
                self._own(shot.program)
                self._check_copies(shot.before)
                if shot.evict is not None:
                    self._own(shot.evict)
                if shot.repeat < 1:
                    raise UsageError(f"a shot repeats at least once, not {shot.repeat} times")
            if not shots:
                return []

            def job() -> list[Span]:
                self._link.drain()
                return self._timer.take(shots)

            return self._link.bounded(job, _SHOT_S * len(shots))

    async def drain(self) -> None:
        with self._link.busy:
            self._link.drain()

    def close(self) -> None:
        with self._link.busy:
            usable = self._link.probe() is None
            if usable and not self.owned:
                self._timer.close()
                for handle in list(self._made.values()):
                    self._link.destroy_buffer(handle)
            self._made.clear()
            self._programs.clear()
            self._link.close(destroy=self.owned and usable)

    def _own(self, program: Program) -> NativeProgram:
        self._link.check()
        if not isinstance(program, NativeProgram) or program.owner is not self:
            raise UsageError("a program runs on the device that compiled it only")
        if program.released:
            raise UsageError(f"program {program.label!r} was released; compile it again")
        self._link.check_handles(program.handles)
        return program

    def _check_copies(self, copies: Sequence[Copy]) -> None:
        self._link.check_handles(handle for copy in copies for handle in (copy.source, copy.target))


def _camel_case(name: str) -> str:
    """WebGPU's spelling of a limit: "max-texture-dimension-2d" is "maxTextureDimension2D"."""
    head, *rest = name.replace("_", "-").split("-")
    words = (word.upper() if word[:1].isdigit() else word.capitalize() for word in rest)
    return head + "".join(words)


def _identify(raw: Any, features: frozenset[str], limits: Mapping[str, int]) -> Identity:
    info = dict(raw.adapter.info)
    facts = {name: str(info.get(name, "")) for name in _IDENTIFYING_INFO}
    facts["implementation"] = _implementation(raw)
    facts["features"] = " ".join(sorted(features))
    facts.update((name, str(limits[name])) for name in _IDENTIFYING_LIMITS if name in limits)
    device = facts["device"] or facts["description"] or "unknown device"
    label = f"{device} via {facts['backend_type']} ({facts['implementation']})"
    return Identity(label, tuple(sorted(facts.items())))


def _implementation(raw: Any) -> str:
    """Name and version of the WebGPU implementation, such as "wgpu_native 29.0.1.1"."""
    backend = sys.modules.get(type(raw).__module__.rpartition(".")[0])
    library = sys.modules.get(_package(raw))
    name = getattr(backend, "__name__", "unknown").rpartition(".")[2]
    version = getattr(backend, "__version__", "") or getattr(library, "__version__", "")
    return f"{name} {version}".strip()


def _package(raw: Any) -> str:
    return type(raw).__module__.partition(".")[0]
