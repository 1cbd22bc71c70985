"""What a bench is given: candidates ready to be timed, and the conditions that they run under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from webtune.errors import Failure
from webtune.gpu.base import Copy, Device, Dispatch, Handle, Program


@dataclass(frozen=True)
class BenchCandidate:
    """One candidate, recorded on the tune's clones. `id` is the digest of its content.

    `repeatable` False says that one execution must not follow another without its buffers being
    restored between them: a sample is then a single execution, however short. Restored buffers
    alone do not forbid repetition: from the second execution of a sample on, only values differ.
    """

    id: str
    name: str
    dispatches: tuple[Dispatch, ...]
    repeatable: bool = True


@dataclass(frozen=True)
class WrittenArgument:
    """An argument that candidates write: one of the tune's clones. `index` is its position.

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


class Checker(Protocol):
    """Judges a candidate's answer before it is timed."""

    async def verify(
        self, device: Device, written: Sequence[WrittenArgument], program: Program, name: str
    ) -> Failure | None:
        """Launch `program` once on poisoned or restored arguments and compare what it wrote."""
        ...

    def close(self, device: Device) -> None:
        """Free what the checks made on the device."""
        ...


@dataclass(frozen=True)
class Conditions:
    """What all candidates of a tune run under: the arguments that they write, device work that
    runs before every sample outside its span (to evict caches), and the check of their answers."""

    written: tuple[WrittenArgument, ...] = ()
    evict: tuple[Dispatch, ...] = ()
    checker: Checker | None = None
