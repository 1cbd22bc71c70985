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

__all__ = ["Tally", "peaks_shown", "shown"]

Listener = Callable[[ProgressEvent], None]
_LINES_EVERY_S = 5.0


class Tally:
    """What the events of one tune add up to."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.launches = 0
        self.failed = 0
        self.best_ns: int | None = None
        self.best_name = ""
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
            self.best_ns, self.best_name = event.duration_ns, event.name

    def text(self) -> str:
        """`12/48 tried, 96 launches, 3 out, best 1.234 ms`."""
        parts = [f"{self.met}/{self.total} tried", counted(self.launches, "launch")]
        if self.failed:
            parts.append(f"{self.failed} out")
        if self.best_ns is not None:
            parts.append(f"best {duration(self.best_ns)}")
        return ", ".join(parts)


@contextmanager
def shown(
    title: str, total: int, *, quiet: bool = False, stream: TextIO | None = None
) -> Iterator[Listener | None]:
    """A listener for one tune of `total` candidates that shows how it goes on `stream` (standard
    error); None when `quiet`."""
    stream = stream or sys.stderr
    if quiet:
        yield None
        return
    tally = Tally(total)
    if stream.isatty():
        bar = _bar(title, tally, stream)
        if bar is not None:
            with bar as listener:
                yield listener
            return
    yield _Lines(title, tally, stream)


def peaks_shown(tuner: Tuner, *, quiet: bool = False) -> Peaks:
    """The device's peaks; where they have to be measured, it is shown how that goes. Raises what
    `tuner.peaks()` does."""
    total = most_candidates(tuner.device.limits)
    known = tuner.known_peaks() is not None
    with shown("roofline", total, quiet=quiet or known) as progress:
        return tuner.peaks(progress=progress)


class _Lines:
    """A line when a tune begins and one now and then: fit for a log."""

    def __init__(self, title: str, tally: Tally, stream: TextIO) -> None:
        self._title, self._tally, self._stream = title, tally, stream
        self._said_s: float | None = None

    def __call__(self, event: ProgressEvent) -> None:
        self._tally.add(event)
        now_s = time.monotonic()
        if self._said_s is None:
            self._say(f"tuning {counted(self._tally.total, 'candidate')}")
        elif now_s - self._said_s >= _LINES_EVERY_S:
            self._say(self._tally.text())
        else:
            return
        self._said_s = now_s

    def _say(self, text: str) -> None:
        print(f"{self._title}: {text}", file=self._stream, flush=True)


def _bar(title: str, tally: Tally, stream: TextIO) -> Any:
    """A context manager that gives a listener and draws with rich; None where rich is missing."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None

    @contextmanager
    def drawn() -> Iterator[Listener]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[tally]}"),
            TimeElapsedColumn(),
        )
        with Bar(*columns, console=Console(file=stream), transient=True) as bar:
            task = bar.add_task(title, total=tally.total, tally="compiling")

            def listen(event: ProgressEvent) -> None:
                tally.add(event)
                bar.update(task, completed=tally.met, tally=tally.text())

            yield listen

    return drawn()
