"""Spans of launches in a page: by timestamps where granted, else by N against 2N executions.

Submits wait for one another, so that a page keeps drawing, and what was timed while the page was
hidden is timed again: browsers starve hidden pages.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any

from webtune.gpu.base import Binding, Clock, Copy, Dispatch, Handle, Shot, Span
from webtune.gpu.browser.javascript import pyodide_module
from webtune.gpu.browser.link import Link
from webtune.gpu.browser.programs import Programs, program_number
from webtune.gpu.clock import (
    estimate_quantum_ticks,
    quantum_ns,
    ticks_to_ns,
    wall_resolution_ns,
)

MAX_SHOTS = 512
"""Shots that one query set holds; more are taken in parts. Metal allows few sets: one is kept."""

_NS_PER_MS = 1_000_000
_TIMER_STEP_MS = (0.1, 0.005)
"""What `performance.now` may be off by: without and with cross-origin isolation."""
_PROBE_REPEATS = (1, 1, 2, 3, 5, 8, 13, 21)
_PROBE = """@group(0) @binding(0) var<storage, read_write> probe: array<u32>;
@compute @workgroup_size(1) fn main() {
  var n = probe[0];
  for (var i = 0u; i < 64u; i++) { n = n * 1664525u + 1013904223u; }
  probe[0] = n;
}"""


def flat_copies(copies: Sequence[Copy]) -> list[Any]:
    """Source, target and size of each copy, one after the other, as the engine takes them."""
    return [part for copy in copies for part in (copy.source, copy.target, copy.nbytes)]


class Timer:
    """Takes shots in order, one batch at a time."""

    def __init__(self, link: Link, *, stamps: bool) -> None:
        self._link = link
        self._engine = link.engine
        self._shoot = link.engine.shoot
        self._turn = asyncio.Lock()
        self._timer_step_ms = _TIMER_STEP_MS[bool(pyodide_module("js").crossOriginIsolated)]
        self.clock = Clock("timestamp" if stamps else "wall", 1)

    async def take(self, shots: Sequence[Shot]) -> list[Span]:
        """A span for each shot."""
        take = self._stamped if self.clock.kind == "timestamp" else self._walled
        spans: list[Span] = []
        async with self._turn:
            for start in range(0, len(shots), MAX_SHOTS):
                spans.extend(await take(shots[start : start + MAX_SHOTS]))
        return spans

    async def find_quantum(self, programs: Programs, scratch: Handle) -> None:
        """Look at the clock's steps once, with a trivial kernel in passes of several lengths."""
        bindings = (Binding(0, "storage", scratch, 4),)
        probe = await programs.build([Dispatch(_PROBE, "main", (), bindings, (1, 1, 1))])
        shot = Shot(probe)
        if self.clock.kind == "timestamp":
            for slot, repeat in enumerate(_PROBE_REPEATS):
                await self._take(shot, repeat, slot)
            ticks = list(await self._ticks(len(_PROBE_REPEATS)))
            step_ns = quantum_ns(estimate_quantum_ticks(ticks), self.clock.period_ns)
        else:
            walls_ns = [(await self._take(shot, 1, 0))[0] for _ in _PROBE_REPEATS]
            step_ns = wall_resolution_ns(walls_ns, math.ceil(self._timer_step_ms * _NS_PER_MS))
        self.clock = Clock(self.clock.kind, step_ns)
        probe.release()

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
        self._link.check()
        return (await self._link.fetch(self._engine.startResolve(count), 16 * count)).cast("Q")

    async def _walled(self, shots: Sequence[Shot]) -> list[Span]:
        """The difference between 2N and N executions: what a submit costs by itself cancels."""
        spans = []
        for shot in shots:
            once_ns, _ = await self._take(shot, shot.repeat, 0, apart=True)
            twice_ns, whole_ns = await self._take(shot, 2 * shot.repeat, 0, apart=True)
            launched_ns = once_ns + twice_ns
            spans.append(Span(twice_ns - once_ns, shot.repeat, whole_ns, launched_ns))
        await self._link.drain()
        return spans

    async def _take(
        self, shot: Shot, repeat: int, slot: int, *, apart: bool = False
    ) -> tuple[int, int]:
        """Submit one pass and wait for it; ns of wall time of the pass and of all with it, never
        too few. With `apart`, what comes before is done before the pass is submitted. A page that
        was hidden meanwhile voids it: it is taken again once the page is seen."""
        while True:
            self._link.check()
            await self._until_visible()
            hides = self._engine.hides()
            began_ns = time.perf_counter_ns()
            before = flat_copies(shot.before)
            evict = 0 if shot.evict is None else program_number(shot.evict)
            if apart and (before or evict):
                if before:
                    self._link.call(self._engine.copy, *before)
                if evict:
                    self._link.call(self._engine.submit, evict)
                await self._link.drain()
                before, evict = [], 0
            program = program_number(shot.program)
            took_ms = self._link.number(await self._shoot(program, repeat, slot, evict, *before))
            if self._engine.hides() == hides:
                took_ns = math.ceil((took_ms + self._timer_step_ms) * _NS_PER_MS)
                return took_ns, max(took_ns, time.perf_counter_ns() - began_ns)

    async def _until_visible(self) -> None:
        while self._engine.hides() < 0:
            await self._engine.shown()
            self._link.check()
