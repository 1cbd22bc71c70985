"""Where each candidate of a tune stands: its samples, its failure, or why it was eliminated.

Strategies measure through it and note here what they decide; it decides nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from webtune.errors import Failure, FailureKind
from webtune.strategies.model import (
    Event,
    Interval,
    Outcome,
    Problem,
    Reading,
    Request,
    Result,
    Round,
    Rounds,
    StrategyRun,
)
from webtune.strategies.statistics import median_interval

EXECUTED = (FailureKind.NOT_MEASURED, FailureKind.INVALID_SAMPLES)
"""Failures of candidates that ran: one of them is better than no answer."""

LEADERS = 3
FAR_BEHIND = 1.05
"""Samples of an earlier tune come from another session. Its three fastest candidates are measured
again, and so are those within 5 % of its best."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who won a batch. `log_times` are estimates as logarithms of ns, where the strategy has
    better ones than a median; `ties` and `confidence` are those of `Outcome`."""

    winner: int
    log_times: Mapping[int, float] = field(default_factory=dict)
    ties: tuple[int, ...] = ()
    confidence: float = 0.0


def time_text(time_ns: float) -> str:
    """A time for a sentence, in the unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if time_ns >= size:
            return f"{time_ns / size:.4g} {unit}"
    return f"{time_ns:.4g} ns"


def slower_text(log_difference: float) -> str:
    """A difference of log times for a sentence: in per cent up to the double, then as a factor."""
    ratio = math.exp(max(0.0, log_difference))
    return f"{100 * (ratio - 1):.2g} % slower" if ratio < 1.995 else f"{ratio:.3g} times slower"


