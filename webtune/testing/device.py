"""A GPU that a test scripts: its times, its clock's faults and its failures are given, and its
time is virtual, so that an hour of measuring takes no time and every run is the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webtune.errors import (
    ArgumentError,
    DeviceLost,
    DeviceTimeout,
    Failure,
    LaunchError,
    UsageError,
)
from webtune.gpu.base import Clock, Copy, Dispatch, Identity, Shot, Span
from webtune.strategies import drive
from webtune.strategies.model import Outcome, Reading, Round, StrategyRun
from webtune.testing.script import Faults, ScriptedClock, matching, named

__all__ = [
    "Duration",
    "Effect",
    "Faults",
    "Script",
    "ScriptedBuffer",
    "ScriptedClock",
    "ScriptedDevice",
    "ScriptedProgram",
]

Duration = int | Sequence[int] | Callable[[int, int], int]
"""Time of one execution in ns: the same always, or a list that is taken in order and starts again,
or a function of (launch number of this program, virtual time in ns)."""

Effect = Callable[[Sequence[memoryview], Dispatch], None]
"""What a dispatch does to its buffers, given as writable bytes in the order of their bindings."""

FEATURES = frozenset({"timestamp-query", "shader-f16", "subgroups"})
LIMITS: Mapping[str, int] = {
    "maxBufferSize": 1 << 28,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxStorageBufferBindingSize": 1 << 27,
    "maxUniformBufferBindingSize": 65536,
}


class ScriptedBuffer:
    """A buffer of the scripted GPU: `data` is its content."""

    def __init__(self, nbytes: int, label: str = "") -> None:
        self.data = bytearray(-(-max(nbytes, 1) // 4) * 4)
        self.label = label
        self.destroyed = False

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return len(self.data)


@dataclass(eq=False)
class ScriptedProgram:
    """Dispatches that a scripted GPU accepted. `launches` counts its launches."""

    label: str
    dispatches: tuple[Dispatch, ...]
    launches: int = 0
    released: bool = False
    failure: str | None = None


class ScriptedDevice:
    """A `Device` whose every answer is given beforehand.

    `durations` maps a program's label (the candidate's name), or a part of it, to its time; or it
    is a function of the first dispatch. Others take `default_ns`. `effects` maps labels to what
    dispatches do to buffers; `effect` serves all others. `speed` is a function of virtual time in
    ns that every duration is multiplied by (a GPU that heats up). `noise` is the relative spread
    of times, drawn with `seed`. `cold_ns` is added to a program's first launch. With `awaiting`
    the methods suspend, as a browser's do.
    """

    timeout_s: float = 30.0

    def __init__(
        self,
        durations: Mapping[str, Duration] | Callable[[Dispatch], Duration] | None = None,
        *,
        default_ns: int = 100_000,
        clock: ScriptedClock | None = None,
        faults: Faults | None = None,
        effects: Mapping[str, Effect] | None = None,
        effect: Effect | None = None,
        speed: Callable[[int], float] | None = None,
        noise: float = 0.0,
        cold_ns: int = 0,
        launch_ns: int = 20_000,
        latency_ns: int = 200_000,
        seed: int = 0,
        awaiting: bool = False,
        features: frozenset[str] = FEATURES,
        limits: Mapping[str, int] | None = None,
        label: str = "scripted GPU",
        timeout_s: float = 30.0,
    ) -> None:
        self._durations = durations if durations is not None else {}
        self._default_ns = default_ns
        self.script = clock or ScriptedClock()
        self.faults = faults or Faults()
        self._effects = dict(effects or {})
        self._effect = effect
        self._speed = speed
        self._noise = noise
        self._cold_ns = cold_ns
        self._launch_ns = launch_ns
        self._latency_ns = latency_ns
        self._random = random.Random(seed)
        self.awaiting = awaiting
        self.features = features
        self.limits = {**LIMITS, **(limits or {})}
        self.identity = Identity(label, (("device", label), ("features", str(sorted(features)))))
        self.timeout_s = timeout_s
        self.lost: str | None = None
        self.now_ns = 1_000_000_000
        """Virtual time. Tests may set it forward."""
        self.compiled: list[ScriptedProgram] = []
        """All programs made, in order."""
        self.submits: list[str] = []
        """Labels of all launches, in order."""
        self.shots: list[Shot] = []
        """All timed launches, in order."""
        self.buffers: list[ScriptedBuffer] = []
        """Live buffers that `create_buffer` made."""
        self.closed = False
        self._stuck: DeviceTimeout | None = None
        self._spans = 0

    @property
    def clock(self) -> Clock:
        """What the device says of its clock."""
        return self.script.clock

    # -- buffers ------------------------------------------------------------------------------

    def create_buffer(
        self, nbytes: int, *, uniform: bool = False, label: str = ""
    ) -> ScriptedBuffer:
        """A zeroed buffer."""
        self._alive()
        buffer = ScriptedBuffer(nbytes, label)
        self.buffers.append(buffer)
        return buffer

    def adopt(self, raw: Any) -> int | None:
        """A `ScriptedBuffer` made elsewhere is a caller's own."""
        if not isinstance(raw, ScriptedBuffer):
            return None
        if raw.destroyed:
            raise ArgumentError("this buffer was destroyed; pass a live one")
        return raw.size

    def write(self, handle: ScriptedBuffer, data: memoryview, offset_bytes: int = 0) -> None:
        """Put bytes into a buffer."""
        self._alive()
        raw = memoryview(data).cast("B")
        if offset_bytes + raw.nbytes > handle.size:
            raise ArgumentError(
                f"{raw.nbytes} bytes at {offset_bytes} do not fit a buffer of {handle.size}"
            )
        self._whole(handle, offset_bytes + raw.nbytes)
        handle.data[offset_bytes : offset_bytes + raw.nbytes] = raw

    async def read(self, handle: ScriptedBuffer, nbytes: int) -> memoryview:
        """The first bytes of a buffer, as a copy."""
        await self.drain()
        self._whole(handle, nbytes)
        return memoryview(bytes(handle.data[:nbytes]))

    def copy(self, copies: Sequence[Copy]) -> None:
        """Whole-buffer copies."""
        self._alive()
        for one in copies:
            self._whole(one.source, one.nbytes)
            self._whole(one.target, one.nbytes)
            one.target.data[: one.nbytes] = one.source.data[: one.nbytes]

    def destroy_buffer(self, handle: ScriptedBuffer) -> None:
        """Free a buffer; its content is gone."""
        if handle in self.buffers:
            self.buffers.remove(handle)
        handle.destroyed = True

    # -- programs -----------------------------------------------------------------------------

    async def compile(self, dispatches: Sequence[Dispatch]) -> ScriptedProgram:
        """Accept dispatches, unless the script refuses them."""
        await self._suspend()
        return self.compile_now(dispatches)

    def compile_now(self, dispatches: Sequence[Dispatch]) -> ScriptedProgram:
        """The same without waiting."""
        self._alive()
        if not dispatches:
            raise LaunchError("there is nothing to compile: the candidate recorded no dispatch")
        for dispatch in dispatches:
            message = matching(self.faults.compile, dispatch.label)
            if message is not None:
                raise LaunchError(message)
            for binding in dispatch.bindings:
                self._whole(binding.handle, binding.nbytes)
        program = ScriptedProgram(dispatches[0].label, tuple(dispatches))
        self.compiled.append(program)
        return program

    def submit(self, program: Any, before: Sequence[Copy] = ()) -> None:
        """Run a program once."""
        self._launch(program)
        self.copy(before)
        self.now_ns += self._launch_ns + self._run(program, 1)

    def encode(self, compute_pass: Any, program: Any) -> None:
        """Add the program to a list that stands for the caller's pass, and run it."""
        if not isinstance(compute_pass, list):
            raise ArgumentError(
                f"compute_pass is of type {type(compute_pass).__name__}; pass a list"
            )
        compute_pass.append(program)
        self.submit(program)

    async def time(self, shots: Sequence[Shot]) -> list[Span]:
        """Run shots one after the other and say what the clock said."""
        await self._suspend()
        taken = []
        for shot in shots:
            taken.append(self._shoot(shot))
        self._answer()
        self.now_ns += self._latency_ns
        return [replace(span, wall_ns=self.now_ns - started) for span, started in taken]

    async def drain(self) -> None:
        """Wait for what was submitted."""
        await self._suspend()
        self._alive()
        self._answer()

    def release(self, program: Any) -> None:
        """Forget a program."""
        program.released = True

    def close(self) -> None:
        """Free what was made; the device counts as destroyed."""
        self.closed = True
        self.buffers.clear()
        self.lost = self.lost or "it was destroyed by its owner"

    def lose(self, why: str = "scripted loss") -> None:
        """Lose the device now."""
        self.lost = why

    # -- what happens inside --------------------------------------------------------------------

    def _shoot(self, shot: Shot) -> tuple[Span, int]:
        started_ns = self.now_ns
        program: Any = shot.program
        self._launch(program)
        self.shots.append(shot)
        if shot.evict is not None:
            self._run_any(shot.evict, 1)
        self.copy(shot.before)
        self.now_ns += self._launch_ns
        self._spans += 1
        if self.script.kind == "wall":
            spans = []
            launched_ns = -self.now_ns
            for repeat in (shot.repeat, 2 * shot.repeat):
                begin_ns = self.now_ns
                jitter_ns = abs(self._random.gauss(0.0, self.script.jitter_ns))
                self.now_ns += self._run(program, repeat) + self._latency_ns + round(jitter_ns)
                spans.append(self.script.span_ns(begin_ns, self.now_ns, self._spans))
            elapsed_ns = spans[1] - spans[0]
            launched_ns += self.now_ns
        else:
            launched_ns = 0
            # The phase of a stamp within its quantum is chance.
            self.now_ns += self._random.randrange(max(1, self.script.quantum_ns))
            begin_ns = self.now_ns
            self.now_ns += self._run(program, shot.repeat)
            elapsed_ns = self.script.span_ns(begin_ns, self.now_ns, self._spans)
        return Span(elapsed_ns, shot.repeat, 0, launched_ns), started_ns

    def _launch(self, program: ScriptedProgram) -> None:
        self._alive()
        if program.released:
            raise UsageError(f"{program.label} was released; compile it again")
        for dispatch in program.dispatches:
            for binding in dispatch.bindings:
                self._whole(binding.handle, binding.nbytes)
        self.submits.append(program.label)
        lose_at = self.faults.lose_at
        if named(self.faults.kill, program.label) or lose_at == len(self.submits):
            self.lost = f"scripted loss at launch {len(self.submits)}"
            raise DeviceLost(self.lost)
        message = matching(self.faults.launch, program.label)
        if message is not None:
            raise LaunchError(message)
        if named(self.faults.hang, program.label):
            self._stuck = DeviceTimeout(
                f"{program.label} did not come back within {self.timeout_s:g} s"
            )

    def _answer(self) -> None:
        stuck, self._stuck = self._stuck, None
        if stuck is not None:
            self.now_ns += round(self.timeout_s * 1e9)
            if not self.faults.recovers:
                self.lost = str(stuck)
            raise stuck

    def _run_any(self, program: Any, repeat: int) -> None:
        self.now_ns += self._run(program, repeat)

    def _run(self, program: ScriptedProgram, repeat: int) -> int:
        """Apply the effects and give the time in ns."""
        program.launches += 1
        if not named(self.faults.hang, program.label):
            self._apply(program, repeat)
        given = (
            self._durations(program.dispatches[0])
            if callable(self._durations)
            else matching(self._durations, program.label)
        )
        each_ns = float(_taken(given, self._default_ns, program.launches - 1, self.now_ns))
        if self._noise:
            each_ns *= self._random.lognormvariate(0.0, self._noise)
        if self._speed is not None:
            each_ns *= self._speed(self.now_ns)
        cold_ns = self._cold_ns if program.launches == 1 else 0
        return max(1, round(each_ns * repeat)) + cold_ns

    def _apply(self, program: ScriptedProgram, repeat: int) -> None:
        for dispatch in program.dispatches:
            effect = matching(self._effects, dispatch.label) or self._effect
            if effect is None:
                continue
            bound = sorted(dispatch.bindings, key=lambda binding: binding.index)
            views = [memoryview(b.handle.data)[: b.nbytes] for b in bound]
            for _ in range(min(repeat, 2)):  # more would change values alone, and take time
                effect(views, dispatch)
            if named(self.faults.wrong, program.label):
                for binding, view in zip(bound, views, strict=True):
                    if binding.kind == "storage":
                        # The high byte too: of 0.0 a low one alone makes next to nothing.
                        view[0] ^= 0x55
                        view[3] ^= 0x41

    def _alive(self) -> None:
        if self.lost is not None:
            raise DeviceLost(self.lost)

    def _whole(self, handle: ScriptedBuffer, nbytes: int) -> None:
        if handle.destroyed:
            raise LaunchError(f"buffer {handle.label!r} was destroyed")
        if nbytes > handle.size:
            raise LaunchError(f"{nbytes} bytes asked of a buffer of {handle.size}")

    async def _suspend(self) -> None:
        if self.awaiting:
            await asyncio.sleep(0)


