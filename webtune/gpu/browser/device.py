"""A device behind `navigator.gpu`: numbers and texts cross, handles are the page's own buffers.

A span counts only once its mapping succeeded and the device was not lost meanwhile: after a loss
`onSubmittedWorkDone` resolves as if the work had been done. Submits wait for one another, so that
a page keeps drawing, and what was timed while the page was hidden is timed again.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from webtune.errors import (
    ArgumentError,
    DeviceLost,
    DeviceTimeout,
    HostUnavailable,
    LaunchError,
    UsageError,
)
from webtune.gpu.base import Binding, Clock, Copy, Dispatch, Handle, Identity, Program, Shot, Span
from webtune.gpu.browser.plumbing import PLUMBING
from webtune.gpu.clock import (
    estimate_quantum_ticks,
    quantum_ns,
    ticks_to_ns,
    wall_resolution_ns,
)

__all__ = ["BrowserDevice", "BrowserProgram", "open_device", "pyodide_module"]

_STORAGE, _UNIFORM, _COPY_SRC, _COPY_DST = 0x80, 0x40, 0x04, 0x08
_MAX_SHOTS = 512
"""Shots that one query set holds; more are taken in parts. Metal allows few sets: one is kept."""
_CLOSED = "closed: its tuner destroyed it or let it go"
_NS_PER_MS = 1_000_000
_TIMER_STEP_MS = (0.1, 0.005)
"""What `performance.now` may be off by: without and with cross-origin isolation."""
_PROBE = """@group(0) @binding(0) var<storage, read_write> probe: array<u32>;
@compute @workgroup_size(1) fn main() {
  var n = probe[0];
  for (var i = 0u; i < 64u; i++) { n = n * 1664525u + 1013904223u; }
  probe[0] = n;
}"""


def pyodide_module(name: str) -> Any:
    """A module of Pyodide's alone (`js`, `pyodide.ffi` …). Raises `HostUnavailable` elsewhere."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise HostUnavailable(
            "webtune's browser device needs Pyodide in a web page or a worker; "
            "in other Pythons use webtune.open_tuner()"
        ) from error


class BrowserProgram:
    """A compiled sequence of dispatches; lives in JavaScript under a number."""

    __slots__ = ("_engine", "label", "number", "released")

    def __init__(self, engine: Any, number: int, label: str) -> None:
        self._engine = engine
        self.number = number
        self.label = label
        self.released = False

    @property
    def failure(self) -> str | None:
        """Why the device refused it, where that became known after `compile_now`."""
        return str(self._engine.failure(self.number)) or None


