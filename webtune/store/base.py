"""The contract of stores, and the addresses under which they keep decisions.

Three rules hold for every store. Storage never fails a tune: what cannot be read is a miss, and a
store that cannot be used gives one `StoreWarning` and goes on in memory. Reading answers at once,
without waiting for a disk or another tab. What one tuner puts, the same store gives at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from webtune.errors import UsageError
from webtune.store.decision import Decision


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a decision lies in a store.

    `environment` is the name of a set of picks, `hardware` the digest of a device's identity,
    `name` the kernel's name and `key` the problem's key as canonical JSON.
    """

    environment: str
    hardware: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Selector:
    """Which addresses are meant: those that have every part which is given, all if none is."""

    environment: str | None = None
    hardware: str | None = None
    name: str | None = None
    key: str | None = None

    @classmethod
    def of(cls, address: Address) -> Selector:
        """The selector of this one address."""
        return cls(**asdict(address))

    @property
    def given(self) -> dict[str, str]:
        """The parts that are given, by their names."""
        return {part: value for part, value in asdict(self).items() if value is not None}

    @property
    def whole_hardware(self) -> bool:
        """Whether all of a hardware (or of every hardware) is meant, its suspects included."""
        return not self.given.keys() - {"hardware"}

    def takes(self, address: Address) -> bool:
        """Whether the address has every part that is given."""
        return all(getattr(address, part) == value for part, value in self.given.items())


EVERYTHING = Selector()


class Store(Protocol):
    """A mapping from `Address` to `Decision` with a crash journal, shared by tuners, processes or
    tabs. Every member is needed; a caller's own store is checked once, when a tuner opens."""

    @property
    def location(self) -> str:
        """Where the decisions lie, for people: a path or a sentence."""

    @property
    def scope(self) -> str | None:
        """Tuners of one process whose stores have equal scopes share what they remember. None if
        this object is a place of its own."""

    @property
    def lasting(self) -> bool:
        """Whether what is put outlives this process, as far as is known now."""

    async def open(self) -> None:
        """Make ready to read, which reads the whole document in a browser. Never raises."""

    def get(self, address: Address) -> Decision | None:
        """Return the decision, or None if there is none or it cannot be read."""

    def put(self, address: Address, decision: Decision) -> bool:
        """Keep the decision in place of what was there; `get` finds it at once. Return whether it
        will outlive this process."""

    def absorb(self, address: Address, decision: Decision) -> bool:
        """Merge the decision with what is there, by `decision.merge` and in one step that others
        cannot come between. Return whether that changed what is there."""

    def entries(self) -> Iterable[tuple[Address, Decision]]:
        """Return all decisions that can be read, ordered by address."""

    def purge(self, selector: Selector = EVERYTHING) -> int:
        """Forget the decisions that the selector takes and return how many they were. A selector of
        a whole hardware also clears its suspects; starts under way stay in the journal."""

    def begin(self, hardware: str, candidate: str) -> None:
        """Journal that a candidate is about to run for the first time on this hardware.

        `hardware` is the digest of the device's identity, `candidate` the candidate's id.
        """

    def end(self, hardware: str, candidate: str) -> None:
        """Journal that the candidate came back, well or with an error. Its lost starts are
        forgotten; that a device was abandoned in it is not."""

    def abandon(self, hardware: str) -> None:
        """Journal that the device is given up: candidates that were begun through this store on
        this hardware and did not come back are suspects from now on."""

    def suspects(self, hardware: str) -> frozenset[str]:
        """Return the ids of candidates that are not to be run on this hardware. See
        `webtune.store.journal` for when a candidate is one."""

    async def flush(self) -> None:
        """Wait until the decisions that were put are where they shall last. Never raises."""

    def close(self) -> None:
        """Release files and handles. Starts that did not end count as lost. A second call does
        nothing."""


_MEMBERS = tuple(name for name in vars(Store) if not name.startswith("_"))


def checked_store(given: Any, choices: str) -> Store:
    """Return a caller's own store object as a `Store`, once it is known to have every member.

    `choices` names for the message what else `store=` may be. Raises `UsageError`.
    """
    missing = [name for name in _MEMBERS if not hasattr(given, name)]
    if missing:
        raise UsageError(
            f"store= is of type {type(given).__name__}; use {choices}, or an object with the "
            f"members of webtune.store.base.Store (it lacks {', '.join(missing)})"
        )
    store: Store = given
    return store
