"""Look up → start → settle: exactly one tune a key, whoever asks, on threads and tasks alike.

Nothing here knows whether it runs in a browser: the host says whether a call may wait.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from webtune.config import Config
from webtune.errors import DeviceLost, Reject, TuneWarning, UsageError, WebtuneError
from webtune.gpu.base import Device
from webtune.kernel.arguments import Argument
from webtune.kernel.candidates import Candidate, TunableSet
from webtune.report import log
from webtune.report.report import TuneReport
from webtune.store.base import Store
from webtune.strategies import get as get_strategy
from webtune.strategies.drive import complete
from webtune.tuning.call import Gathering, Place, Problem, Problems
from webtune.tuning.decision import known_samples
from webtune.tuning.host import Host, Job
from webtune.tuning.nested import recording, waiting
from webtune.tuning.pick_cache import Claim, Hit, LookUp, Pending
from webtune.tuning.programs import ProgramCache, Recording
from webtune.tuning.repository import Limit, Repository
from webtune.tuning.session import Session

__all__ = ["ProgressListener", "Scheduler"]

ProgressListener = Callable[[Any], None]
_TWIN_PAUSE_S = 0.005


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


class Scheduler:
    """Answers problems on one device. Safe for threads and tasks."""

    def __init__(
        self,
        device: Device,
        store: Store,
        host: Host,
        config: Config,
        *,
        launcher: ProgramCache,
        problems: Problems,
        remembered: Repository,
    ) -> None:
        self._device = device
        self._store = store
        self._host = host
        self._config = config
        self._launcher = launcher
        self._problems = problems
        self._remembered = remembered
        self.gathering: Gathering | None = None
        self.device_token: object = object()
        """What memory knows this device by. No id: those come again."""
        self.jobs: dict[Place, tuple[Job, Claim]] = {}
        self.failures: dict[Place, Exception] = {}
        self._flights: dict[Place, _Flight] = {}
        self._changed = threading.Condition()

    # -- answers ----------------------------------------------------------------------------

    def known(self, problem: Problem) -> LookUp:
        if self._device.lost is not None:
            problem.cache.lose(self.device_token)
        self.reap()
        return problem.cache.lookup(problem.place, self.device_token)

    def answer(self, problem: Problem) -> LookUp:
        state = self.known(problem)
        if self.gathering is not None:
            return self.gathering.reach(problem)
        if isinstance(state, Hit | Pending):
            return state
        started = problem.cache.start(
            problem.place,
            device=self.device_token,
            candidates=len(problem.kernel.candidates),
            stored=lambda: self._remembered.stored_index(problem),
        )
        if not isinstance(started, Claim):
            return started
        if self._host.blocking:
            complete(self._tune(problem, started))
            return problem.cache.lookup(problem.place, self.device_token)
        self._spawn(problem, started)
        return Pending()

    async def decide(
        self,
        problem: Problem,
        *,
        progress: ProgressListener | None = None,
        strategy: str | None = None,
        fresh: bool = False,
        gives_way: bool = False,
    ) -> TuneReport:
        """`tune_async` for a problem that is understood, in the environment it was met in."""
        if strategy is not None:
            get_strategy(strategy)  # a wrong name is wrong also where nothing is to be measured
        if fresh:
            problem.cache.evict(problem.place)
        while True:
            if self._device.lost:
                problem.cache.lose(self.device_token)
            before = problem.cache.lookup(problem.place, self.device_token)
            started = problem.cache.start(
                problem.place,
                device=self.device_token,
                # Asked for afresh, a lone candidate is timed too.
                candidates=max(len(problem.kernel.candidates), 2 if fresh else 1),
                stored=(lambda: None)
                if fresh
                else (lambda: self._remembered.stored_index(problem)),
            )
            if isinstance(started, Claim):
                return await self._tune(
                    problem, started, progress, strategy, fresh=fresh, gives_way=gives_way
                )
            if isinstance(started, Hit):
                return self.explain(problem, "memory" if isinstance(before, Hit) else "store")
            if self._device.lost:
                raise DeviceLost(self._device.lost)
            flight = self._flights.get(problem.place)
            self._refuse_to_wait(problem, flight, gives_way)
            await self._until_changed(problem, gives_way)
            if flight is not None and flight.error is not None:
                self.failures.pop(problem.place, None)
                raise flight.error

    def explain(self, problem: Problem, source: str = "") -> TuneReport:
        """What is known of a problem. Starts nothing."""
        return self._remembered.explain(problem, self.known(problem), source)

    async def settled(self) -> None:
        """Wait until no tune that was started in the background runs. What failed is in the log
        and in `failures`."""
        while running := [job for job, _ in self.jobs.values() if not job.done()]:
            await _ended(running)
        self.reap()

    def cancel(self) -> None:
        """End every tune that runs in the background."""
        for job, _ in list(self.jobs.values()):
            job.cancel()

    # -- tunes under way ----------------------------------------------------------------------

    def _spawn(self, problem: Problem, mark: Claim) -> None:
        place = problem.place

        async def work() -> None:
            try:
                await self._tune(problem, mark)
            except Exception as error:
                self.failures[place] = error
                warnings.warn(f"{problem.kernel.name}: {error}", TuneWarning, stacklevel=2)
            finally:
                self.jobs.pop(place, None)

        self.failures.pop(place, None)
        self._flights[place] = _Flight()
        self.jobs[place] = (self._host.spawn(work()), mark)

    def reap(self) -> None:
        """Take back the marks of jobs that were cancelled before they began."""
        for place, (job, mark) in list(self.jobs.items()) if self.jobs else ():
            if job.done():
                mark.release()
                del self.jobs[place]
                if (flight := self._flights.pop(place, None)) is not None:
                    flight.end()

    def _refuse_to_wait(self, problem: Problem, flight: _Flight | None, gives_way: bool) -> None:
        """Raise where waiting would never end: the tune can go on only when this call is over."""
        if flight is None or flight.owner is None:
            return
        mine = _caller()
        if flight.owner == mine:
            raise UsageError(
                f"{problem.kernel.name}: this key is being tuned by this very call; what a "
                "tune calls (progress=, a reference, a candidate) cannot wait for it"
            )
        if flight.owner[0] == mine[0] and self._host.blocking and not gives_way:
            raise UsageError(
                f"{problem.kernel.name}: another task of this thread tunes this key, and a call "
                "that blocks would never let it end; use `await tuner.tune_async(…)`"
            )

    async def _until_changed(self, problem: Problem, gives_way: bool) -> None:
        """Wait until the key that another thread or task tunes is no longer pending."""
        while problem.place in problem.cache.pending():
            if self._host.blocking and gives_way:
                await asyncio.sleep(_TWIN_PAUSE_S)  # it may be a thread, which wakes no event loop
            elif self._host.blocking:
                with self._changed:
                    self._changed.wait(0.02)
            elif problem.place in self.jobs:
                await _ended([self.jobs[problem.place][0]])
                self.reap()
            elif (flight := self._flights.get(problem.place)) is not None:
                await flight.ended()
            else:
                await asyncio.sleep(_TWIN_PAUSE_S)  # another tuner's tune, which tells nobody here

    async def _tune(
        self,
        problem: Problem,
        mark: Claim,
        progress: ProgressListener | None = None,
        strategy: str | None = None,
        *,
        fresh: bool = False,
        gives_way: bool = False,
    ) -> TuneReport:
        kernel, level = problem.kernel, self._config.log
        name = strategy or self._config.strategy or self._host.strategy
        began_s = self._host.monotonic_s()
        flight = self._flights[problem.place] = self._flights.get(problem.place) or _Flight()
        flight.owner = _caller()
        try:
            with mark:
                log.began(level, kernel.name, problem.address.key, name, len(kernel.candidates))
                limit = self._remembered.limit(problem)
                session = self._session(problem, name, progress, limit, fresh, gives_way)
                settled = await session.run()
                wall_s = self._host.monotonic_s() - began_s
                return self._remembered.commit(problem, mark, settled, wall_s, limit)
        except Exception as error:
            flight.error = error
            if isinstance(error, DeviceLost):
                problem.cache.lose(self.device_token)
            elif isinstance(error, WebtuneError):
                log.failed(level, kernel.name, problem.address.key, error)
            raise
        finally:
            self._flights.pop(problem.place, None)
            flight.end()
            with self._changed:
                self._changed.notify_all()

    def _pause(self, gives_way: bool) -> Callable[[], Awaitable[None]] | None:
        if not self._host.blocking:
            return self._host.pause
        return partial(asyncio.sleep, 0) if gives_way else None

    def _session(
        self,
        problem: Problem,
        strategy: str,
        progress: ProgressListener | None,
        limit: Limit,
        fresh: bool,
        gives_way: bool,
    ) -> Session:
        before = None if fresh else self._remembered.record(problem.address)
        return Session(
            problem.kernel,
            problem.args,
            problem.key,
            device=self._device,
            launcher=self._launcher,
            store=self._store,
            config=self._config,
            strategy=strategy,
            clone_all=not self._host.blocking,
            pause=self._pause(gives_way),
            progress=progress,
            known_ns=known_samples(problem.kernel, before),
            limit_ns=limit.limit_ns,
            disproof_ns=limit.disproof_ns,
            inner=self._inner,
            settle=partial(self._settle_inner, problem),
        )

    # -- kernels inside kernels ---------------------------------------------------------------

    def record_candidate(self, one: Candidate, args: tuple[Argument, ...]) -> Recording:
        """A candidate's dispatches on these arguments, not run. Raises what recording raises."""
        return self._launcher.record(one, args, self.nested)

    def nested(self, kernel: TunableSet, *args: Any) -> Recording:
        """The best candidate of a kernel that another one runs. Tunes it first where a call may
        wait."""
        problem = self._problems.understand(kernel, args)
        with recording(problem):
            state = self.answer(problem)
            index = state.index if isinstance(state, Hit) else None
            return self._recorded(problem, index)

    def _inner(self, kernel: TunableSet, *args: Any) -> tuple[Problem, Recording, bool]:
        """The same for a tune, starting nothing; and whether the kernel is settled."""
        problem = self._problems.understand(kernel, args)
        state = self.known(problem)
        index = state.index if isinstance(state, Hit) else None
        if index is None:
            index = 0 if len(kernel.candidates) == 1 else self._remembered.stored_index(problem)
        with recording(problem):
            return problem, self._recorded(problem, index), index is not None

    async def _settle_inner(self, outer: Problem, inner: Problem) -> None:
        """Have a kernel decided that the tune of `outer` runs in its candidates."""
        with waiting(outer, inner):
            await self.decide(inner)

    def _recorded(self, problem: Problem, index: int | None) -> Recording:
        """A kernel's pick for another one's candidate, or the first that serves; good for as long
        as memory says the same."""
        kernel = problem.kernel
        order = range(len(kernel.candidates))
        for each in order if index is None else dict.fromkeys((index, *order)):
            try:
                recorded = self.record_candidate(kernel.candidates[each], problem.args)
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
