"""Progress for people: a bar on a terminal, plain lines elsewhere, never on standard output.

A program passes its own callable as `progress=` instead; it gets the same events.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from webtune.measure.progress_events import ProgressEvent
from webtune.report.format import counted, duration
from webtune.tuner import Tuner
from webtune.tuning.peaks import Peaks
from webtune.tuning.probes import most_candidates

Listener = Callable[[ProgressEvent], None]
_LINES_EVERY_S = 5.0


class Tally:
    """What the events of one tune add up to."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.launches = 0
        self.failed = 0
        self.best_ns: int | None = None
        self._met: set[int] = set()

    @property
    def met(self) -> int:
        """Candidates that ran or failed so far."""
        return len(self._met)

    def add(self, event: ProgressEvent) -> None:
        """Take one event in."""
        self.launches = max(self.launches, event.launches)
        if event.kind in ("ran", "sampled", "failed"):
            self._met.add(event.candidate)
        self.failed += event.kind == "failed"
        quicker = self.best_ns is None or (event.duration_ns or 0) < self.best_ns
        if event.kind == "sampled" and event.duration_ns and quicker:
            self.best_ns = event.duration_ns

    def text(self) -> str:
        """`12/48 tried, 96 launches, 3 out, best 1.234 ms`."""
        parts = [f"{self.met}/{self.total} tried", counted(self.launches, "launch")]
        if self.failed:
            parts.append(f"{self.failed} out")
        if self.best_ns is not None:
            parts.append(f"best {duration(self.best_ns)}")
        return ", ".join(parts)


@contextmanager
def show_progress(
    title: str, total: int, *, quiet: bool = False, stream: TextIO | None = None
) -> Iterator[Listener | None]:
    """Show how a tune of `total` candidates goes: gives what to pass as its `progress=`.

    It is shown on `stream`, by default standard error: a bar on a terminal where rich is
    installed, else a line now and then. With `quiet` nothing is shown, and None is given.
    """
    stream = stream or sys.stderr
    bar = None if quiet or not stream.isatty() else _bar(stream)
    if bar is None:
        yield None if quiet else _Lines(title, total, stream)
        return
    tally = Tally(total)
    with bar:
        task = bar.add_task(title, total=total, tally="compiling")

        def listen(event: ProgressEvent) -> None:
            tally.add(event)
            bar.update(task, completed=tally.met, tally=tally.text())

        yield listen


def peaks_with_progress(tuner: Tuner, *, quiet: bool = False) -> Peaks:
    """The device's peaks. Where they have to be measured, that is shown. Raises what
    `Tuner.peaks` does."""
    total = most_candidates(tuner.device.limits)
    known = tuner.known_peaks() is not None
    with show_progress("roofline", total, quiet=quiet or known) as progress:
        return tuner.peaks(progress=progress)


class _Lines:
    """A line when a tune begins and one now and then, fit for a log."""

    def __init__(self, title: str, total: int, stream: TextIO) -> None:
        self._title, self._tally, self._stream = title, Tally(total), stream
        self._said_s: float | None = None

    def __call__(self, event: ProgressEvent) -> None:
        self._tally.add(event)
        now_s = time.monotonic()
        if self._said_s is None:
            text = f"tuning {counted(self._tally.total, 'candidate')}"
        elif now_s - self._said_s >= _LINES_EVERY_S:
            text = self._tally.text()
        else:
            return
        self._said_s = now_s
        print(f"{self._title}: {text}", file=self._stream, flush=True)


def _bar(stream: TextIO) -> Any:
    """A bar of rich's that shows a task's `tally`; None where rich is not installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[tally]}"),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
    )
