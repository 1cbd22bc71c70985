"""The values that a bench works with: what is measured, and where a round's requests stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from webtune.errors import Failure
from webtune.gpu.base import Copy, Device, Dispatch, Handle, Program, Span
from webtune.strategies.model import Reading, Request

__all__ = [
    "BenchCandidate",
    "Checker",
    "Entry",
    "Joined",
    "ProgressEvent",
    "Slot",
    "Tally",
    "Turn",
    "turns_of",
]

_LAUNCH_OVERHEAD_NS = 300_000


@dataclass(frozen=True)
class Slot:
    """A buffer that candidates write: one of the tune's clones. `index` is the argument's place.

    `restore` copies its first content back before every sample (declared with `restore=`); it is
    None for a pure output.
    """

    name: str
    index: int
    handle: Handle
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    restore: Copy | None = None


@dataclass(frozen=True)
class BenchCandidate:
    """One candidate, recorded on the tune's clones. `id` is its fingerprint.

    `repeatable` False says that one execution must not follow another without its buffers being
    restored between them: a sample is then a single execution, however short. Restored buffers
    alone do not forbid repetition: from the second execution of a sample on, only values differ.
    """

    id: str
    name: str
    dispatches: tuple[Dispatch, ...]
    repeatable: bool = True


@dataclass(frozen=True)
class ProgressEvent:
    """What just happened, for people. `kind` is "compiled", "ran" (first contact is over),
    "sampled" or "failed"; `launches` counts those of the whole tune so far."""

    kind: str
    candidate: int
    name: str
    launches: int
    duration_ns: int | None = None
    failure: Failure | None = None


class Joined:
    """Events of one tune after the other, as those of a single one."""

    def __init__(self, listen: Callable[[ProgressEvent], None]) -> None:
        self._listen = listen
        self._candidates = self._launches = self._latest = 0

    def __call__(self, event: ProgressEvent) -> None:
        self._latest = event.launches
        self._listen(
            replace(
                event,
                candidate=event.candidate + self._candidates,
                launches=event.launches + self._launches,
            )
        )

    def next(self, candidates: int) -> None:
        """The tune of so many candidates is over."""
        self._candidates += candidates
        self._launches += self._latest
        self._latest = 0


class Checker(Protocol):
    """Judges a candidate's answer before it is timed."""

    async def verify(
        self, device: Device, slots: Sequence[Slot], program: Program, name: str
    ) -> Failure | None:
        """Launch `program` once on poisoned or restored slots and compare what it wrote."""
        ...

    def close(self, device: Device) -> None:
        """Free what the checks made on the device."""
        ...


@dataclass
class Entry:
    """What the bench knows of one candidate."""

    index: int
    name: str = ""
    entrant: BenchCandidate | None = None
    program: Program | None = None
    failure: Failure | None = None
    met: bool = False
    repeat: int = 1
    cost_ns: int = _LAUNCH_OVERHEAD_NS

    @property
    def repeatable(self) -> bool:
        return self.entrant is not None and self.entrant.repeatable


@dataclass
class Tally:
    """One request of a round, being answered."""

    request: Request
    entry: Entry
    durations_ns: list[int] = field(default_factory=list)
    launches: int = 0

    @property
    def live(self) -> bool:
        return self.entry.failure is None

    @property
    def warmups_left(self) -> int:
        return max(0, self.request.warmups - self.launches)

    @property
    def samples_left(self) -> int:
        return max(0, self.request.samples - len(self.durations_ns))

    def reading(self) -> Reading:
        return Reading(
            self.request.candidate, tuple(self.durations_ns), self.entry.failure, self.launches
        )


@dataclass
class Turn:
    """One launch to take: of which request, and whether its time counts."""

    tally: Tally
    counts: bool
    span: Span | None = None


def turns_of(tallies: Sequence[Tally]) -> Iterator[Turn]:
    """All launches of a round, interleaved."""
    for counts, left in (
        (False, [tally.warmups_left for tally in tallies]),
        (True, [tally.samples_left for tally in tallies]),
    ):
        for turn in range(max(left, default=0)):
            for tally, wanted in zip(tallies, left, strict=True):
                if turn < wanted:
                    yield Turn(tally, counts)
