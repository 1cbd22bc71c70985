"""What a caller is told of a decision: every candidate, its time, and why it did not win."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webtune.kernel.candidates import TunableSet
from webtune.kernel.space import Params
from webtune.kernel.work import Work
from webtune.store.record import CandidateRecord, Record
from webtune.tuning.peaks import Peaks

__all__ = ["CandidateReport", "TuneReport"]


@dataclass(frozen=True, slots=True)
class CandidateReport:
    """One candidate. `status` is "winner", "tie", "slower", "eliminated", "skipped", or the kind of
    its failure. Times are ns of one execution; `interval_ns` is a 95 % interval of the time."""

    name: str
    params: Params
    id: str
    status: str
    time_ns: int | None = None
    interval_ns: tuple[int, int] | None = None
    samples_ns: tuple[int, ...] = ()
    reason: str = ""

    def __repr__(self) -> str:
        from webtune.report.format import candidate_text, duration

        took = f", {duration(self.time_ns)}" if self.time_ns is not None else ""
        return f"<CandidateReport {candidate_text(self)}: {self.status}{took}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "params": dict(self.params),
            "id": self.id,
            "status": self.status,
            "time_ns": self.time_ns,
            "interval_ns": list(self.interval_ns) if self.interval_ns else None,
            "samples_ns": list(self.samples_ns),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class TuneReport:
    """One decision. `source` is "tuned", "store", "memory" or "single" (a set of one candidate).

    `key` is canonical JSON. `wall_s` and `launches` are what the tune cost when it was made;
    `measured` is False for a winner that ran but could not be timed. As text it is a table.
    """

    name: str
    key: str
    winner: CandidateReport | None
    results: tuple[CandidateReport, ...]
    source: str
    strategy: str = ""
    ties: tuple[str, ...] = ()
    confidence: float = 0.0
    tie_rule: str = ""
    measured: bool = True
    launches: int = 0
    wall_s: float = 0.0
    clock: tuple[str, int, float] = ("", 0, 1.0)
    hardware: str = ""
    limit_ns: int | None = None
    work: Work | None = None
    peaks: Peaks | None = None
    data_bytes: int | None = None

    @property
    def winner_ns(self) -> int | None:
        """The winner's time, ns."""
        return self.winner.time_ns if self.winner else None

    @property
    def interval_ns(self) -> tuple[int, int] | None:
        """The 95 % interval of the winner's time, ns."""
        return self.winner.interval_ns if self.winner else None

    @property
    def least_ns(self) -> int | None:
        """The low end of the interval of the winner's time, ns; its time where it has none."""
        return self.interval_ns[0] if self.interval_ns else self.winner_ns

    @property
    def achieved(self) -> float | None:
        """The fraction of the device's roofline that the winner reaches; None where the work or
        the peaks are not known."""
        if self.work is None or self.peaks is None or self.winner_ns is None:
            return None
        return self.peaks.achieved(self.work, self.winner_ns, self.data_bytes)

    @property
    def default_ns(self) -> int | None:
        """The time of the first candidate of the set, ns, if it was measured."""
        return self.results[0].time_ns if self.results else None

    @property
    def slowest_ns(self) -> int | None:
        """The time of the slowest candidate that was measured, ns."""
        return max((r.time_ns for r in self.results if r.time_ns is not None), default=None)

    def counts(self) -> dict[str, int]:
        """How many candidates were measured, rejected, failed, skipped."""
        tally = {"measured": 0, "rejected": 0, "failed": 0, "skipped": 0}
        for result in self.results:
            if result.status in ("rejected", "skipped"):
                tally[result.status] += 1
            elif result.time_ns is not None:
                tally["measured"] += 1
            elif result.status != "winner":
                tally["failed"] += 1
        return tally

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "kernel": self.name,
            "key": self.key,
            "winner": dict(self.winner.params) if self.winner else None,
            "winner_name": self.winner.name if self.winner else None,
            "winner_ns": self.winner_ns,
            "interval_ns": list(self.interval_ns) if self.interval_ns else None,
            "default_ns": self.default_ns,
            "slowest_ns": self.slowest_ns,
            "candidates": len(self.results),
            **self.counts(),
            "ties": list(self.ties),
            "confidence": self.confidence,
            "tie_rule": self.tie_rule,
            "source": self.source,
            "strategy": self.strategy,
            "launches": self.launches,
            "wall_s": self.wall_s,
            "clock": {
                "kind": self.clock[0],
                "quantum_ns": self.clock[1],
                "period_ns": self.clock[2],
            },
            "hardware": self.hardware,
            "limit_ns": self.limit_ns,
            "roofline": self.achieved,
            "results": [result.to_dict() for result in self.results],
        }

    def __repr__(self) -> str:
        from webtune.report.format import counted, headline

        told = counted(len(self.results), "candidate")
        return f"<TuneReport {headline(self)}; {told}, {self.source}>"

    def __str__(self) -> str:
        from webtune.report.format import explain_table

        return explain_table(self)


def report_from_record(
    candidates: TunableSet, key: str, record: Record, source: str, **extra: Any
) -> TuneReport:
    """A stored decision as a report, in the order of the set. Candidates that the record does not
    know are "skipped"."""
    known: Mapping[str, CandidateRecord] = {c.id: c for c in record.candidates}
    results = []
    for one in candidates.candidates:
        entry = known.get(one.id)
        if entry is None:
            results.append(CandidateReport(one.name, one.params, one.id, "skipped"))
            continue
        results.append(
            CandidateReport(
                one.name,
                one.params,
                one.id,
                _status(entry, record),
                entry.time_ns,
                entry.interval_ns,
                entry.samples_ns,
                entry.reason,
            )
        )
    winner = next((r for r in results if r.id == record.winner), None)
    ties = tuple(r.name for r in results if r.id in record.ties)
    return TuneReport(
        candidates.name,
        key,
        winner,
        tuple(results),
        source,
        strategy=record.strategy,
        ties=ties,
        confidence=record.confidence,
        tie_rule=record.tie_rule,
        launches=record.launches,
        wall_s=record.wall_s,
        clock=record.clock,
        hardware=record.hardware_label,
        limit_ns=record.limit_ns,
        **extra,
    )


def _status(entry: CandidateRecord, record: Record) -> str:
    if entry.id == record.winner:
        return "winner"
    if entry.failure:
        return entry.failure
    if entry.id in record.ties:
        return "tie"
    if entry.time_ns is None:
        return "skipped"
    return "eliminated" if entry.eliminated else "slower"
