"""Objects that are closed at the end of a block."""

from __future__ import annotations

from typing import Self


class Closing:
    """A context manager, blocking and awaiting, that closes itself at the end of its block."""

    def close(self) -> None:
        """Release what is held."""
        raise NotImplementedError

    async def close_async(self) -> None:
        """The same, awaiting."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()
