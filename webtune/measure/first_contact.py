"""The first contact with a candidate: it is compiled, its answer is checked, and calibration finds
how often a sample repeats it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from webtune.errors import DeviceLost, DeviceTimeout, LaunchError
from webtune.gpu.clock import span_fault, swallowed_by_noise
from webtune.measure.bench_context import (
    BenchContext,
    CandidateState,
    PendingReading,
    failure_of,
    not_believed,
)

_MOST_CALIBRATIONS = 10
_MOST_FAULTS = 3


async def compile_all(
    context: BenchContext, states: Sequence[CandidateState], parallel: int
) -> None:
    """Compile candidates, `parallel` at a time. Raises `DeviceLost`."""
    by_index = {state.index: state for state in states}
    waiting = iter([s for s in by_index.values() if s.program is None and s.failure is None])

    async def work() -> None:
        for state in waiting:
            try:
                await _compile(context, state)
            except DeviceTimeout as error:
                context.fail(state, failure_of(error))

    workers = [work() for _ in range(min(parallel, len(states)))]
    for error in await asyncio.gather(*workers, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error


async def _compile(context: BenchContext, state: CandidateState) -> None:
    if state.candidate is not None and state.program is None:
        try:
            state.program = await context.device.compile(state.candidate.dispatches)
        except LaunchError as error:
            context.fail(state, failure_of(error))
        else:
            context.tell("compiled", state)


async def meet(context: BenchContext, pending: PendingReading) -> None:
    """Compile a candidate, check its answer, launch it once untimed, and calibrate it. Raises
    `DeviceLost`."""
    state = pending.state
    state.met = True
    if state.candidate is None or state.failure is not None:
        return
    if context.device.lost is not None:
        raise DeviceLost(f"the device was lost during the tune: {context.device.lost}")
    came_back, begun = True, False
    try:
        await _compile(context, state)
        if pending.live:
            # Not before: compiling takes long, and who ends a process then blames nobody.
            begun = True
            context.crash_guard.begin(state.candidate.id)
            await _check(context, pending)
        if pending.live:
            await _calibrate(context, pending)
    except LaunchError as error:
        context.fail(state, failure_of(error))
    except DeviceTimeout as error:
        came_back = False
        context.count([pending])
        context.fail(state, failure_of(error))
        await context.recover(error)
    except DeviceLost:
        # A device that its owner destroyed or closed says nothing about the candidate.
        lost = (context.device.lost or "").lower()
        came_back = "destroy" in lost or "closed" in lost
        raise
    finally:
        if not came_back and not begun:
            context.crash_guard.begin(state.candidate.id)
        if begun or not came_back:
            context.crash_guard.end(state.candidate.id, came_back=came_back)
    if pending.live:
        context.tell("ran", state)


async def _check(context: BenchContext, pending: PendingReading) -> None:
    state, conditions = pending.state, context.conditions
    if conditions.checker is not None and state.program is not None:
        verify = conditions.checker.verify
        failure = await verify(context.device, conditions.written, state.program, state.name)
        context.count([pending])
        if failure is not None:
            context.fail(state, failure)


async def _calibrate(context: BenchContext, pending: PendingReading) -> None:
    """Launch until a span is long enough. The launch that is counts as a sample when one is
    asked for and the warm-ups are spent; the first dispatch never does."""
    state, target, clock = pending.state, context.target, context.device.clock
    faults = 0
    for _ in range(_MOST_CALIBRATIONS):
        first = pending.launches == 0
        warm = pending.launches >= pending.request.warmups
        [span] = await context.time([pending])
        fault = span_fault(span, clock)
        faults += fault is not None and not first
        repeat = target.next_repeat(span) if state.repeatable else 1
        at_most = repeat <= span.repeat
        if fault is None and not first and (span.elapsed_ns >= target.floor_ns or at_most):
            if state.repeatable:
                state.repeat = target.settled_repeat(span)
            state.cost_ns = span.wall_ns * state.repeat // span.repeat
            if warm and pending.samples_left:
                context.sample(pending, span)
            return
        if fault is not None and faults >= _MOST_FAULTS and (span.elapsed_ns > 0 or at_most):
            break
        # An overlong span says nothing about how short the kernel is.
        state.repeat = repeat if fault is None or span.elapsed_ns <= 0 else span.repeat
    if swallowed_by_noise(span, clock):
        state.repeat, state.cost_ns = span.repeat, span.wall_ns
    else:
        context.fail(state, not_believed(span, fault or "its spans stay too short"))
