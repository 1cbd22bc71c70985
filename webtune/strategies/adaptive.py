"""The strategy `adaptive`: a race in which launches go to the candidates still hard to tell apart.

Theory of operation
-------------------
1. First pass. Every candidate of a batch is warmed up and sampled once. Where there is a limit (a
   time close to the device's measured peak) or a group with patience, this goes candidate by
   candidate, and a sample within the limit is confirmed at once: the short circuit.
2. Rounds. All that are still racing are sampled in each round, so that they are compared as pairs:
   a drift of the device during a round is common to them, and `statistics.compare` takes it off.
   Every other round runs the list backwards: on a ramp whoever is always first would seem faster.
3. Elimination. After one or two samples, those many times slower than the leader go. From three
   on, a candidate goes when it is `ERRORS` standard errors behind the leader and its samples lie
   apart from the leader's. At `HALVE_AT` samples the slower half goes whatever the evidence
   (successive halving), so that what is left of the launches suffices to tell the others apart.
4. End. One candidate is left, or `ERRORS` standard errors are less than the tie margin of 0.1 %,
   or the launches are spent: `LAUNCHES_EACH` for each candidate of the batch on average.
5. Verdict. The fastest estimate wins. Estimates within 0.01 % are equal; then the smaller spread
   decides, then the smaller digest. Ties are those within 1.96 standard errors of the winner. The
   confidence is the chance that no other candidate is faster by more than the tie margin: the
   product over all others, each judged by its last comparison, with normal errors.
6. Failures. Any failure ends a candidate's race. When all that are left have failed, those that
   were eliminated are taken back. The next batch runs only when nothing of this one was measured.

The numbers below were chosen by replays of recorded spaces (`webtune replay measure`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from webtune.config import Config
from webtune.strategies.elimination import (
    TIE_MARGIN,
    TIE_RULE,
    Elimination,
    beyond_fastest,
    choose_winner,
    hopeless,
    significantly_slower,
    wrong_chance,
)
from webtune.strategies.model import Problem, Request, Rounds, StrategyRun
from webtune.strategies.short_circuit import ShortCircuit, first_pass
from webtune.strategies.standings import Standings, Verdict, slower_text
from webtune.strategies.statistics import Comparison, compare

LAUNCHES_EACH = 20.0
"""Most launches, warm-ups included, for each candidate of a batch on average."""
LEAST_LAUNCHES = 60
"""A batch of few candidates may take so many launches whatever their number."""
ERRORS = 5.0
"""Standard errors behind the leader at which a candidate is eliminated."""
ONCE, TWICE = 20.0, 2.0
"""Times slower than the second fastest at which one sample is enough, and than the leader at which
two are."""
HALVE_AT = (10, 16, 24)
"""Samples at which at most a half, a quarter, an eighth of the batch may still be racing."""
MOST_SAMPLES = 64
LEAST_ROUNDS = 3
"""Fewer samples have no standard error worth the name."""
EXACT_ROUNDS = 6
"""Before so many samples, a small standard error does not end the race."""
CALM_ROUNDS = 8
"""From here on a round takes two samples of each: deciding costs a round trip to the device."""


def adaptive(problem: Problem, config: Config) -> StrategyRun:
    """One warm-up and one sample each, then a sample a round for all that are still in the race.

    Candidates hopelessly slow are eliminated after one or two samples, others when the evidence
    says so, or when half of them must go for the rest to be told apart. Honours group patience,
    the limit (short circuit) and what an earlier tune measured.
    """
    standings = Standings(problem, "adaptive", TIE_RULE)
    short_circuit = ShortCircuit.of(problem, config)
    return standings.first_verdict(lambda batch: _Race(standings, short_circuit, batch).run())


class _Race:
    """The race of one batch. `columns` has the samples in ns of all that entered it, a row a round;
    `eliminated` the evidence against those that left it."""

    def __init__(
        self, standings: Standings, short_circuit: ShortCircuit, batch: Sequence[int]
    ) -> None:
        self.standings = standings
        self.short_circuit = short_circuit
        self.batch = batch
        self.columns: dict[int, list[int]] = {}
        self.eliminated: dict[int, Elimination] = {}
        self.launches_before = standings.launches
        self.backwards = True

    def run(self) -> Rounds[Verdict | None]:
        standings = self.standings
        hit = yield from self._first_pass(standings.spare(self.batch))
        if hit is None and not standings.live(self.batch):
            # Those that led the earlier tune have failed: the others are measured after all.
            hit = yield from self._first_pass(standings.unspare())
        if hit is not None:
            return self._stop_at([hit])
        self.columns = {c: standings.samples[c][:1] for c in standings.live(self.batch)}
        return (yield from self._rounds())

    def _first_pass(self, candidates: Sequence[int]) -> Rounds[int | None]:
        patience = self.standings.problem.patience
        if self.short_circuit.limit_ns is None and patience.keys().isdisjoint(candidates):
            yield from self.standings.measure(Request(c, 1, 1) for c in candidates)
            return None
        return (yield from first_pass(self.standings, candidates, self.short_circuit))

    def _rounds(self) -> Rounds[Verdict | None]:
        live = self._racing()
        while live:
            rounds = min(len(self.columns[c]) for c in live)
            confirmed = self.short_circuit.confirmed
            hits = [c for c in live if confirmed(self.standings.samples[c])]
            if hits:
                return self._stop_at(hits)
            if rounds < LEAST_ROUNDS:
                self._drop_hopeless(live, rounds)
            else:
                found = compare([self.columns[c] for c in live])
                self._drop_slower(live, found, rounds)
                exact = ERRORS * found.standard_error < TIE_MARGIN and rounds >= EXACT_ROUNDS
                if exact or len(self.standings.live(live)) == 1:
                    break
            live = self._racing()
            samples = self._affordable(live, rounds)
            if samples < 1:
                break
            yield from self._sample(live, samples)
            live = self._racing()
        return self._decide(self._racing())

    def _racing(self) -> list[int]:
        """Those still in the race. When the last of them failed, those eliminated are taken back:
        they are better than nobody."""
        standings = self.standings
        if not standings.live(self.columns):
            for candidate in self.columns:
                if candidate in self.eliminated and candidate not in standings.failures:
                    del standings.eliminated[candidate], self.eliminated[candidate]
                    name = standings.name(candidate)
                    text = f"{name} is taken back: all that led it have failed"
                    standings.note("taken back", text, candidate)
        return standings.live(self.columns)

    def _affordable(self, live: Sequence[int], rounds: int) -> int:
        """How many samples of each the next round may take."""
        budget = max(LEAST_LAUNCHES, LAUNCHES_EACH * len(self.batch))
        spent = self.standings.launches - self.launches_before
        # A race has its first rounds, and a lone survivor enough samples for an interval.
        left = max(int(budget - spent) // len(live), LEAST_ROUNDS - rounds)
        return min(1 if rounds < CALM_ROUNDS else 2, left, MOST_SAMPLES - rounds)

    def _sample(self, live: Sequence[int], samples: int) -> Rounds[None]:
        order = live[::-1] if self.backwards else live
        self.backwards = not self.backwards
        before = {c: len(self.standings.samples[c]) for c in live}
        yield from self.standings.measure(Request(c, 0, samples) for c in order)
        for candidate, count in before.items():
            self.columns[candidate] += self.standings.samples[candidate][count:]

    # -- elimination --------------------------------------------------------------------------

    def _drop_hopeless(self, live: Sequence[int], rounds: int) -> None:
        columns = {c: self.columns[c][:rounds] for c in live}
        log_times = {c: math.log(median(column)) for c, column in columns.items()}
        taken = "its sample" if rounds == 1 else "both its samples"
        for candidate, ratio in hopeless(columns, ONCE, TWICE).items():
            reason = f"{ratio:.3g} times the leader in {taken}"
            chance = wrong_chance(ratio, rounds)
            self._drop(candidate, reason, log_times, wrong_chance=chance)

    def _drop_slower(self, live: Sequence[int], found: Comparison, rounds: int) -> None:
        log_times = dict(zip(live, found.log_times, strict=True))
        leader = found.leader
        name, best = self.standings.name(live[leader]), found.log_times[leader]
        out = {
            p: f"{slower_text(found.log_times[p] - best)} than {name}, which led after {rounds} "
            "samples"
            for p in significantly_slower(found, ERRORS)
        }
        halvings = sum(rounds >= samples for samples in HALVE_AT)
        keep = max(2, math.ceil(len(self.batch) / 2**halvings)) if halvings else len(live)
        for position in beyond_fastest(found, keep, lambda p: self.standings.digest(live[p])):
            out.setdefault(position, f"not among the {keep} fastest after {rounds} samples")
        for position, reason in out.items():
            errors = found.errors_behind(position, leader)
            self._drop(live[position], reason, log_times, errors_behind=errors)

    def _drop(
        self, candidate: int, reason: str, log_times: Mapping[int, float], **evidence: float
    ) -> None:
        log_behind = {c: log_times[candidate] - log_time for c, log_time in log_times.items()}
        self.eliminated[candidate] = Elimination(**evidence, log_behind=log_behind)
        self.standings.eliminate(candidate, reason)

    # -- the end ------------------------------------------------------------------------------

    def _decide(self, live: Sequence[int]) -> Verdict | None:
        if not live:
            return None
        standings = self.standings
        found = compare([self.columns[c] for c in live])
        verdict = choose_winner(found, live, standings.digest, self.eliminated)
        winner, times = verdict.winner, verdict.log_times
        count = min(len(self.columns[c]) for c in live)
        standings.reasons |= {
            c: f"{slower_text(times[c] - times[winner])} over {count} samples"
            for c in live
            if c != winner
        }
        text = f"{standings.name(winner)} wins after {count} samples"
        standings.note("converged", text, winner)
        return verdict

    def _stop_at(self, hits: Sequence[int]) -> Verdict:
        samples, digest = self.standings.samples, self.standings.digest
        winner = min(hits, key=lambda c: (median(samples[c]), digest(c)))
        self.short_circuit.note(self.standings, winner)
        # The rest was not compared with it: nothing is known of who else might be faster.
        return Verdict(winner, confidence=1.0 if len(self.batch) == 1 else 0.0)
