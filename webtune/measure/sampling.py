"""Samples of a round, interleaved: spans that cannot be believed are taken again, and a failure is
pinned on the candidate that caused it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webtune.errors import DeviceTimeout, LaunchError
from webtune.gpu.base import Span
from webtune.gpu.clock import span_fault, swallowed_by_noise, wall_bound
from webtune.measure.bench_context import BenchContext, PendingReading, failure_of, not_believed

_MOST_LAUNCHES = 64
_CHUNK_NS = 200_000_000
"""A chunk of a round has at most so many launches and about so much device time: between chunks
the host may pause."""
_RETAKES, _WALL_RETAKES = 1, 3


class ScheduledLaunch(NamedTuple):
    """One launch to make for a request, and whether its time is a sample."""

    pending: PendingReading
    is_sample: bool


def interleaved(readings: Sequence[PendingReading]) -> Iterator[ScheduledLaunch]:
    """All launches that a round still needs, one of each request in turn, warm-ups first."""
    for is_sample, left in (
        (False, [pending.warmups_left for pending in readings]),
        (True, [pending.samples_left for pending in readings]),
    ):
        for number in range(max(left, default=0)):
            for pending, wanted in zip(readings, left, strict=True):
                if number < wanted:
                    yield ScheduledLaunch(pending, is_sample)


async def take_samples(context: BenchContext, readings: Sequence[PendingReading]) -> None:
    """Take what these requests still need, chunk by chunk. Raises `DeviceLost`."""
    chunk: list[ScheduledLaunch] = []
    cost_ns = 0
    for launch in interleaved(readings):
        chunk.append(launch)
        cost_ns += launch.pending.state.cost_ns
        if cost_ns >= _CHUNK_NS or len(chunk) >= _MOST_LAUNCHES:
            await _take(context, chunk)
            await context.pause()
            chunk, cost_ns = [], 0
    await _take(context, chunk)


async def _take(context: BenchContext, launches: Sequence[ScheduledLaunch]) -> None:
    """Take the launches in order, and again those whose span cannot be believed: once, and up
    to three times by wall clock, where a bad difference is noise and not a fault. What noise
    swallows even then counts as its upper bound, and costs no candidate its place."""
    for left in range(_WALL_RETAKES if context.by_wall else _RETAKES, -1, -1):
        launches = [launch for launch in launches if launch.pending.live]
        if not launches:
            return
        try:
            spans = await context.time([launch.pending for launch in launches])
        except (DeviceTimeout, LaunchError) as error:
            await _blame(context, launches, error)
            return
        launches = [
            launch
            for launch, span in zip(launches, spans, strict=True)
            if not _accept(context, launch, span, last=left == 0)
        ]


async def _blame(
    context: BenchContext,
    launches: Sequence[ScheduledLaunch],
    error: DeviceTimeout | LaunchError,
) -> None:
    """Fail the candidate of these launches; where they are of several, each is taken once more
    by itself, to find out whose fault it is."""
    context.count([launch.pending for launch in launches])
    culprit = launches[0].pending.state
    alone = all(launch.pending.state is culprit for launch in launches)
    if alone:
        context.fail(culprit, failure_of(error))
    if isinstance(error, DeviceTimeout):
        if alone and culprit.candidate is not None:
            context.crash_guard.begin(culprit.candidate.id)
            context.crash_guard.end(culprit.candidate.id, came_back=False)
        await context.recover(error)
    if not alone:
        for launch in launches:
            await _take(context, [launch])


def _accept(context: BenchContext, launch: ScheduledLaunch, span: Span, *, last: bool) -> bool:
    """Use a launch's span, or say that it must be taken again. `last` settles it."""
    state, target, clock = launch.pending.state, context.target, context.device.clock
    if not launch.pending.live or not launch.is_sample:
        return True
    if last and swallowed_by_noise(span, clock):
        span = wall_bound(span)
    fault = span_fault(span, clock)
    if fault is not None:
        if last:
            context.fail(state, not_believed(span, fault))
        elif context.by_wall and state.repeatable:
            state.repeat = target.louder_repeat(span)
        return last
    if span.elapsed_ns < target.floor_ns and state.repeatable:
        repeat = target.next_repeat(span)
        # Too few quanta: its digits are the clock's, not the candidate's.
        blurred = span.elapsed_ns < target.precise_ns and repeat > span.repeat
        state.repeat = max(state.repeat, repeat)
        if blurred and not last:
            return False
    context.sample(launch.pending, span)
    return True
