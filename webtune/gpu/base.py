"""What a device must do for webtune. Native, browser and scripted devices obey the same contract.

Methods that may have to wait are `async`. A blocking device waits inside them and never suspends,
so `webtune.strategies.drive.complete` can run them without an event loop; a browser device awaits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Handle = Any
"""A device's own buffer (`wgpu.GPUBuffer`, a JS `GPUBuffer`, a scripted one). Opaque elsewhere."""

_COPY_SRC = 4


def can_be_read(handle: Handle) -> bool:
    """Whether a buffer may be copied from, by its WebGPU usage where it tells one: asked before,
    since a page hears of a refused copy too late to say whose it was."""
    usage = getattr(handle, "usage", None)
    return usage is None or bool(int(usage) & _COPY_SRC)


@dataclass(frozen=True, slots=True)
class Clock:
    """How spans are taken. `kind` is "timestamp" or "wall". `quantum_ns` is the smallest step
    seen between two readings when the device opened; `period_ns` is ns per tick."""

    kind: str
    quantum_ns: int
    period_ns: float = 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Which hardware and driver this is. Equal identities share picks; others never do.

    `facts` holds what tells one from another (vendor, architecture, device, driver, backend,
    implementation and its version, granted features, granted limits, subgroup sizes …), all as
    text. `label` is for people.
    """

    label: str
    facts: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """20 hex digits over the facts."""
        text = json.dumps(sorted(self.facts), separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Binding:
    """One entry of bind group 0. `kind` is "storage", "read-only-storage" or "uniform"."""

    index: int
    kind: str
    handle: Handle
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """One compute dispatch, complete: what to compile, what to bind, how many workgroups.

    `constants` are the override constants by name. `source` is WGSL.
    """

    source: str
    entry: str
    constants: tuple[tuple[str, float | int | bool], ...]
    bindings: tuple[Binding, ...]
    workgroups: tuple[int, int, int]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """A whole-buffer copy on the device."""

    source: Handle
    target: Handle
    nbytes: int


class Program(Protocol):
    """A compiled sequence of dispatches, ready to encode. Made by `Device.compile` only."""

    @property
    def label(self) -> str: ...

    @property
    def failure(self) -> str | None:
        """Why the device refused it, where that is only known after `compile_now` returned."""
        ...


@dataclass(frozen=True, slots=True)
class Shot:
    """One timed launch: `before` copies and the `evict` program run first, in the same submit
    but outside the timed span; then `program` runs `repeat` times inside one compute pass."""

    program: Program
    repeat: int = 1
    before: tuple[Copy, ...] = ()
    evict: Program | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """What the clock said about one shot. `elapsed_ns` covers `repeat` executions and may be
    anything (zero, negative, absurd): the bench judges it, not the device. `wall_ns` is an upper
    bound by the host's clock: from before the shot was submitted until its result was there.
    `launched_ns` is of a wall clock: its two launches together, of N and of 2N executions, without
    what was done before each."""

    elapsed_ns: int
    repeat: int
    wall_ns: int
    launched_ns: int = 0


class Device(Protocol):
    """A WebGPU device. Everything raised is a webtune error, chained from the cause.

    `LaunchError` where the device refuses work (compile, validation), `DeviceLost` where it is
    gone, `DeviceTimeout` where work did not come back.
    """

    @property
    def identity(self) -> Identity: ...
    @property
    def clock(self) -> Clock: ...
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
        and target; as uniform too when `uniform`."""
        ...

    def adopt(self, raw: Any) -> int | None:
        """The size in bytes of a caller's own buffer object of this host, or None where `raw` is
        not one. Raises `ArgumentError` when its usage flags do not allow storage or uniform."""
        ...

    def write(self, handle: Handle, data: memoryview, offset_bytes: int = 0) -> None:
        """Queue `data` (C-contiguous bytes) into a buffer."""
        ...

    async def read(self, handle: Handle, nbytes: int) -> memoryview:
        """The first `nbytes` of a buffer, after all that was submitted before."""
        ...

    def copy(self, copies: Sequence[Copy]) -> None:
        """Queue whole-buffer copies in one submit."""
        ...

    def destroy_buffer(self, handle: Handle) -> None:
        """Free a buffer made by `create_buffer`. Never fails."""
        ...

    async def compile(self, dispatches: Sequence[Dispatch]) -> Program:
        """Pipelines and bind groups, cached by content. `LaunchError` with the compiler's message
        and line when anything is refused."""
        ...

    def compile_now(self, dispatches: Sequence[Dispatch]) -> Program:
        """The same without waiting, for launches. A blocking device raises `LaunchError`; a browser
        device may learn of a refusal later and then sets the program's `failure`."""
        ...

    def submit(self, program: Program, before: Sequence[Copy] = ()) -> None:
        """Queue the copies and the program once; returns at once."""
        ...

    def encode(self, compute_pass: Any, program: Program) -> None:
        """Record the program into a caller's own compute pass."""
        ...

    async def time(self, shots: Sequence[Shot]) -> Sequence[Span]:
        """Take the shots in order, each as one pass in one submit; resolve them together."""
        ...

    async def drain(self) -> None:
        """Wait until all submitted work is done. `DeviceLost`, `DeviceTimeout`."""
        ...

    def release(self, program: Program) -> None:
        """Forget a program's bind groups (its pipelines stay cached). Never fails."""
        ...

    def close(self) -> None:
        """Free what webtune made on the device; destroy it only when webtune opened it."""
        ...
