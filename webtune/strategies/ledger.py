"""The book of one tune: what was measured, what failed and what was decided. It decides nothing."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
)
from webtune.strategies.statistics import median, median_interval

__all__ = ["Asking", "Ledger", "Verdict", "apart", "text_ns"]

Asking = Generator[Round, Sequence[Reading], None]

EXECUTED = (FailureKind.NOT_MEASURED, FailureKind.INVALID_SAMPLES)
"""Failures of candidates that ran: one of them is better than no answer."""


LEADERS = 3
FAR_BEHIND = 1.05
"""An earlier tune's samples are of another session: its first three run again, and so do those
within 5 % of its best."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who won a batch. `times` are estimates of log ns where the strategy has better ones than a
    median; `ties` and `confidence` are those of `Outcome`."""

    winner: int
    times: Mapping[int, float] = field(default_factory=dict)
    ties: tuple[int, ...] = ()
    confidence: float = 0.0


def text_ns(time_ns: float) -> str:
    """A time for a sentence, in the unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if time_ns >= size:
            return f"{time_ns / size:.4g} {unit}"
    return f"{time_ns:.4g} ns"


def apart(logs: float) -> str:
    """A difference of log times for a sentence: in per cent up to the double, then as a factor."""
    ratio = math.exp(max(0.0, logs))
    return f"{100 * (ratio - 1):.2g} % slower" if ratio < 1.995 else f"{ratio:.3g} times slower"


