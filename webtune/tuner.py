"""The way through for every host: look up → start → settle → commit. One class, one path.

Nothing here knows whether it runs in a browser: the host says whether a call may wait.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from webtune import transfer
from webtune.buffers import Argument, Buffer
from webtune.core.anchor import at_level
from webtune.core.bounds import Bound
from webtune.core.cache import PendingMark, PickCache, Picks
from webtune.core.config import Config
from webtune.core.fingerprint import canonical
from webtune.core.model import Hit, LookUp, Pending
from webtune.core.peaks import Peaks
from webtune.core.records import Record
from webtune.decisions import (
    demoted,
    index_of_winner,
    known_samples,
    make_record,
    no_valid_kernel,
    reasons_table,
    runners_up,
)
from webtune.drive import complete
from webtune.errors import (
    ArgumentError,
    DeviceLost,
    Failure,
    FailureKind,
    LaunchError,
    NoValidKernel,
    Reject,
    TunerClosed,
    TuneWarning,
    UsageError,
)
from webtune.gpu.base import Device, Dispatch, Program
from webtune.host import Host, Job
from webtune.launch import Launcher
from webtune.results import CandidateReport, TuneReport, report_from_record
from webtune.roofline import measure_peaks, remembered_peaks
from webtune.session import Session, Settled
from webtune.sink import Sink, decision
from webtune.store.base import Address, Store
from webtune.tunable import TunableSet

__all__ = ["Tuner", "current_environment", "environment"]

log = logging.getLogger("webtune")

Progress = Callable[[Any], None]

_ENVIRONMENT: list[str | None] = [None]
_PICKS: dict[str, Picks] = {}
_ADDRESSES = 1024


def current_environment() -> str | None:
    """The environment that `environment` switched to, or None."""
    return _ENVIRONMENT[0]


@contextmanager
def environment(name: str) -> Any:
    """Use another set of picks in this process while the block runs: its own records, in the same
    store. Tunes under way settle into the environment in which they began."""
    before = _ENVIRONMENT[0]
    _ENVIRONMENT[0] = name
    try:
        yield
    finally:
        _ENVIRONMENT[0] = before


@dataclass(frozen=True, slots=True)
class _Problem:
    """One call, understood: the set, its bound arguments, its key and where its record lies."""

    tunables: TunableSet
    args: tuple[Argument, ...]
    key: Any
    address: Address
    cache: PickCache

    @property
    def place(self) -> tuple[str, str]:
        """The key in memory: a pick is an index, so it is good for one fingerprint only."""
        return (self.tunables.fingerprint, self.address.key)


@dataclass(frozen=True, slots=True)
class _Limit:
    """How fast is fast enough for a problem, and why; nothing where no work or peak is known."""

    bounds: tuple[Bound, ...] = ()
    limit_ns: int | None = None


class Tuner:
    """Tunes kernels on one device, remembers the winners and runs them.

    Made by `open_tuner` and `open_tuner_async`. Use it as a context manager, or call `close`.
    Methods that end in `_async` have a blocking twin on hosts where a call may wait.
    """

    def __init__(
        self,
        device: Device,
        store: Store,
        host: Host,
        config: Config,
        sink: Sink | None = None,
    ) -> None:
        self.device = device
        self.store = store
        self.host = host
        self.config = config
        self._launcher = Launcher(device)
        self._picks = _PICKS.setdefault(_scope(store), Picks())
        self._jobs: dict[tuple[str, str], Job] = {}
        self._failures: dict[tuple[str, str], Exception] = {}
        self._sink = sink
        self._peaks: Peaks | None = None
        self._unstored: dict[Address, Record] = {}
        self._closed = False
        self._hardware = device.identity.digest
        self._addresses: dict[tuple[Any, ...], tuple[Any, Address]] = {}

    # -- data -------------------------------------------------------------------------------

    def upload(self, data: Any) -> Buffer:
        """A device buffer with a copy of `data` (anything with the buffer protocol). Raises
        `ArgumentError` for other things, and for an empty array."""
        self._ensure_open()
        return transfer.upload(self.device, data, self._free_buffer)

    def empty(self, shape: int | Sequence[int], dtype: str = "f32") -> Buffer:
        """A zeroed device buffer of `shape` elements."""
        self._ensure_open()
        return transfer.empty(self.device, shape, dtype, self._free_buffer)

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

    def _free_buffer(self, buffer: Buffer) -> None:
        self._launcher.forget(buffer=buffer)
        handle, buffer.handle = buffer.handle, None
        self.device.destroy_buffer(handle)

    # -- asking -----------------------------------------------------------------------------

    def lookup(self, kernel: TunableSet, *args: Any) -> LookUp:
        """What memory knows: `Hit`, `Pending`, `Compiled` or `Miss`. Starts nothing and never asks
        the store, so a `Miss` does not mean that nothing is remembered."""
        problem = self._understand(kernel, args)
        return problem.cache.lookup(problem.place, id(self.device))

    def settled_index(self, kernel: TunableSet, *args: Any) -> int | None:
        """The index of the pick in memory, or None. Reads only."""
        problem = self._understand(kernel, args)
        return problem.cache.settled(problem.place, problem.address.environment)

    def explain(self, kernel: TunableSet, *args: Any) -> TuneReport:
        """What is known of this problem; as text a table: candidates, times, the winner, what
        ties with it and why each other lost. Starts nothing."""
        problem = self._understand(kernel, args)
        record = self._record_of(problem)
        state = problem.cache.lookup(problem.place, id(self.device))
        if record is not None and record.fingerprint == kernel.fingerprint:
            return self._report(problem, record, "memory" if isinstance(state, Hit) else "store")
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
        loop, runs the first candidate that serves, and answers `Pending`. Raises `ArgumentError`
        and other usage errors, `NoValidKernel` when every candidate failed, `DeviceLost`.
        """
        problem = self._understand(kernel, args)
        state = self._answer(problem)
        program, state = self._program(problem, state)
        self.device.submit(program)
        return state

    def record(self, compute_pass: Any, kernel: TunableSet, *args: Any) -> LookUp:
        """The same, into your own compute pass instead of a submit of its own."""
        problem = self._understand(kernel, args)
        state = self._answer(problem)
        program, state = self._program(problem, state)
        self.device.encode(compute_pass, program)
        return state

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
        """The same, awaiting. A tune of the same key that is under way is waited for."""
        problem = self._understand(kernel, args)
        job = self._jobs.get(problem.place)
        if job is not None:
            await job
            failure = self._failures.pop(problem.place, None)
            if failure is not None:
                raise failure
        if fresh:
            problem.cache.evict(problem.place)
        started = problem.cache.start(
            problem.place,
            device=id(self.device),
            candidates=len(kernel.tunables),
            stored=(lambda: None) if fresh else (lambda: self._from_store(problem)),
        )
        if isinstance(started, PendingMark):
            return await self._tune(problem, started, progress, strategy)
        if isinstance(started, Pending):
            if self.device.lost:
                raise DeviceLost(self.device.lost)
            raise UsageError(
                f"{kernel.name}: this key is being tuned by another thread or task; wait for it"
            )
        return self.explain(kernel, *problem.args)

    def peaks(self, *, fresh: bool = False) -> Peaks:
        """The device's measured peaks: arithmetic, memory, launch. Remembered like picks; once
        known, kernels with `work=` stop early when they come close, and tables show how close."""
        self._must_block("peaks")
        return complete(self.peaks_async(fresh=fresh))

    async def peaks_async(self, *, fresh: bool = False) -> Peaks:
        """The same, awaiting."""
        known = None if fresh else self._known_peaks()
        self._peaks = known or await measure_peaks(self, fresh=fresh)
        return self._peaks

    async def settled(self) -> None:
        """Wait until nothing is being tuned. Failures are in the log and in `failures`."""
        while self._jobs:
            await next(iter(self._jobs.values()))

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
        for job in list(self._jobs.values()):
            job.cancel()
        self._launcher.forget()
        self.store.close()
        self.device.close()

    async def close_async(self) -> None:
        """The same, after what was stored has reached its place."""
        for job in list(self._jobs.values()):
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

    # -- inside -----------------------------------------------------------------------------

    def _ensure_open(self) -> None:
        if self._closed:
            raise TunerClosed("this tuner is closed; open another with open_tuner()")

    def _must_block(self, what: str) -> None:
        self._ensure_open()
        if not self.host.blocking:
            raise UsageError(f"{what}() would hold the page; use `await tuner.{what}_async(…)`")

    def _understand(self, kernel: TunableSet, args: Sequence[Any]) -> _Problem:
        self._ensure_open()
        if not isinstance(kernel, TunableSet):
            raise ArgumentError(
                f"the first argument is a {type(kernel).__name__}; pass a Kernel or TunableSet"
            )
        bound = kernel.bind(args, self.device)
        space = current_environment() or self.config.environment
        form = (kernel, space, *[arg.form for arg in bound])
        known = self._addresses.get(form)
        if known is None:
            with at_level(self.config.anchor_level):
                key = kernel.key_of(bound)
            known = key, Address(space, self._hardware, kernel.name, canonical(key))
            # A key= function may look at more than the forms of the arguments.
            if not kernel.has_key_function:
                if len(self._addresses) >= _ADDRESSES:
                    self._addresses.clear()
                self._addresses[form] = known
        cache = self._picks.of(kernel.name, self._hardware, space)
        return _Problem(kernel, bound, *known, cache)

    def _answer(self, problem: _Problem) -> LookUp:
        state = problem.cache.lookup(problem.place, id(self.device))
        if isinstance(state, Hit | Pending):
            return state
        started = problem.cache.start(
            problem.place,
            device=id(self.device),
            candidates=len(problem.tunables.tunables),
            stored=lambda: self._from_store(problem),
        )
        if not isinstance(started, PendingMark):
            return started
        if self.host.blocking:
            complete(self._tune(problem, started, None, None))
            return problem.cache.lookup(problem.place, id(self.device))
        self._spawn(problem, started)
        return Pending()

    def _spawn(self, problem: _Problem, mark: PendingMark) -> None:
        place = problem.place

        async def work() -> None:
            try:
                await self._tune(problem, mark, None, None)
            except Exception as error:
                self._failures[place] = error
                log.error(
                    "%s %s: the tune failed: %s", problem.tunables.name, problem.address.key, error
                )
                warnings.warn(f"{problem.tunables.name}: {error}", TuneWarning, stacklevel=2)
            finally:
                self._jobs.pop(place, None)

        self._failures.pop(place, None)
        self._jobs[place] = self.host.spawn(work())

    def _from_store(self, problem: _Problem) -> int | None:
        return index_of_winner(problem.tunables, self._record_of(problem))

    def _record_of(self, problem: _Problem) -> Record | None:
        return self._record_at(problem.address)

    def _record_at(self, address: Address) -> Record | None:
        return self._unstored.get(address) or self.store.get(address)

    async def _tune(
        self,
        problem: _Problem,
        mark: PendingMark,
        progress: Progress | None,
        strategy: str | None,
    ) -> TuneReport:
        with mark:
            kernel = problem.tunables
            name = strategy or self.config.strategy or self.host.strategy
            began_s = self.host.monotonic_s()
            if self.config.log != "disabled":
                log.info("tuning %s %s with %s", kernel.name, problem.address.key, name)
            limit = self._limit(problem)
            session = Session(
                kernel,
                problem.args,
                problem.key,
                device=self.device,
                launcher=self._launcher,
                store=self.store,
                config=self.config,
                strategy=name,
                clone_all=not self.host.blocking,
                pause=None if self.host.blocking else self.host.pause,
                progress=progress,
                known_ns=known_samples(kernel, self._record_of(problem)),
                limit_ns=limit.limit_ns,
                nested=self._nested,
            )
            try:
                settled = await session.run()
            except DeviceLost:
                problem.cache.lose(id(self.device))
                raise
            return self._commit(problem, mark, settled, self.host.monotonic_s() - began_s, limit)

    def _limit(self, problem: _Problem) -> _Limit:
        work = problem.tunables.work_of(problem.args)
        peaks = None if work is None else self._known_peaks()
        if work is None or peaks is None:
            return _Limit()
        limit_ns = peaks.limit_ns(work, self.config) if self.config.short_circuit else None
        return _Limit(peaks.bounds(work, self.config), limit_ns)

    def _known_peaks(self) -> Peaks | None:
        if self._peaks is None:
            space = current_environment() or self.config.environment

            def recall(probe: TunableSet, key: Any) -> int | None:
                record = self._record_at(Address(space, self._hardware, probe.name, canonical(key)))
                if record is None or record.fingerprint != probe.fingerprint:
                    return None
                return next((c.time_ns for c in record.candidates if c.id == record.winner), None)

            self._peaks = remembered_peaks(self.device.limits, recall)
        return self._peaks

    def _commit(
        self, problem: _Problem, mark: PendingMark, settled: Settled, wall_s: float, limit: _Limit
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
            stored = outcome.measured and self.store.put(problem.address, record)
            if stored:
                self._unstored.pop(problem.address, None)
            else:
                self._unstored[problem.address] = record
        self._tell(problem, settled, record, stored, wall_s, limit)
        if record is None:
            raise no_valid_kernel(kernel, outcome, settled.plan)
        return self._report(problem, record, "tuned", measured=outcome.measured)

    def _tell(
        self,
        problem: _Problem,
        settled: Settled,
        record: Record | None,
        stored: bool,
        wall_s: float,
        limit: _Limit,
    ) -> None:
        if self._sink is not None:
            self._sink(
                decision(
                    problem.tunables,
                    problem.address.key,
                    problem.address.environment,
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
            )
        if record is None or self.config.log == "disabled":
            return
        report = self._report(problem, record, "tuned", measured=settled.outcome.measured)
        if self.config.log == "full":
            log.info("%s", report)
        elif report.winner is not None:
            log.info("%s %s: %s", report.name, report.key, report.winner.name)

    def _report(
        self, problem: _Problem, record: Record, source: str, *, measured: bool = True
    ) -> TuneReport:
        work = problem.tunables.work_of(problem.args)
        return report_from_record(
            problem.tunables,
            problem.address.key,
            record,
            source,
            measured=measured,
            work=work,
            peaks=self._known_peaks() if work is not None else None,
        )

    # -- launching --------------------------------------------------------------------------

    def _program(self, problem: _Problem, state: LookUp) -> tuple[Program, LookUp]:
        if isinstance(state, Hit):
            found = self._winner(problem, state.index)
            if found is not None:
                return found
        return self._fallback(problem), state if isinstance(state, Pending) else Pending()

    def _winner(self, problem: _Problem, index: int) -> tuple[Program, LookUp] | None:
        """The pick's program. One that fails is evicted, and the runner-up takes its place."""
        failed: set[int] = set()
        order = [index, *runners_up(problem.tunables, self._record_of(problem), index)]
        for candidate in order:
            one = problem.tunables.tunables[candidate]
            try:
                program = self._launcher.program(one, problem.args, self._nested)
                if program.failure is not None:
                    raise LaunchError(program.failure)
            except (LaunchError, Reject) as error:
                failed.add(candidate)
                log.error("%s: %s failed to launch: %s", problem.tunables.name, one.name, error)
                self._launcher.forget(tunable=one)
                self._demote(problem, one.id, error)
                continue
            if failed:
                problem.cache.insert(problem.place, candidate)
            return program, Hit(candidate)
        return None

    def _demote(self, problem: _Problem, candidate: str, error: Exception) -> None:
        """Take a failed pick out of memory and store, so that it is not answered again."""
        problem.cache.evict(problem.place)
        record = self._record_of(problem)
        changed = demoted(record, candidate, str(error), self.host.now_s()) if record else None
        if changed is not None and not self.store.put(problem.address, changed):
            self._unstored[problem.address] = changed

    def _fallback(self, problem: _Problem) -> Program:
        failures: dict[str, Failure] = {}
        for one in problem.tunables.tunables:
            try:
                program = self._launcher.program(one, problem.args, self._nested)
            except Reject as error:
                failures[one.name] = Failure(FailureKind.REJECTED, str(error))
            except LaunchError as error:
                failures[one.name] = Failure(FailureKind.LAUNCH, str(error))
            else:
                if program.failure is None:
                    return program
                failures[one.name] = Failure(FailureKind.LAUNCH, program.failure)
        raise NoValidKernel(reasons_table(problem.tunables.name, failures), failures)

    def _nested(self, kernel: TunableSet, *args: Any) -> Sequence[Dispatch]:
        """The dispatches of the best known candidate of a kernel that another one runs."""
        problem = self._understand(kernel, args)
        state = self._answer(problem)
        if isinstance(state, Hit):
            one = kernel.tunables[state.index]
            return self._launcher.record(one, problem.args, self._nested).dispatches
        for one in kernel.tunables:
            try:
                return self._launcher.record(one, problem.args, self._nested).dispatches
            except Reject:
                continue
        raise Reject(f"no candidate of {kernel.name} serves these inputs")


def _scope(store: Store) -> str:
    """Tuners whose stores are one place share their memory."""
    return getattr(store, "scope", None) or f"{type(store).__name__}:{id(store)}"
