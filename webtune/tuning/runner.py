"""A pick is launched; when it fails the next best runs, and the caller gets the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from webtune.config import Config
from webtune.errors import Failure, FailureKind, LaunchError, NoValidKernel, Reject
from webtune.gpu.base import Program
from webtune.kernel.candidates import Candidate
from webtune.report import log
from webtune.store.base import Store
from webtune.tuning.call import Problem
from webtune.tuning.decision import demoted, distrusted, reasons_table, runners_up
from webtune.tuning.host import Host
from webtune.tuning.pick_cache import Hit, LookUp, Pending
from webtune.tuning.programs import ProgramCache
from webtune.tuning.repository import Repository
from webtune.tuning.scheduler import Scheduler

__all__ = ["Runner"]


class Runner:
    """Launches answers on the caller's own arguments."""

    def __init__(
        self,
        store: Store,
        host: Host,
        config: Config,
        *,
        launcher: ProgramCache,
        decider: Scheduler,
        remembered: Repository,
    ) -> None:
        self._store = store
        self._host = host
        self._config = config
        self._launcher = launcher
        self._decider = decider
        self._remembered = remembered

    def launch(self, problem: Problem, state: LookUp, launch: Callable[[Program], None]) -> LookUp:
        """Launch the pick; when it fails, the next best; when nothing is known, the first that
        serves. Only when one of them ran is it the fault of those that did not."""
        kernel = problem.kernel
        failures: dict[int, Failure] = {}
        for index in self._in_order(problem, state):
            try:
                self._launch_one(problem, kernel.candidates[index], launch)
            except Reject as error:
                failures[index] = Failure(FailureKind.REJECTED, str(error))
            except LaunchError as error:
                failures[index] = Failure(FailureKind.LAUNCH, str(error))
            else:
                return self._launched(problem, state, index, failures)
        named = {kernel.candidates[index].name: failure for index, failure in failures.items()}
        raise NoValidKernel(reasons_table(kernel.name, named), named)

    def _in_order(self, problem: Problem, state: LookUp) -> Iterator[int]:
        """The pick, those measured by time, then the others; never one that was wrong or hung."""
        kernel = problem.kernel
        told = list(range(len(kernel.candidates)))
        if isinstance(state, Hit):
            yield state.index  # the store is asked only when this failed
        record = self._remembered.record(problem.address)
        if isinstance(state, Hit):
            told = [*runners_up(kernel, record, state.index), *told]
        barred = self._store.suspects(problem.address.hardware) | distrusted(record)
        if all(one.id in barred for one in kernel.candidates):
            barred = distrusted(record)
        for index in dict.fromkeys(told):
            ours = isinstance(state, Hit) and index == state.index
            if not ours and kernel.candidates[index].id not in barred:
                yield index

    def _launch_one(
        self, problem: Problem, one: Candidate, launch: Callable[[Program], None]
    ) -> None:
        program = self._launcher.program(one, problem.args, self._decider.nested)
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
        kernel, address = problem.kernel, problem.address
        record = self._remembered.record(address)
        for each, failure in failures.items():
            one = kernel.candidates[each]
            log.failed(self._config.log, kernel.name, one.name, LaunchError(str(failure)))
            if failure.kind is FailureKind.LAUNCH:
                self._launcher.forget(tunable=one)
                record = demoted(record, one.id, failure.reason, self._host.now_s()) or record
        if failures[state.index].kind is not FailureKind.LAUNCH:
            return Hit(index)
        if record is not None and record.winner == kernel.candidates[index].id:
            self._remembered.keep(address, record)
            problem.cache.insert(problem.place, index)
            return Hit(index)
        # Nothing that was measured is left: the next call decides anew.
        problem.cache.evict(problem.place)
        self._remembered.forget(address)
        return Pending()