class BrowserDevice:
    """A JS `GPUDevice` as a webtune `Device`. Made by `open_device`."""

    def __init__(
        self, js_device: Any, identity: Identity, *, owned: bool, timeout_s: float = 30.0
    ) -> None:
        run_js = pyodide_module("pyodide.code").run_js
        self._js_exception: type[Exception] = pyodide_module("pyodide.ffi").JsException
        self.js_device = js_device
        self._identity = identity
        self._owned = owned
        self._timeout_s = timeout_s
        self._features = frozenset(str(name) for name in js_device.features)
        self._limits = _limits(js_device.limits)
        stamps = "timestamp-query" in self._features
        queries = 2 * _MAX_SHOTS if stamps else 0
        self._engine = run_js(PLUMBING)(js_device, queries, round(timeout_s * 1000))
        self._shoot = self._engine.shoot
        self._submit = self._engine.submit
        self._texts: dict[str, int] = {}
        self._clock = Clock("timestamp" if stamps else "wall", 1)
        self._timer_step_ms = _TIMER_STEP_MS[bool(pyodide_module("js").crossOriginIsolated)]
        self._closed = False
        self._timing = asyncio.Lock()

    # ---- what it is ------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        """Which hardware, browser and grants these are."""
        return self._identity

    @property
    def clock(self) -> Clock:
        """Timestamps in ns where granted, else the host's wall clock."""
        return self._clock

    @property
    def features(self) -> frozenset[str]:
        """Granted features."""
        return self._features

    @property
    def limits(self) -> Mapping[str, int]:
        """Granted limits."""
        return self._limits

    @property
    def timeout_s(self) -> float:
        """How long submitted work may take."""
        return self._timeout_s

    @property
    def lost(self) -> str | None:
        """Why the device is gone, or None."""
        if self._closed:
            return _CLOSED
        return str(self._engine.lost()) or None

    def counts(self) -> dict[str, int]:
        """How many objects live on JavaScript's side, by kind: to find leaks."""
        counted: dict[str, int] = json.loads(self._engine.counts())
        return counted

    def _check(self) -> None:
        reason = self.lost
        if reason is not None:
            raise DeviceLost(f"the WebGPU device is lost ({reason}); open a new tuner")

    def _answer(self, value: Any) -> float:
        """The number that JavaScript answered with, or its failure raised."""
        if isinstance(value, str):
            self._fail(value)
        return float(value)

    def _fail(self, text: str) -> NoReturn:
        kind, _, message = text.partition(":")
        if kind == "timeout":
            told = f"work did not come back in {float(message) / 1000:g} s"
            self._engine.lose(f"abandoned: {told}")
            raise DeviceTimeout(f"submitted {told}; the device is given up")
        if kind == "lost" or self.lost is not None:
            raise DeviceLost(f"the WebGPU device is lost ({message}); open a new tuner")
        raise LaunchError(message)

    def _call(self, function: Any, *args: Any) -> Any:
        """Call JavaScript; what it throws at once is a launch that the device refuses."""
        try:
            answer = function(*args)
        except self._js_exception as error:
            raise LaunchError(str(error)) from error
        if isinstance(answer, str) and answer:
            self._fail(answer)
        return answer

    # ---- buffers ---------------------------------------------------------------------------

    def create_buffer(self, nbytes: int, *, uniform: bool = False, label: str = "") -> Handle:
        """A zeroed `GPUBuffer`. Raises `ArgumentError` past the device's `maxBufferSize`."""
        self._check()
        size = max(4, math.ceil(nbytes / 4) * 4)
        most = self._limits.get("maxBufferSize", size)
        if size > most:
            raise ArgumentError(
                f"a buffer of {size} bytes is more than the device's maxBufferSize of {most}"
            )
        usage = _STORAGE | _COPY_SRC | _COPY_DST | (_UNIFORM if uniform else 0)
        return self._engine.createBuffer(size, usage, label)

    def adopt(self, raw: Any) -> int | None:
        """The size of a caller's JS `GPUBuffer`, None for anything else."""
        js_proxy = pyodide_module("pyodide.ffi").JsProxy
        if not isinstance(raw, js_proxy) or raw.constructor.name != "GPUBuffer":
            return None
        if not int(raw.usage) & (_STORAGE | _UNIFORM):
            raise ArgumentError(
                "the GPUBuffer can be bound neither as storage nor as uniform: create it with "
                "GPUBufferUsage.STORAGE | COPY_SRC | COPY_DST"
            )
        return int(raw.size)

    def write(self, handle: Handle, data: memoryview, offset_bytes: int = 0) -> None:
        """Queue bytes into a buffer, straight from Python's memory."""
        self._check()
        flat = data.cast("B") if data.format != "B" or data.ndim != 1 else data
        if offset_bytes % 4 or offset_bytes + len(flat) > int(handle.size):
            raise ArgumentError(
                f"{len(flat)} bytes at {offset_bytes} do not fit a buffer of {int(handle.size)} "
                "bytes; offsets are multiples of 4"
            )
        whole = len(flat) // 4 * 4
        if whole:
            self._engine.write(handle, offset_bytes, flat[:whole])
        if whole < len(flat):
            if offset_bytes + len(flat) <= int(handle.size) - 4:
                raise ArgumentError("only the end of a buffer can be written in less than 4 bytes")
            rest = bytes(flat[whole:]).ljust(4, b"\0")
            self._engine.write(handle, offset_bytes + whole, memoryview(rest))

    async def read(self, handle: Handle, nbytes: int) -> memoryview:
        """The first bytes of a buffer, after all that was submitted before."""
        self._check()
        if nbytes <= 0:
            return memoryview(bytearray())
        if nbytes > int(handle.size):
            raise ArgumentError(
                f"{nbytes} bytes cannot be read from a buffer of {int(handle.size)} bytes"
            )
        size = math.ceil(nbytes / 4) * 4
        return (await self._fetch(self._engine.startRead(handle, size), size))[:nbytes]

    async def _fetch(self, ticket: int, nbytes: int) -> memoryview:
        """The staged bytes of a ticket; its staging buffer goes whatever happens here."""
        try:
            self._answer(await self._engine.ready(ticket))
            out = bytearray(nbytes)
            self._engine.mapped(ticket).assign_to(out)
            return memoryview(out)
        finally:
            self._engine.end(ticket)

    def copy(self, copies: Sequence[Copy]) -> None:
        """Queue whole-buffer copies in one submit."""
        self._check()
        if copies:
            self._call(self._engine.copy, *_flat(copies))

    def destroy_buffer(self, handle: Handle) -> None:
        """Free a buffer. Never fails."""
        self._engine.destroyBuffer(handle)

    # ---- programs --------------------------------------------------------------------------

    def _spec(self, dispatch: Dispatch) -> dict[str, Any]:
        most = self._limits.get("maxComputeWorkgroupsPerDimension", 65535)
        if max(dispatch.workgroups) > most:
            raise LaunchError(
                f"workgroups {dispatch.workgroups} exceed the device's "
                f"maxComputeWorkgroupsPerDimension of {most}"
            )
        number = self._texts.get(dispatch.source)
        if number is None:
            number = self._texts[dispatch.source] = int(self._engine.text(dispatch.source))
        return {
            "text": number,
            "entry": dispatch.entry,
            "constants": [[name, _constant(value)] for name, value in dispatch.constants],
            "bindings": [[binding.index, binding.kind] for binding in dispatch.bindings],
            "sizes": [math.ceil(binding.nbytes / 4) * 4 for binding in dispatch.bindings],
            "workgroups": list(dispatch.workgroups),
        }

    def _specs(self, dispatches: Sequence[Dispatch]) -> tuple[str, tuple[Handle, ...]]:
        self._check()
        buffers = tuple(binding.handle for one in dispatches for binding in one.bindings)
        return json.dumps([self._spec(one) for one in dispatches]), buffers

    async def compile(self, dispatches: Sequence[Dispatch]) -> BrowserProgram:
        """Pipelines (made in parallel, each once) and bind groups. `LaunchError` with lines."""
        specs, buffers = self._specs(dispatches)
        number = int(self._answer(await self._engine.compile(specs, *buffers)))
        return BrowserProgram(self._engine, number, _label(dispatches))

    def compile_now(self, dispatches: Sequence[Dispatch]) -> BrowserProgram:
        """The same at once; what the device refuses later shows in the program's `failure`."""
        specs, buffers = self._specs(dispatches)
        number = int(self._call(self._engine.compileNow, specs, *buffers))
        return BrowserProgram(self._engine, number, _label(dispatches))

    def submit(self, program: Program, before: Sequence[Copy] = ()) -> None:
        """Queue the copies and the program once."""
        self._check()
        self._call(self._submit, _number(program), *_flat(before))

    def encode(self, compute_pass: Any, program: Program) -> None:
        """Record the program into a caller's own JS `GPUComputePassEncoder`."""
        self._check()
        if not hasattr(compute_pass, "dispatchWorkgroups"):
            kind = type(compute_pass).__name__
            raise ArgumentError(f"compute_pass is of type {kind}; pass a GPUComputePassEncoder")
        self._call(self._engine.encode, compute_pass, _number(program))

    def release(self, program: Program) -> None:
        """Forget a program's bind groups."""
        if isinstance(program, BrowserProgram) and not program.released:
            program.released = True
            self._engine.release(program.number)

    # ---- timing ----------------------------------------------------------------------------

    async def time(self, shots: Sequence[Shot]) -> Sequence[Span]:
        """One pass and one submit a shot, one after the other; resolved together."""
        spans: list[Span] = []
        async with self._timing:
            for start in range(0, len(shots), _MAX_SHOTS):
                part = shots[start : start + _MAX_SHOTS]
                take = self._stamped if self._clock.kind == "timestamp" else self._walled
                spans.extend(await take(part))
        return spans

    async def _stamped(self, shots: Sequence[Shot]) -> list[Span]:
        walls_ns = []
        for slot, shot in enumerate(shots):
            took_ns, _ = await self._take(shot, shot.repeat, slot)
            walls_ns.append(took_ns)
        ticks = await self._ticks(len(shots))
        return [
            Span(ticks_to_ns(ticks[2 * i], ticks[2 * i + 1]), shot.repeat, walls_ns[i])
            for i, shot in enumerate(shots)
        ]

    async def _ticks(self, count: int) -> memoryview:
        self._check()
        return (await self._fetch(self._engine.startResolve(count), 16 * count)).cast("Q")

    async def _walled(self, shots: Sequence[Shot]) -> list[Span]:
        """The difference between 2N and N executions: what a submit costs by itself cancels."""
        spans = []
        for shot in shots:
            once_ns, _ = await self._take(shot, shot.repeat, 0, apart=True)
            twice_ns, whole_ns = await self._take(shot, 2 * shot.repeat, 0, apart=True)
            launched_ns = once_ns + twice_ns
            spans.append(Span(twice_ns - once_ns, shot.repeat, whole_ns, launched_ns))
        await self.drain()
        return spans

    async def _take(
        self, shot: Shot, repeat: int, slot: int, *, apart: bool = False
    ) -> tuple[int, int]:
        """Submit one pass and wait for it; ns of wall time of the pass and of all with it, never
        too few. With `apart`, what comes before is done before the pass is submitted. A page that
        was hidden meanwhile voids it: it is taken again once the page is seen."""
        while True:
            self._check()
            await self.until_visible()
            hides = self._engine.hides()
            began_ns = time.perf_counter_ns()
            before = _flat(shot.before)
            evict = 0 if shot.evict is None else _number(shot.evict)
            if apart and (before or evict):
                if before:
                    self._call(self._engine.copy, *before)
                if evict:
                    self._call(self._submit, evict)
                await self.drain()
                before, evict = [], 0
            program = _number(shot.program)
            took_ms = self._answer(await self._shoot(program, repeat, slot, evict, *before))
            if self._engine.hides() == hides:
                took_ns = math.ceil((took_ms + self._timer_step_ms) * _NS_PER_MS)
                return took_ns, max(took_ns, time.perf_counter_ns() - began_ns)

    async def until_visible(self) -> None:
        """Wait while the page is hidden: browsers starve hidden pages, so their times lie."""
        while self._engine.hides() < 0:
            await self._engine.shown()
            self._check()

    def hide(self, hidden: bool) -> None:
        """Tell a device in a worker whether its page is hidden, which a worker cannot see."""
        self._engine.hide(hidden)

    async def drain(self) -> None:
        """Wait for all submitted work, by mapping: only that tells of a loss."""
        self._check()
        ticket = self._engine.startDrain()
        try:
            self._answer(await self._engine.ready(ticket))
        finally:
            self._engine.end(ticket)
        self._check()

    async def find_quantum(self) -> None:
        """Look at the clock's steps once, with a trivial kernel in passes of several lengths."""
        scratch = self.create_buffer(4, label="webtune clock probe")
        try:
            probe = await self.compile([Dispatch(_PROBE, "main", (), _probe(scratch), (1, 1, 1))])
            shots = [Shot(probe, repeat) for repeat in (1, 1, 2, 3, 5, 8, 13, 21)]
            if self._clock.kind == "timestamp":
                for slot, shot in enumerate(shots):
                    await self._take(shot, shot.repeat, slot)
                ticks = list(await self._ticks(len(shots)))
                step_ns = quantum_ns(estimate_quantum_ticks(ticks), self._clock.period_ns)
            else:
                walls = [(await self._take(shots[0], 1, 0))[0] for _ in shots]
                step_ns = wall_resolution_ns(walls, math.ceil(self._timer_step_ms * _NS_PER_MS))
            self._clock = Clock(self._clock.kind, step_ns)
            self.release(probe)
        finally:
            self.destroy_buffer(scratch)

    def close(self) -> None:
        """Free what webtune made; destroy the device only where webtune opened it."""
        if self._closed:
            return
        self._engine.lose(_CLOSED)
        self._engine.close(self._owned)
        self._closed = True


