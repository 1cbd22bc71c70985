"""Numbers as people read them: times with a unit, intervals, ratios, rates, counts."""

from __future__ import annotations

from webtune.strategies.model import Interval

NOTHING = "–"
"""Stands where there is no number."""

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def duration(time_ns: float | None) -> str:
    """`1234567` → `1.235 ms`: four digits in the largest unit that leaves one before the point."""
    if time_ns is None:
        return NOTHING
    for size, unit in _UNITS:
        if abs(time_ns) >= size or size == 1:
            return f"{_four_digits(time_ns / size, whole=size == 1)} {unit}"
    raise AssertionError("unreachable")


def spread(time_ns: float | None, interval: Interval | tuple[int, int] | None) -> str:
    """A time with half the width of its interval, in per cent: `1.235 ms ± 0.4 %`."""
    if time_ns is None or interval is None:
        return duration(time_ns)
    low, high = _ends(interval)
    half = 50 * (high - low) / time_ns if time_ns else 0.0
    return f"{duration(time_ns)} ± {half:.1f} %"


def between(interval: Interval | tuple[int, int] | None) -> str:
    """An interval's ends: `1.23 … 1.25 ms`, one unit where both share it."""
    if interval is None:
        return NOTHING
    low, high = (duration(end) for end in _ends(interval))
    return f"{low.removesuffix(' ' + high.split()[-1])} … {high}"


def factor(numerator_ns: float | None, denominator_ns: float | None) -> str:
    """How many times: `2.41×`, or a dash where either is not known."""
    if not numerator_ns or not denominator_ns:
        return NOTHING
    return f"{_three_digits(numerator_ns / denominator_ns)}×"


def rate(flops: float | None, nbytes: float | None, time_ns: float | None) -> str:
    """Throughput: in GFLOP/s where there is at least one operation a byte, else in GB/s."""
    if not time_ns or not (flops or nbytes):
        return NOTHING
    if flops and flops >= (nbytes or 0):
        return f"{_three_digits(flops / time_ns)} GFLOP/s"
    return f"{_three_digits((nbytes or 0) / time_ns)} GB/s"


def counted(count: int, what: str) -> str:
    """A count with its noun: `1 pick`, `2 picks`, `2 launches`."""
    plural = "es" if what.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{count} {what}{plural * (count != 1)}"


def _ends(interval: Interval | tuple[int, int]) -> tuple[int, int]:
    if isinstance(interval, Interval):
        return interval.low_ns, interval.high_ns
    return interval[0], interval[1]


def _four_digits(value: float, *, whole: bool) -> str:
    if whole:
        return f"{value:.0f}"
    return f"{value:.3f}" if value < 10 else f"{value:.2f}" if value < 100 else f"{value:.1f}"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def first_line(text: str, most: int = 120) -> str:
    """The first line with anything in it, cut where it would break the table."""
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    return line if len(line) <= most else line[: most - 1] + "…"
