"""Walk an application once without measuring, compile what it reaches together, then tune it.

Every key is collected once, also one that is reached inside another key's candidate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Any

from webtune.errors import LaunchError, UsageError, WebtuneError
from webtune.gpu.base import Dispatch
from webtune.measure.bench import Joined, ProgressEvent
from webtune.report.format import counted
from webtune.report.report import TuneReport
from webtune.strategies import get as get_strategy
from webtune.strategies.drive import complete
from webtune.tuner import Tuner
from webtune.tuning.call import Place, Problem
from webtune.tuning.pick_cache import Compiled, LookUp, Miss
from webtune.tuning.programs import Recording

__all__ = ["Gather", "GatherState", "Gathered", "gather"]

Listener = Callable[[ProgressEvent], None]
KeyDone = Callable[[int, int, "Gathered"], None]


class GatherState(StrEnum):
    """How a collected key settled."""

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
    """One key that the application reached. `nested` is true when another key's candidate
    reached it first."""

    problem: Problem
    nested: bool = False
    state: GatherState = GatherState.COLLECTED
    report: TuneReport | None = None
    error: Exception | None = None
    compile_failures: dict[str, str] = field(default_factory=dict)
    compiled: bool = False
    _recorded: list[Recording] = field(default_factory=list, repr=False)
    _waiting: list[Callable[[], None]] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        """The set's name."""
        return self.problem.kernel.name

    @property
    def key(self) -> str:
        """The key as canonical JSON."""
        return self.problem.address.key

    def __repr__(self) -> str:
        nested = ", reached inside another" if self.nested else ""
        why = f" ({str(self.error).partition(chr(10))[0]})" if self.error is not None else ""
        return f"<Gathered {self.name} {self.key}: {self.state}{why}{nested}>"

    async def settled(self) -> TuneReport:
        """Wait until this key is decided, and how. Raises what its tune raised."""
        if self.state is GatherState.COLLECTED:
            import asyncio

            # Natively the tune may run in another thread than the loop that waits here.
            loop, ready = asyncio.get_running_loop(), asyncio.Event()

            def wake() -> None:
                loop.call_soon_threadsafe(ready.set)

            self._waiting.append(wake)
            await ready.wait()
        if self.error is not None:
            raise self.error
        if self.report is None:
            raise UsageError(f"{self.name} {self.key} was collected and never tuned")
        return self.report

    def _settle(self, state: GatherState) -> None:
        self.state = state
        for wake in self._waiting:
            wake()
        self._waiting.clear()


