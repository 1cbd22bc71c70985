"""What a caller is told of a decision: every candidate, its time, and why it did not win."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from webtune.kernel.work import Work
from webtune.report.format import (
    NOTHING,
    between,
    counted,
    duration,
    factor,
    first_line,
    rate,
    spread,
)
from webtune.report.table import Table
from webtune.store.decision import CandidateResult, Decision
from webtune.strategies.bounds import Bound, achieved
from webtune.tuning.decision import NOT_TUNED
from webtune.tuning.peaks import BELIEVED

_TOLD_APART = 3
_TIES_TOLD = 5


@dataclass(frozen=True, slots=True)
class TuneReport:
    """One decision about one key, as a caller sees it. As text it is a table.

    - `name`, `key`: the kernel's name, and the key as canonical JSON.
    - `decision`: who won and why, and what finding it cost.
    - `source`: where the decision comes from: "tuned", "store", "memory", "single" (a kernel of
      one candidate), or "miss", "pending" and "compiled" where there is none.
    - `work`: the work of the kernel for this key, if it declares any.
    - `bounds`: the roofs over that work, where the device's peaks are known.
    """

    name: str
    key: str
    decision: Decision
    source: str
    work: Work | None = None
    bounds: tuple[Bound, ...] = ()

    @property
    def winner(self) -> CandidateResult | None:
        """The candidate to use, or None where there is none yet."""
        return self.decision.winner

    @property
    def results(self) -> tuple[CandidateResult, ...]:
        """Every candidate, in the kernel's order."""
        return self.decision.candidates

    @property
    def winner_ns(self) -> int | None:
        """The winner's time in ns, if it was measured."""
        return self.winner.time_ns if self.winner else None

    @property
    def default_ns(self) -> int | None:
        """The time of the kernel's first candidate in ns, if it was measured."""
        return self.results[0].time_ns if self.results else None

    @property
    def slowest_ns(self) -> int | None:
        """The time of the slowest measured candidate in ns."""
        return max((r.time_ns for r in self.results if r.time_ns is not None), default=None)

    @property
    def ties(self) -> tuple[str, ...]:
        """The names of the candidates that the evidence cannot tell from the winner."""
        return tuple(result.name for result in self.decision.ties)

    @property
    def achieved(self) -> float | None:
        """The fraction of the device's roofline that the winner reaches, or None where the work or
        the peaks are not known. Above 1 the work is declared too large or a peak too low."""
        return None if self.winner_ns is None else achieved(self.bounds, self.winner_ns)

    def counts(self) -> dict[str, int]:
        """How many candidates were measured, rejected, failed and skipped."""
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
        """Plain JSON values: the decision's, and what follows from them."""
        plain = self.decision.to_dict()
        results = plain.pop("candidates")
        return {
            "kernel": self.name,
            "key": self.key,
            "source": self.source,
            "winner": dict(self.winner.params) if self.winner else None,
            "winner_name": self.winner.name if self.winner else None,
            "winner_ns": self.winner_ns,
            "interval_ns": list(self.winner.interval_ns or ()) or None if self.winner else None,
            "default_ns": self.default_ns,
            "slowest_ns": self.slowest_ns,
            "ties": list(self.ties),
            "roofline": self.achieved,
            **plain,
            "candidates": len(self.results),
            **self.counts(),
            "results": results,
        }

    def __repr__(self) -> str:
        told = counted(len(self.results), "candidate")
        return f"<TuneReport {headline(self)}; {told}, {self.source}>"

    def __str__(self) -> str:
        return candidate_table(self).plain()


def headline(report: TuneReport) -> str:
    """One line: which key, who won, how sure that is, and where it comes from."""
    where = f"{report.name} {report.key}"
    if report.winner is None:
        untried = all(map(_untried, report.results))
        return f"{where}: {NOT_TUNED if untried else 'no candidate could be taken'}"
    best = report.winner.label
    if report.source == "single":
        return f"{where}: {best} is the only candidate, so nothing was measured"
    if not report.decision.measured:
        return f"{where}: {best} ran, and none could be timed"
    work = report.work
    speed = rate(work.flops, work.bytes, report.winner_ns) if work else NOTHING
    took = spread(report.winner_ns, report.winner.interval_ns)
    return f"{where}: {best} in {took}" + (f", {speed}" if speed != NOTHING else "")


