"""Walk an application once without measuring, compile what it reaches together, then tune it.

Every key is collected once, also one that is reached inside another key's candidate.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Any

from webtune.errors import LaunchError, UsageError, WebtuneError
from webtune.measure.progress_events import JoinedEvents
from webtune.strategies import get as get_strategy
from webtune.strategies.drive import complete
from webtune.tuning.call import CacheKey, Call
from webtune.tuning.context import ProgressListener, TuneOptions
from webtune.tuning.pick_cache import Compiled, Hit, LookUp, Miss
from webtune.tuning.programs import Recording
from webtune.tuning.repository import Explained
from webtune.tuning.scheduler import Scheduler

Report = Any
"""What the tuner tells of a decision: a `webtune.TuneReport`."""
Reporter = Callable[[Call, Explained], Report]
KeyDone = Callable[[int, int, "Gathered"], None]


class GatherState(StrEnum):
    """How far a collected key is."""

    COLLECTED = "collected"
    """It waits to be tuned."""
    KNOWN = "known"
    """Memory or the store had its pick already."""
    MEASURED = "measured"
    """It was tuned, and its pick is in memory."""
    PERSISTED = "persisted"
    """It was tuned, and its pick is in the store."""
    FAILED = "failed"
    """It could not be tuned; `error` says why."""


@dataclass(eq=False)
class Gathered:
    """One key that the application reached.

    `nested` is true when another key's candidate reached it first. `compile_failures` has the
    device's message by the name of a candidate that was refused. `await finished()` for its end.
    """

    call: Call
    nested: bool = False
    state: GatherState = GatherState.COLLECTED
    compile_failures: dict[str, str] = field(default_factory=dict)
    compiled: bool = False
    _recordings: list[Recording] = field(default_factory=list, repr=False)
    _end: Future[Report] = field(default_factory=Future, repr=False)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.call.kernel.name

    @property
    def key(self) -> str:
        """The key as canonical JSON."""
        return self.call.address.key

    @property
    def report(self) -> Report | None:
        """The `TuneReport` of its decision, or None as long as there is none."""
        ended = self._end.done() and self._end.exception() is None
        return self._end.result() if ended else None

    @property
    def error(self) -> BaseException | None:
        """What its tune failed with, or None."""
        return self._end.exception() if self._end.done() else None

    async def finished(self) -> Report:
        """Wait until this key is decided, and how, as a `TuneReport`. Raises what its tune
        raised."""
        # Natively the tune may run in another thread than the loop that waits here.
        return await asyncio.shield(asyncio.wrap_future(self._end))

    def _finish(self, state: GatherState, result: Report | Exception) -> None:
        self.state = state
        if isinstance(result, Exception):
            self._end.set_exception(result)
        else:
            self._end.set_result(result)

    def __repr__(self) -> str:
        nested = ", reached inside another" if self.nested else ""
        why = f" ({str(self.error).partition(chr(10))[0]})" if self.error is not None else ""
        return f"<Gathered {self.name} {self.key}: {self.state}{why}{nested}>"


class Gather:
    """Collects keys while it stands as a context manager; afterwards compiles and tunes them. Made
    by `webtune.gather`."""

    def __init__(self, scheduler: Scheduler, reporter: Reporter, *, launch: bool) -> None:
        self._scheduler = scheduler
        self._reporter = reporter
        self.launch = launch
        self._gathered: dict[CacheKey, Gathered] = {}
        self._depth = 0

    def __repr__(self) -> str:
        states = Counter(str(gathered.state) for gathered in self)
        told = ", ".join(f"{count} {state}" for state, count in states.items()) or "nothing yet"
        label = self._scheduler.context.device.identity.label
        return f"<Gather of {len(self)} key{'s' * (len(self) != 1)} on {label}: {told}>"

    def __enter__(self) -> Gather:
        if self._scheduler.gathering is not None:
            raise UsageError("this tuner is gathering already; leave that block first")
        self._scheduler.gathering = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scheduler.gathering = None

    def __iter__(self) -> Iterator[Gathered]:
        return iter(list(self._gathered.values()))

    def __len__(self) -> int:
        return len(self._gathered)

    # -- collecting (called by the scheduler) -----------------------------------------------

    def reach(self, call: Call) -> LookUp:
        """The tuner was asked for this call while gathering."""
        scheduler = self._scheduler
        state = call.cache.queue(
            call.cache_key,
            device=scheduler.device_token,
            candidates=len(call.kernel.candidates),
            stored=partial(scheduler.repository.pick, call),
        )
        if call.cache_key in self._gathered:
            return state
        gathered = Gathered(call, nested=self._depth > 0)
        if isinstance(state, Miss):
            self._depth += 1
            try:
                gathered._recordings = self._record(call)
            finally:
                self._depth -= 1
        elif isinstance(scheduler.lookup(call), Hit):
            gathered._finish(GatherState.KNOWN, self._reporter(call, scheduler.explain(call)))
        # After its inner keys, which are to be tuned first.
        self._gathered[call.cache_key] = gathered
        return Compiled() if isinstance(state, Miss) else state

    def _record(self, call: Call) -> list[Recording]:
        recordings = []
        for candidate in call.kernel.candidates:
            try:
                recordings.append(self._scheduler.nested.record_candidate(candidate, call))
            except Exception:
                continue  # the tune will say why
        return recordings

    # -- compiling --------------------------------------------------------------------------

    def compile(self) -> int:
        """Compile every candidate of every collected key, several at a time; how many. A refusal
        is kept in the key's `compile_failures` and met again by the tune."""
        return complete(self.compile_async())

    async def compile_async(self) -> int:
        """The same, awaiting."""
        context = self._scheduler.context
        queued = [
            (gathered, recording)
            for gathered in self
            for recording in ([] if gathered.compiled else gathered._recordings)
        ]

        async def compile_one(gathered: Gathered, recording: Recording) -> None:
            try:
                context.device.release(await context.device.compile(recording.dispatches))
            except LaunchError as error:
                gathered.compile_failures[recording.dispatches[0].label] = str(error)

        await context.host.together(
            [partial(compile_one, *item) for item in queued], context.config.usable_parallelism
        )
        for gathered in self:
            gathered.compiled = True
        # An inner key is tuned on scratch memory of the outer candidates that run it.
        self.free(inner=False)
        return len(queued)

    def free(self, *, inner: bool = True) -> None:
        """Give back scratch memory: all, or what no collected inner key lies in. `tune` ends with
        it; a gatherer that only compiles keeps what its inner keys need until it is called."""
        for gathered in self:
            kept = [] if inner else [each for each in gathered._recordings if each.nested]
            for recording in gathered._recordings:
                if recording not in kept:
                    recording.free()
            gathered._recordings = kept

    # -- tuning -----------------------------------------------------------------------------

    @property
    def candidates(self) -> int:
        """How many candidates the keys have that wait to be tuned: the length of one bar."""
        return sum(len(gathered.call.kernel.candidates) for gathered in self._waiting())

    def tune(
        self,
        progress: KeyDone | None = None,
        *,
        listen: ProgressListener | None = None,
        strategy: str | None = None,
        fresh: bool = False,
    ) -> list[Gathered]:
        """Compile, then tune what is collected, inner keys first. A key that fails does not stop
        the others.

        `progress(done, total, gathered)` is called after each key; `listen` gets the events of all
        tunes as those of one tune of `candidates` candidates, so that one bar
        (`webtune.progress.show_progress`) shows them. `strategy` and `fresh` as in `Tuner.tune`.
        """
        return complete(self.tune_async(progress, listen=listen, strategy=strategy, fresh=fresh))

    async def tune_async(
        self,
        progress: KeyDone | None = None,
        *,
        listen: ProgressListener | None = None,
        strategy: str | None = None,
        fresh: bool = False,
    ) -> list[Gathered]:
        """The same, awaiting."""
        if self._scheduler.gathering is self:
            raise UsageError("leave the gather block before tuning what it collected")
        if strategy is not None:
            get_strategy(strategy)
        await self.compile_async()
        joined = None if listen is None else JoinedEvents(listen)
        waiting = self._waiting()
        try:
            for done, gathered in enumerate(waiting, 1):
                await self._tune_one(gathered, TuneOptions(joined, strategy, fresh))
                if joined is not None:
                    joined.next(len(gathered.call.kernel.candidates))
                if progress is not None:
                    progress(done, len(waiting), gathered)
        finally:
            self.free()
        return list(self)

    def _waiting(self) -> list[Gathered]:
        return [each for each in self if each.state is GatherState.COLLECTED]

    async def _tune_one(self, gathered: Gathered, options: TuneOptions) -> None:
        call = gathered.call
        try:
            report = self._reporter(call, await self._scheduler.decide(call, options))
        except Exception as error:
            gathered._finish(GatherState.FAILED, error)
            if not isinstance(error, WebtuneError):
                raise
        else:
            kept = self._scheduler.repository.is_persisted(call)
            gathered._finish(GatherState.PERSISTED if kept else GatherState.MEASURED, report)
