"""What a store must do. Reading is immediate and from here or nothing; storage never fails a tune.

A store that cannot be used warns once (`StoreWarning`) and goes on in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from webtune.store.decision import Decision

LOST_STARTS = 2
"""So many starts that never ended, in stores that were closed or tabs that are gone, and none that
ended since, make a candidate a suspect: who closes one in the middle of a tune says nothing about
the candidate under way. A process that died in it, or a device that was given up, is enough at
once."""


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a record lies: one per environment, hardware, set and key. `key` is canonical JSON."""

    environment: str
    hardware: str
    name: str
    key: str


class Store(Protocol):
    """A mapping from `Address` to `Decision`, shared by tuners, processes or tabs."""

    @property
    def location(self) -> str:
        """A path or a sentence, for people."""
        ...

    @property
    def scope(self) -> str | None:
        """Tuners of one process whose stores have the same scope share their memory; None where
        the store is a place of its own."""
        ...

    async def open(self) -> None:
        """Make ready to read (a browser store hydrates here). Never raises: warns instead."""
        ...

    def get(self, address: Address) -> Decision | None:
        """The record, or None; what cannot be read is None and one warning."""
        ...

    def put(self, address: Address, record: Decision) -> bool:
        """Remember; True when it will outlive this process. Visible to `get` at once."""
        ...

    def absorb(self, address: Address, record: Decision) -> bool:
        """Merge with what is there, in one step; True when that changed it."""
        ...

    def entries(self) -> Iterable[tuple[Address, Decision]]:
        """All records, ordered by address."""
        ...

    def purge(
        self,
        *,
        environment: str | None = None,
        hardware: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> int:
        """Forget what matches every given part (all, when none is given); how many went."""
        ...

    def begin(self, hardware: str, candidate: str) -> None:
        """Journal that a candidate (its id) is about to run for the first time on this hardware."""
        ...

    def end(self, hardware: str, candidate: str) -> None:
        """Journal that it came back, well or not. Its lost starts are forgotten; that a device was
        abandoned in it is not."""
        ...

    def abandon(self, hardware: str) -> None:
        """The device is given up: what this process began on this hardware and did not end is
        suspect from now on."""
        ...

    def suspects(self, hardware: str) -> frozenset[str]:
        """Ids of candidates that are not to be run on this hardware: those under way when its
        device was abandoned or their process died, and those with `LOST_STARTS` starts or more
        that never ended, in stores that were closed or tabs that are gone."""
        ...

    async def flush(self) -> None:
        """Wait until what was put is where it shall be. Never raises."""
        ...

    def close(self) -> None:
        """Release files and handles."""
        ...
