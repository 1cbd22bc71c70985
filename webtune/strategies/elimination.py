"""Who is given up, and who wins. Pure over samples; the order of a list decides nothing here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from webtune.strategies.ledger import Verdict
from webtune.strategies.statistics import Comparison, normal_cdf

__all__ = [
    "TIE_MARGIN",
    "TIE_RULE",
    "choose",
    "doubt",
    "halving",
    "hopeless",
    "outpaced",
]

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


def hopeless(
    columns: Mapping[int, Sequence[int]], once: float, twice: float
) -> dict[int, tuple[float, int]]:
    """Those to give up after their first or second sample: candidate → (times slower, samples).

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
        slow = {each: column[0] for each, column in columns.items() if column[0] > once * second}
        return {each: (time_ns / best, 1) for each, time_ns in slow.items()}
    leader = min(columns.values(), key=lambda column: (column[0] * column[1], column[0]))
    ratios = {
        each: min(column[0] / leader[0], column[1] / leader[1]) for each, column in columns.items()
    }
    return {each: (ratio, 2) for each, ratio in ratios.items() if ratio > twice}


def doubt(ratio: float, count: int) -> float:
    """The chance that a candidate which was `ratio` times slower in each of `count` samples is
    none the slower for it, all of them having been disturbed."""
    return float((DISTURBED / ratio) ** count)


def outpaced(found: Comparison, errors: float) -> list[int]:
    """Positions that the evidence puts behind the leader, slowest first.

    Two things must be true: the estimate is more than `errors` standard errors behind, and all
    but the fastest fifth of the candidate's samples are slower than all but the slowest fifth of
    the leader's. The second holds for any distribution, so that one bad sample among few ends no
    good candidate.
    """
    lead = found.leader
    trusted = int(len(found.steady[lead]) * TRUSTED_SHARE)
    ceiling = found.steady[lead][-1 - trusted]
    behind = [
        each
        for each, column in enumerate(found.steady)
        if each != lead and found.behind(each, lead) > errors and column[trusted] > ceiling
    ]
    return sorted(behind, key=lambda each: -found.at[each])


def halving(found: Comparison, keep: int, rank: Callable[[int], str]) -> list[int]:
    """Positions beyond the `keep` fastest, slowest first: where the evidence alone is too slow,
    half of those in the race go, and the rest share what they would have cost (Karnin, Koren and
    Somekh, "Almost optimal exploration in multi-armed bandits", 2013)."""
    order = sorted(range(len(found.at)), key=lambda each: (found.at[each], rank(each)))
    return order[: keep - 1 : -1] if len(order) > keep else []


def choose(
    found: Comparison,
    candidates: Sequence[int],
    digest: Callable[[int], str],
    left: Mapping[int, float] | None = None,
    doubts: Mapping[int, float] | None = None,
) -> Verdict:
    """The winner among the compared `candidates`, with its ties and how sure it is.

    `left` has those given up before the end, with the standard errors that they were behind then;
    `doubts` those given up as hopeless, with the chance that this was wrong.
    Confidence is the chance, taking estimates as normal, that none of all these is faster than
    the winner by more than the tie margin.
    """
    best = found.at[found.leader]
    near = [each for each in range(len(candidates)) if found.at[each] - best <= EQUAL]
    won = min(near, key=lambda each: (found.spread[each], digest(candidates[each])))
    errors_behind = {
        candidate: found.behind(each, won)
        for each, candidate in enumerate(candidates)
        if each != won
    } | dict(left or {})
    margin = TIE_MARGIN / found.error
    chances = [normal_cdf(errors + margin) for errors in errors_behind.values()]
    chances += [1 - chance for chance in (doubts or {}).values()]
    return Verdict(
        winner=candidates[won],
        times=dict(zip(candidates, found.at, strict=True)),
        ties=tuple(sorted(each for each, e in errors_behind.items() if e <= TIE_ERRORS)),
        confidence=math.prod(chances),
    )
