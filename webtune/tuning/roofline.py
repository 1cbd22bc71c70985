"""Finds the device's peaks by tuning the probes like any other kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from webtune.errors import NoValidKernel
from webtune.kernel.arguments import Buffer
from webtune.measure.progress_events import JoinedEvents
from webtune.tuning.context import TuneOptions
from webtune.tuning.peaks import Peaks
from webtune.tuning.probes import Probe, walk
from webtune.tuning.scheduler import Scheduler

Empty = Callable[[int, str], Buffer]
"""A zeroed buffer of so many elements of a dtype."""


async def find_peaks(scheduler: Scheduler, empty: Empty, options: TuneOptions) -> Peaks:
    """The peaks of the scheduler's device: remembered ones unless `options.fresh`, else measured.
    The listener of `options` gets the events of all tunes as those of one.

    Raises `NoValidKernel` where a probe cannot be timed, and what tuning raises.
    """
    peaks = None if options.fresh else scheduler.limits.known_peaks()
    if peaks is None:
        joined = None if options.progress is None else JoinedEvents(options.progress)
        steps = walk(scheduler.context.device.limits)
        probe = next(steps)
        while peaks is None:
            time_ns = await _time(scheduler, probe, empty, replace(options, progress=joined))
            if joined is not None:
                joined.next(len(probe[0].candidates))
            try:
                probe = steps.send(time_ns)
            except StopIteration as end:
                peaks = end.value
    scheduler.limits.peaks = peaks
    return peaks


async def _time(scheduler: Scheduler, probe: Probe, empty: Empty, options: TuneOptions) -> int:
    """The least time of a probe's fastest candidate in ns."""
    kernel, shapes = probe
    args = [empty(elements, dtype) for dtype, elements in shapes]
    try:
        call = scheduler.reader.read(kernel, args)
        found = await scheduler.decide(call, options)
        if found.decision.winner is None or found.decision.winner.time_ns is None:
            # It was decided without being measured, or the decision of a pick is gone.
            found = await scheduler.decide(call, replace(options, fresh=True))
    finally:
        for buffer in args:
            buffer.destroy()
    winner = found.decision.winner
    if winner is None or winner.least_ns is None:
        raise NoValidKernel(f"{kernel.name} could not be timed on this device", {})
    return winner.least_ns
