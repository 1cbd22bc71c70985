"""A GPU that a test scripts: its times, its clock's faults and its failures are given, and its
time is virtual, so that an hour of measuring takes no time and every run is the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webtune.errors import ArgumentError, DeviceLost, DeviceTimeout, LaunchError, UsageError
from webtune.gpu.base import Clock, Copy, Dispatch, Identity, Shot, Span
from webtune.testing.memory import ScriptedBuffer, ScriptedMemory
from webtune.testing.script import (
    LIMITS,
    Duration,
    Effect,
    Faults,
    Pace,
    ScriptedAdapter,
    ScriptedClock,
    duration_ns,
    matching,
    named,
)


@dataclass(eq=False)
class ScriptedProgram:
    """Dispatches that a scripted GPU accepted. `launches` counts its launches."""

    label: str
    dispatches: tuple[Dispatch, ...]
    launches: int = 0
    released: bool = False
    failure: str | None = None


class ScriptedDevice(ScriptedMemory):
    """A `Device` whose every answer is given beforehand.

    - `durations`: maps a program's label (the candidate's name), or a part of it, to its time; or
      a function of its first dispatch. Programs without one take the default of `pace`.
    - `effect`: what each dispatch does to its buffers; by default nothing.
    - `awaiting`: whether methods suspend, as a browser's do.
    """

    timeout_s: float = 30.0

    def __init__(
        self,
        durations: Mapping[str, Duration] | Callable[[Dispatch], Duration] | None = None,
        *,
        pace: Pace | None = None,
        clock: ScriptedClock | None = None,
        faults: Faults | None = None,
        effect: Effect | None = None,
        adapter: ScriptedAdapter | None = None,
        awaiting: bool = False,
    ) -> None:
        super().__init__()
        adapter = adapter or ScriptedAdapter()
        self._durations = durations if durations is not None else {}
        self._pace = pace or Pace()
        self._clock = clock or ScriptedClock()
        self.faults = faults or Faults()
        self._effect = effect
        self._awaiting = awaiting
        self.features = adapter.features
        self.limits = {**LIMITS, **adapter.limits}
        facts = (("device", adapter.label), ("features", str(sorted(adapter.features))))
        self.identity = Identity(adapter.label, facts)
        self.now_ns = 1_000_000_000
        """Virtual time."""
        self.compiled: list[ScriptedProgram] = []
        """All programs made, in order."""
        self.submits: list[str] = []
        """Labels of all launches, in order."""
        self.shots: list[Shot] = []
        """All timed launches, in order."""
        self._random = random.Random(self._pace.seed)
        self._timeout: DeviceTimeout | None = None

    @property
    def clock(self) -> Clock:
        """What the device says of its clock."""
        return self._clock.clock

    async def read(self, handle: ScriptedBuffer, nbytes: int) -> memoryview:
        """The first bytes of a buffer, as a copy."""
        await self.drain()
        self._ensure_holds(handle, nbytes)
        return memoryview(bytes(handle.data[:nbytes]))

    async def compile(self, dispatches: Sequence[Dispatch]) -> ScriptedProgram:
        """Accept dispatches. Raises `LaunchError` where the script refuses them."""
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
        program = ScriptedProgram(dispatches[0].label, tuple(dispatches))
        self._ensure_bound(program)
        self.compiled.append(program)
        return program

    def submit(self, program: Any, before: Sequence[Copy] = ()) -> None:
        """Run a program once, after the copies."""
        self._launch(program)
        self.copy(before)
        self.now_ns += self._pace.launch_ns
        self._run(program, 1)

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
        taken = [(self.now_ns, self._shoot(shot)) for shot in shots]
        self._answer()
        self.now_ns += self._pace.latency_ns
        return [replace(span, wall_ns=self.now_ns - began_ns) for began_ns, span in taken]

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
        self.buffers.clear()
        self.lost = self.lost or "it was destroyed by its owner"

    def lose(self, why: str = "scripted loss") -> None:
        """Lose the device now."""
        self.lost = why

    async def _suspend(self) -> None:
        if self._awaiting:
            await asyncio.sleep(0)

    def _ensure_bound(self, program: ScriptedProgram) -> None:
        for dispatch in program.dispatches:
            for binding in dispatch.bindings:
                self._ensure_holds(binding.handle, binding.nbytes)

    def _launch(self, program: ScriptedProgram) -> None:
        """Take a launch on, unless the script refuses it."""
        self._alive()
        if program.released:
            raise UsageError(f"{program.label} was released; compile it again")
        self._ensure_bound(program)
        self.submits.append(program.label)
        number, label = len(self.submits), program.label
        if named(self.faults.kill, label) or self.faults.lose_at == number:
            self.lost = f"scripted loss at launch {number}"
            raise DeviceLost(self.lost)
        message = matching(self.faults.launch, label)
        if message is not None:
            raise LaunchError(message)
        if named(self.faults.hang, label):
            self._timeout = DeviceTimeout(f"{label} did not come back within {self.timeout_s:g} s")

    def _answer(self) -> None:
        """Raise what became of a program that hangs."""
        timeout, self._timeout = self._timeout, None
        if timeout is not None:
            self.now_ns += round(self.timeout_s * 1e9)
            if not self.faults.recovers:
                self.lost = str(timeout)
            raise timeout

    def _shoot(self, shot: Shot) -> Span:
        program: Any = shot.program
        evict: Any = shot.evict
        self._launch(program)
        self.shots.append(shot)
        if evict is not None:
            self._run(evict, 1)
        self.copy(shot.before)
        self.now_ns += self._pace.launch_ns
        if self._clock.kind == "wall":
            launched_ns = -self.now_ns
            once_ns = self._span_by_wall(program, shot.repeat)
            twice_ns = self._span_by_wall(program, 2 * shot.repeat)
            return Span(twice_ns - once_ns, shot.repeat, 0, launched_ns + self.now_ns)
        # The phase of a stamp within its quantum is chance.
        self.now_ns += self._random.randrange(max(1, self._clock.quantum_ns))
        begin_ns = self.now_ns
        self._run(program, shot.repeat)
        return Span(self._clock.span_ns(begin_ns, self.now_ns, len(self.shots)), shot.repeat, 0)

    def _span_by_wall(self, program: ScriptedProgram, repeat: int) -> int:
        begin_ns = self.now_ns
        jitter_ns = abs(self._random.gauss(0.0, self._clock.jitter_ns))
        self._run(program, repeat)
        self.now_ns += self._pace.latency_ns + round(jitter_ns)
        return self._clock.span_ns(begin_ns, self.now_ns, len(self.shots))

    def _run(self, program: ScriptedProgram, repeat: int) -> None:
        """Apply a program's effects, and let the time that it takes go by."""
        program.launches += 1
        if self._effect is not None and not named(self.faults.hang, program.label):
            for dispatch in program.dispatches:
                wrong = named(self.faults.wrong, program.label)
                _apply(self._effect, dispatch, repeat, wrong=wrong)
        if callable(self._durations):
            given: Any = self._durations(program.dispatches[0])
        else:
            given = matching(self._durations, program.label)
        if given is None:
            given = self._pace.default_ns
        took_ns = float(duration_ns(given, program.launches - 1, self.now_ns))
        if self._pace.noise:
            took_ns *= self._random.lognormvariate(0.0, self._pace.noise)
        took_ns *= self._pace.speed(self.now_ns)
        cold_ns = self._pace.cold_ns if program.launches == 1 else 0
        self.now_ns += max(1, round(took_ns * repeat)) + cold_ns


def _apply(effect: Effect, dispatch: Dispatch, repeat: int, *, wrong: bool) -> None:
    """Change a dispatch's buffers as its effect does; `wrong` spoils what it may write."""
    bindings = sorted(dispatch.bindings, key=lambda binding: binding.index)
    views = [memoryview(b.handle.data)[: b.nbytes] for b in bindings]
    for _ in range(min(repeat, 2)):  # more would change values alone, and take time
        effect(views, dispatch)
    if wrong:
        for binding, view in zip(bindings, views, strict=True):
            if binding.kind == "storage":
                # The high byte too: of 0.0 a low one alone makes next to nothing.
                view[0] ^= 0x55
                view[3] ^= 0x41