def candidate_table(report: TuneReport) -> Table:
    """What became of every candidate: the winner first, then by time, then those without one."""
    ordered = sorted(report.results, key=_rank)
    rows = tuple(_row(group, report.winner_ns) for group in _groups(ordered))
    columns = ("candidate", ">time", ">interval", ">vs winner", ">samples", "verdict", "why")
    strong = frozenset(i for i, result in enumerate(ordered) if result.status == "winner")
    return Table(columns, rows, title=headline(report), notes=_notes(report), strong=strong)


def _rank(result: CandidateResult) -> tuple[bool, bool, int, str, str]:
    untimed = result.time_ns is None
    grouping = (result.status, result.reason) if untimed else ("", "")
    return (result.status != "winner", untimed, result.time_ns or 0, *grouping)


def _groups(ordered: Sequence[CandidateResult]) -> Iterator[list[CandidateResult]]:
    """Candidates one by one; many without a time that share status and reason, together."""
    alike = groupby(ordered, key=lambda r: r.id if r.time_ns else (r.status, r.reason))
    for _, group in alike:
        results = list(group)
        if len(results) > _TOLD_APART:
            yield results
        else:
            yield from ([result] for result in results)


def _row(group: Sequence[CandidateResult], winner_ns: int | None) -> tuple[str, ...]:
    result = group[0]
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    untried = _untried(result)
    return (
        result.label + more,
        duration(result.time_ns),
        between(result.interval_ns) if len(result.samples_ns) > 1 else NOTHING,
        factor(result.time_ns, winner_ns),
        str(len(result.samples_ns) or NOTHING),
        NOT_TUNED if untried else result.status,
        "" if untried else first_line(result.reason),
    )


def _untried(result: CandidateResult) -> bool:
    return result.status == "skipped" and result.reason in ("", NOT_TUNED)


def _notes(report: TuneReport) -> tuple[str, ...]:
    notes = [_tally(report), _roofline(report), _ties(report), *_origin(report)]
    return tuple(note for note in notes if note)


def _tally(report: TuneReport) -> str:
    counts = Counter(report.counts())
    untried = sum(map(_untried, report.results))
    counts.update({"skipped": -untried, NOT_TUNED: untried})
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{counted(len(report.results), 'candidate')}: {told}." if report.results else ""


def _roofline(report: TuneReport) -> str:
    if report.achieved is None:
        return ""
    if report.achieved > BELIEVED:
        return (
            f"It is {report.achieved:.2f} times as fast as this device's roofline allows: "
            "the work is declared too large, or a peak was measured too low (peaks(fresh=True) "
            "measures it again); the limit is not used."
        )
    limit_ns = report.decision.limit_ns
    enough = f"; at {duration(limit_ns)} it is fast enough" if limit_ns else ""
    return f"It reaches {report.achieved:.0%} of this device's roofline{enough}."


def _ties(report: TuneReport) -> str:
    if not report.ties:
        return ""
    more = len(report.ties) - _TIES_TOLD
    names = "; ".join(report.ties[:_TIES_TOLD]) + (f" and {more} more" if more > 0 else "")
    return f"Not to be told from the winner: {names}. Any of them would do."


def _origin(report: TuneReport) -> Iterator[str]:
    decision = report.decision
    if decision.strategy and report.source != "single":
        tuned = "From the store, tuned" if report.source == "store" else "Tuned"
        sure = f", {decision.confidence:.0%} sure" if decision.confidence else ""
        cost = f"in {decision.wall_s:.2f} s with {counted(decision.launches, 'launch')}"
        yield f"{tuned} by {decision.strategy} {cost}{sure}."
    if decision.clock.kind:
        device = f"On {decision.device}; " if decision.device else ""
        step = duration(decision.clock.quantum_ns)
        yield f"{device}{decision.clock.kind} clock in steps of {step}."
