"""What the tuner asks of the place it runs in. The composition roots in `hosts` provide it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol


class Host(Protocol):
    """A place to run in."""

    @property
    def name(self) -> str:
        """For people: "native", "browser"."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether a call may wait. False where one thread serves the page."""
        ...

    @property
    def strategy(self) -> str:
        """The strategy to use where none is asked for."""
        ...

    @property
    def versions(self) -> tuple[tuple[str, str], ...]:
        """What to write into records: python, the WebGPU implementation, the browser."""
        ...

    def now_s(self) -> float:
        """Unix time."""
        ...

    def monotonic_s(self) -> float:
        """A clock for wall times of whole tunes."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work on the event loop and keep it referenced. Only where `blocking` is False."""
        ...

    async def together(
        self, works: Sequence[Callable[[], Coroutine[Any, Any, None]]], limit: int
    ) -> None:
        """Run all, at most `limit` at a time, and wait. Raises the first error when all ended."""
        ...

    def pause(self) -> Awaitable[None]:
        """Give the event loop a turn between two pieces of work; immediate where blocking."""
        ...
