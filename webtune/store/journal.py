"""The crash journal: candidates that were started and did not come back. Pure; every store uses it.

Theory of operation. A kernel can hang a GPU, take the driver down, or end the process that launched
it. A tuner that tried such a candidate again at every start would never get past it. So a store
writes a *start* down before a candidate first runs, and strikes it out once the candidate is back.
What is left over tells who was under way when things went wrong.

A start belongs to a *session*: one open store of one process, or one browser tab. `advance` moves
the starts of a journal by one event, after the state table `NEXT`. BEGIN adds a running start. END,
ABANDON and CLOSE touch the running or closed starts of the session they happen in. An END of such a
start is followed by FORGIVE, which touches every start of the candidate, whosever it is. PURGE
touches all starts of a hardware. Nobody tells of the two other events: while a store loads the
starts it finds that the process of one died, or that its tab is gone. Ended starts leave.

Abandoned and died starts bar their candidate at once. Closed ones only count: who closes a tuner
or a tab in the middle of a tune says little about the candidate under way, so it takes
`LOST_STARTS` of them. Each must stand for a closing of its own: a closed start whose candidate
begins again is set apart, under a name that no session has. An abandoned start belongs to nobody,
so no END reaches it, and only a PURGE forgives it. Starts that others run are never forgiven.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from webtune.store.base import Selector, Store

LOST_STARTS = 2
"""So many closed starts of a candidate, with none that came back since, make it a suspect."""

NOBODY = "given up"
"""Stands for the session of an abandoned start."""


State = Enum("State", "RUNNING CLOSED DIED ABANDONED ENDED")
"""What became of a start."""

What = Enum("What", "BEGIN END FORGIVE ABANDON CLOSE PROCESS_DIED TAB_GONE PURGE")
"""What happens to starts."""

NEXT = {
    What.BEGIN: {},
    What.END: {State.RUNNING: State.ENDED, State.CLOSED: State.ENDED},
    What.FORGIVE: {State.CLOSED: State.ENDED, State.DIED: State.ENDED},
    What.ABANDON: {State.RUNNING: State.ABANDONED},
    What.CLOSE: {State.RUNNING: State.CLOSED},
    What.PROCESS_DIED: {State.RUNNING: State.DIED},
    What.TAB_GONE: {State.RUNNING: State.CLOSED},
    What.PURGE: {
        State.CLOSED: State.ENDED, State.DIED: State.ENDED, State.ABANDONED: State.ENDED,
    },
}  # fmt: skip
"""The state after an event; a state that is not named here stays."""

OWN = frozenset({What.BEGIN, What.END, What.ABANDON, What.CLOSE})
"""Events that touch only the starts of the session they happen in."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a candidate on a hardware (its digest), and the session that it belongs to."""

    hardware: str
    candidate: str
    session: str
    state: State = State.RUNNING

    def after(self, what: What) -> Start:
        """This start after an event that touches it."""
        return replace(self, state=NEXT[what].get(self.state, self.state))


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, on which hardware and to which candidate; None stands for all of them."""

    what: What
    hardware: str | None = None
    candidate: str | None = None

    def names(self, start: Start) -> bool:
        """Whether it happens on the hardware and to the candidate of the start."""
        there = self.hardware in (None, start.hardware)
        return there and self.candidate in (None, start.candidate)


def advance(starts: Collection[Start], event: Event, session: str) -> frozenset[Start]:
    """The starts of a journal after an event that happened in this session."""
    named = {start for start in starts if event.names(start)}
    touched = {start for start in named if start.session == session or event.what not in OWN}
    moved = {start.after(event.what) for start in touched}
    rest = frozenset(starts) - touched
    if event.what is What.BEGIN:
        # Closed starts of a candidate leave all at once: their number is a new name every time.
        number = sum(start.state is State.CLOSED for start in named)
        moved = {_renamed(start, State.CLOSED, f"{session}/{number}") for start in moved}
        moved.add(Start(str(event.hardware), str(event.candidate), session))
    elif event.what is What.ABANDON:
        moved = {_renamed(start, State.ABANDONED, NOBODY) for start in moved}
    elif event.what is What.END and touched:
        rest = advance(rest, replace(event, what=What.FORGIVE), session)
    return rest | {start for start in moved if start.state is not State.ENDED}


def _renamed(start: Start, state: State, session: str) -> Start:
    """The start with another session if it has this state, else as it is."""
    return replace(start, session=session) if start.state is state else start


def suspects(starts: Iterable[Start], hardware: str) -> frozenset[str]:
    """Ids of the candidates that are not to be run on this hardware."""
    here = [start for start in starts if start.hardware == hardware]
    barred = {s.candidate for s in here if s.state in (State.ABANDONED, State.DIED)}
    closed = Counter(s.candidate for s in here if s.state is State.CLOSED)
    return frozenset(barred | {name for name, count in closed.items() if count >= LOST_STARTS})


class Journalled(Store):
    """The journal's part of a `Store`, over two methods that load and save its starts.

    Threads and tasks may run one candidate through one store at the same time: its start ends
    when the last of them is back.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # By process too: a child that forked off has its own runs.
        self._runs: Counter[tuple[int, str, str]] = Counter()

    def begin(self, hardware: str, candidate: str) -> None:
        with self._lock:
            self._runs[os.getpid(), hardware, candidate] += 1
            self._note(Event(What.BEGIN, hardware, candidate))

    def end(self, hardware: str, candidate: str) -> None:
        run = (os.getpid(), hardware, candidate)
        with self._lock:
            self._runs[run] -= 1
            if self._runs[run] <= 0:
                del self._runs[run]
                self._note(Event(What.END, hardware, candidate))

    def abandon(self, hardware: str) -> None:
        self._stop(Event(What.ABANDON, hardware))

    def suspects(self, hardware: str) -> frozenset[str]:
        return suspects(self._starts(hardware), hardware)

    def _stop(self, event: Event) -> None:
        """Note an event after which no run is waited for."""
        with self._lock:
            for run in [run for run in self._runs if event.hardware in (None, run[1])]:
                del self._runs[run]
            self._note(event)

    def _forgive(self, selector: Selector) -> None:
        """The journal's part of `purge`."""
        if selector.whole_hardware:
            self._note(Event(What.PURGE, selector.hardware))

    @abstractmethod
    def _note(self, event: Event) -> None:
        """Load the starts, advance them by an event of this store's session, and save them."""

    @abstractmethod
    def _starts(self, hardware: str) -> Collection[Start]:
        """Load the starts of one hardware at least."""
