"""One tune: arguments are cloned, candidates recorded, and a strategy measures until it decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from webtune.errors import Failure, FailureKind, KernelError, LaunchError, Reject, UsageError
from webtune.kernel.candidates import Candidate, priority_of
from webtune.kernel.options import call_option
from webtune.kernel.space import Params
from webtune.measure.bench import Bench
from webtune.measure.bench_candidate import BenchCandidate, Conditions
from webtune.measure.crash_guard import CrashGuard
from webtune.store.decision import Decision
from webtune.strategies import get as get_strategy
from webtune.strategies.drive import awaiting
from webtune.strategies.model import Event, Outcome, Problem, Reading, Round
from webtune.strategies.plan import Plan, plan
from webtune.tuning.call import Call
from webtune.tuning.clones import Clones
from webtune.tuning.context import Context, TuneOptions
from webtune.tuning.decision import make_decision, prior_samples
from webtune.tuning.limits import Limit
from webtune.tuning.nested import NestedTunes
from webtune.tuning.programs import ProgramCache, Recording

_DISPROVED = "limit disproved"


class Session:
    """Everything that one tune owns. `run` it once; what it made on the device goes with it."""

    def __init__(
        self,
        context: Context,
        programs: ProgramCache,
        nested: NestedTunes,
        call: Call,
        options: TuneOptions,
    ) -> None:
        self._context = context
        self._programs = programs
        self._nested = nested
        self._kernel = call.kernel
        self._call = call
        self._options = options
        self._clones = Clones(context.device, call, everything=not context.host.blocking)
        self._prepared: dict[int, BenchCandidate | Failure] = {}
        self._recordings: dict[int, Recording] = {}
        self._evictor: Recording | None = None

    async def run(self, limit: Limit, prior: Decision | None) -> Decision:
        """Measure and decide. `prior` is an earlier decision, whose samples of candidates that are
        still the same are used. Raises `DeviceLost` and `UsageError`; failures of candidates are
        in the decision."""
        bench: Bench | None = None
        try:
            self._clones.make()
            bench = self._bench()
            batches = self._plan()
            problem = self._problem(batches, limit, prior)
            outcome = await self._decide(problem, partial(self._measure, bench), limit)
            disproved = any(event.kind == _DISPROVED for event in outcome.events)
            decision = make_decision(self._kernel, outcome, batches)
            return replace(decision, limit_ns=None if disproved else limit.limit_ns)
        finally:
            if bench is not None:
                bench.close()
            self._free()

    def _bench(self) -> Bench:
        context = self._context
        if self._kernel.evict is not None:
            self._evictor = self._record_evictor(self._kernel.evict)
        evict = self._evictor.dispatches if self._evictor else ()
        return Bench(
            context.device,
            lambda index: self._prepared.pop(index, None) or self._prepare(index),
            Conditions(tuple(self._clones.written), evict, self._checker()),
            context.config,
            CrashGuard(context.store, context.hardware, self._suspects()),
            self._options.progress,
            self._pause(),
        )

    def _pause(self) -> Callable[[], Awaitable[None]] | None:
        if not self._context.host.blocking:
            return self._context.host.pause
        return partial(asyncio.sleep, 0) if self._options.awaiting else None

    async def _decide(
        self,
        problem: Problem,
        measure: Callable[[Round], Awaitable[Sequence[Reading]]],
        limit: Limit,
    ) -> Outcome:
        """The strategy's outcome. A time that beats the peak shows that the limit is too loose:
        what stopped there goes on without one."""
        config = self._context.config
        strategy = get_strategy(self._options.strategy or self._context.host.strategy)
        outcome = await awaiting(strategy(problem, config), measure)
        times = {r.time_ns: r.candidate for r in outcome.results if r.time_ns is not None}
        best_ns = min(times, default=limit.disproof_ns)
        if problem.limit_ns is None or best_ns >= limit.disproof_ns:
            return outcome
        spent = 0
        if any(event.kind == "short circuit" for event in outcome.events):
            spent = outcome.launches
            unlimited = replace(problem, limit_ns=None)
            outcome = await awaiting(strategy(unlimited, config), measure)
        name = problem.names[times[best_ns]]
        text = f"{name} is faster than the device's measured peak; the limit is not used"
        events = (Event(_DISPROVED, text, times[best_ns]), *outcome.events)
        return replace(outcome, events=events, launches=outcome.launches + spent)

    def _suspects(self) -> frozenset[str]:
        """Candidates to leave alone. Where that would be all of them, none: a process that was
        killed in the middle of tunes must not end in having no kernel at all."""
        suspects = self._context.store.suspects(self._context.hardware)
        ids = {candidate.id for candidate in self._kernel.candidates}
        return frozenset() if ids <= suspects else suspects

    # -- the problem for the strategy -------------------------------------------------------

    def _plan(self) -> Plan:
        groups: dict[str, int] = {}
        memberships = []
        for candidate in self._kernel.candidates:
            groups.update((g.name, self._priority(g.name, g.priority)) for g, _ in candidate.groups)
            memberships.append([(g.name, self._priority(g.name, p)) for g, p in candidate.groups])
        return plan(groups, memberships)

    def _priority(self, group: str, priority: Any) -> int:
        """The priority of a group or inside it, for this key."""
        return priority_of(f"{self._kernel.name}: group {group!r}", priority, self._call.key)

    def _problem(self, batches: Plan, limit: Limit, prior: Decision | None) -> Problem:
        candidates = self._kernel.candidates
        patience = {
            index: tuple(
                (g.name, g.patience) for g, _ in candidate.groups if g.patience is not None
            )
            for index, candidate in enumerate(candidates)
        }
        return Problem(
            batches=batches.batches,
            count=len(candidates),
            limit_ns=limit.limit_ns if self._kernel.short_circuit else None,
            patience={index: limits for index, limits in patience.items() if limits},
            prior_ns=prior_samples(self._kernel, prior),
            tie_order=tuple(candidate.id for candidate in candidates),
            names=tuple(candidate.name for candidate in candidates),
            never=batches.never,
        )

    # -- what the caller gave besides candidates --------------------------------------------

    def _checker(self) -> Any:
        kernel = self._kernel
        if kernel.check is None:
            return None
        if kernel.outputs is None:
            raise KernelError(
                f"{kernel.name}: check= needs outputs=, the names of the arguments that "
                "candidates write"
            )
        return kernel.check.prepare(kernel.name, self._clones.args, kernel.arguments or ())

    def _record_evictor(self, evict: Callable[..., None]) -> Recording:
        name = self._kernel.name

        def record(recorder: Any, given: Any) -> None:
            call_option("", "evict", evict, recorder, *given)

        evictor = Candidate("evict", Params({}), "evict", record)
        try:
            recording = self._programs.record(evictor, self._clones.args)
        except Reject as error:
            reason = str(error)
            if not reason.startswith("evict="):
                reason = f"evict= cannot be recorded: {reason}"
            raise UsageError(f"{name}: {reason}") from (error.__cause__ or error)
        for handle in self._clones.strays(recording):
            argument = self._clones.name_of(handle)
            if argument is not None:
                recording.free()
                raise UsageError(
                    f"{name}: evict= writes {argument}, which is the caller's and not a copy; "
                    "give it a buffer of its own to write"
                )
        return recording

    # -- candidates -------------------------------------------------------------------------

    async def _measure(self, bench: Bench, wanted: Round) -> Sequence[Reading]:
        for request in wanted.requests:
            if request.candidate not in self._recordings:
                await self._prepare_nested(request.candidate)
        return await bench.measure(wanted)

    async def _prepare_nested(self, index: int) -> None:
        """Record a candidate. Tuned kernels that it runs are decided first, and then it is
        recorded again with their picks; scratch memory that they are tuned on lives until then."""
        while True:
            prepared = self._prepare(index)
            if isinstance(prepared, Failure):
                break
            try:
                again = await self._nested.decide()
            except BaseException:
                self._recordings.pop(index).free()
                raise
            if not again:
                break
            self._recordings.pop(index).free()
        self._prepared[index] = prepared

    def _prepare(self, index: int) -> BenchCandidate | Failure:
        candidate = self._kernel.candidates[index]
        self._nested.begin()
        try:
            recording = self._programs.record(candidate, self._clones.args, self._nested.record)
        except Reject as error:
            return Failure(FailureKind.REJECTED, str(error))
        except LaunchError as error:
            return Failure(FailureKind.LAUNCH, str(error))
        stray = next(self._clones.strays(recording), None)
        if stray is not None:
            recording.free()
            return Failure(FailureKind.REJECTED, self._stray_text(stray))
        self._recordings[index] = recording
        return BenchCandidate(candidate.id, candidate.name, recording.dispatches, candidate.repeat)

    def _stray_text(self, handle: Any) -> str:
        argument = self._clones.name_of(handle)
        if argument is not None:
            return f"it writes {argument}, which outputs= does not name; name it there"
        return "it writes a buffer that is not among its arguments; pass it as one"

    def _free(self) -> None:
        for recording in self._recordings.values():
            recording.free()
        self._recordings.clear()
        if self._evictor is not None:
            self._evictor.free()
        self._clones.free()
