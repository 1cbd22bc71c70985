"""Stores without a file: one that lasts as long as the process, and one that keeps nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from webtune.store.base import EVERYTHING, Address, Selector
from webtune.store.decision import Decision, merge
from webtune.store.journal import Event, Journalled, Start, What, advance


class MemoryStore(Journalled):
    """Decisions in a dict; what other stores fall back on.

    `why` says in `location` why nothing is kept for longer; `decisions` are there from the start.
    """

    session = "this store"

    def __init__(self, why: str = "", decisions: Mapping[Address, Decision] | None = None) -> None:
        super().__init__()
        self._why = why
        self._decisions = dict(decisions or {})
        self._journal: frozenset[Start] = frozenset()

    @property
    def location(self) -> str:
        return f"memory of this process ({self._why})" if self._why else "memory of this process"

    @property
    def scope(self) -> str | None:
        return None

    @property
    def lasting(self) -> bool:
        return False

    async def open(self) -> None:
        """Nothing to make ready."""

    def get(self, address: Address) -> Decision | None:
        with self._lock:
            return self._decisions.get(address)

    def put(self, address: Address, decision: Decision) -> bool:
        with self._lock:
            self._decisions[address] = decision
        return False

    def absorb(self, address: Address, decision: Decision) -> bool:
        with self._lock:
            before = self._decisions.get(address)
            after = decision if before is None else merge(before, decision)
            self._decisions[address] = after
            return after != before

    def entries(self) -> Iterable[tuple[Address, Decision]]:
        with self._lock:
            return sorted(self._decisions.items(), key=lambda item: item[0])

    def purge(self, selector: Selector = EVERYTHING) -> int:
        with self._lock:
            gone = [address for address in self._decisions if selector.takes(address)]
            for address in gone:
                del self._decisions[address]
        self._forgive(selector)
        return len(gone)

    async def flush(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        self._stop(Event(What.CLOSE))

    def _note(self, event: Event) -> None:
        with self._lock:
            self._journal = advance(self._journal, event, self.session)

    def _starts(self, hardware: str) -> frozenset[Start]:
        return self._journal


class NoStore(MemoryStore):
    """Keeps no decision and journals no start: every tuner starts from nothing."""

    location = "nowhere (picks are not kept)"

    def put(self, address: Address, decision: Decision) -> bool:
        return False

    def absorb(self, address: Address, decision: Decision) -> bool:
        return False

    def _note(self, event: Event) -> None:
        """Nothing is journalled."""
