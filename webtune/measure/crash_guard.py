"""Notes in the store's crash journal which candidate is on the device for the first time."""

from __future__ import annotations

from dataclasses import dataclass

from webtune.store.base import Store


@dataclass(frozen=True, slots=True)
class CrashGuard:
    """What is noted on one hardware (the digest of its identity), under candidates' ids, and the
    `suspects` that are not to be run on it. Without a store, nothing is noted."""

    store: Store | None = None
    hardware: str = ""
    suspects: frozenset[str] = frozenset()

    def begin(self, candidate_id: str) -> None:
        """Note that a candidate is about to run. A process that ends now leaves it so."""
        if self.store is not None:
            self.store.begin(self.hardware, candidate_id)

    def end(self, candidate_id: str, *, came_back: bool = True) -> None:
        """Note whether it came back, well or not. Where it did not, whatever was begun on this
        hardware is suspect from now on."""
        if self.store is not None and came_back:
            self.store.end(self.hardware, candidate_id)
        elif self.store is not None:
            self.store.abandon(self.hardware)
