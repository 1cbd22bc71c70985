"""A race: everybody runs a little, and what is left of the launches goes to those still in it.

All survivors of a round have the same number of samples, taken in the same rounds, so that a drift
of the device never tells them apart.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from math import log

from webtune.config import Config
from webtune.strategies.elimination import (
    TIE_MARGIN,
    TIE_RULE,
    choose,
    doubt,
    halving,
    hopeless,
    outpaced,
)
from webtune.strategies.ledger import Asking, Ledger, Verdict, apart, text_ns
from webtune.strategies.model import Problem, Reading, Request, Round, StrategyRun
from webtune.strategies.statistics import Comparison, compare, median

__all__ = ["AdaptiveSettings", "adaptive"]

DEFAULT_CONFIG = Config()
LEAST_ROUNDS = 3
LEAST_LAUNCHES = 60
EXACT_ROUNDS = 6
CALM_ROUNDS = 8
"""From here on a round takes two samples of each: deciding costs a round trip to the device."""


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """Numbers of the race, each judged by replay of recorded spaces.

    - `launches`: most launches, warm-ups included, per candidate of a batch on average; a batch
      of few candidates may take 60 launches whatever their number.
    - `errors`: standard errors behind the leader at which a candidate is given up.
    - `once`, `twice`: times slower than the second fastest at which one sample is enough, and
      than the leader at which two are.
    - `halve_at`: samples at which at most a half, a quarter, an eighth … may still be racing.
    - `most_samples`: most samples of one candidate.
    """

    launches: float = 20.0
    errors: float = 5.0
    once: float = 20.0
    twice: float = 2.0
    halve_at: tuple[int, ...] = (10, 16, 24)
    most_samples: int = 64


DEFAULTS = AdaptiveSettings()


def adaptive(
    problem: Problem, config: Config = DEFAULT_CONFIG, settings: AdaptiveSettings = DEFAULTS
) -> StrategyRun:
    """One warm-up and one sample each, then a sample a round for all that are still in the race.

    Candidates hopelessly slow are given up after one or two samples, others when the evidence
    says so, or when half of them must go for the rest to be told apart. Honours group patience,
    the limit (short circuit) and what an earlier tune knows.
    """
    ledger = Ledger(problem, "adaptive", TIE_RULE)
    for batch in problem.batches:
        verdict = yield from _Race(problem, config, settings, ledger, batch).run()
        if verdict is not None:
            return ledger.outcome(verdict)
    return ledger.outcome(None)


Step = Generator[Round, Sequence[Reading], Verdict | None]


class _Race:
    """One batch."""

    def __init__(
        self,
        problem: Problem,
        config: Config,
        settings: AdaptiveSettings,
        ledger: Ledger,
        batch: tuple[int, ...],
    ) -> None:
        self.problem = problem
        self.settings = settings
        self.ledger = ledger
        self.batch = batch
        self.limit_ns = problem.limit_ns if config.short_circuit else None
        self.confirmations = config.usable_confirmations
        self.columns: dict[int, list[int]] = {}
        self.left: dict[int, float] = {}
        self.doubts: dict[int, float] = {}
        self.beside: dict[int, dict[int, float]] = {}
        self.start = ledger.launches
        self.flip = True

    def run(self) -> Step:
        hit = yield from self._first_pass(self.ledger.spare(self.batch))
        if hit is None and not self.ledger.live(self.batch):
            # Those that were known to lead have failed: the others are measured after all.
            hit = yield from self._first_pass(self.ledger.recall())
        for each in self.ledger.live(self.batch):
            self.columns[each] = [self.ledger.samples[each][0]]
        if hit is not None:
            return self._short_circuit([hit])
        return (yield from self._rounds())

    # ---- who enters ------------------------------------------------------------------------

    def _first_pass(
        self, entrants: Sequence[int]
    ) -> Generator[Round, Sequence[Reading], int | None]:
        patient = any(each in self.problem.patience for each in entrants)
        if self.limit_ns is None and not patient:
            yield from self.ledger.ask(Request(each, 1, 1) for each in entrants)
            return None
        best: int | None = None
        misses: dict[str, int] = {}
        for place, each in enumerate(entrants):
            groups = self.problem.patience.get(each, ())
            tired = [(g, p) for g, p in groups if misses.get(g, 0) >= max(1, p)]
            if tired:
                name, patience = tired[0]
                reason = f"{patience} in a row of group {name!r} did not improve on the best"
                self.ledger.skip([each], reason)
                continue
            yield from self.ledger.ask([Request(each, 1, 1)])
            if not self.ledger.live([each]):
                continue
            if (yield from self._confirm(each)):
                reason = f"{self.ledger.name(each)} is close enough to the device's peak"
                self.ledger.skip(entrants[place + 1 :], reason)
                return each
            first = self.ledger.samples[each][0]
            improved = best is None or first < best
            best = first if best is None else min(best, first)
            for name, _ in groups:
                misses[name] = 0 if improved else misses.get(name, 0) + 1
        return None

    def _confirm(self, candidate: int) -> Generator[Round, Sequence[Reading], bool]:
        """Samples on the spot while all of them are within the limit."""
        samples = self.ledger.samples[candidate]
        while self.limit_ns is not None and samples[-1] <= self.limit_ns:
            if self._confirmed(candidate):
                return True
            yield from self.ledger.ask([Request(candidate)])
            if not self.ledger.live([candidate]):
                return False
        return False

    def _confirmed(self, candidate: int) -> bool:
        limit_ns = self.limit_ns
        if limit_ns is None:
            return False
        samples = self.ledger.samples[candidate]
        return sum(each <= limit_ns for each in samples) >= self.confirmations

    # ---- the race --------------------------------------------------------------------------

    def _rounds(self) -> Step:
        live = self._survivors()
        while live:
            rounds = min(len(self.columns[each]) for each in live)
            hits = [each for each in live if self._confirmed(each)]
            if hits:
                return self._short_circuit(hits)
            if rounds < LEAST_ROUNDS:
                self._drop_hopeless(live)
            else:
                found = compare([self.columns[each] for each in live])
                self._eliminate(live, found, rounds)
                exact = self.settings.errors * found.error < TIE_MARGIN
                if (exact and rounds >= EXACT_ROUNDS) or len(self.ledger.live(live)) == 1:
                    break
            live = self._survivors()
            more = self._affordable(live, rounds)
            if more < 1:
                break
            yield from self._sample(live, more)
            live = self._survivors()
        return self._decide(self._survivors())

    def _survivors(self) -> list[int]:
        live = self.ledger.live(self.columns)
        if not live:
            # The last of the race failed: those given up are better than nobody.
            for each in self.columns:
                if each not in self.ledger.failures and each in self.ledger.dropped:
                    del self.ledger.dropped[each]
                    self.left.pop(each, None)
                    self.doubts.pop(each, None)
                    text = f"{self.ledger.name(each)} is taken back: all that led it have failed"
                    self.ledger.say("taken back", text, each)
            live = self.ledger.live(self.columns)
        return live

    def _affordable(self, live: Sequence[int], rounds: int) -> int:
        budget = max(LEAST_LAUNCHES, self.settings.launches * len(self.batch))
        left = int(budget - (self.ledger.launches - self.start)) // len(live)
        # A race has its first rounds, and a lone survivor enough samples for an interval.
        left = max(left, LEAST_ROUNDS - rounds)
        return min(1 if rounds < CALM_ROUNDS else 2, left, self.settings.most_samples - rounds)

    def _sample(self, live: Sequence[int], more: int) -> Asking:
        # There and back: on a ramp, whoever is first in every round would seem the fastest.
        order = list(reversed(live)) if self.flip else live
        self.flip = not self.flip
        before = {each: len(self.ledger.samples[each]) for each in live}
        yield from self.ledger.ask(Request(each, 0, more) for each in order)
        for each in live:
            self.columns[each] += self.ledger.samples[each][before[each] :]

    def _drop_hopeless(self, live: Sequence[int]) -> None:
        columns = {each: self.columns[each] for each in live}
        found = hopeless(columns, self.settings.once, self.settings.twice)
        for each, (ratio, count) in found.items():
            self.doubts[each] = doubt(ratio, count)
            self._note_beside(each, {e: log(median(columns[e][:count])) for e in live})
            taken = "its sample" if count == 1 else "both its samples"
            self.ledger.drop(each, f"{ratio:.3g} times the leader in {taken}")

    def _eliminate(self, live: Sequence[int], found: Comparison, rounds: int) -> None:
        at = dict(zip(live, found.at, strict=True))
        lead = found.leader
        out = outpaced(found, self.settings.errors)
        for position in out:
            behind = apart(found.at[position] - found.at[lead])
            leader = self.ledger.name(live[lead])
            reason = f"{behind} than {leader}, which led after {rounds} samples"
            self._note_beside(live[position], at)
            self._leave(live[position], found.behind(position, lead), reason)
        halvings = sum(rounds >= each for each in self.settings.halve_at)
        keep = max(2, -(-len(self.batch) // 2**halvings)) if halvings else len(live)
        for position in halving(found, keep, lambda each: self.ledger.digest(live[each])):
            if position not in out:
                self._note_beside(live[position], at)
                reason = f"not among the {keep} fastest after {rounds} samples"
                self._leave(live[position], found.behind(position, lead), reason)

    def _note_beside(self, candidate: int, at: Mapping[int, float]) -> None:
        """What was seen of all when one leaves. The device may be faster or slower by the end, so
        its time will be told by its distance from the winner in the rounds both ran in."""
        self.beside[candidate] = {each: at[candidate] - at[each] for each in at}

    def _leave(self, candidate: int, errors: float, reason: str) -> None:
        self.left[candidate] = errors
        self.ledger.drop(candidate, reason)

    # ---- the end ---------------------------------------------------------------------------

    def _decide(self, live: Sequence[int]) -> Verdict | None:
        if not live:
            return None
        found = compare([self.columns[each] for each in live])
        verdict = choose(found, live, self.ledger.digest, self.left, self.doubts)
        many = min(len(self.columns[each]) for each in live)
        for each in live:
            if each != verdict.winner:
                behind = apart(verdict.times[each] - verdict.times[verdict.winner])
                self.ledger.reasons[each] = f"{behind} over {many} samples"
        winner = self.ledger.name(verdict.winner)
        self.ledger.say("converged", f"{winner} wins after {many} samples", verdict.winner)
        best = verdict.times[verdict.winner]
        gone = {
            each: best + behind[verdict.winner]
            for each, behind in self.beside.items()
            if verdict.winner in behind
        }
        times = {**gone, **verdict.times}
        return Verdict(verdict.winner, times, verdict.ties, verdict.confidence)

    def _short_circuit(self, hits: Sequence[int]) -> Verdict:
        samples = self.ledger.samples
        won = min(hits, key=lambda each: (median(samples[each]), self.ledger.digest(each)))
        limit = text_ns(self.limit_ns or 0)
        text = f"{self.ledger.name(won)} is within the limit of {limit}; nothing else is tried"
        self.ledger.say("short circuit", text, won)
        # The rest was not compared with it: nothing is known of who else might be faster.
        alone = len(self.batch) == 1
        return Verdict(won, confidence=1.0 if alone else 0.0)
