"""Which candidates are eliminated, and who wins, from samples alone: the order of a list decides
nothing here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

from webtune.strategies.standings import Verdict
from webtune.strategies.statistics import Comparison

TIE_MARGIN = 0.001
"""Nobody is better off by a difference of 0.1 %: confidence and stopping pass over it."""
TIE_ERRORS = 1.96
"""Standard errors within which two candidates cannot be told apart, at 95 %."""
EQUAL = 1e-4
"""Estimates nearer than 0.01 % are equal, and the tie rule decides."""
TIE_RULE = (
    "the fastest estimate wins; of estimates within 0.01 % the one with the smaller spread, "
    "then the one with the smaller content digest"
)
TRUSTED_SHARE = 0.2
"""So many of a candidate's samples may be outliers on either side before they decide."""
DISTURBED = 0.02
"""So many samples may be several times too slow: another process had the device. Twice as far
off is taken to be half as likely, which is a heavier tail than the recorded spaces have."""


@dataclass(frozen=True, slots=True)
class Elimination:
    """The evidence against an eliminated candidate.

    `errors_behind` are the standard errors by which it was behind the leader, None where it had
    too few samples for one; `wrong_chance` is then the chance that it is not slower at all.
    `log_behind` are the differences of its log time from those of the others, when it left.
    """

    errors_behind: float | None = None
    wrong_chance: float = 0.0
    log_behind: Mapping[int, float] = field(default_factory=dict)


def hopeless(columns: Mapping[int, Sequence[int]], once: float, twice: float) -> dict[int, float]:
    """Those to eliminate after their first or second sample, and how many times slower they are.

    After one sample each: those over `once` times the second fastest, so that neither one sample
    that is far too slow nor one that is far too fast says much. After two: those over `twice`
    times the leader in both rounds. The rounds are compared one by one, so that a step of the
    device's speed in the middle of a round condemns nobody.
    """
    rounds = min(map(len, columns.values()), default=0)
    if rounds == 0:
        return {}
    if rounds == 1:
        first = sorted(column[0] for column in columns.values())
        best, second = first[0], first[min(1, len(first) - 1)]
        return {c: ns[0] / best for c, ns in columns.items() if ns[0] > once * second}
    leader = min(columns.values(), key=lambda ns: (ns[0] * ns[1], ns[0]))
    ratios = {c: min(ns[0] / leader[0], ns[1] / leader[1]) for c, ns in columns.items()}
    return {c: ratio for c, ratio in ratios.items() if ratio > twice}


def wrong_chance(ratio: float, samples: int) -> float:
    """The chance that a candidate which was `ratio` times slower in each of so many samples is
    none the slower for it, all of them having been disturbed."""
    return float((DISTURBED / ratio) ** samples)


def significantly_slower(found: Comparison, errors: float) -> list[int]:
    """Positions that the evidence puts behind the leader, slowest first.

    Two things must be true: the estimate is more than `errors` standard errors behind, and all
    but the fastest fifth of the candidate's samples are slower than all but the slowest fifth of
    the leader's. The second holds for any distribution, so that one bad sample among few ends no
    good candidate.
    """
    leader = found.leader
    trusted = int(len(found.log_samples[leader]) * TRUSTED_SHARE)
    ceiling = found.log_samples[leader][-1 - trusted]
    behind = [
        p
        for p, samples in enumerate(found.log_samples)
        if p != leader and found.errors_behind(p, leader) > errors and samples[trusted] > ceiling
    ]
    return sorted(behind, key=lambda p: -found.log_times[p])


def beyond_fastest(found: Comparison, keep: int, digest: Callable[[int], str]) -> list[int]:
    """Positions beyond the `keep` fastest, slowest first. Successive halving: where the evidence
    alone is too slow, half of those in the race go, and the rest share what they would have cost
    (Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", 2013)."""
    order = sorted(range(len(found.log_times)), key=lambda p: (found.log_times[p], digest(p)))
    return order[: keep - 1 : -1] if len(order) > keep else []


def choose_winner(
    found: Comparison,
    candidates: Sequence[int],
    digest: Callable[[int], str],
    eliminated: Mapping[int, Elimination] | None = None,
) -> Verdict:
    """The winner among the compared `candidates`, with its ties and how sure it is.

    Confidence is the chance, taking estimates as normal, that no other candidate, eliminated or
    not, is faster than the winner by more than the tie margin. An eliminated candidate's time is
    told by its distance from the winner when it left: the device's speed may have changed since.
    """
    gone = eliminated or {}
    times = dict(zip(candidates, found.log_times, strict=True))
    best = min(times.values())
    near = [p for p, candidate in enumerate(candidates) if times[candidate] - best <= EQUAL]
    position = min(near, key=lambda p: (found.spreads[p], digest(candidates[p])))
    winner = candidates[position]
    errors = {
        candidate: found.errors_behind(p, position)
        for p, candidate in enumerate(candidates)
        if p != position
    }
    errors |= {c: e.errors_behind for c, e in gone.items() if e.errors_behind is not None}
    margin = TIE_MARGIN / found.standard_error
    chances = [NormalDist().cdf(behind + margin) for behind in errors.values()]
    chances += [1 - e.wrong_chance for e in gone.values() if e.errors_behind is None]
    left_at = {
        candidate: times[winner] + elimination.log_behind[winner]
        for candidate, elimination in gone.items()
        if winner in elimination.log_behind
    }
    return Verdict(
        winner,
        log_times=left_at | times,
        ties=tuple(sorted(c for c, behind in errors.items() if behind <= TIE_ERRORS)),
        confidence=math.prod(chances),
    )
