"""The contract between webtune and a device, and the plain values that cross it.

Native, browser and scripted devices all keep it. Methods that may have to wait are `async`. A
blocking device waits inside them and never suspends, so `webtune.strategies.drive.complete` can run
them without an event loop; a browser device awaits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from webtune.errors import ArgumentError

Handle = Any
"""A device's own buffer (`wgpu.GPUBuffer`, a JS `GPUBuffer`, a scripted one). Opaque elsewhere."""

MAP_READ, COPY_SRC, COPY_DST = 0x1, 0x4, 0x8
UNIFORM, STORAGE, QUERY_RESOLVE = 0x40, 0x80, 0x200
"""WebGPU's buffer usages (https://www.w3.org/TR/webgpu/#buffer-usage)."""


def padded_bytes(nbytes: int, step: int = 4) -> int:
    """The least multiple of `step` that is not below `nbytes`, and at least one `step`."""
    return max(step, -(-nbytes // step) * step)


def can_be_read(handle: Handle) -> bool:
    """Whether a buffer may be copied from, by its WebGPU usage where it tells one: asked before,
    since a page hears of a refused copy too late to say whose it was."""
    usage = getattr(handle, "usage", None)
    return usage is None or bool(int(usage) & COPY_SRC)


def check_bindable(usage: int) -> None:
    """Raise `ArgumentError` for a caller's buffer that can be bound neither as storage nor as
    uniform."""
    if not usage & (STORAGE | UNIFORM):
        raise ArgumentError(
            "this GPU buffer has neither STORAGE nor UNIFORM usage; create it with "
            "usage=STORAGE | COPY_SRC | COPY_DST"
        )


def check_write(size_bytes: int, nbytes: int, offset_bytes: int) -> None:
    """Raise `ArgumentError` unless `nbytes` at `offset_bytes` can be written to a buffer of
    `size_bytes`. WebGPU writes multiples of 4 bytes: a shorter rest must end the buffer."""
    if offset_bytes < 0 or offset_bytes % 4 or offset_bytes + nbytes > size_bytes:
        raise ArgumentError(
            f"{nbytes} bytes at offset {offset_bytes} do not fit a buffer of {size_bytes} bytes, "
            "or the offset is no multiple of 4"
        )
    if nbytes % 4 and offset_bytes + padded_bytes(nbytes) != size_bytes:
        raise ArgumentError(
            f"a write of {nbytes} bytes must be a multiple of 4 unless it ends its buffer"
        )


def check_read(size_bytes: int, nbytes: int) -> None:
    """Raise `ArgumentError` when a buffer of `size_bytes` has no `nbytes` to read."""
    if nbytes > size_bytes:
        raise ArgumentError(f"{nbytes} bytes asked of a buffer of {size_bytes} bytes")


@dataclass(frozen=True, slots=True)
class Clock:
    """How a device takes spans.

    `kind` is "timestamp" or "wall". `quantum_ns` is the smallest step seen between two readings
    when the device was opened. `period_ns` is how many ns a tick lasts.
    """

    kind: str
    quantum_ns: int
    period_ns: float = 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Which hardware and driver a device is. Devices share picks only where these are equal.

    `facts` holds what tells one from another (vendor, architecture, device, driver, backend,
    implementation and its version, granted features, granted limits, subgroup sizes …), all as
    text. `label` is for people.
    """

    label: str
    facts: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """20 hex digits of the facts' SHA-256."""
        text = json.dumps(sorted(self.facts), separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Binding:
    """One entry of bind group 0: `nbytes` of the buffer `handle`, from its start.

    `kind` is "storage", "read-only-storage" or "uniform".
    """

    index: int
    kind: str
    handle: Handle
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """One compute dispatch: what to compile, what to bind, and how many workgroups to run.

    `source` is WGSL and `entry` one of its entry points. `constants` are the override constants by
    name. `label` is the candidate's name.
    """

    source: str
    entry: str
    constants: tuple[tuple[str, float | int | bool], ...]
    bindings: tuple[Binding, ...]
    workgroups: tuple[int, int, int]
    label: str = ""


def program_label(dispatches: Sequence[Dispatch]) -> str:
    """The name of what is compiled: the first label among its dispatches."""
    return next((dispatch.label for dispatch in dispatches if dispatch.label), "")


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the first `nbytes` of one buffer to the start of another, on the device."""

    source: Handle
    target: Handle
    nbytes: int


class Program(Protocol):
    """A compiled sequence of dispatches, ready to encode. Only `Device.compile` and `compile_now`
    make one, and it runs on that device only."""

    @property
    def label(self) -> str:
        """The name of the candidate that it was compiled for."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the device refused it, where that is only known after `compile_now` returned."""
        ...


@dataclass(frozen=True, slots=True)
class Shot:
    """One timed launch.

    The copies `before` and the program `evict` run first, in the same submit but outside the timed
    span. Then `program` runs `repeat` times inside one compute pass.
    """

    program: Program
    repeat: int = 1
    before: tuple[Copy, ...] = ()
    evict: Program | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """What the clock said about one shot.

    `elapsed_ns` covers `repeat` executions and may be anything (zero, negative, absurd): the bench
    judges it, not the device. `wall_ns` is an upper bound by the host's clock: from before the shot
    was submitted until its result was there. Only a wall clock sets `launched_ns`: the time of its
    two launches together, of N and of 2N executions, without what was done before each.
    """

    elapsed_ns: int
    repeat: int
    wall_ns: int
    launched_ns: int = 0


class Device(Protocol):
    """A WebGPU device.

    Everything that it raises is a webtune error, chained from the cause: `LaunchError` where the
    device refuses work (compilation, validation), `DeviceLost` where it is gone, `DeviceTimeout`
    where work did not come back.
    """

    @property
    def identity(self) -> Identity:
        """Which hardware and driver this is."""
        ...

    @property
    def clock(self) -> Clock:
        """How this device takes spans."""
        ...

    @property
    def features(self) -> frozenset[str]:
        """Granted features, in WebGPU's spelling ("timestamp-query", "shader-f16", "subgroups")."""
        ...

    @property
    def limits(self) -> Mapping[str, int]:
        """Granted limits, in WebGPU's camelCase names (maxComputeWorkgroupSizeX …)."""
        ...

    @property
    def lost(self) -> str | None:
        """Why the device is gone, or None. Never blocks."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long submitted work may take before `DeviceTimeout`."""
        ...

    def create_buffer(self, nbytes: int, *, uniform: bool = False, label: str = "") -> Handle:
        """A zeroed buffer of at least `nbytes` (rounded up to 4), usable as storage, copy source
        and target, and with `uniform` as uniform too. `ArgumentError` or `LaunchError` where the
        device has no buffers of that size."""
        ...

    def adopt(self, raw: Any) -> int | None:
        """The size in bytes of a caller's own buffer object of this host, or None where `raw` is
        not one. Raises `ArgumentError` when it cannot be bound."""
        ...

    def write(self, handle: Handle, data: memoryview, offset_bytes: int = 0) -> None:
        """Queue `data` (C-contiguous) into a buffer. `ArgumentError` where it does not fit."""
        ...

    async def read(self, handle: Handle, nbytes: int) -> memoryview:
        """The first `nbytes` of a buffer, once all that was submitted before is done."""
        ...

    def copy(self, copies: Sequence[Copy]) -> None:
        """Queue copies, in one submit."""
        ...

    def destroy_buffer(self, handle: Handle) -> None:
        """Free a buffer made by `create_buffer`. Never fails."""
        ...

    async def compile(self, dispatches: Sequence[Dispatch]) -> Program:
        """A program of these dispatches; what has equal content is compiled once. `LaunchError`
        with the compiler's message and line when anything is refused."""
        ...

    def compile_now(self, dispatches: Sequence[Dispatch]) -> Program:
        """The same without waiting, for launches. A blocking device raises `LaunchError`; a browser
        device may learn of a refusal later and then sets the program's `failure`."""
        ...

    def submit(self, program: Program, before: Sequence[Copy] = ()) -> None:
        """Queue the copies and the program once, without waiting for them."""
        ...

    def encode(self, compute_pass: Any, program: Program) -> None:
        """Record the program into a caller's own compute pass, which stays open."""
        ...

    async def time(self, shots: Sequence[Shot]) -> Sequence[Span]:
        """Take the shots in order, each as one pass in one submit, and give a span for each."""
        ...

    async def drain(self) -> None:
        """Wait until all submitted work is done."""
        ...

    def release(self, program: Program) -> None:
        """Forget a program's bind groups (its pipelines stay cached). Never fails."""
        ...

    def close(self) -> None:
        """Free what webtune made on the device, and destroy the device where webtune opened it."""
        ...


def is_device(value: object) -> bool:
    """Whether `value` looks like a `Device` of webtune's, rather than a device of its host."""
    return all(callable(getattr(value, name, None)) for name in ("compile_now", "time", "drain"))
