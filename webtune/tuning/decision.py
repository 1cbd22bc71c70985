"""From the outcome of a strategy to the decision that is kept, and what a kept decision says.

Pure functions over values: nothing here touches a device, a store or a clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from webtune.errors import Failure, FailureKind, NoValidKernel
from webtune.kernel.tunable_set import TunableSet
from webtune.store.decision import CandidateResult, Decision
from webtune.strategies.model import Outcome, Result
from webtune.strategies.plan import Plan

NOT_TUNED = "not tuned yet"
_DISTRUSTED = (FailureKind.WRONG_ANSWER, FailureKind.TIMED_OUT)


def make_decision(kernel: TunableSet, outcome: Outcome, plan: Plan) -> Decision:
    """What a strategy concluded about `kernel`, by the candidates' own names. Where it was
    measured, when, and under which limit is for the caller to add."""
    return Decision(
        fingerprint=kernel.validity,
        candidates=tuple(_results(kernel, outcome, plan)),
        measured=outcome.measured,
        confidence=outcome.confidence,
        tie_rule=outcome.tie_rule,
        strategy=outcome.strategy,
        launches=outcome.launches,
        batches=plan.batches,
        events=outcome.events,
        checked=kernel.check is not None,
    )


def _results(kernel: TunableSet, outcome: Outcome, plan: Plan) -> Iterator[CandidateResult]:
    for result in outcome.results:
        candidate = kernel.candidates[result.candidate]
        reason = result.failure.reason if result.failure else result.reason
        yield CandidateResult(
            candidate.id,
            candidate.name,
            candidate.params,
            _status(result, outcome),
            result.time_ns,
            (result.interval.low_ns, result.interval.high_ns) if result.interval else None,
            result.samples_ns,
            plan.never.get(result.candidate, reason),
        )


def _status(result: Result, outcome: Outcome) -> str:
    if result.candidate == outcome.winner:
        return "winner"
    if result.failure is not None:
        return str(result.failure.kind)
    if result.candidate in outcome.ties:
        return "tie"
    if result.time_ns is None:
        return str(FailureKind.SKIPPED)
    return "eliminated" if result.eliminated else "slower"


def undecided(kernel: TunableSet, pick: int | None) -> Decision:
    """What is said of a kernel that was never tuned: `pick` is used, the others are skipped."""
    results = [
        CandidateResult(candidate.id, candidate.name, candidate.params, reason=NOT_TUNED)
        for candidate in kernel.candidates
    ]
    if pick is not None:
        results[pick] = replace(results[pick], status="winner")
    return Decision(kernel.validity, tuple(results))


def reordered(decision: Decision, kernel: TunableSet) -> Decision:
    """The decision with its candidates in the order of the kernel, which may have changed since."""
    position = {result.id: index for index, result in enumerate(decision.candidates)}
    order = [position[candidate.id] for candidate in kernel.candidates if candidate.id in position]
    if order == list(range(len(decision.candidates))):
        return decision
    moved = {old: new for new, old in enumerate(order)}
    return replace(
        decision,
        candidates=tuple(decision.candidates[old] for old in order),
        batches=tuple(tuple(moved[i] for i in b if i in moved) for b in decision.batches),
        events=tuple(
            replace(event, candidate=moved.get(-1 if event.candidate is None else event.candidate))
            for event in decision.events
        ),
    )


def pick_of(kernel: TunableSet, decision: Decision | None) -> int | None:
    """The index of the decision's winner in the kernel, or None where the decision is not valid
    for it."""
    if decision is None or not kernel.accepts(decision.fingerprint) or decision.winner is None:
        return None
    winner = decision.winner.id
    return next(
        (i for i, candidate in enumerate(kernel.candidates) if candidate.id == winner), None
    )


def prior_samples(kernel: TunableSet, decision: Decision | None) -> dict[int, tuple[int, ...]]:
    """Samples in ns, by index, that an earlier tune took of candidates that are still the same."""
    if decision is None:
        return {}
    prior = {result.id: result.samples_ns for result in decision.candidates if not result.failure}
    indices = enumerate(kernel.candidates)
    return {index: prior[candidate.id] for index, candidate in indices if prior.get(candidate.id)}


def runners_up(kernel: TunableSet, decision: Decision | None, pick: int) -> list[int]:
    """The indices of the other measured candidates, fastest first."""
    if decision is None:
        return []
    times_ns = {result.id: result.time_ns for result in decision.candidates if result.time_ns}
    failed = {result.id for result in decision.candidates if result.failure}
    ranked = [
        (times_ns[candidate.id] or 0, index)
        for index, candidate in enumerate(kernel.candidates)
        if candidate.id in times_ns.keys() - failed and index != pick
    ]
    return [index for _, index in sorted(ranked)]


def distrusted(decision: Decision | None) -> frozenset[str]:
    """Ids of candidates that gave a wrong answer or never came back: they are no fallback."""
    candidates = decision.candidates if decision is not None else ()
    return frozenset(result.id for result in candidates if result.status in _DISTRUSTED)


def demoted(decision: Decision | None, candidate: str, reason: str) -> Decision | None:
    """The decision after a candidate (its id) failed to launch: the fastest of the others wins.
    None where no measured candidate is left."""
    if decision is None:
        return None
    left = [
        result for result in decision.candidates if result.id != candidate and not result.failure
    ]
    best = min(
        (result for result in left if result.time_ns),
        key=lambda result: result.time_ns or 0,
        default=None,
    )
    if best is None:
        return None
    lost = decision.winner is not None and decision.winner.id == candidate

    def after(result: CandidateResult) -> CandidateResult:
        if result.id == candidate:
            return replace(result, status=str(FailureKind.LAUNCH), reason=reason)
        return replace(result, status="winner") if lost and result.id == best.id else result

    return replace(decision, candidates=tuple(map(after, decision.candidates)))


def no_valid_kernel(kernel: TunableSet, decision: Decision) -> NoValidKernel:
    """The error for a decision without a winner, with the table of reasons."""
    failures = {
        result.name: result.failure
        or Failure(FailureKind.SKIPPED, result.reason or "never reached")
        for result in decision.candidates
    }
    return NoValidKernel(reasons_table(kernel.name, failures), failures)


def reasons_table(name: str, failures: Mapping[str, Failure]) -> str:
    """Why every candidate failed; those that failed alike share a line."""
    together: dict[str, list[str]] = {}
    for candidate, failure in failures.items():
        together.setdefault(str(failure), []).append(candidate)
    lines = [f"{name}: every candidate failed:"]
    for reason, names in together.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(f"  {'; '.join(names[:3])}{more}\n      {reason}")
    return "\n".join(lines)
