"""Launches picks on the caller's own arguments. When one fails, the next best runs instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from webtune.errors import Failure, FailureKind, LaunchError, NoValidKernel, Reject
from webtune.gpu.base import Program
from webtune.kernel.candidates import Candidate
from webtune.tuning.call import Call
from webtune.tuning.decision import demoted, distrusted, reasons_table, runners_up
from webtune.tuning.pick_cache import Hit, LookUp, Pending
from webtune.tuning.scheduler import Scheduler

Launch = Callable[[Program], None]


class Runner:
    """Launches the answers of a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._context = scheduler.context
        self._programs = scheduler.programs
        self._repository = scheduler.repository

    def launch(self, call: Call, state: LookUp, launch: Launch) -> LookUp:
        """Launch the pick; when it fails, the next best; when there is none, the first candidate
        that serves. Only when one of them ran is it the fault of those that did not.

        Raises `NoValidKernel` when none could be launched.
        """
        candidates = call.kernel.candidates
        failures: dict[int, Failure] = {}
        for index in self._in_order(call, state):
            try:
                self._launch_one(call, candidates[index], launch)
            except Reject as error:
                failures[index] = Failure(FailureKind.REJECTED, str(error))
            except LaunchError as error:
                failures[index] = Failure(FailureKind.LAUNCH, str(error))
            else:
                return self._launched(call, state, index, failures)
        named = {candidates[index].name: failure for index, failure in failures.items()}
        raise NoValidKernel(reasons_table(call.kernel.name, named), named)

    def _in_order(self, call: Call, state: LookUp) -> Iterator[int]:
        """The pick, the measured candidates by time, then the others; of these none that gave a
        wrong answer, never came back, or is suspect."""
        pick = state.index if isinstance(state, Hit) else None
        if pick is not None:
            yield pick  # the store is asked only when this failed
        candidates = call.kernel.candidates
        decision = self._repository.find(call.address)
        faster = [] if pick is None else runners_up(call.kernel, decision, pick)
        order = dict.fromkeys((*faster, *range(len(candidates))))
        barred = self._context.store.suspects(call.address.hardware) | distrusted(decision)
        if all(candidate.id in barred for candidate in candidates):
            barred = distrusted(decision)
        yield from (i for i in order if i != pick and candidates[i].id not in barred)

    def _launch_one(self, call: Call, candidate: Candidate, launch: Launch) -> None:
        program = self._programs.program(candidate, call.args, self._scheduler.nested.record)
        if program.failure is not None:
            self._programs.forget(candidate=candidate)
            raise LaunchError(program.failure)
        launch(program)

    def _launched(
        self, call: Call, state: LookUp, index: int, failures: Mapping[int, Failure]
    ) -> LookUp:
        """Candidate `index` ran after those in `failures` did not. A pick among these is given up
        where the device refused it; one that only rejects these arguments stays."""
        if not isinstance(state, Hit) or index == state.index:
            return state
        candidates = call.kernel.candidates
        decision = self._repository.find(call.address)
        for failed, failure in failures.items():
            candidate = candidates[failed]
            self._context.observer.launch_failed(call, candidate.name, LaunchError(str(failure)))
            if failure.kind is FailureKind.LAUNCH:
                self._programs.forget(candidate=candidate)
                decision = demoted(decision, candidate.id, failure.reason) or decision
        if failures[state.index].kind is not FailureKind.LAUNCH:
            return Hit(index)
        winner = decision.winner if decision is not None else None
        if decision is not None and winner and winner.id == candidates[index].id:
            now_s = self._context.host.now_s()
            self._repository.keep(call.address, replace(decision, created_s=now_s))
            call.cache.insert(call.cache_key, index)
            return Hit(index)
        # Nothing that was measured is left: the next call decides anew.
        call.cache.evict(call.cache_key)
        self._repository.forget(call.address)
        return Pending()
