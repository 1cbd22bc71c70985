"""Bucketing of a dimension, so that near shapes share one key. A bucket is named by its top.

The level decides how coarse: the base of the powers is multiplied by 1.25 (minimal), 1 (balanced)
or 0.75 (extensive); full has no buckets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from fractions import Fraction

from webtune.errors import UsageError


class Level(StrEnum):
    """How finely shapes are told apart: fewer keys to tune first, most keys last."""

    MINIMAL = "minimal"
    BALANCED = "balanced"
    EXTENSIVE = "extensive"
    FULL = "full"


FACTORS = {
    Level.MINIMAL: Fraction(5, 4),
    Level.BALANCED: Fraction(1),
    Level.EXTENSIVE: Fraction(3, 4),
}
SMALLEST_BASE = Fraction(3, 2)

_current: ContextVar[Level] = ContextVar("webtune_anchor_level", default=Level.BALANCED)


@contextmanager
def at_level(level: Level | str) -> Iterator[None]:
    """Within the block, in this thread or task, `anchor` buckets at this level."""
    token = _current.set(_level(level))
    try:
        yield
    finally:
        _current.reset(token)


def anchor(
    x: int,
    max: int | None = None,  # noqa: A002
    min: int | None = None,  # noqa: A002
    base: float = 2,
    level: Level | str | None = None,
) -> int:
    """The bucket of `x`: the smallest power of the base, rounded up, not below it; then clamped.

    Powers are computed exactly and rounded up to whole numbers; the name of a bucket lies in it,
    and the winner of a bucket was measured at least at the size of what it serves. With base 2:
    anchor(1000) is 1024 at balanced, 1526 (2.5^8) at minimal, 1478 (1.5^18) at extensive, 1000
    at full. `max` gathers everything above it, `min` everything below. At level full `x` comes
    back as it is, whatever the clamps say. Zero is a bucket of its own. `level` defaults to that
    of the enclosing `at_level`, else balanced. Raises `UsageError` for a negative `x`, a base
    below 1.5, or `min` above `max`.
    """
    chosen = _current.get() if level is None else _level(level)
    if x < 0:
        raise UsageError(f"anchor({x}): a dimension is not negative")
    if min is not None and max is not None and min > max:
        raise UsageError(f"anchor: min {min} is above max {max}")
    if not SMALLEST_BASE <= base < float("inf"):
        raise UsageError(f"anchor: base {base} is not usable; take 1.5 or more (2 is usual)")
    if chosen is Level.FULL:
        return x
    bucket = 0 if x == 0 else _power_from(x, Fraction(base) * FACTORS[chosen])
    if max is not None and bucket > max:
        return max
    return min if min is not None and bucket < min else bucket


def _power_from(x: int, base: Fraction) -> int:
    power = Fraction(1)
    # The rounded power is what must reach x: else the name of a bucket would lie in the next one.
    while math.ceil(power) < x:
        power *= base
    return math.ceil(power)


def _level(level: Level | str) -> Level:
    try:
        return Level(level)
    except ValueError as error:
        raise UsageError(f"anchor: no level {level!r}; there are {', '.join(Level)}") from error
