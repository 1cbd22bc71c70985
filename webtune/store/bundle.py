"""One JSON document of decisions: the exchange between stores, and what an application ships.

Merging gives the same in any order. It goes address by address, and an address names its hardware,
so that decisions of different devices never mix.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from webtune.errors import StoreWarning, UsageError, reason_of, warn
from webtune.store.base import EVERYTHING, Address, Selector, Store
from webtune.store.decision import Decision, Unreadable, document, merge, merge_all, read

SCHEMA = 1
"""Of the document; the decisions inside have their own."""

PARTS = tuple(part.name for part in fields(Address))


@dataclass(frozen=True, slots=True)
class Bundle:
    """Decisions by address, apart from any store. `unreadable` has a sentence for each entry of a
    text that was passed over."""

    decisions: Mapping[Address, Decision] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: Store, *, hardware: str | None = None) -> Bundle:
        """Everything in a store, or what it has for one hardware (the digest of an identity)."""
        wanted = Selector(hardware=hardware)
        return cls({a: decision for a, decision in store.entries() if wanted.takes(a)})

    @classmethod
    def loads(cls, text: str | bytes) -> Bundle:
        """The bundle in a JSON text. An entry that cannot be read is passed over and told in
        `unreadable`; a text that is no bundle raises `UsageError`."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"this is no bundle: {error}; export one to see its form") from error
        entries = value.get("entries") if isinstance(value, dict) else None
        if not isinstance(entries, list) or value.get("webtune") != "bundle":
            raise UsageError("this JSON is no bundle of webtune; export one to see its form")
        if value.get("schema") != SCHEMA:
            raise UsageError(
                f"this bundle has schema {value.get('schema')!r} instead of {SCHEMA}: "
                "use the webtune that wrote it, or a newer one"
            )
        decisions: dict[Address, Decision] = {}
        unreadable: list[str] = []
        for number, entry in enumerate(entries):
            found = _entry(entry)
            if isinstance(found, Unreadable):
                unreadable.append(f"entry {number}: {found.reason}")
            else:
                address, decision = found
                decisions[address] = merge(decisions.get(address, decision), decision)
        return cls(decisions, tuple(unreadable))

    @classmethod
    def given(cls, bundle: Any) -> Bundle:
        """A bundle as a caller names it: a `Bundle`, its JSON text, or a path to it. Raises
        `UsageError` when it cannot be read."""
        if isinstance(bundle, cls):
            return bundle
        if isinstance(bundle, str | bytes) and bundle.lstrip()[:1] in ("{", b"{"):
            return cls.loads(bundle)
        if not isinstance(bundle, str | os.PathLike):
            raise UsageError(
                f"bundle= is of type {type(bundle).__name__}; pass a Bundle, its JSON text or "
                "a path"
            )
        try:
            with open(bundle, encoding="utf-8") as file:
                return cls.loads(file.read())
        except (OSError, ValueError) as error:
            raise UsageError(f"bundle={bundle!r} cannot be read: {reason_of(error)}") from error

    def dumps(self) -> str:
        """The JSON text: equal bundles give equal texts, one entry a line."""
        entries = [
            asdict(address) | {"decision": document(self.decisions[address])}
            for address in sorted(self.decisions)
        ]
        lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in entries)
        return f'{{"webtune": "bundle", "schema": {SCHEMA}, "entries": [\n{lines}\n]}}\n'

    def merge(self, other: Bundle) -> Bundle:
        """Both in one: of two decisions of an address, the one with more and newer evidence."""
        unreadable = tuple(sorted({*self.unreadable, *other.unreadable}))
        return Bundle(merge_all(self.decisions, other.decisions), unreadable)

    def import_into(self, store: Store) -> int:
        """Merge into a store; returns at how many of its addresses that changed something."""
        return sum(store.absorb(address, decision) for address, decision in self.decisions.items())


def _entry(entry: Any) -> tuple[Address, Decision] | Unreadable:
    if not isinstance(entry, dict):
        return Unreadable("it is no JSON object")
    parts = [part for name in PARTS if isinstance(part := entry.get(name), str)]
    if len(parts) < len(PARTS):
        return Unreadable(f"it lacks one of {', '.join(PARTS)}")
    address = Address(*parts)
    if not (address.environment + address.name).isprintable():
        return Unreadable("its environment or name has characters that cannot be printed")
    decision = read(entry.get("decision"))
    return decision if isinstance(decision, Unreadable) else (address, decision)


class Layered(Store):
    """A user's store above a bundle that is only read. Everything written goes to the user's."""

    def __init__(self, user: Store, bundle: Bundle) -> None:
        self._user = user
        self._bundle = bundle

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self._bundle.dumps().encode()).hexdigest()[:20]

    @property
    def scope(self) -> str | None:
        """The user's, with what the bundle says: picks of the one are none without the other."""
        scope = self._user.scope
        return None if scope is None else f"{scope} above {self._digest}"

    @property
    def location(self) -> str:
        return f"{self._user.location}, above a bundle of {len(self._bundle.decisions)} decisions"

    @property
    def lasting(self) -> bool:
        return self._user.lasting

    async def open(self) -> None:
        """Open the user's store; tells with one warning what in the bundle cannot be read."""
        await self._user.open()
        if self._bundle.unreadable:
            count, first = len(self._bundle.unreadable), self._bundle.unreadable[0]
            warn(StoreWarning(f"{count} entries of the bundle cannot be read ({first})"))

    def get(self, address: Address) -> Decision | None:
        """The user's decision; the bundle's where the user has none. Which is newer is not asked: a
        clock that ran ahead would hide every pick of the user's own. So after an update of the
        kernels a user who has a pick of the old ones measures once."""
        own = self._user.get(address)
        return self._bundle.decisions.get(address) if own is None else own

    def put(self, address: Address, decision: Decision) -> bool:
        return self._user.put(address, decision)

    def absorb(self, address: Address, decision: Decision) -> bool:
        """Merge with what the user's store has; the bundle plays no part."""
        return self._user.absorb(address, decision)

    def entries(self) -> Iterable[tuple[Address, Decision]]:
        """What `get` would give, ordered by address."""
        found = {**self._bundle.decisions, **dict(self._user.entries())}
        return sorted(found.items(), key=lambda item: item[0])

    def purge(self, selector: Selector = EVERYTHING) -> int:
        """From the user's store; the bundle stays."""
        return self._user.purge(selector)

    def begin(self, hardware: str, candidate: str) -> None:
        self._user.begin(hardware, candidate)

    def end(self, hardware: str, candidate: str) -> None:
        self._user.end(hardware, candidate)

    def abandon(self, hardware: str) -> None:
        self._user.abandon(hardware)

    def suspects(self, hardware: str) -> frozenset[str]:
        return self._user.suspects(hardware)

    async def flush(self) -> None:
        await self._user.flush()

    def close(self) -> None:
        self._user.close()
