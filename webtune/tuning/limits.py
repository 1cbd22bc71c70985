"""How fast is fast enough for a call: its work against the peaks of the device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from webtune.kernel.tunable_set import TunableSet
from webtune.strategies.bounds import Bound
from webtune.tuning.call import Call, CallReader
from webtune.tuning.context import Context
from webtune.tuning.peaks import Peaks
from webtune.tuning.probes import remembered_peaks
from webtune.tuning.repository import Repository


@dataclass(frozen=True, slots=True)
class Limit:
    """`limit_ns` is the time at which a strategy may stop looking, and `bounds` say why; nothing
    where work or peaks are not known. A time below `disproof_ns` shows that a peak is wrong."""

    bounds: tuple[Bound, ...] = ()
    limit_ns: int | None = None
    disproof_ns: int = 0


class Limits:
    """The limits on one device. `peaks` are its measured peaks, once they are known here."""

    def __init__(self, context: Context, reader: CallReader, repository: Repository) -> None:
        self._context = context
        self._reader = reader
        self._repository = repository
        self.peaks: Peaks | None = None

    def known_peaks(self) -> Peaks | None:
        """The peaks out of memory or the store, or None where they were never measured."""
        if self.peaks is None:
            self.peaks = remembered_peaks(self._context.device.limits, self._remembered_ns)
        return self.peaks

    def _remembered_ns(self, probe: TunableSet, key: Any) -> int | None:
        winner = self._repository.winner(probe, self._reader.address(probe, key))
        return None if winner is None else winner.least_ns

    def of(self, call: Call) -> Limit:
        """How fast is fast enough for this call. Raises `UsageError` where `work=` does."""
        config = self._context.config
        work = call.kernel.work_of(call.args)
        peaks = None if work is None else self.known_peaks()
        if work is None or peaks is None:
            return Limit()
        bounds = tuple(
            bound
            for bound in peaks.bounds(work, config, call.data_bytes)
            if math.isfinite(bound.amount) and math.isfinite(bound.peak_per_s)
        )
        disproof_ns = peaks.disproof_ns(work, call.data_bytes)
        before = self._repository.winner(call.kernel, call.address)
        before_ns = None if before is None else before.time_ns
        # A pick that beat the peak shows that slower ones would pass for good enough.
        disproved = before_ns is not None and before_ns < disproof_ns
        if disproved or not config.short_circuit:
            return Limit(bounds)
        return Limit(bounds, peaks.limit_ns(work, config, call.data_bytes), disproof_ns)