class Standings:
    """The candidates of one tune by index, from the first round to the outcome.

    `samples` has their times in ns in the order taken, `failures` those that are out, `eliminated`
    those given up as too slow with the reason, `reasons` why the others lost.
    """

    def __init__(self, problem: Problem, strategy: str, tie_rule: str) -> None:
        self.problem = problem
        self.samples: dict[int, list[int]] = {}
        self.failures: dict[int, Failure] = {}
        self.eliminated: dict[int, str] = {}
        self.reasons: dict[int, str] = {}
        self.launches = 0
        self._strategy = strategy
        self._tie_rule = tie_rule
        self._spared: set[int] = set()
        self._events: list[Event] = []

    def name(self, candidate: int) -> str:
        """What people call a candidate."""
        names = self.problem.names
        return names[candidate] if candidate < len(names) else f"candidate {candidate}"

    def digest(self, candidate: int) -> str:
        """What ranks a candidate where its times do not."""
        order = self.problem.tie_order
        return order[candidate] if candidate < len(order) else self.name(candidate)

    def is_live(self, candidate: int) -> bool:
        """Whether it was measured, did not fail and was not eliminated."""
        out = candidate in self.failures or candidate in self.eliminated
        return bool(self.samples.get(candidate)) and not out

    def live(self, candidates: Iterable[int]) -> list[int]:
        """Those candidates that are live, in the order given."""
        return [candidate for candidate in candidates if self.is_live(candidate)]

    # -- measuring ----------------------------------------------------------------------------

    def first_verdict(
        self, run_batch: Callable[[tuple[int, ...]], Rounds[Verdict | None]]
    ) -> StrategyRun:
        """A whole strategy: batch after batch up to the first that has a verdict."""
        for batch in self.problem.batches:
            verdict = yield from run_batch(batch)
            if verdict is not None:
                return self.outcome(verdict)
        return self.outcome(None)

    def measure(self, requests: Iterable[Request]) -> Rounds[None]:
        """Yield one round and take its readings in; nothing happens without a request."""
        wanted = tuple(requests)
        if wanted:
            for reading in (yield Round(wanted)):
                self.add(reading)

    def add(self, reading: Reading) -> None:
        """Take a reading in. A time that is zero or negative is a failure, and so is a reading
        without any time."""
        candidate, failure = reading.candidate, reading.failure
        if failure is None and min(reading.durations_ns, default=1) <= 0:
            failure = Failure(FailureKind.INVALID_SAMPLES, "a duration was zero or negative")
        if failure is None and not reading.durations_ns:
            failure = Failure(FailureKind.NOT_MEASURED, "it ran and the device gave no time")
        self.launches += reading.launches
        self.samples.setdefault(candidate, []).extend(d for d in reading.durations_ns if d > 0)
        if failure is not None:
            self.failures[candidate] = failure
            self.note("failed", f"{self.name(candidate)} is out, {failure}", candidate)

    def spare(self, candidates: Sequence[int]) -> list[int]:
        """Eliminate those that an earlier tune measured far behind its leaders, on its samples;
        the others are returned, to be measured."""
        prior = self.problem.prior_ns
        medians = {c: median(prior[c]) for c in candidates if prior.get(c)}
        ranked = sorted(medians, key=lambda c: (medians[c], self.digest(c)))
        for candidate in ranked[LEADERS:]:
            time_ns = medians[candidate]
            if time_ns > FAR_BEHIND * medians[ranked[0]]:
                self.samples[candidate] = list(prior[candidate])
                self._spared.add(candidate)
                text = f"an earlier tune measured {time_text(time_ns)}, far behind its leaders"
                self.eliminate(candidate, text, "spared")
        return [candidate for candidate in candidates if candidate not in self._spared]

    def unspare(self) -> list[int]:
        """Return those that were spared, to be measured after all: their samples are dropped."""
        spared = [candidate for candidate in self.eliminated if candidate in self._spared]
        self._spared.clear()
        for candidate in spared:
            del self.samples[candidate], self.eliminated[candidate]
        return spared

    # -- deciding -----------------------------------------------------------------------------

    def note(self, kind: str, text: str, candidate: int | None = None) -> None:
        """Note an event for people."""
        self._events.append(Event(kind, text, candidate))

    def eliminate(self, candidate: int, reason: str, kind: str = "eliminated") -> None:
        """Give up a measured candidate as too slow."""
        self.eliminated[candidate] = reason
        self.note(kind, f"{self.name(candidate)} is given up: {reason}", candidate)

    def skip(self, candidates: Iterable[int], reason: str) -> None:
        """Leave out those candidates of which nothing is known."""
        for candidate in candidates:
            if candidate not in self.samples and candidate not in self.failures:
                self.failures[candidate] = Failure(FailureKind.SKIPPED, reason)
                self.note("skipped", f"{self.name(candidate)} is skipped: {reason}", candidate)

    def outcome(self, verdict: Verdict | None) -> Outcome:
        """The outcome of the tune. Without a verdict, a candidate that ran is taken, unmeasured."""
        planned = [candidate for batch in self.problem.batches for candidate in batch]
        won = verdict is not None
        self.skip(planned, "never reached: a batch before it had an answer" if won else "not run")
        for candidate, reason in self.problem.never.items():
            self.skip([candidate], reason)
        self.skip(range(self.problem.count), "it is in no batch of the plan")
        winner = self._unmeasured_winner(planned) if verdict is None else verdict.winner
        results = tuple(self._result(index, verdict) for index in range(self.problem.count))
        return Outcome(
            winner=winner,
            results=results,
            measured=won,
            interval=None if verdict is None else results[verdict.winner].interval,
            ties=() if verdict is None else verdict.ties,
            confidence=0.0 if verdict is None else verdict.confidence,
            tie_rule=self._tie_rule,
            events=tuple(self._events),
            strategy=self._strategy,
            launches=self.launches,
        )

    def _unmeasured_winner(self, planned: Iterable[int]) -> int | None:
        failures = self.failures
        ran = (c for c in planned if c in failures and failures[c].kind in EXECUTED)
        winner = next(ran, None)
        if winner is not None:
            text = f"nothing could be measured; {self.name(winner)} ran and is taken as it is"
            self.note("unmeasured", text, winner)
        return winner

    def _result(self, candidate: int, verdict: Verdict | None) -> Result:
        samples_ns = tuple(self.samples.get(candidate, ()))
        failure = self.failures.get(candidate)
        if failure is not None:
            return Result(candidate, samples_ns, failure=failure, reason=failure.reason)
        if not samples_ns:
            return Result(candidate)
        log_time = verdict.log_times.get(candidate) if verdict is not None else None
        time_ns = max(1, round(median(samples_ns) if log_time is None else math.exp(log_time)))
        return Result(
            candidate,
            samples_ns,
            time_ns,
            _interval_around(time_ns, samples_ns),
            eliminated=candidate in self.eliminated,
            reason=self.eliminated.get(candidate) or self.reasons.get(candidate, ""),
        )


def _interval_around(time_ns: int, samples_ns: Sequence[int]) -> Interval:
    """The interval of the samples' median, moved to an estimate that is of another moment than
    they are, and widened to hold it: the estimate is no order statistic."""
    interval = median_interval(samples_ns)
    factor = time_ns / median(samples_ns)
    low_ns, high_ns = (max(1, round(factor * end)) for end in (interval.low_ns, interval.high_ns))
    return Interval(min(low_ns, time_ns), max(high_ns, time_ns), interval.level)
