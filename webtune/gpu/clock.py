"""Turns ticks into nanoseconds, judges spans, and finds a clock's step and period.

All of it is arithmetic, shared by native, browser and scripted devices: no clock is read here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from webtune.gpu.base import Clock, Span

COARSEST_WALL_NS = 500_000
"""The coarsest step assumed of a wall clock: a sample of 20 quanta is then 10 ms long."""

ABSURD_NS = 3_600_000_000_000
"""One hour. A longer span of a single launch comes from a broken counter."""

_FAR_ABOVE = 16
"""A smallest step of at most so many divisors is taken for missed steps of a masked clock."""

_PERIOD_TOLERANCE = 0.25
_FASTER_THAN_WALL = 1.5


def ticks_to_ns(begin_ticks: int, end_ticks: int, period_ns: float = 1.0) -> int:
    """The signed time between two readings in ns; `period_ns` is ns per tick.

    The ticks are subtracted as integers first: a double cannot hold a 64-bit reading.
    """
    ticks = end_ticks - begin_ticks
    return ticks if period_ns == 1.0 else round(ticks * period_ns)


def span_fault(span: Span, clock: Clock) -> str | None:
    """Why `span` cannot be true, as a sentence; None when it may be believed.

    A span may exceed its wall time by one quantum, because rounding alone can do that.
    """
    elapsed_ns = span.elapsed_ns
    if span.repeat < 1:
        return f"it covers {span.repeat} executions"
    if elapsed_ns == 0:
        return f"the clock did not advance (its step is {clock.quantum_ns} ns)"
    if elapsed_ns < 0:
        return f"the clock ran backward by {-elapsed_ns} ns"
    if span.wall_ns <= 0:
        return f"the host's clock gave {span.wall_ns} ns for the whole launch"
    if elapsed_ns > span.wall_ns + clock.quantum_ns:
        return f"{elapsed_ns} ns is longer than the {span.wall_ns} ns of wall time around it"
    if elapsed_ns >= ABSURD_NS:
        return f"{elapsed_ns} ns for one launch is absurd"
    return None


def swallowed_by_noise(span: Span, clock: Clock) -> bool:
    """Whether `span` is a difference of wall times that came out at zero or below although the
    host's clock ran as it should."""
    ran = span.repeat >= 1 and 0 < span.launched_ns < ABSURD_NS
    return clock.kind == "wall" and ran and span.elapsed_ns <= 0


def wall_bound(span: Span) -> Span:
    """The upper bound that a difference lost in noise still gives.

    Its executions, N in one launch and 2N in another, took no longer than both launches. That
    includes the launches' overhead, so no candidate gains by it.
    """
    return replace(span, elapsed_ns=max(1, math.ceil(span.launched_ns / 3)))


def estimate_quantum_ticks(readings: Sequence[int]) -> int:
    """The clock's step in ticks, from raw readings in the order taken; 1 when none shows.

    The greatest common divisor of all distances finds a masked or scaled counter exactly, however
    slow the passes between readings are. Where many neighbours are equal and no step comes near
    that divisor, the counter advances more rarely than its unit says, and its smallest step is
    the better answer. Readings of zero are unwritten queries and are left out.
    """
    written = [ticks for ticks in readings if ticks]
    steps = [abs(later - former) for former, later in pairwise(written)]
    moved = [step for step in steps if step]
    if not moved:
        return 1
    divisor = math.gcd(*moved)
    stood_still = len(steps) - len(moved)
    rare = 4 * stood_still >= len(steps) and min(moved) > _FAR_ABOVE * divisor
    return min(moved) if rare else divisor


def quantum_ns(ticks: int, period_ns: float) -> int:
    """A step of `ticks` in whole ns, never below 1."""
    return max(1, round(ticks * period_ns))


def choose_period(ticks: int, wall_ns: int, candidates: Sequence[float]) -> float | None:
    """Which of `candidates` (ns per tick, the likeliest first) agrees with a wall time.

    `ticks` passed during `wall_ns`. The first candidate within 25 % is taken. Where none agrees,
    the first that is merely too slow is taken, since counters of sleeping devices may pause; None
    when every candidate makes the device's clock run faster than the wall's, which cannot be.
    """
    for period_ns in candidates:
        if abs(ticks * period_ns - wall_ns) <= _PERIOD_TOLERANCE * wall_ns:
            return period_ns
    for period_ns in candidates:
        if 0 < ticks * period_ns <= _FASTER_THAN_WALL * wall_ns:
            return period_ns
    return None


def wall_resolution_ns(launches_ns: Sequence[int], step_ns: int = 1) -> int:
    """How finely wall time tells two launches apart, in ns.

    That is the lower quartile of the differences between equal launches in a row, never below the
    host clock's own step `step_ns`. A few launches that the scheduler held up say nothing of the
    others, and every sample is made as long as this asks for: hence the quartile, and at most half
    a millisecond beyond the step.
    """
    jumps = sorted(abs(b - a) for a, b in pairwise(launches_ns))
    quiet_ns = jumps[len(jumps) // 4] if jumps else 1
    return max(1, step_ns, min(quiet_ns, COARSEST_WALL_NS))