async def open_device(
    js_device: Any, identity: Identity, *, owned: bool, timeout_s: float = 30.0
) -> BrowserDevice:
    """A JS `GPUDevice` with its clock looked at. Raises what the device raises."""
    device = BrowserDevice(js_device, identity, owned=owned, timeout_s=timeout_s)
    try:
        await device.find_quantum()
    except BaseException:
        device.close()
        raise
    return device


def _probe(handle: Handle) -> tuple[Any, ...]:
    return (Binding(0, "storage", handle, 4),)


def _label(dispatches: Sequence[Dispatch]) -> str:
    return next((one.label for one in dispatches if one.label), "")


def _number(program: Program) -> int:
    if not isinstance(program, BrowserProgram):
        raise ArgumentError("this program was not compiled by a browser device")
    if program.released:
        raise UsageError(f"the program {program.label!r} was released; compile it again")
    return program.number


def _flat(copies: Sequence[Copy]) -> list[Any]:
    return [part for one in copies for part in (one.source, one.target, one.nbytes)]


def _constant(value: float | int | bool) -> float | int:
    number = int(value) if isinstance(value, bool) else value
    if isinstance(number, float) and not math.isfinite(number):
        raise LaunchError(f"an override constant cannot be {number}")
    return number


def _limits(js_limits: Any) -> dict[str, int]:
    names = pyodide_module("pyodide.code").run_js(
        "limits => { const out = []; for (const name in limits) "
        "if (typeof limits[name] === 'number') out.push(name + '=' + limits[name]);"
        " return out.join(' '); }"
    )
    pairs = (pair.split("=") for pair in str(names(js_limits)).split())
    return {name: int(float(value)) for name, value in pairs}
