"""The way through for every host: look up → start → settle → commit. One class, one path.

Nothing here knows whether it runs in a browser: the host says whether a call may wait.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from webtune import log, transfer
from webtune.buffers import Argument, Buffer
from webtune.core.bounds import Bound
from webtune.core.cache import PendingMark
from webtune.core.config import Config
from webtune.core.model import Hit, LookUp, Pending
from webtune.core.peaks import Peaks
from webtune.core.records import Record
from webtune.decisions import (
    demoted,
    distrusted,
    index_of_winner,
    known_samples,
    make_record,
    no_valid_kernel,
    reasons_table,
    runners_up,
)
from webtune.drive import complete
from webtune.errors import (
    DeviceLost,
    Failure,
    FailureKind,
    LaunchError,
    NoValidKernel,
    Reject,
    TunerClosed,
    TuneWarning,
    UsageError,
    WebtuneError,
)
from webtune.gpu.base import Device, Program
from webtune.host import Host, Job
from webtune.launch import Launcher, Recorded
from webtune.nested import recording, waiting
from webtune.problem import Gathering, Place, Problem, Problems
from webtune.results import CandidateReport, TuneReport, report_from_record
from webtune.roofline import measure_peaks, remembered_peaks
from webtune.session import Session, Settled
from webtune.sink import Sink, decision
from webtune.store.base import Address, Store
from webtune.tunable import Tunable, TunableSet

__all__ = ["Tuner"]

Progress = Callable[[Any], None]
_TWIN_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class _Limit:
    """How fast is fast enough for a problem, and why; nothing where no work or peak is known."""

    bounds: tuple[Bound, ...] = ()
    limit_ns: int | None = None


@dataclass(eq=False)
class _Flight:
    """A tune under way, for those who wait for it."""

    error: Exception | None = None
    owner: tuple[int, Any] | None = None
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    async def ended(self) -> None:
        """Wait on the event loop until it is over."""
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]

    def end(self) -> None:
        """It is over: wake those who wait on the event loop."""
        for one in self.waiting:
            if not one.done():
                one.set_result(None)
        self.waiting.clear()


class Tuner:
    """Tunes kernels on one device, remembers the winners and runs them.

    Made by `open_tuner` and `open_tuner_async`. Use it as a context manager, or call `close`.
    Methods that end in `_async` have a blocking twin on hosts where a call may wait.
    """

    def __init__(
        self, device: Device, store: Store, host: Host, config: Config, sink: Sink | None = None
    ) -> None:
        self.device = device
        self.store = store
        self.host = host
        self.config = config
        self.gathering: Gathering | None = None
        self.card: object = object()
        """What memory knows this tuner's device by. No id: those come again."""
        self._sink = sink
        self._launcher = Launcher(device)
        self._problems = Problems(device, store, config)
        self._peaks: Peaks | None = None
        self._jobs: dict[Place, tuple[Job, PendingMark]] = {}
        self._flights: dict[Place, _Flight] = {}
        self._failures: dict[Place, Exception] = {}
        self._unstored: dict[Address, Record] = {}
        self._changed = threading.Condition()
        self._closed = False

    # -- data -------------------------------------------------------------------------------

    def upload(self, data: Any) -> Buffer:
        """A device buffer with a copy of `data` (anything with the buffer protocol). Raises
        `ArgumentError` for other things, and for an empty array."""
        self._ensure_open()
        return transfer.upload(self.device, data, self._free)

    def empty(self, shape: int | Sequence[int], dtype: str = "f32") -> Buffer:
        """A zeroed device buffer of `shape` elements."""
        self._ensure_open()
        return transfer.empty(self.device, shape, dtype, self._free)

    def wrap(self, raw: Any, dtype: str, shape: int | Sequence[int] | None = None) -> Buffer:
        """Your own GPU buffer as an argument with a dtype and a shape (default: all of it)."""
        self._ensure_open()
        return transfer.wrap(self.device, raw, dtype, shape)

    def download(self, buffer: Buffer) -> Any:
        """A buffer's content: a numpy array of its shape where numpy is installed, else a
        memoryview. Raises `UsageError` on a host that must not wait."""
        self._must_block("download")
        return complete(self.download_async(buffer))

    async def download_async(self, buffer: Buffer) -> Any:
        """The same, awaiting."""
        self._ensure_open()
        return await transfer.download(self.device, buffer)

    def _free(self, buffer: Buffer) -> None:
        self._launcher.forget(buffer=buffer)
        handle, buffer.handle = buffer.handle, None
        self.device.destroy_buffer(handle)

    # -- asking -----------------------------------------------------------------------------

    def lookup(self, kernel: TunableSet, *args: Any) -> LookUp:
        """What memory knows: `Hit`, `Pending`, `Compiled` or `Miss`. Starts nothing and never asks
        the store, so a `Miss` does not mean that nothing is remembered."""
        return self._known(self._understand(kernel, args))

    def settled_index(self, kernel: TunableSet, *args: Any) -> int | None:
        """The index of the pick in memory, or None. Reads only."""
        problem = self._understand(kernel, args)
        return problem.cache.settled(problem.place, problem.address.environment)

    def explain(self, kernel: TunableSet, *args: Any) -> TuneReport:
        """What is known of this problem; as text a table: candidates, times, the winner, what
        ties with it and why each other lost. Starts nothing."""
        return self._explain(self._understand(kernel, args))

    def _explain(self, problem: Problem, source: str = "") -> TuneReport:
        kernel = problem.tunables
        record = self._record_at(problem.address)
        state = self._known(problem)
        if record is not None and kernel.accepts(record.fingerprint):
            source = source or ("memory" if isinstance(state, Hit) else "store")
            return self._report(problem, record, source)
        results = tuple(
            CandidateReport(one.name, one.params, one.id, "skipped", reason="not tuned yet")
            for one in kernel.tunables
        )
        winner = results[state.index] if isinstance(state, Hit) else None
        source = "single" if len(results) == 1 else type(state).__name__.lower()
        return TuneReport(kernel.name, problem.address.key, winner, results, source)

    # -- running ----------------------------------------------------------------------------

    def run(self, kernel: TunableSet, *args: Any) -> LookUp:
        """Run the best candidate for these arguments on them, once.

        The first call for a key reads the store, and tunes when that has no answer: where a call
        may wait, it waits and then runs the winner; elsewhere it starts the tune on the event
        loop, runs the first candidate that serves, and answers `Pending`. A pick that fails to
        launch is given up, and the next best runs. Raises `ArgumentError` and other usage errors,
        `NoValidKernel` when every candidate failed, `DeviceLost`.
        """
        return self._perform(kernel, args, self.device.submit)

    def record(self, compute_pass: Any, kernel: TunableSet, *args: Any) -> LookUp:
        """The same, into your own compute pass instead of a submit of its own."""
        return self._perform(kernel, args, partial(self.device.encode, compute_pass))

    def _perform(
        self, kernel: TunableSet, args: Sequence[Any], launch: Callable[[Program], None]
    ) -> LookUp:
        problem = self._understand(kernel, args)
        state = self._answer(problem)
        if self.gathering is not None and not self.gathering.launch:
            return state
        return self._launch(problem, state, launch)

    def tune(
        self,
        kernel: TunableSet,
        *args: Any,
        progress: Progress | None = None,
        strategy: str | None = None,
        fresh: bool = False,
    ) -> TuneReport:
        """Decide now and tell how; answers from memory or the store unless `fresh`. Raises
        `UsageError` on a host that must not wait."""
        self._must_block("tune")
        return complete(
            self.tune_async(kernel, *args, progress=progress, strategy=strategy, fresh=fresh)
        )

    async def tune_async(
        self,
        kernel: TunableSet,
        *args: Any,
        progress: Progress | None = None,
        strategy: str | None = None,
        fresh: bool = False,
    ) -> TuneReport:
        """The same, awaiting. A tune of the same key that is under way is waited for, and its
        answer or its failure is this call's."""
        problem = self._understand(kernel, args)
        return await self.decide(problem, progress=progress, strategy=strategy, fresh=fresh)

    async def decide(
        self,
        problem: Problem,
        *,
        progress: Progress | None = None,
        strategy: str | None = None,
        fresh: bool = False,
    ) -> TuneReport:
        """`tune_async` for a problem that is understood, in the environment it was met in."""
        if fresh:
            problem.cache.evict(problem.place)
        while True:
            if self.device.lost:
                problem.cache.lose(self.card)
            before = problem.cache.lookup(problem.place, self.card)
            started = problem.cache.start(
                problem.place,
                device=self.card,
                candidates=len(problem.tunables.tunables),
                stored=(lambda: None) if fresh else (lambda: self.stored_index(problem)),
            )
            if isinstance(started, PendingMark):
                return await self._tune(problem, started, progress, strategy, fresh=fresh)
            if isinstance(started, Hit):
                return self._explain(problem, "memory" if isinstance(before, Hit) else "store")
            if self.device.lost:
                raise DeviceLost(self.device.lost)
            flight = self._flights.get(problem.place)
            if flight is not None and flight.owner == _caller():
                raise UsageError(
                    f"{problem.tunables.name}: this key is being tuned by this very call; what a "
                    "tune calls (progress=, a reference, a candidate) cannot wait for it"
                )
            await self._until_changed(problem)
            if flight is not None and flight.error is not None:
                self._failures.pop(problem.place, None)
                raise flight.error

    def peaks(self, *, fresh: bool = False) -> Peaks:
        """The device's measured peaks: arithmetic, memory, launch. Remembered like picks; once
        known, kernels with `work=` stop early when they come close, and tables show how close."""
        self._must_block("peaks")
        return complete(self.peaks_async(fresh=fresh))

    async def peaks_async(self, *, fresh: bool = False) -> Peaks:
        """The same, awaiting."""
        known = None if fresh else self.known_peaks()
        self._peaks = known or await measure_peaks(self, fresh=fresh)
        return self._peaks

    def known_peaks(self) -> Peaks | None:
        """The peaks out of memory or the store; None where they were never measured."""
        if self._peaks is None:
            self._peaks = remembered_peaks(self.device.limits, self._recall_ns)
        return self._peaks

    async def settled(self) -> None:
        """Wait until no tune that was started in the background runs. What failed is in the log
        and in `failures`."""
        while running := [job for job, _ in self._jobs.values() if not job.done()]:
            await _ended(running)
        self._reap()

    @property
    def failures(self) -> tuple[Exception, ...]:
        """Background tunes that failed since the tuner was opened and were told nowhere else."""
        return tuple(self._failures.values())

    # -- ending -----------------------------------------------------------------------------

    def close(self) -> None:
        """End what is pending, free what webtune made. Uploaded buffers are gone with it."""
        if self._closed:
            return
        self._closed = True
        for job, _ in list(self._jobs.values()):
            job.cancel()
        self._launcher.forget()
        self.store.close()
        self.device.close()

    async def close_async(self) -> None:
        """The same, after what was stored has reached its place."""
        for job, _ in list(self._jobs.values()):
            job.cancel()
        await self.store.flush()
        self.close()

    def __enter__(self) -> Tuner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Tuner:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()

    # -- gathering (for `webtune.gather`) -----------------------------------------------------

    def begin_gathering(self, gather: Gathering) -> None:
        """Collect instead of tuning from now on. `UsageError` inside another gather block."""
        self._ensure_open()
        if self.gathering is not None:
            raise UsageError("this tuner is gathering already; leave that block first")
        self.gathering = gather

    def end_gathering(self, gather: Gathering) -> None:
        """Tune again from now on."""
        if self.gathering is gather:
            self.gathering = None

    def record_candidate(self, one: Tunable, args: tuple[Argument, ...]) -> Recorded:
        """A candidate's dispatches on these arguments, not run. Raises what recording raises."""
        return self._launcher.record(one, args, self._nested)

    def stored_index(self, problem: Problem) -> int | None:
        """The pick that the store has for this very set, as an index."""
        return index_of_winner(problem.tunables, self._record_at(problem.address))

    def is_pending(self, problem: Problem) -> bool:
        """Whether memory has no pick yet."""
        return not isinstance(self._known(problem), Hit)

    def is_persisted(self, problem: Problem) -> bool:
        """Whether the store, and not memory alone, has the pick."""
        return problem.address not in self._unstored

    # -- deciding ---------------------------------------------------------------------------

    def _ensure_open(self) -> None:
        if self._closed:
            raise TunerClosed("this tuner is closed; open another with open_tuner()")

    def _must_block(self, what: str) -> None:
        self._ensure_open()
        if not self.host.blocking:
            raise UsageError(f"{what}() would hold the page; use `await tuner.{what}_async(…)`")

    def _understand(self, kernel: TunableSet, args: Sequence[Any]) -> Problem:
        self._ensure_open()
        return self._problems.understand(kernel, args)

    def _known(self, problem: Problem) -> LookUp:
        if self.device.lost is not None:
            problem.cache.lose(self.card)
        self._reap()
        return problem.cache.lookup(problem.place, self.card)

    def _reap(self) -> None:
        """Take back the marks of jobs that were cancelled before they began."""
        for place, (job, mark) in list(self._jobs.items()) if self._jobs else ():
            if job.done():
                mark.release()
                del self._jobs[place]
                if (flight := self._flights.pop(place, None)) is not None:
                    flight.end()

    def _answer(self, problem: Problem) -> LookUp:
        state = self._known(problem)
        if self.gathering is not None:
            return self.gathering.reach(problem)
        if isinstance(state, Hit | Pending):
            return state
        started = problem.cache.start(
            problem.place,
            device=self.card,
            candidates=len(problem.tunables.tunables),
            stored=lambda: self.stored_index(problem),
        )
        if not isinstance(started, PendingMark):
            return started
        if self.host.blocking:
            complete(self._tune(problem, started))
            return problem.cache.lookup(problem.place, self.card)
        self._spawn(problem, started)
        return Pending()

    def _spawn(self, problem: Problem, mark: PendingMark) -> None:
        place = problem.place

        async def work() -> None:
            try:
                await self._tune(problem, mark)
            except Exception as error:
                self._failures[place] = error
                warnings.warn(f"{problem.tunables.name}: {error}", TuneWarning, stacklevel=2)
            finally:
                self._jobs.pop(place, None)

        self._failures.pop(place, None)
        self._flights[place] = _Flight()
        self._jobs[place] = (self.host.spawn(work()), mark)

    async def _until_changed(self, problem: Problem) -> None:
        """Wait until the key that another thread or task tunes is no longer pending."""
        while problem.place in problem.cache.pending():
            if self.host.blocking:
                with self._changed:
                    self._changed.wait(0.02)
            elif problem.place in self._jobs:
                await _ended([self._jobs[problem.place][0]])
                self._reap()
            elif (flight := self._flights.get(problem.place)) is not None:
                await flight.ended()
            else:
                await asyncio.sleep(_TWIN_PAUSE_S)  # another tuner's tune, which tells nobody here

    async def _tune(
        self,
        problem: Problem,
        mark: PendingMark,
        progress: Progress | None = None,
        strategy: str | None = None,
        *,
        fresh: bool = False,
    ) -> TuneReport:
        kernel, level = problem.tunables, self.config.log
        name = strategy or self.config.strategy or self.host.strategy
        began_s = self.host.monotonic_s()
        flight = self._flights[problem.place] = self._flights.get(problem.place) or _Flight()
        flight.owner = _caller()
        try:
            with mark:
                log.began(level, kernel.name, problem.address.key, name, len(kernel.tunables))
                limit = self._limit(problem)
                session = self._session(problem, name, progress, limit.limit_ns, fresh)
                settled = await session.run()
                wall_s = self.host.monotonic_s() - began_s
                return self._commit(problem, mark, settled, wall_s, limit)
        except Exception as error:
            flight.error = error
            if isinstance(error, DeviceLost):
                problem.cache.lose(self.card)
            elif isinstance(error, WebtuneError):
                log.failed(level, kernel.name, problem.address.key, error)
            raise
        finally:
            self._flights.pop(problem.place, None)
            flight.end()
            with self._changed:
                self._changed.notify_all()

    def _session(
        self,
        problem: Problem,
        strategy: str,
        progress: Progress | None,
        limit_ns: int | None,
        fresh: bool,
    ) -> Session:
        before = None if fresh else self._record_at(problem.address)
        return Session(
            problem.tunables,
            problem.args,
            problem.key,
            device=self.device,
            launcher=self._launcher,
            store=self.store,
            config=self.config,
            strategy=strategy,
            clone_all=not self.host.blocking,
            pause=None if self.host.blocking else self.host.pause,
            progress=progress,
            known_ns=known_samples(problem.tunables, before),
            limit_ns=limit_ns,
            inner=self._inner,
            settle=partial(self._settle_inner, problem),
        )

    def _limit(self, problem: Problem) -> _Limit:
        work = problem.tunables.work_of(problem.args)
        peaks = None if work is None else self.known_peaks()
        if work is None or peaks is None:
            return _Limit()
        limit_ns = peaks.limit_ns(work, self.config) if self.config.short_circuit else None
        return _Limit(peaks.bounds(work, self.config), limit_ns)

    def _recall_ns(self, probe: TunableSet, key: Any) -> int | None:
        record = self._record_at(self._problems.address(probe, key))
        if record is None or not probe.accepts(record.fingerprint):
            return None
        return next((c.time_ns for c in record.candidates if c.id == record.winner), None)

    # -- committing -------------------------------------------------------------------------

    def _commit(
        self, problem: Problem, mark: PendingMark, settled: Settled, wall_s: float, limit: _Limit
    ) -> TuneReport:
        outcome, kernel = settled.outcome, problem.tunables
        record, stored = None, False
        if outcome.winner is not None:
            record = make_record(
                kernel,
                outcome,
                settled.plan,
                self.device,
                created_s=self.host.now_s(),
                versions=self.host.versions,
                wall_s=wall_s,
                limit_ns=limit.limit_ns,
            )
            mark.settle(outcome.winner)
            stored = self._keep(problem.address, record, lasting=outcome.measured)
        self._publish(problem, settled, record, stored, wall_s, limit)
        if record is None:
            none_left = no_valid_kernel(kernel, outcome, settled.plan)
            if self.device.lost is not None:
                raise DeviceLost(self.device.lost) from none_left
            raise none_left
        report = self._report(problem, record, "tuned", measured=outcome.measured)
        log.decided(self.config.log, report)
        return report

    def _keep(self, address: Address, record: Record, *, lasting: bool = True) -> bool:
        """Remember; True when it outlives this process. A guess is kept in memory only."""
        if lasting and self.store.put(address, record):
            self._unstored.pop(address, None)
            return True
        self._unstored[address] = record
        return False

    def _record_at(self, address: Address) -> Record | None:
        own, stored = self._unstored.get(address), self.store.get(address)
        if own is None or stored is None:
            return stored if own is None else own
        return stored if stored.created_s > own.created_s else own

    def _publish(
        self,
        problem: Problem,
        settled: Settled,
        record: Record | None,
        stored: bool,
        wall_s: float,
        limit: _Limit,
    ) -> None:
        if self._sink is None:
            return
        try:
            self._sink(self._decision(problem, settled, record, stored, wall_s, limit))
        except Exception as error:
            # What is told of a tune must not undo it.
            text = f"{problem.tunables.name}: its decision could not be recorded: {error}"
            warnings.warn(text, TuneWarning, stacklevel=2)

    def _decision(
        self,
        problem: Problem,
        settled: Settled,
        record: Record | None,
        stored: bool,
        wall_s: float,
        limit: _Limit,
    ) -> dict[str, Any]:
        return decision(
            problem.tunables,
            problem.address,
            self.device,
            settled.plan,
            settled.outcome,
            record,
            stored=stored,
            created_s=self.host.now_s(),
            wall_s=wall_s,
            bounds=limit.bounds,
            limit_ns=limit.limit_ns,
            versions=self.host.versions,
        )

    def _report(
        self, problem: Problem, record: Record, source: str, *, measured: bool = True
    ) -> TuneReport:
        work = problem.tunables.work_of(problem.args)
        return report_from_record(
            problem.tunables,
            problem.address.key,
            record,
            source,
            measured=measured,
            work=work,
            peaks=self.known_peaks() if work is not None else None,
        )

    # -- launching --------------------------------------------------------------------------

    def _launch(self, problem: Problem, state: LookUp, launch: Callable[[Program], None]) -> LookUp:
        """Launch the pick; when it fails, the next best; when nothing is known, the first that
        serves. Only when one of them ran is it the fault of those that did not."""
        kernel = problem.tunables
        failures: dict[int, Failure] = {}
        for index in self._in_order(problem, state):
            try:
                self._launch_one(problem, kernel.tunables[index], launch)
            except Reject as error:
                failures[index] = Failure(FailureKind.REJECTED, str(error))
            except LaunchError as error:
                failures[index] = Failure(FailureKind.LAUNCH, str(error))
            else:
                return self._launched(problem, state, index, failures)
        named = {kernel.tunables[index].name: failure for index, failure in failures.items()}
        raise NoValidKernel(reasons_table(kernel.name, named), named)

    def _in_order(self, problem: Problem, state: LookUp) -> Iterator[int]:
        """The pick, those measured by time, then the others; never one that was wrong or hung."""
        kernel, record = problem.tunables, self._record_at(problem.address)
        told = list(range(len(kernel.tunables)))
        if isinstance(state, Hit):
            yield state.index
            told = [*runners_up(kernel, record, state.index), *told]
        barred = self.store.suspects(problem.address.hardware) | distrusted(record)
        for index in dict.fromkeys(told):
            ours = isinstance(state, Hit) and index == state.index
            if not ours and kernel.tunables[index].id not in barred:
                yield index

    def _launch_one(
        self, problem: Problem, one: Tunable, launch: Callable[[Program], None]
    ) -> None:
        program = self._launcher.program(one, problem.args, self._nested)
        if program.failure is not None:
            self._launcher.forget(tunable=one)
            raise LaunchError(program.failure)
        launch(program)

    def _launched(
        self, problem: Problem, state: LookUp, index: int, failures: Mapping[int, Failure]
    ) -> LookUp:
        """Candidate `index` ran after those in `failures` did not: a pick among these is given
        up where the device refused it. One that only rejects these arguments stays."""
        if not isinstance(state, Hit) or index == state.index:
            return state
        kernel, address = problem.tunables, problem.address
        record = self._record_at(address)
        for each, failure in failures.items():
            one = kernel.tunables[each]
            log.failed(self.config.log, kernel.name, one.name, LaunchError(str(failure)))
            if failure.kind is FailureKind.LAUNCH:
                self._launcher.forget(tunable=one)
                record = demoted(record, one.id, failure.reason, self.host.now_s()) or record
        if failures[state.index].kind is not FailureKind.LAUNCH:
            return Hit(index)
        if record is not None and record.winner == kernel.tunables[index].id:
            self._keep(address, record)
            problem.cache.insert(problem.place, index)
            return Hit(index)
        # Nothing that was measured is left: the next call decides anew.
        problem.cache.evict(problem.place)
        self._unstored.pop(address, None)
        self.store.purge(
            environment=address.environment,
            hardware=address.hardware,
            name=address.name,
            key=address.key,
        )
        return Pending()

    # -- kernels inside kernels ---------------------------------------------------------------

    def _nested(self, kernel: TunableSet, *args: Any) -> Recorded:
        """The best candidate of a kernel that another one runs. Tunes it first where a call may
        wait."""
        problem = self._understand(kernel, args)
        with recording(problem):
            state = self._answer(problem)
            index = state.index if isinstance(state, Hit) else None
            return self._recorded(problem, index)

    def _inner(self, kernel: TunableSet, *args: Any) -> tuple[Problem, Recorded, bool]:
        """The same for a tune, starting nothing; and whether the kernel is settled."""
        problem = self._understand(kernel, args)
        state = self._known(problem)
        index = state.index if isinstance(state, Hit) else None
        if index is None:
            index = 0 if len(kernel.tunables) == 1 else self.stored_index(problem)
        with recording(problem):
            return problem, self._recorded(problem, index), index is not None

    async def _settle_inner(self, outer: Problem, inner: Problem) -> None:
        """Have a kernel decided that the tune of `outer` runs in its candidates."""
        with waiting(outer, inner):
            await self.decide(inner)

    def _recorded(self, problem: Problem, index: int | None) -> Recorded:
        """A kernel's pick for another one's candidate, or the first that serves; good for as long
        as memory says the same."""
        kernel = problem.tunables
        order = range(len(kernel.tunables))
        for each in order if index is None else dict.fromkeys((index, *order)):
            try:
                recorded = self.record_candidate(kernel.tunables[each], problem.args)
            except Reject:
                continue
            known = problem.cache.settled(problem.place)
            return recorded.valid_while(partial(_still, problem, known))
        raise Reject(f"no candidate of {kernel.name} serves these inputs")


def _still(problem: Problem, index: int | None) -> bool:
    return problem.cache.settled(problem.place) == index


def _caller() -> tuple[int, Any]:
    """Who is calling: the thread, and the task where there is one."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), task


async def _ended(jobs: Sequence[Job]) -> None:
    """Wait until one of them has ended. To stop waiting does not stop them."""
    running: Any = jobs
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
