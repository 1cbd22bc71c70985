"""Starts tunes, exactly one for each key, whoever asks, on threads and tasks alike.

Whether a call may wait is the host's to say; nothing here knows where it runs.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from concurrent import futures
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from webtune.errors import DeviceLost, TuneWarning, UsageError, WebtuneError
from webtune.store.decision import Decision
from webtune.strategies import get as get_strategy
from webtune.strategies.drive import complete
from webtune.tuning.call import CacheKey, Call, CallReader
from webtune.tuning.context import Context, TuneOptions
from webtune.tuning.limits import Limits
from webtune.tuning.nested import NestedKernels
from webtune.tuning.pick_cache import Claim, Hit, LookUp, Pending, PendingTune
from webtune.tuning.programs import ProgramCache
from webtune.tuning.repository import Explained, Repository
from webtune.tuning.session import Session


class Gathering(Protocol):
    """Collects calls instead of having them tuned."""

    @property
    def launch(self) -> bool:
        """Whether kernels run too."""
        ...

    def reach(self, call: Call) -> LookUp:
        """The application asked for this call."""
        ...


class Scheduler:
    """Answers the calls on one device. Safe for threads and tasks.

    `device_token` is what pick caches know the device by. `failures` has what the last tune in the
    background of a key failed with, while nobody was told.
    """

    def __init__(self, context: Context, reader: CallReader, programs: ProgramCache) -> None:
        self.context = context
        self.reader = reader
        self.programs = programs
        self.repository = Repository(context)
        self.limits = Limits(context, reader, self.repository)
        self.nested = NestedKernels(self)
        self.gathering: Gathering | None = None
        self.device_token = object()
        self.failures: dict[CacheKey, Exception] = {}
        self._tasks: dict[PendingTune, asyncio.Task[None]] = {}

    # -- answers ----------------------------------------------------------------------------

    def lookup(self, call: Call) -> LookUp:
        """What memory answers. Starts nothing."""
        if self.context.device.lost is not None:
            call.cache.lose(self.device_token)
        return call.cache.lookup(call.cache_key, self.device_token)

    def answer(self, call: Call) -> LookUp:
        """What to run: out of memory, the store, or a tune, which is waited for where a call may
        wait. Raises what the tune does."""
        state = self.lookup(call)
        if self.gathering is not None:
            return self.gathering.reach(call)
        if isinstance(state, Hit | Pending):
            return state
        started = self._start(call, TuneOptions())
        if not isinstance(started, Claim):
            return started
        if self.context.host.blocking:
            complete(self._tune(call, started, TuneOptions()))
            return call.cache.lookup(call.cache_key, self.device_token)
        self._spawn(call, started)
        return Pending(started.tune)

    async def decide(self, call: Call, options: TuneOptions) -> Explained:
        """The decision for a call, in the environment that it was read in: known, or tuned now, or
        that of a tune under way, which is waited for. Raises what that tune failed with."""
        if options.strategy is not None:
            get_strategy(options.strategy)  # a wrong name is wrong also where nothing is measured
        if options.fresh:
            call.cache.evict(call.cache_key)
        while True:
            before = self.lookup(call)
            started = self._start(call, options)
            if isinstance(started, Claim):
                return Explained(await self._tune(call, started, options), "tuned")
            if isinstance(started, Hit):
                found = self.repository.explain(call, started)
                remembered = isinstance(before, Hit) or found.source != "memory"
                return found if remembered else found._replace(source="store")
            if started.tune is None:
                raise DeviceLost(self.context.device.lost or "the device was lost")
            await self._wait(call, started.tune, options)

    def explain(self, call: Call) -> Explained:
        """What is known of a call. Starts nothing."""
        return self.repository.explain(call, self.lookup(call))

    async def settled(self) -> None:
        """Wait until no tune runs that was started in the background."""
        while self._tasks:
            await asyncio.wait(map(_waiter, self._tasks), return_when=asyncio.FIRST_COMPLETED)

    def cancel(self) -> None:
        """End every tune that runs in the background."""
        for task in list(self._tasks.values()):
            task.cancel()

    # -- tunes under way ----------------------------------------------------------------------

    def _start(self, call: Call, options: TuneOptions) -> Hit | Pending | Claim:
        stored = partial(self.repository.pick, call)
        return call.cache.start(
            call.cache_key,
            device=self.device_token,
            # Asked for afresh, a lone candidate is timed too.
            candidates=max(len(call.kernel.candidates), 2 if options.fresh else 1),
            stored=(lambda: None) if options.fresh else stored,
        )

    def _spawn(self, call: Call, claim: Claim) -> None:
        self.failures.pop(call.cache_key, None)

        async def work() -> None:
            try:
                await self._tune(call, claim, TuneOptions())
            except Exception as error:
                self.failures[call.cache_key] = error
                warnings.warn(f"{call.kernel.name}: {error}", TuneWarning, stacklevel=2)

        def ended(task: asyncio.Task[None]) -> None:
            claim.release()  # a task that was cancelled before it began did not
            self._tasks.pop(claim.tune, None)

        task = self._tasks[claim.tune] = self.context.host.spawn(work())
        task.add_done_callback(ended)

    async def _wait(self, call: Call, tune: PendingTune, options: TuneOptions) -> None:
        """Wait for the tune of another caller. Raises what it failed with, unless that was the
        loss of another device."""
        self._refuse_deadlock(call, tune, options)
        if self.context.host.blocking and not options.awaiting:
            futures.wait([tune])
        else:
            waiter = _waiter(tune)
            try:
                await asyncio.wait([waiter])
            finally:
                waiter.cancel()
        error = tune.exception()
        if error is not None and (self.context.device.lost or not isinstance(error, DeviceLost)):
            self.failures.pop(call.cache_key, None)
            raise error

    def _refuse_deadlock(self, call: Call, tune: PendingTune, options: TuneOptions) -> None:
        """Raise where waiting would never end: the tune can go on only when this call is over."""
        if tune.owner is None:
            return
        caller = _caller()
        if tune.owner == caller:
            raise UsageError(
                f"{call.kernel.name}: this key is being tuned by this very call; what a "
                "tune calls (progress=, a reference, a candidate) cannot wait for it"
            )
        waits = self.context.host.blocking and not options.awaiting
        if waits and tune.owner[0] == caller[0]:
            raise UsageError(
                f"{call.kernel.name}: another task of this thread tunes this key, and a call "
                "that blocks would never let it end; use `await tuner.tune_async(…)`"
            )

    async def _tune(self, call: Call, claim: Claim, options: TuneOptions) -> Decision:
        context = self.context
        began_s = context.host.monotonic_s()
        strategy = options.strategy or context.config.strategy or context.host.strategy
        options = replace(options, strategy=strategy)
        claim.tune.owner = _caller()
        try:
            with claim:
                context.observer.began(call, strategy)
                limit = self.limits.of(call)
                session = Session(context, self.programs, self.nested.of(call), call, options)
                prior = None if options.fresh else self.repository.find(call.address)
                found = await session.run(limit, prior)
                wall_s = context.host.monotonic_s() - began_s
                decision = replace(found, wall_s=wall_s, bounds=limit.bounds)
                return self.repository.commit(call, claim, decision)
        except Exception as error:
            if isinstance(error, DeviceLost):
                call.cache.lose(self.device_token)
            elif isinstance(error, WebtuneError):
                context.observer.failed(call, error)
            raise


def _caller() -> tuple[int, Any]:
    """The thread that is calling, and the task where there is one."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), task


def _waiter(tune: PendingTune) -> asyncio.Future[None]:
    """The end of a tune as a future of this event loop, which tells of no exception by itself."""
    waiter = asyncio.wrap_future(tune)
    waiter.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return waiter
