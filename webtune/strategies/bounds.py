"""How close to the device's measured peak a time is. Numbers that cannot be used give no limit.

The roofline model: a kernel takes at least the larger of its compute and its memory time
(Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """One roof: `amount` of work (flops, bytes) against the device's `peak_per_s` in that unit.

    `threshold` (0…1) is the fraction of the peak that is close enough to stop looking. `name` is
    for people.
    """

    amount: float
    peak_per_s: float
    threshold: float = 1.0
    name: str = ""

    @property
    def ideal_s(self) -> float | None:
        """Seconds at the peak; None when amount or peak is not a positive finite number."""
        return _quotient(self.amount, self.peak_per_s)

    @property
    def limit_s(self) -> float | None:
        """Seconds at `threshold` of the peak, or None when a number cannot be used."""
        ideal = self.ideal_s
        return None if ideal is None else _quotient(ideal, self.threshold)


def limit_s(bounds: Iterable[Bound], overhead_s: float = 0.0) -> float | None:
    """The slowest time, in s, that is still close enough: the largest usable bound plus the
    overhead of a launch. None when no bound can be used."""
    usable = [limit for each in bounds if (limit := each.limit_s) is not None]
    if not usable or not math.isfinite(overhead_s) or overhead_s < 0:
        return None
    return max(usable) + overhead_s


def limit_ns(bounds: Iterable[Bound], overhead_s: float = 0.0) -> int | None:
    """`limit_s` in whole ns; None as well where that is zero, which nothing can pass."""
    seconds = limit_s(bounds, overhead_s)
    return None if seconds is None else round(seconds * 1e9) or None


def ideal_s(bounds: Iterable[Bound]) -> float | None:
    """The shortest time, in s, that the device's peaks allow, or None when nothing is known."""
    usable = [ideal for each in bounds if (ideal := each.ideal_s) is not None]
    return max(usable, default=None)


def achieved(bounds: Iterable[Bound], time_ns: float, overhead_s: float = 0.0) -> float | None:
    """The fraction of the roofline that a measured time reaches; None when it cannot be said.

    Above 1 is possible, and says that the work is declared too large or the peak was measured
    too low. A time that the overhead alone explains says nothing.
    """
    ideal = ideal_s(bounds)
    spent_s = time_ns / 1e9 - overhead_s
    return None if ideal is None else _quotient(ideal, spent_s)


def _quotient(above: float, below: float) -> float | None:
    if not (0 < above < math.inf and 0 < below < math.inf):
        return None
    result = above / below
    # A subnormal divisor overflows and a huge one underflows: neither is a time.
    return result if 0 < result < math.inf else None
