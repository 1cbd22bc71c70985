"""Tuned kernels inside the candidates of others: an inner key is decided before an outer candidate
is measured, and nobody waits in a circle.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

from webtune.errors import DeviceLost, Reject, WebtuneError
from webtune.kernel.candidates import Candidate
from webtune.kernel.tunable_set import TunableSet
from webtune.tuning.call import CacheKey, Call, CallReader
from webtune.tuning.context import TuneOptions
from webtune.tuning.pick_cache import Hit, LookUp
from webtune.tuning.programs import ProgramCache, Recording
from webtune.tuning.repository import Explained, Repository

_LOCK = threading.Lock()
_WAITS: dict[Hashable, Hashable] = {}
"""Which key's tune waits for which other's, in this process."""


class _Thread(threading.local):
    """The keys whose candidates are being recorded on this thread, outermost first."""

    def __init__(self) -> None:
        self.recording: list[Hashable] = []


_THREAD = _Thread()


class Scheduling(Protocol):
    """What is asked of the scheduler here."""

    reader: CallReader
    programs: ProgramCache
    repository: Repository

    def lookup(self, call: Call) -> LookUp:
        """What memory answers. Starts nothing."""
        ...

    def answer(self, call: Call) -> LookUp:
        """What to run, tuned first where a call may wait."""
        ...

    async def decide(self, call: Call, options: TuneOptions) -> Explained:
        """The decision for a call, known or tuned now."""
        ...


class Inner(NamedTuple):
    """A kernel that a candidate runs: the call, its recorded pick or first serving candidate, and
    whether that is decided."""

    call: Call
    recording: Recording
    decided: bool


class NestedKernels:
    """Records the picks of kernels that are run by candidates of others."""

    def __init__(self, scheduler: Scheduling) -> None:
        self._scheduler = scheduler

    def of(self, outer: Call) -> NestedTunes:
        """The kernels inside the candidates of a call that is being tuned."""
        return NestedTunes(self, self._scheduler, outer)

    def record(self, kernel: TunableSet, *args: Any) -> Recording:
        """The best candidate of a kernel, for a launch. Tunes it first where a call may wait."""
        call = self._scheduler.reader.read(kernel, args)
        with _recorded_once(call):
            state = self._scheduler.answer(call)
            return self._recording(call, state.index if isinstance(state, Hit) else None)

    def record_candidate(self, candidate: Candidate, call: Call) -> Recording:
        """A candidate's dispatches on the arguments of a call. Raises what recording raises."""
        return self._scheduler.programs.record(candidate, call.args, self.record)

    def look(self, kernel: TunableSet, *args: Any) -> Inner:
        """The same as `record` for a tune, starting nothing."""
        scheduler = self._scheduler
        call = scheduler.reader.read(kernel, args)
        state = scheduler.lookup(call)
        pick = state.index if isinstance(state, Hit) else None
        if pick is None:
            pick = 0 if len(kernel.candidates) == 1 else scheduler.repository.pick(call)
        with _recorded_once(call):
            return Inner(call, self._recording(call, pick), pick is not None)

    def _recording(self, call: Call, pick: int | None) -> Recording:
        """A pick, or the first candidate that serves; valid as long as memory says the same."""
        order = range(len(call.kernel.candidates))
        for index in order if pick is None else dict.fromkeys((pick, *order)):
            try:
                recording = self.record_candidate(call.kernel.candidates[index], call)
            except Reject:
                continue
            return recording.valid_while(partial(_unchanged, call, call.pick()))
        raise Reject(f"no candidate of {call.kernel.name} serves these inputs")


class NestedTunes:
    """The kernels that the candidates of one tune run: each is decided before it is timed."""

    def __init__(self, nested: NestedKernels, scheduler: Scheduling, outer: Call) -> None:
        self._nested = nested
        self._scheduler = scheduler
        self._outer = outer
        self._undecided: dict[CacheKey, Call] = {}
        self._failures: dict[CacheKey, WebtuneError] = {}

    def record(self, kernel: TunableSet, *args: Any) -> Recording:
        """A kernel inside a candidate of the tune; noted where it is not decided. Raises what its
        own tune failed with."""
        inner = self._nested.look(kernel, *args)
        failure = self._failures.get(inner.call.cache_key)
        if failure is not None:
            inner.recording.free()
            raise failure
        if not inner.decided:
            self._undecided[inner.call.cache_key] = inner.call
        return inner.recording

    def begin(self) -> None:
        """Another candidate is recorded from now on."""
        self._undecided.clear()

    async def decide(self) -> bool:
        """Decide the kernels that the last candidate runs. True where there were any, so that the
        candidate must be recorded again. Raises `DeviceLost`."""
        waiting, self._undecided = self._undecided, {}
        for key, inner in waiting.items():
            try:
                with _waiting(self._outer, inner):
                    await self._scheduler.decide(inner, TuneOptions())
            except DeviceLost:
                raise
            except WebtuneError as error:
                self._failures[key] = error
        return bool(waiting)


def _unchanged(call: Call, pick: int | None) -> bool:
    return call.pick() == pick


def _identity(call: Call) -> Hashable:
    return id(call.cache), call.cache_key


@contextmanager
def _waiting(outer: Call, inner: Call) -> Iterator[None]:
    """The tune of `outer` waits for that of `inner` meanwhile. Raises `Reject` where `inner`, or
    what it waits for, waits for `outer` already: neither would ever end."""
    waiter = _identity(outer)
    with _LOCK:
        step: Hashable | None = _identity(inner)
        while step is not None and step != waiter:
            step = _WAITS.get(step)
        if step is not None:
            raise Reject(f"it runs {inner.kernel.name}, whose tune waits for this one")
        _WAITS[waiter] = _identity(inner)
    try:
        yield
    finally:
        with _LOCK:
            _WAITS.pop(waiter, None)


@contextmanager
def _recorded_once(call: Call) -> Iterator[None]:
    """A candidate of `call` is being recorded inside another kernel's. Raises `Reject` where it
    runs itself."""
    identity = _identity(call)
    if identity in _THREAD.recording:
        raise Reject(f"it runs {call.kernel.name} inside itself")
    _THREAD.recording.append(identity)
    try:
        yield
    finally:
        _THREAD.recording.pop()
