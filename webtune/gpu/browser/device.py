"""A device behind `navigator.gpu` as a webtune device: only numbers and texts cross, and handles
are the page's own buffers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from webtune.errors import ArgumentError
from webtune.gpu.base import (
    COPY_DST,
    COPY_SRC,
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
from webtune.gpu.browser.javascript import pyodide_module
from webtune.gpu.browser.link import Link
from webtune.gpu.browser.programs import BrowserProgram, Programs, program_number
from webtune.gpu.browser.timing import MAX_SHOTS, Timer, flat_copies


class BrowserDevice:
    """webtune's view of a JS `GPUDevice`. `open_device` makes one.

    `owned` says that webtune opened it and destroys it on `close`.
    """

    def __init__(
        self, js_device: Any, identity: Identity, *, owned: bool, timeout_s: float = 30.0
    ) -> None:
        self.js_device = js_device
        self.owned = owned
        self.timeout_s = timeout_s
        self.identity = identity
        self.features = frozenset(str(name) for name in js_device.features)
        stamps = "timestamp-query" in self.features
        self._link = Link(js_device, 2 * MAX_SHOTS if stamps else 0, timeout_s)
        self._engine = self._link.engine
        self._submit = self._engine.submit
        self.limits: Mapping[str, int] = MappingProxyType(json.loads(self._engine.limits()))
        self._programs = Programs(self._link, self.limits["maxComputeWorkgroupsPerDimension"])
        self._timer = Timer(self._link, stamps=stamps)

    @property
    def clock(self) -> Clock:
        return self._timer.clock

    @property
    def lost(self) -> str | None:
        return self._link.lost

    def counts(self) -> dict[str, int]:
        """How many objects live on JavaScript's side, by kind: to find leaks."""
        counted: dict[str, int] = json.loads(self._engine.counts())
        return counted

    def hide(self, hidden: bool) -> None:
        """Tell a device in a worker whether its page is hidden, which a worker cannot see."""
        self._engine.hide(hidden)

    # ---- buffers ---------------------------------------------------------------------------

    def create_buffer(self, nbytes: int, *, uniform: bool = False, label: str = "") -> Handle:
        self._link.check()
        size_bytes, most = padded_bytes(nbytes), self.limits["maxBufferSize"]
        if size_bytes > most:
            raise ArgumentError(
                f"a buffer of {size_bytes} bytes is more than the device's maxBufferSize of {most}"
            )
        usage = STORAGE | COPY_SRC | COPY_DST | (UNIFORM if uniform else 0)
        return self._engine.createBuffer(size_bytes, usage, label)

    def adopt(self, raw: Any) -> int | None:
        js_proxy = pyodide_module("pyodide.ffi").JsProxy
        if not isinstance(raw, js_proxy) or raw.constructor.name != "GPUBuffer":
            return None
        check_bindable(int(raw.usage))
        return int(raw.size)

    def write(self, handle: Handle, data: memoryview, offset_bytes: int = 0) -> None:
        self._link.check()
        check_write(int(handle.size), data.nbytes, offset_bytes)
        # Straight from Python's memory, save for a rest that is no whole word.
        flat = data.cast("B") if data.format != "B" or data.ndim != 1 else data
        whole = len(flat) // 4 * 4
        if whole:
            self._engine.write(handle, offset_bytes, flat[:whole])
        if whole < len(flat):
            rest = bytes(flat[whole:]).ljust(4, b"\0")
            self._engine.write(handle, offset_bytes + whole, memoryview(rest))

    async def read(self, handle: Handle, nbytes: int) -> memoryview:
        self._link.check()
        if nbytes == 0:
            return memoryview(b"")
        span_bytes = padded_bytes(nbytes)
        check_read(int(handle.size), span_bytes)
        data = await self._link.fetch(self._engine.startRead(handle, span_bytes), span_bytes)
        return data[:nbytes]

    def copy(self, copies: Sequence[Copy]) -> None:
        self._link.check()
        if copies:
            self._link.call(self._engine.copy, *flat_copies(copies))

    def destroy_buffer(self, handle: Handle) -> None:
        self._engine.destroyBuffer(handle)

    # ---- programs --------------------------------------------------------------------------

    async def compile(self, dispatches: Sequence[Dispatch]) -> Program:
        return await self._programs.build(dispatches)

    def compile_now(self, dispatches: Sequence[Dispatch]) -> Program:
        return self._programs.build_now(dispatches)

    def submit(self, program: Program, before: Sequence[Copy] = ()) -> None:
        self._link.check()
        self._link.call(self._submit, program_number(program), *flat_copies(before))

    def encode(self, compute_pass: Any, program: Program) -> None:
        self._link.check()
        if not hasattr(compute_pass, "dispatchWorkgroups"):
            kind = type(compute_pass).__name__
            raise ArgumentError(f"compute_pass is of type {kind}; pass a GPUComputePassEncoder")
        self._link.call(self._engine.encode, compute_pass, program_number(program))

    def release(self, program: Program) -> None:
        if isinstance(program, BrowserProgram):
            program.release()

    # ---- timing ----------------------------------------------------------------------------

    async def time(self, shots: Sequence[Shot]) -> Sequence[Span]:
        return await self._timer.take(shots)

    async def drain(self) -> None:
        await self._link.drain()

    def close(self) -> None:
        self._link.close(destroy=self.owned)

    async def _find_quantum(self) -> None:
        scratch = self.create_buffer(4, label="webtune clock probe")
        try:
            await self._timer.find_quantum(self._programs, scratch)
        finally:
            self.destroy_buffer(scratch)


async def open_device(
    js_device: Any, identity: Identity, *, owned: bool, timeout_s: float = 30.0
) -> BrowserDevice:
    """A device whose clock was looked at. Raises what the device raises meanwhile."""
    device = BrowserDevice(js_device, identity, owned=owned, timeout_s=timeout_s)
    try:
        await device._find_quantum()
    except BaseException:
        device.close()
        raise
    return device