class Script:
    """Answers rounds from lists of integers: a bench for tests of strategies.

    `durations` has each candidate's times in ns: constant, a list taken in order from the first
    (starting again at its end), or a function of (sample number, launches so far). Warm-ups
    cost a launch and no time. `failures` maps a candidate to its failure, from its sample number
    `fail_at` on (0: at once).
    """

    def __init__(
        self,
        durations: Sequence[Duration],
        *,
        failures: Mapping[int, Failure] | None = None,
        fail_at: Mapping[int, int] | None = None,
    ) -> None:
        self._durations = list(durations)
        self._failures = dict(failures or {})
        self._fail_at = dict(fail_at or {})
        self.rounds: list[Round] = []
        """Every round that was asked for."""
        self.taken: list[list[int]] = [[] for _ in self._durations]
        """Every sample given, by candidate."""
        self.launches = 0
        """All launches, warm-ups included."""

    def measure(self, wanted: Round) -> list[Reading]:
        """Answer one round, samples interleaved."""
        self.rounds.append(wanted)
        given: list[list[int]] = [[] for _ in wanted.requests]
        failed: dict[int, Failure] = {}
        spent = [request.warmups for request in wanted.requests]
        self.launches += sum(spent)
        for turn in range(max((request.samples for request in wanted.requests), default=0)):
            for place, request in enumerate(wanted.requests):
                if turn < request.samples and place not in failed:
                    failure = self._sample(request.candidate, given[place])
                    spent[place] += 1
                    if failure is not None:
                        failed[place] = failure
        return [
            Reading(request.candidate, tuple(given[place]), failed.get(place), spent[place])
            for place, request in enumerate(wanted.requests)
        ]

    async def measure_async(self, wanted: Round) -> list[Reading]:
        """The same, awaited."""
        return self.measure(wanted)

    def run(self, strategy: StrategyRun) -> Outcome:
        """Drive a strategy to its end."""
        return drive.blocking(strategy, self.measure)

    def _sample(self, candidate: int, given: list[int]) -> Failure | None:
        self.launches += 1
        taken = self.taken[candidate]
        if candidate in self._failures and len(taken) >= self._fail_at.get(candidate, 0):
            return self._failures[candidate]
        duration_ns = max(1, _taken(self._durations[candidate], 1, len(taken), self.launches))
        taken.append(duration_ns)
        given.append(duration_ns)
        return None


def _taken(given: Any, default_ns: int, number: int, now: int) -> int:
    if given is None:
        return default_ns
    if callable(given):
        return int(given(number, now))
    if isinstance(given, int):
        return given
    return int(given[number % len(given)])