class Gather:
    """Collects keys while it stands as a context manager; afterwards compiles and tunes them."""

    def __init__(self, tuner: Tuner, *, launch: bool = False) -> None:
        self._tuner = tuner
        self.launch = launch
        self._entries: dict[Place, Gathered] = {}
        self._depth = 0

    def __repr__(self) -> str:
        states = Counter(str(entry.state) for entry in self._entries.values())
        told = ", ".join(f"{count} {state}" for state, count in states.items()) or "nothing yet"
        label = self._tuner.device.identity.label
        return f"<Gather of {counted(len(self), 'key')} on {label}: {told}>"

    def __enter__(self) -> Gather:
        self._tuner.begin_gathering(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tuner.end_gathering(self)

    def __iter__(self) -> Iterator[Gathered]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    # -- collecting (called by the tuner) ---------------------------------------------------

    def reach(self, problem: Problem) -> LookUp:
        """The tuner was asked for this problem while gathering."""
        tuner = self._tuner
        state = problem.cache.queue(
            problem.place,
            device=tuner.device_token,
            candidates=len(problem.kernel.candidates),
            stored=lambda: tuner.stored_index(problem),
        )
        if problem.place in self._entries:
            return state
        entry = Gathered(problem, nested=self._depth > 0)
        if isinstance(state, Miss):
            self._depth += 1
            try:
                entry._recorded = self._record(problem)
            finally:
                self._depth -= 1
        elif not tuner.is_pending(problem):
            entry.state = GatherState.KNOWN
            entry.report = tuner.explain(problem.kernel, *problem.args)
        # After its inner keys, which are to be tuned first.
        self._entries[problem.place] = entry
        return Compiled() if isinstance(state, Miss) else state

    def _record(self, problem: Problem) -> list[Recording]:
        recorded = []
        for one in problem.kernel.candidates:
            try:
                recorded.append(self._tuner.record_candidate(one, problem.args))
            except Exception:
                continue  # the tune will say why
        return recorded

    # -- compiling --------------------------------------------------------------------------

    def compile(self) -> int:
        """Compile every candidate of every collected key, several at a time; how many. A refusal
        is kept in the entry's `compile_failures` and met again by the tune."""
        return complete(self.compile_async())

    async def compile_async(self) -> int:
        """The same, awaiting."""
        work = [
            (entry, recorded)
            for entry in self._entries.values()
            for recorded in ([] if entry.compiled else entry._recorded)
        ]
        device = self._tuner.device

        async def one(entry: Gathered, recorded: Recording) -> None:
            try:
                device.release(await device.compile(recorded.dispatches))
            except LaunchError as error:
                entry.compile_failures[_label(recorded.dispatches)] = str(error)

        limit = self._tuner.config.usable_parallelism
        await self._tuner.host.together(
            [partial(one, entry, recorded) for entry, recorded in work], limit
        )
        for entry in self._entries.values():
            entry.compiled = True
        # An inner key is tuned on scratch memory of the outer candidates that run it.
        self.free(inner=False)
        return len(work)

    def free(self, *, inner: bool = True) -> None:
        """Give back scratch memory: all, or what no collected inner key lies in. `tune` ends with
        it; a gatherer that only compiles keeps what its inner keys need until it is called."""
        for entry in self._entries.values():
            kept = [] if inner else [each for each in entry._recorded if each.nested]
            for recorded in entry._recorded:
                if recorded not in kept:
                    recorded.free()
            entry._recorded = kept

    # -- tuning -----------------------------------------------------------------------------

    @property
    def candidates(self) -> int:
        """How many candidates the keys have that wait to be tuned: the length of one bar."""
        return sum(len(entry.problem.kernel.candidates) for entry in self._waiting())

    def tune(
        self, progress: KeyDone | None = None, *, listen: Listener | None = None, **options: Any
    ) -> list[Gathered]:
        """Compile, then tune what is collected, inner keys first. A key that fails does not stop
        the others. `progress(done, total, entry)` is called after each key; `listen` gets the
        events of all tunes as those of one tune of `candidates` candidates, so that one bar
        (`webtune.progress.shown`) shows them. `strategy=` and `fresh=` as in `Tuner.tune`."""
        return complete(self.tune_async(progress, listen=listen, **options))

    async def tune_async(
        self, progress: KeyDone | None = None, *, listen: Listener | None = None, **options: Any
    ) -> list[Gathered]:
        """The same, awaiting."""
        if self._tuner.gathering is self:
            raise UsageError("leave the gather block before tuning what it collected")
        if options.get("strategy") is not None:
            get_strategy(options["strategy"])
        await self.compile_async()
        try:
            await self._tune_all(progress, listen, options)
        finally:
            self.free()
        return list(self._entries.values())

    def _waiting(self) -> list[Gathered]:
        return [e for e in self._entries.values() if e.state is GatherState.COLLECTED]

    async def _tune_all(
        self, progress: KeyDone | None, listen: Listener | None, options: dict[str, Any]
    ) -> None:
        waiting = self._waiting()
        joined = Joined(listen) if listen is not None else None
        for done, entry in enumerate(waiting, 1):
            problem = entry.problem
            try:
                entry.report = await self._tuner.decide(problem, progress=joined, **options)
            except Exception as error:
                entry.error = error
                entry._settle(GatherState.FAILED)
                if not isinstance(error, WebtuneError):
                    raise
            else:
                kept = self._tuner.is_persisted(problem)
                entry._settle(GatherState.PERSISTED if kept else GatherState.MEASURED)
            if joined is not None:
                joined.next(len(problem.kernel.candidates))
            if progress is not None:
                progress(done, len(waiting), entry)


def _label(dispatches: Sequence[Dispatch]) -> str:
    return dispatches[0].label if dispatches else ""


def gather(tuner: Tuner, *, launch: bool = False) -> Gather:
    """Collect every key that the block reaches, without measuring:

        with webtune.gather(tuner) as g:
            application()
        g.tune()

    With `launch` the kernels run too, each with the pick that is known or the first candidate
    that serves; without it, `run` and `record` only look.
    """
    return Gather(tuner, launch=launch)
