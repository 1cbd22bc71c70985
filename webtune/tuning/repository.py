"""What is kept of decisions, and what is told of them: records, limits, reports, the decision log.

Memory first, then the store; a guess is never stored, and what is told of a tune never undoes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from webtune.config import Config
from webtune.errors import DeviceLost, TuneWarning, warn
from webtune.gpu.base import Device
from webtune.kernel.candidates import TunableSet
from webtune.report import log
from webtune.report.decision_log import Sink, decision
from webtune.report.report import CandidateReport, TuneReport, report_from_record
from webtune.store.base import Address, Selector, Store
from webtune.store.record import CandidateRecord, Record
from webtune.tuning.bounds import Bound
from webtune.tuning.call import Problem, Problems
from webtune.tuning.decision import index_of_winner, make_record, no_valid_kernel
from webtune.tuning.host import Host
from webtune.tuning.peaks import Peaks
from webtune.tuning.pick_cache import Claim, Hit, LookUp
from webtune.tuning.probes import remembered_peaks
from webtune.tuning.session import Settled

__all__ = ["Limit", "Repository"]


@dataclass(frozen=True, slots=True)
class Limit:
    """How fast is fast enough for a problem, and why; nothing where no work or peak is known. A
    time below `disproof_ns` shows that a peak is wrong."""

    bounds: tuple[Bound, ...] = ()
    limit_ns: int | None = None
    disproof_ns: int = 0


class Repository:
    """The records of one tuner's device."""

    def __init__(
        self,
        device: Device,
        store: Store,
        host: Host,
        config: Config,
        problems: Problems,
        sink: Sink | None,
    ) -> None:
        self._device = device
        self._store = store
        self._host = host
        self._config = config
        self._problems = problems
        self._sink = sink
        self._unstored: dict[Address, Record] = {}
        self.peaks: Peaks | None = None
        """The device's peaks, once they are known in this process."""

    # -- records ----------------------------------------------------------------------------

    def record(self, address: Address) -> Record | None:
        """The newer of what memory and the store have."""
        own, stored = self._unstored.get(address), self._store.get(address)
        if own is None or stored is None:
            return stored if own is None else own
        return stored if stored.created_s > own.created_s else own

    def keep(self, address: Address, record: Record, *, lasting: bool = True) -> bool:
        """Remember; True when it outlives this process. A guess is kept in memory only."""
        if lasting and self._store.put(address, record):
            self._unstored.pop(address, None)
            return True
        self._unstored[address] = record
        return False

    def forget(self, address: Address) -> None:
        """Nothing of this key is known any more."""
        self._unstored.pop(address, None)
        self._store.purge(Selector.of(address))

    def stored_index(self, problem: Problem) -> int | None:
        """The pick that the store has for this very set, as an index."""
        return index_of_winner(problem.kernel, self.record(problem.address))

    def is_persisted(self, problem: Problem) -> bool:
        """Whether the store, and not memory alone, has the pick."""
        return problem.address not in self._unstored

    # -- limits -----------------------------------------------------------------------------

    def known_peaks(self) -> Peaks | None:
        """The peaks out of memory or the store; None where they were never measured."""
        if self.peaks is None:
            self.peaks = remembered_peaks(self._device.limits, self._recall_ns)
        return self.peaks

    def limit(self, problem: Problem) -> Limit:
        """How fast is fast enough for this problem."""
        work = problem.kernel.work_of(problem.args)
        peaks = None if work is None else self.known_peaks()
        if work is None or peaks is None:
            return Limit()
        data_bytes = problem.data_bytes
        bounds = peaks.bounds(work, self._config, data_bytes)
        disproof_ns = peaks.disproof_ns(work, data_bytes)
        before = self._winner(problem.kernel, problem.address)
        before_ns = None if before is None else before.time_ns
        # A pick that beat the peak shows that slower ones would pass for good enough.
        disproved = before_ns is not None and before_ns < disproof_ns
        if disproved or not self._config.short_circuit:
            return Limit(bounds)
        return Limit(bounds, peaks.limit_ns(work, self._config, data_bytes), disproof_ns)

    def _recall_ns(self, probe: TunableSet, key: Any) -> int | None:
        winner = self._winner(probe, self._problems.address(probe, key))
        if winner is None:
            return None
        return winner.interval_ns[0] if winner.interval_ns else winner.time_ns

    def _winner(self, kernel: TunableSet, address: Address) -> CandidateRecord | None:
        record = self.record(address)
        if record is None or not kernel.accepts(record.fingerprint):
            return None
        return record.winning

    # -- committing and telling ---------------------------------------------------------------

    def commit(
        self, problem: Problem, mark: Claim, settled: Settled, wall_s: float, limit: Limit
    ) -> TuneReport:
        """Settle the key, keep the record and tell. Raises `NoValidKernel` where nothing could be
        taken, or `DeviceLost` where that is why."""
        outcome, kernel = settled.outcome, problem.kernel
        record, stored = None, False
        if outcome.winner is not None:
            record = make_record(
                kernel,
                outcome,
                settled.plan,
                self._device,
                created_s=self._host.now_s(),
                versions=self._host.versions,
                wall_s=wall_s,
                limit_ns=settled.limit_ns,
            )
            mark.settle(outcome.winner)
            stored = self.keep(problem.address, record, lasting=outcome.measured)
        self._publish(problem, settled, record, stored, wall_s, limit)
        if record is None:
            none_left = no_valid_kernel(kernel, outcome, settled.plan)
            if self._device.lost is not None:
                raise DeviceLost(self._device.lost) from none_left
            raise none_left
        report = self.report(problem, record, "tuned", measured=outcome.measured)
        log.decided(self._config.log, report)
        return report

    def _publish(
        self,
        problem: Problem,
        settled: Settled,
        record: Record | None,
        stored: bool,
        wall_s: float,
        limit: Limit,
    ) -> None:
        if self._sink is None:
            return
        try:
            self._sink(self._decision(problem, settled, record, stored, wall_s, limit))
        except Exception as error:
            # What is told of a tune must not undo it.
            text = f"{problem.kernel.name}: its decision could not be recorded: {error}"
            warn(TuneWarning(text))

    def _decision(
        self,
        problem: Problem,
        settled: Settled,
        record: Record | None,
        stored: bool,
        wall_s: float,
        limit: Limit,
    ) -> dict[str, Any]:
        return decision(
            problem.kernel,
            problem.address,
            self._device,
            settled.plan,
            settled.outcome,
            record,
            stored=stored,
            created_s=self._host.now_s(),
            wall_s=wall_s,
            bounds=limit.bounds,
            limit_ns=settled.limit_ns,
            versions=self._host.versions,
        )

    def report(
        self, problem: Problem, record: Record, source: str, *, measured: bool = True
    ) -> TuneReport:
        """A record of this problem as a report."""
        work = problem.kernel.work_of(problem.args)
        return report_from_record(
            problem.kernel,
            problem.address.key,
            record,
            source,
            measured=measured,
            work=work,
            data_bytes=problem.data_bytes,
            peaks=self.known_peaks() if work is not None else None,
        )

    def explain(self, problem: Problem, state: LookUp, source: str = "") -> TuneReport:
        """What is known of a problem that memory answers with `state`."""
        kernel = problem.kernel
        record = self.record(problem.address)
        if record is not None and kernel.accepts(record.fingerprint):
            source = source or ("memory" if isinstance(state, Hit) else "store")
            return self.report(problem, record, source)
        results = tuple(
            CandidateReport(one.name, one.params, one.id, "skipped", reason="not tuned yet")
            for one in kernel.candidates
        )
        winner = results[state.index] if isinstance(state, Hit) else None
        source = "single" if len(results) == 1 else type(state).__name__.lower()
        return TuneReport(kernel.name, problem.address.key, winner, results, source)
