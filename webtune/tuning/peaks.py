"""What a device reaches at best, and how close a time comes to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from webtune.config import Config
from webtune.kernel.work import Work
from webtune.strategies.bounds import Bound, ideal_s, limit_ns

BELIEVED = 1.1
"""The fraction of a roofline up to which a time may be noise."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """What this device reaches: f32 operations a second, bytes a second (reads and writes
    together) of data that no cache holds, and the time of a dispatch that does nothing, ns.

    `cached` has what smaller working sets reach, as pairs of their bytes and bytes a second: data
    that a cache holds moves faster, and a limit must not be looser than that.
    """

    flops_per_s: float
    bytes_per_s: float
    launch_ns: int
    cached: tuple[tuple[int, float], ...] = ()

    def bandwidth(self, nbytes: float) -> float:
        """Bytes a second that a working set of `nbytes` may reach: the best measured of any that
        is not smaller than the largest one that fits into it."""
        sizes = [size for size, _ in self.cached if size <= nbytes]
        least = max(sizes, default=0)
        return max([self.bytes_per_s, *(rate for size, rate in self.cached if size >= least)])

    def bounds(
        self, work: Work, config: Config, data_bytes: int | None = None
    ) -> tuple[Bound, ...]:
        """The two roofs over `work`, with the thresholds of the configuration. The working set is
        at most what is moved, and at most `data_bytes`, the buffers that it lies in."""
        memory = self.bandwidth(min(work.bytes, data_bytes or math.inf))
        return (
            Bound(work.flops, self.flops_per_s, config.usable_compute_threshold, "compute"),
            Bound(work.bytes, memory, config.usable_memory_threshold, "memory"),
        )

    def limit_ns(self, work: Work, config: Config, data_bytes: int | None = None) -> int | None:
        """The slowest time that is close enough to the roofline to stop looking, or None."""
        return limit_ns(self.bounds(work, config, data_bytes), self.launch_ns / 1e9)

    def disproof_ns(self, work: Work, data_bytes: int | None = None) -> int:
        """A time below this, ns, beats the roofline by more than noise: the peak was measured too
        low or the work is declared too large. 0 where nothing is known."""
        least = ideal_s(self.bounds(work, Config(), data_bytes))
        return 0 if least is None else round(least * 1e9 / BELIEVED)

    def __str__(self) -> str:
        # Of sizes that are held against the same bandwidth, the largest says it all.
        within = {self.bandwidth(size): size for size, _ in self.cached}
        within.pop(self.bytes_per_s, None)
        memory = "".join(
            f", {rate / 1e9:.4g} GB/s within {size / 2**20:.4g} MiB"
            for rate, size in within.items()
        )
        return (
            f"{self.flops_per_s / 1e9:.4g} GFLOP/s, {self.bytes_per_s / 1e9:.4g} GB/s{memory}, an "
            f"empty dispatch takes {self.launch_ns / 1e3:.4g} µs"
        )
