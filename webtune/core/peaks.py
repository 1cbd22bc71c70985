"""What a device reaches at best, and how close a time comes to it."""

from __future__ import annotations

from dataclasses import dataclass

from webtune.core.bounds import Bound, achieved, limit_ns
from webtune.core.config import Config
from webtune.core.work import Work

__all__ = ["Peaks"]


@dataclass(frozen=True, slots=True)
class Peaks:
    """What this device reaches: f32 operations a second, bytes a second (reads and writes
    together), and the time of a dispatch that does nothing, ns."""

    flops_per_s: float
    bytes_per_s: float
    launch_ns: int

    def bounds(self, work: Work, config: Config) -> tuple[Bound, ...]:
        """The two roofs over `work`, with the thresholds of the configuration."""
        return (
            Bound(work.flops, self.flops_per_s, config.usable_compute_threshold, "compute"),
            Bound(work.bytes, self.bytes_per_s, config.usable_memory_threshold, "memory"),
        )

    def limit_ns(self, work: Work, config: Config) -> int | None:
        """The slowest time that is close enough to the roofline to stop looking, or None."""
        return limit_ns(self.bounds(work, config), self.launch_ns / 1e9)

    def achieved(self, work: Work, time_ns: int) -> float | None:
        """The fraction of the roofline that a time reaches, or None when it cannot be said."""
        return achieved(self.bounds(work, Config()), time_ns)