class Ledger:
    """Collects readings and decisions; `outcome` closes it."""

    def __init__(self, problem: Problem, strategy: str, tie_rule: str) -> None:
        self.problem = problem
        self.strategy = strategy
        self.tie_rule = tie_rule
        self.samples: dict[int, list[int]] = {}
        self.failures: dict[int, Failure] = {}
        self.dropped: dict[int, str] = {}
        self.spared: list[int] = []
        self.reasons: dict[int, str] = {}
        self.events: list[Event] = []
        self.launches = 0

    def name(self, candidate: int) -> str:
        """What people call a candidate."""
        names = self.problem.names
        return names[candidate] if candidate < len(names) else f"candidate {candidate}"

    def digest(self, candidate: int) -> str:
        """What ranks a candidate where its times do not."""
        order = self.problem.tie_order
        return order[candidate] if candidate < len(order) else self.name(candidate)

    def ask(self, requests: Iterable[Request]) -> Asking:
        """Yield one round and enter its readings; nothing for an empty one."""
        wanted = tuple(requests)
        if not wanted:
            return
        for reading in (yield Round(wanted)):
            self.enter(reading)

    def enter(self, reading: Reading) -> None:
        """Book a reading. A time that is none, or a reading without any, is a failure."""
        self.launches += reading.launches
        candidate = reading.candidate
        failure = reading.failure
        if failure is None and min(reading.durations_ns, default=1) <= 0:
            failure = Failure(FailureKind.INVALID_SAMPLES, "a duration was zero or negative")
        if failure is None and not reading.durations_ns:
            failure = Failure(FailureKind.NOT_MEASURED, "it ran and the device gave no time")
        self.samples.setdefault(candidate, []).extend(d for d in reading.durations_ns if d > 0)
        if failure is not None:
            self.failures[candidate] = failure
            self.say("failed", f"{self.name(candidate)} is out, {failure}", candidate)

    def say(self, kind: str, text: str, candidate: int | None = None) -> None:
        """Note an event for people."""
        self.events.append(Event(kind, text, candidate))

    def drop(self, candidate: int, reason: str, kind: str = "eliminated") -> None:
        """Give up a measured candidate: it cannot win any more."""
        self.dropped[candidate] = reason
        self.say(kind, f"{self.name(candidate)} is given up: {reason}", candidate)

    def spare(self, candidates: Sequence[int]) -> list[int]:
        """Book what an earlier tune knows of those it left far behind, so that they need not run;
        the others are returned."""
        known = {
            each: median(samples)
            for each in candidates
            if (samples := self.problem.known_ns.get(each))
        }
        ranked = sorted(known, key=lambda each: (known[each], self.digest(each)))
        for each in ranked[LEADERS:]:
            if known[each] > FAR_BEHIND * known[ranked[0]]:
                self.samples[each] = list(self.problem.known_ns[each])
                self.spared.append(each)
                text = f"an earlier tune measured {text_ns(known[each])}, far behind its leaders"
                self.drop(each, text, "spared")
        spared = set(self.spared)
        return [each for each in candidates if each not in spared]

    def recall(self) -> list[int]:
        """Those that were spared have to run after all: what is known of them is forgotten."""
        recalled, self.spared = self.spared, []
        for each in recalled:
            self.samples.pop(each, None)
            self.dropped.pop(each, None)
        return recalled

    def skip(self, candidates: Iterable[int], reason: str) -> None:
        """Leave out candidates that nothing is known of."""
        for candidate in candidates:
            if candidate not in self.samples and candidate not in self.failures:
                self.failures[candidate] = Failure(FailureKind.SKIPPED, reason)
                self.say("skipped", f"{self.name(candidate)} is skipped: {reason}", candidate)

    def live(self, candidates: Iterable[int]) -> list[int]:
        """Those that were measured, did not fail and were not given up."""
        return [
            each
            for each in candidates
            if self.samples.get(each) and each not in self.failures and each not in self.dropped
        ]

    def outcome(self, verdict: Verdict | None) -> Outcome:
        """Close the book. Without a verdict, a candidate that ran is taken, unmeasured."""
        planned = [each for batch in self.problem.batches for each in batch]
        won = verdict is not None
        self.skip(planned, "never reached: a batch before it had an answer" if won else "not run")
        for each, reason in self.problem.never.items():
            self.skip([each], reason)
        self.skip(range(self.problem.count), "it is in no batch of the plan")
        results = tuple(self._result(each, verdict) for each in range(self.problem.count))
        if verdict is not None:
            return Outcome(
                winner=verdict.winner,
                results=results,
                interval=results[verdict.winner].interval,
                ties=verdict.ties,
                confidence=verdict.confidence,
                tie_rule=self.tie_rule,
                events=tuple(self.events),
                strategy=self.strategy,
                launches=self.launches,
            )
        ran = (e for e in planned if e in self.failures and self.failures[e].kind in EXECUTED)
        taken = next(ran, None)
        if taken is not None:
            text = f"nothing could be measured; {self.name(taken)} ran and is taken as it is"
            self.say("unmeasured", text, taken)
        return Outcome(
            winner=taken,
            results=results,
            measured=False,
            tie_rule=self.tie_rule,
            events=tuple(self.events),
            strategy=self.strategy,
            launches=self.launches,
        )

    def _result(self, candidate: int, verdict: Verdict | None) -> Result:
        failure = self.failures.get(candidate)
        samples = tuple(self.samples.get(candidate, ()))
        if failure is not None or not samples:
            return Result(
                candidate, samples, failure=failure, reason=failure.reason if failure else ""
            )
        log_ns = verdict.times.get(candidate) if verdict is not None else None
        time_ns = max(1, round(median(samples) if log_ns is None else math.exp(log_ns)))
        return Result(
            candidate,
            samples,
            time_ns,
            _around(_moved(median_interval(samples), time_ns / median(samples)), time_ns),
            eliminated=candidate in self.dropped,
            reason=self.dropped.get(candidate) or self.reasons.get(candidate, ""),
        )


def _moved(interval: Interval | None, factor: float) -> Interval | None:
    # An estimate told beside the winner's is of another moment than the samples: so is its width.
    if interval is None:
        return None
    low_ns, high_ns = (max(1, round(factor * end)) for end in (interval.low_ns, interval.high_ns))
    return Interval(low_ns, high_ns, interval.level)


def _around(interval: Interval | None, time_ns: int) -> Interval | None:
    # The estimate is no order statistic: the interval is widened to hold it.
    if interval is None:
        return None
    low, high = min(interval.low_ns, time_ns), max(interval.high_ns, time_ns)
    return Interval(low, high, interval.level)
