"""A store that keeps nothing: every process, and every tuner, starts from nothing."""

from __future__ import annotations

from collections.abc import Iterable

from webtune.store.base import Address
from webtune.store.decision import Decision

__all__ = ["NoStore"]


class NoStore:
    """Remembers no pick and journals no start. Obeys `Store`, with nothing in it."""

    @property
    def location(self) -> str:
        return "nowhere (picks are not kept)"

    scope: str | None = None

    async def open(self) -> None:
        """Nothing to make ready."""

    def get(self, address: Address) -> Decision | None:
        """Always None."""
        return None

    def put(self, address: Address, record: Decision) -> bool:
        """Always False: nothing is kept."""
        return False

    def absorb(self, address: Address, record: Decision) -> bool:
        """Always False: nothing is kept."""
        return False

    def entries(self) -> Iterable[tuple[Address, Decision]]:
        """None at all."""
        return ()

    def purge(
        self,
        *,
        environment: str | None = None,
        hardware: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> int:
        """Always 0."""
        return 0

    def begin(self, hardware: str, candidate: str) -> None:
        """Not journalled."""

    def end(self, hardware: str, candidate: str) -> None:
        """Not journalled."""

    def abandon(self, hardware: str) -> None:
        """Not journalled."""

    def suspects(self, hardware: str) -> frozenset[str]:
        """Always empty."""
        return frozenset()

    async def flush(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to release."""
