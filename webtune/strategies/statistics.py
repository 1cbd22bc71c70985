"""What can be said of candidates from their samples, beyond the standard library's `statistics`.

Times are compared as logarithms: noise and drift of a GPU are proportional to the time. A
difference of 0.01 is 1 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import median

from webtune.strategies.model import Interval

NORMAL_MAD = 1.4826
"""Standard deviation over median absolute deviation, for normal noise."""
MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, for normal noise: the square root of pi/2."""
CAUCHY_WIDTH = 1.5
"""Residuals of so many scales get half the weight. 2.385 is 95 % efficient on normal noise
(Holland and Welsch, "Robust regression using iteratively reweighted least squares", 1977); heavy
tails are the rule here, and replays of recorded spaces favour a narrower one."""
SLOW_WEIGHT = 0.4
"""Weight of what is slower than the estimate, against 1 minus it for what is faster: interference
only ever slows a kernel down."""
CAUCHY_STEPS = 12
SCALE_FLOOR = 5e-4
"""No clock of a GPU is trusted beyond 0.05 %, however well its readings agree."""
NEAR = 0.1
"""Samples span twenty steps of a coarse clock where they may: a step is then 5 % of a time."""
WINDOW = 2
"""Rounds on either side that tell how fast the device was in a round."""


def median_interval(values_ns: Sequence[int], level: float = 0.95) -> Interval:
    """A confidence interval for the median of what the samples were drawn from, in ns.

    From order statistics, so it holds for any distribution (David and Nagaraja, "Order
    Statistics", 2003, section 7.1). With too few samples for `level` it is the whole range, at the
    level that the range has. `ValueError` without samples.
    """
    ordered = sorted(values_ns)
    count = len(ordered)
    if not count:
        raise ValueError("no median of no samples")
    cut, tail = 0, 0.5**count
    while 2 * cut + 3 < count:
        wider_tail = tail + math.comb(count, cut + 1) * 0.5**count
        if 1 - 2 * wider_tail < level:
            break
        cut, tail = cut + 1, wider_tail
    return Interval(ordered[cut], ordered[-1 - cut], min(level, 1 - 2 * tail))


def relative_clock_step(columns: Sequence[Sequence[int]]) -> float:
    """The step of a coarse clock as a share of the time, 0 when none shows.

    It shows when most candidates have repeated readings: then the smallest gap between two
    readings of one candidate is a step of the clock, or several. A reading that is far off and
    came once is an outlier and tells of no clock.
    """
    repeating, steps = 0, []
    for column in columns:
        seen = Counter(column)
        levels = sorted(seen)
        if len(levels) == len(column):
            continue
        repeating += 1
        near = [b - a for a, b in pairwise(levels) if seen[b] > 1 or b - a <= NEAR * a]
        if near:
            steps.append(min(near) / levels[0])
    if 2 * repeating <= len(columns) or not steps:
        return 0.0
    return sorted(steps)[(len(steps) - 1) // 2]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Candidates compared over the same rounds, by position.

    `log_times` are their estimated times as logarithms of ns, freed from what all candidates had
    in common in a round. `spreads` is the noise of each, `standard_error` that of a difference of
    two of `log_times`. `log_samples` has the samples of each without the drift, sorted.
    """

    log_times: tuple[float, ...]
    spreads: tuple[float, ...]
    standard_error: float
    log_samples: tuple[tuple[float, ...], ...]

    @property
    def leader(self) -> int:
        """The position of the fastest."""
        return min(range(len(self.log_times)), key=self.log_times.__getitem__)

    def errors_behind(self, position: int, leader: int) -> float:
        """By how many standard errors a candidate is slower than another."""
        return (self.log_times[position] - self.log_times[leader]) / self.standard_error


def compare(columns: Sequence[Sequence[int]]) -> Comparison:
    """Compare candidates by their samples in ns, one column each, one row a round.

    Every column counts up to the length of the shortest, so that all are compared over the same
    rounds. What a round did to all of them, a drift or a step of the device's speed, is estimated
    as the median residual of all candidates in the rounds around it, and taken off. Each time
    is then a Cauchy M-estimate whose scale is pooled over the candidates: few samples are enough
    to know what an outlier is, because all of them tell it. `ValueError` without samples.
    """
    rounds = min(map(len, columns), default=0)
    if not rounds:
        raise ValueError("there are no samples to compare")
    columns = [column[:rounds] for column in columns]
    log_samples = _without_drift([[math.log(sample) for sample in column] for column in columns])
    centres = [median(column) for column in log_samples]
    deviations = [
        [abs(sample - centre) for sample in column]
        for column, centre in zip(log_samples, centres, strict=True)
    ]
    # A median of few samples lies close to them; the spread seen round it is too small.
    few = math.sqrt(rounds / max(1, rounds - 1))
    pooled = NORMAL_MAD * few * median(chain.from_iterable(deviations))
    step = relative_clock_step(columns)
    # Within a step of the clock the mean is the better estimate, so the step counts as noise.
    width = CAUCHY_WIDTH * max(pooled, step, SCALE_FLOOR)
    noise = max(pooled, step / 2, SCALE_FLOOR)
    return Comparison(
        log_times=tuple(_cauchy(c, m, width) for c, m in zip(log_samples, centres, strict=True)),
        spreads=tuple(NORMAL_MAD * few * median(column) for column in deviations),
        standard_error=MEDIAN_ERROR * noise * math.sqrt(2 / rounds),
        log_samples=tuple(tuple(sorted(column)) for column in log_samples),
    )


def _without_drift(columns: list[list[float]]) -> list[list[float]]:
    rounds = len(columns[0])
    if rounds < 3 or len(columns) < 2:
        return columns
    centres = [median(column) for column in columns]
    rows = [
        [sample - centre for sample, centre in zip(row, centres, strict=True)]
        for row in zip(*columns, strict=True)
    ]
    effects = [
        median(chain.from_iterable(rows[max(0, r - WINDOW) : r + WINDOW + 1]))
        for r in range(rounds)
    ]
    # The effects are taken from their own middle, so that times stay times.
    middle = median(effects)
    return [[x - e + middle for x, e in zip(column, effects, strict=True)] for column in columns]


def _cauchy(values: Sequence[float], start: float, width: float) -> float:
    """The location of the values by iteratively reweighted means, from `start` on."""
    location = start
    for _ in range(CAUCHY_STEPS):
        weighted_sum = weights = 0.0
        for value in values:
            residual = (value - location) / width
            weight = SLOW_WEIGHT if residual > 0 else 1 - SLOW_WEIGHT
            weight /= 1 + residual * residual
            weighted_sum += weight * value
            weights += weight
        moved = weighted_sum / weights
        if abs(moved - location) < 1e-9:
            return moved
        location = moved
    return location
