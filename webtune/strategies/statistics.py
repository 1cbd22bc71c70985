"""What can be said of candidates from their samples. Pure, deterministic, without numpy.

Times are compared as logarithms: noise and drift of a GPU are proportional to the time. A
difference of 0.01 is 1 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from webtune.strategies.model import Interval

__all__ = [
    "Comparison",
    "compare",
    "granularity",
    "mad",
    "median",
    "median_interval",
    "normal_cdf",
    "quantile",
]

NORMAL_MAD = 1.4826
"""MAD to standard deviation, for normal noise."""
MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, for normal noise: the square root of pi/2."""
CAUCHY_WIDTH = 1.5
"""Residuals of so many scales get half the weight. 2.385 is 95 % efficient on normal noise
(Holland and Welsch, "Robust regression using iteratively reweighted least squares", 1977); heavy
tails are the rule here, and replays of recorded spaces favour a narrower one."""
SLOW_WEIGHT = 0.4
"""Weight of what is slower than the estimate, against 1 minus it for what is faster: interference
only ever slows a kernel down."""
STEPS = 12
SCALE_FLOOR = 5e-4
"""No clock of a GPU is trusted beyond 0.05 %, however well its readings agree."""
NEAR = 0.1
"""Samples span twenty steps of a coarse clock where they may: a step is then 5 % of a time."""
WINDOW = 2
"""Rounds on either side that tell how fast the device was in a round."""


def median(values: Sequence[float]) -> float:
    """The middle of the values, or the mean of the middle two. `ValueError` when empty."""
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        raise ValueError("nothing has no median")
    half = count // 2
    return ordered[half] if count % 2 else (ordered[half - 1] + ordered[half]) / 2


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0…1) of the values lie, interpolated. `ValueError` when
    empty."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("nothing has no quantile")
    place = min(1.0, max(0.0, share)) * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    step = ordered[above] - ordered[below]
    return ordered[below] + step * (place - below)


def mad(values: Sequence[float]) -> float:
    """The median absolute deviation from the median: a spread that outliers do not widen."""
    centre = median(values)
    return median([abs(each - centre) for each in values])


def median_interval(values_ns: Sequence[int], level: float = 0.95) -> Interval | None:
    """A confidence interval for the median of what the samples were drawn from, in ns.

    From order statistics, so it holds for any distribution (David and Nagaraja, "Order
    Statistics", 2003, section 7.1). With too few samples for `level` it is the whole range, at the
    level that the range has. None without samples.
    """
    ordered = sorted(values_ns)
    count = len(ordered)
    if not count:
        return None
    cut, covered = 0, 1 - 2 * 0.5**count
    tail = 0.5**count
    while cut + 1 < count - 1 - (cut + 1):
        tail += math.comb(count, cut + 1) * 0.5**count
        if 1 - 2 * tail < level:
            break
        cut, covered = cut + 1, 1 - 2 * tail
    return Interval(ordered[cut], ordered[count - 1 - cut], min(level, max(0.0, covered)))


def normal_cdf(value: float) -> float:
    """The probability that a standard normal number is below the value."""
    return 0.5 * math.erfc(-value / math.sqrt(2))


def granularity(columns: Sequence[Sequence[int]]) -> float:
    """The step of a coarse clock as a share of the time, 0 when none shows.

    It shows when most candidates have repeated readings: then the smallest gap between two
    readings of one candidate is a step of the clock, or several. A reading that is far off and
    came once is an outlier and tells of no clock.
    """
    repeating, gaps = 0, []
    for column in columns:
        seen = Counter(column)
        levels = sorted(seen)
        if len(levels) == len(column):
            continue
        repeating += 1
        near = [b - a for a, b in pairwise(levels) if seen[b] > 1 or b - a <= NEAR * a]
        if near:
            gaps.append(min(near) / levels[0])
    if 2 * repeating <= len(columns) or not gaps:
        return 0.0
    return sorted(gaps)[(len(gaps) - 1) // 2]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Candidates compared over the same rounds, by position.

    `at` are their times as logarithms of ns, freed from what all candidates had in common in a
    round. `spread` is each one's own noise, `error` the standard error of a difference of two of
    `at`. `steady` has the samples without the drift, sorted.
    """

    at: tuple[float, ...]
    spread: tuple[float, ...]
    error: float
    steady: tuple[tuple[float, ...], ...]

    @property
    def leader(self) -> int:
        """The position of the fastest."""
        return min(range(len(self.at)), key=self.at.__getitem__)

    def behind(self, position: int, leader: int) -> float:
        """By how many standard errors a candidate is slower than another."""
        return (self.at[position] - self.at[leader]) / self.error


def compare(columns: Sequence[Sequence[int]]) -> Comparison:
    """Compare candidates by their samples in ns, one column each, one row a round.

    Every column counts up to the length of the shortest, so that all are compared over the same
    rounds. What a round did to all of them, a drift or a step of the device's speed, is estimated
    as the median residual of all candidates in the rounds around it, and taken off. Each location
    is then a Cauchy M-estimate whose scale is pooled over the candidates: few samples are enough
    to know what an outlier is, because all of them tell it. `ValueError` without samples.
    """
    rounds = min(map(len, columns), default=0)
    if not rounds:
        raise ValueError("there are no samples to compare")
    logs = [[math.log(each) for each in column[:rounds]] for column in columns]
    steady = _steady(logs)
    centres = [median(column) for column in steady]
    deviations = [
        [abs(each - centre) for each in column]
        for column, centre in zip(steady, centres, strict=True)
    ]
    # A median of few samples lies close to them; the spread seen round it is too small.
    few = math.sqrt(rounds / max(1, rounds - 1))
    pooled = NORMAL_MAD * few * median([each for column in deviations for each in column])
    step = granularity([column[:rounds] for column in columns])
    # Within a step of the clock the mean is the better estimate, so the step counts as noise.
    width = CAUCHY_WIDTH * max(pooled, step, SCALE_FLOOR)
    noise = max(pooled, step / 2, SCALE_FLOOR)
    return Comparison(
        at=tuple(_cauchy(c, m, width) for c, m in zip(steady, centres, strict=True)),
        spread=tuple(NORMAL_MAD * few * median(column) for column in deviations),
        error=MEDIAN_ERROR * noise * math.sqrt(2 / rounds),
        steady=tuple(tuple(sorted(column)) for column in steady),
    )


def _steady(logs: list[list[float]]) -> list[list[float]]:
    rounds = len(logs[0])
    if rounds < 3 or len(logs) < 2:
        return logs
    rows: list[list[float]] = [[] for _ in range(rounds)]
    for column in logs:
        centre = median(column)
        for row, each in zip(rows, column, strict=True):
            row.append(each - centre)
    effects = [
        median([each for row in rows[max(0, r - WINDOW) : r + WINDOW + 1] for each in row])
        for r in range(rounds)
    ]
    # The effects are taken from their own middle, so that times stay times.
    middle = median(effects)
    return [[x - e + middle for x, e in zip(column, effects, strict=True)] for column in logs]


def _cauchy(values: Sequence[float], start: float, width: float) -> float:
    at = start
    for _ in range(STEPS):
        above = below = 0.0
        for each in values:
            residual = (each - at) / width
            weight = SLOW_WEIGHT if residual > 0 else 1 - SLOW_WEIGHT
            weight /= 1 + residual * residual
            above += weight * each
            below += weight
        moved = above / below
        if abs(moved - at) < 1e-9:
            return moved
        at = moved
    return at
