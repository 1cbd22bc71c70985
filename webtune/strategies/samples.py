"""The samples of one candidate under the seed's rules. It only grows, and every rule reads it.

The first sample of a candidate is biased (caches and clocks are cold): once there are three, no
statistic sees it any more.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["SampleSet"]

BIASED_UNTIL = 3
"""With fewer samples than this, throwing one away costs more than its bias."""
STABLE_PUSHES = 2
IMPROVEMENT = 0.02


class SampleSet:
    """Durations of one candidate in ns, in the order taken. Raises `ValueError` on a duration
    that is not positive: no measurement is never a time."""

    __slots__ = ("_all_ns", "_steady")

    def __init__(self, durations_ns: Iterable[int] = ()) -> None:
        self._all_ns: list[int] = []
        self._steady = 0
        for duration_ns in durations_ns:
            self.push(duration_ns)

    def push(self, duration_ns: int) -> None:
        """Add the next sample."""
        if duration_ns <= 0:
            raise ValueError(f"{duration_ns} ns is no measurement")
        before_ns = self.best_ns
        self._all_ns.append(duration_ns)
        if len(self._all_ns) == BIASED_UNTIL:
            # The best before this push may have been the biased sample: nothing can be compared.
            self._steady = 0
        elif before_ns is not None:
            # `before_ns` is above the new best by less than the threshold, or equal to it.
            gained = before_ns - min(before_ns, duration_ns)
            self._steady = self._steady + 1 if gained < IMPROVEMENT * before_ns else 0

    def __len__(self) -> int:
        return len(self._all_ns)

    @property
    def all_ns(self) -> tuple[int, ...]:
        """Every sample, the biased one too."""
        return tuple(self._all_ns)

    @property
    def reliable_ns(self) -> tuple[int, ...]:
        """The samples that statistics may use."""
        return tuple(self._all_ns[1 if len(self._all_ns) >= BIASED_UNTIL else 0 :])

    @property
    def best_ns(self) -> int | None:
        """The fastest reliable sample, None without samples."""
        return min(self.reliable_ns, default=None)

    @property
    def worst_ns(self) -> int | None:
        """The slowest reliable sample, None without samples."""
        return max(self.reliable_ns, default=None)

    @property
    def median_ns(self) -> int | None:
        """The upper median of the reliable samples, as the seed takes it."""
        ordered = sorted(self.reliable_ns)
        return ordered[len(ordered) // 2] if ordered else None

    @property
    def converged(self) -> bool:
        """The last two samples improved the best by less than 2 % each."""
        return self._steady >= STABLE_PUSHES

    def confirmed_under(self, limit_ns: int | None, required: int) -> bool:
        """At least `required` samples, the biased one too, are within the limit. Never without a
        limit."""
        if limit_ns is None:
            return False
        return sum(each <= limit_ns for each in self._all_ns) >= max(1, required)
