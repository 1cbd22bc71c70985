"""A store that lasts as long as the process: the fall-back of the others, and their model."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from webtune.store.base import LOST_STARTS, Address
from webtune.store.decision import Decision, merge

__all__ = ["MemoryStore", "matches"]


def matches(
    address: Address,
    environment: str | None,
    hardware: str | None,
    name: str | None,
    key: str | None,
) -> bool:
    """Whether an address has every part that is given."""
    wanted = (environment, hardware, name, key)
    parts = (address.environment, address.hardware, address.name, address.key)
    return all(want is None or want == part for want, part in zip(wanted, parts, strict=True))


class MemoryStore:
    """Records in a dict. `why` says in `location` why nothing is kept for longer.

    The journal has the starts of this process only. They are no suspects while they may still
    end: a start becomes one when its device is abandoned, and counts as lost when the store is
    closed.
    """

    def __init__(self, why: str = "") -> None:
        self._why = why
        self._lock = threading.RLock()
        self._records: dict[Address, Decision] = {}
        self._running: Counter[tuple[str, str]] = Counter()
        self._lost: Counter[tuple[str, str]] = Counter()
        self._dead: set[tuple[str, str]] = set()

    @property
    def location(self) -> str:
        return f"memory of this process ({self._why})" if self._why else "memory of this process"

    scope: str | None = None

    async def open(self) -> None:
        """Nothing to make ready."""

    def fill(self, records: Mapping[Address, Decision]) -> None:
        """Take these in as they are."""
        with self._lock:
            self._records.update(records)

    def get(self, address: Address) -> Decision | None:
        """The record, or None."""
        with self._lock:
            return self._records.get(address)

    def put(self, address: Address, record: Decision) -> bool:
        """Remember in place of what was there. Always False: it ends with the process."""
        with self._lock:
            self._records[address] = record
        return False

    def absorb(self, address: Address, record: Decision) -> bool:
        """Merge with what is there; True when that changed it."""
        with self._lock:
            before = self._records.get(address)
            after = record if before is None else merge(before, record)
            self._records[address] = after
            return after != before

    def entries(self) -> Iterable[tuple[Address, Decision]]:
        """All records, ordered by address."""
        with self._lock:
            return sorted(self._records.items(), key=lambda each: each[0])

    def purge(
        self,
        *,
        environment: str | None = None,
        hardware: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> int:
        """Forget what matches every given part; how many records went. Without environment, name
        and key the suspects (of that hardware, or all) are forgotten too."""
        with self._lock:
            gone = [a for a in self._records if matches(a, environment, hardware, name, key)]
            for address in gone:
                del self._records[address]
            if environment is name is key is None:
                self._dead = {each for each in self._dead if hardware not in (None, each[0])}
                for each in [each for each in self._lost if hardware in (None, each[0])]:
                    del self._lost[each]
            return len(gone)

    def begin(self, hardware: str, candidate: str) -> None:
        """Journal a start."""
        with self._lock:
            self._running[hardware, candidate] += 1

    def end(self, hardware: str, candidate: str) -> None:
        """Journal that it came back, if only after the store was closed: its lost starts are
        forgotten, an abandoned one is not."""
        with self._lock:
            self._lost.pop((hardware, candidate), None)
            self._running[hardware, candidate] -= 1
            self._running += Counter()

    def abandon(self, hardware: str) -> None:
        """The device is given up: what is running on this hardware will not come back."""
        with self._lock:
            lost = {each for each in self._running if each[0] == hardware}
            self._dead |= lost
            for each in lost:
                del self._running[each]

    def suspects(self, hardware: str) -> frozenset[str]:
        """Candidates that were abandoned here, or were lost too often."""
        with self._lock:
            often = {each for each, count in self._lost.items() if count >= LOST_STARTS}
            return frozenset(name for where, name in self._dead | often if where == hardware)

    async def flush(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """What is still running will not come back to this store."""
        with self._lock:
            self._lost.update(self._running.keys())
            self._running.clear()
