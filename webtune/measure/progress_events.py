"""What a tune tells of its progress, for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from webtune.errors import Failure


@dataclass(frozen=True)
class ProgressEvent:
    """What just happened. `kind` is "compiled", "ran" (the first contact with a candidate is over),
    "sampled" or "failed"; `launches` counts those of the whole tune so far."""

    kind: str
    candidate: int
    name: str
    launches: int
    duration_ns: int | None = None
    failure: Failure | None = None


class JoinedEvents:
    """A listener that tells the events of several tunes, one after the other, as those of one."""

    def __init__(self, listen: Callable[[ProgressEvent], None]) -> None:
        self._listen = listen
        self._candidates = self._launches = self._latest = 0

    def __call__(self, event: ProgressEvent) -> None:
        self._latest = event.launches
        candidate, launches = event.candidate + self._candidates, event.launches + self._launches
        self._listen(replace(event, candidate=candidate, launches=launches))

    def next(self, candidates: int) -> None:
        """Go on with the next tune; the one before it had so many candidates."""
        self._candidates += candidates
        self._launches += self._latest
        self._latest = 0
