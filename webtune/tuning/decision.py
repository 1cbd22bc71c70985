"""From an outcome to what is kept and told. Pure over values: no device, no store, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from webtune.errors import Failure, FailureKind, NoValidKernel
from webtune.gpu.base import Device
from webtune.kernel.candidates import TunableSet
from webtune.store.record import CandidateRecord, Record
from webtune.strategies.model import Outcome
from webtune.strategies.plan import Plan

__all__ = [
    "demoted",
    "distrusted",
    "index_of_winner",
    "known_samples",
    "make_record",
    "no_valid_kernel",
    "reasons_table",
    "runners_up",
]


def make_record(
    kernel: TunableSet,
    outcome: Outcome,
    plan: Plan,
    device: Device,
    *,
    created_s: float,
    versions: tuple[tuple[str, str], ...],
    wall_s: float,
    limit_ns: int | None,
) -> Record:
    """The record of an outcome that has a winner."""
    if outcome.winner is None:
        raise ValueError("an outcome without a winner is not recorded")
    candidates = kernel.candidates
    rows = []
    for result in outcome.results:
        failure, one = result.failure, candidates[result.candidate]
        why = failure.reason if failure else result.reason
        interval = result.interval
        rows.append(
            CandidateRecord(
                one.id,
                one.name,
                result.samples_ns,
                result.time_ns,
                str(failure.kind) if failure else "",
                plan.never.get(result.candidate, why),
                result.eliminated,
                (interval.low_ns, interval.high_ns) if interval else None,
            )
        )
    clock, interval = device.clock, outcome.interval
    return Record(
        fingerprint=kernel.validity,
        winner=candidates[outcome.winner].id,
        candidates=tuple(rows),
        interval_ns=(interval.low_ns, interval.high_ns) if interval else None,
        ties=tuple(candidates[index].id for index in outcome.ties),
        confidence=outcome.confidence,
        strategy=outcome.strategy,
        clock=(clock.kind, clock.quantum_ns, clock.period_ns),
        hardware_label=device.identity.label,
        created_s=created_s,
        versions=versions,
        limit_ns=limit_ns,
        launches=outcome.launches,
        wall_s=wall_s,
        tie_rule=outcome.tie_rule,
    )


def index_of_winner(kernel: TunableSet, record: Record | None) -> int | None:
    """Where the record's winner stands in the set; None when the record is of another set."""
    if record is None or not kernel.accepts(record.fingerprint):
        return None
    return next((i for i, one in enumerate(kernel.candidates) if one.id == record.winner), None)


def known_samples(kernel: TunableSet, record: Record | None) -> dict[int, tuple[int, ...]]:
    """Samples, ns, that an earlier tune took of candidates that are still the same."""
    if record is None:
        return {}
    known = {c.id: c.samples_ns for c in record.candidates if c.samples_ns and not c.failure}
    return {i: known[one.id] for i, one in enumerate(kernel.candidates) if one.id in known}


def runners_up(kernel: TunableSet, record: Record | None, index: int) -> list[int]:
    """The other measured candidates, fastest first."""
    if record is None:
        return []
    times = {c.id: c.time_ns for c in record.candidates if c.time_ns and not c.failure}
    places = [
        (times[one.id], place)
        for place, one in enumerate(kernel.candidates)
        if one.id in times and place != index
    ]
    return [place for _, place in sorted(places)]


def distrusted(record: Record | None) -> frozenset[str]:
    """Ids of candidates that gave a wrong answer or never came back: no fallback either."""
    kinds = (FailureKind.WRONG_ANSWER, FailureKind.TIMED_OUT)
    found = () if record is None else record.candidates
    return frozenset(each.id for each in found if each.failure in kinds)


def demoted(record: Record | None, candidate: str, reason: str, now_s: float) -> Record | None:
    """The record after its candidate (an id) failed to launch: the fastest that is left wins.
    None when nothing is left."""
    if record is None:
        return None
    candidates = tuple(
        replace(c, failure=str(FailureKind.LAUNCH), reason=reason) if c.id == candidate else c
        for c in record.candidates
    )
    left = [c for c in candidates if c.time_ns and not c.failure]
    if not left:
        return None
    best = min(left, key=lambda c: c.time_ns or 0)
    winner = best.id if record.winner == candidate else record.winner
    interval = best.interval_ns if record.winner == candidate else record.interval_ns
    ties = tuple(one for one in record.ties if one not in (candidate, winner))
    return replace(
        record,
        winner=winner,
        candidates=candidates,
        created_s=now_s,
        interval_ns=interval,
        ties=ties,
    )


def no_valid_kernel(kernel: TunableSet, outcome: Outcome, plan: Plan) -> NoValidKernel:
    """The error for an outcome without a winner, with the table of reasons."""
    failures: dict[str, Failure] = {}
    for result in outcome.results:
        never = plan.never.get(result.candidate)
        failures[kernel.candidates[result.candidate].name] = result.failure or Failure(
            FailureKind.SKIPPED, never or result.reason or "never reached"
        )
    return NoValidKernel(reasons_table(kernel.name, failures), failures)


def reasons_table(name: str, failures: Mapping[str, Failure]) -> str:
    """Why every candidate failed; those that failed alike share a line."""
    together: dict[str, list[str]] = {}
    for candidate, failure in failures.items():
        together.setdefault(str(failure), []).append(candidate)
    lines = [f"{name}: every candidate failed:"]
    for reason, names in together.items():
        shown = "; ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        lines.append(f"  {shown}\n      {reason}")
    return "\n".join(lines)
