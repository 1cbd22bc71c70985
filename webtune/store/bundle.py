"""One JSON document of records: the exchange between stores, and what an application ships.

Merging is the same in any order and place by place; a place names its hardware.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from webtune.errors import StoreWarning, UsageError, reason_of, warn
from webtune.store.base import Address, Store
from webtune.store.decision import Decision, Unreadable, document, merge, merge_all, read

__all__ = ["SCHEMA", "Absorbing", "Bundle", "Layered"]

SCHEMA = 1
"""Of the document; the records inside have their own."""

PARTS = ("environment", "hardware", "name", "key")


@runtime_checkable
class Absorbing(Protocol):
    """A store that merges in one step, which others cannot come between."""

    def absorb(self, address: Address, record: Decision) -> bool: ...


@dataclass(frozen=True, slots=True)
class Bundle:
    """Records by address. `unreadable` has a sentence for each entry that was passed over."""

    records: Mapping[Address, Decision] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: Store, *, hardware: str | None = None) -> Bundle:
        """Everything in a store, or what it has for one hardware (an identity's digest)."""
        return cls({a: r for a, r in store.entries() if hardware in (None, a.hardware)})

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
        records: dict[Address, Decision] = {}
        unreadable: list[str] = []
        for number, entry in enumerate(entries):
            found = _entry(entry)
            if isinstance(found, Unreadable):
                unreadable.append(f"entry {number}: {found.reason}")
            else:
                address, record = found
                known = records.get(address)
                records[address] = record if known is None else merge(known, record)
        return cls(records, tuple(unreadable))

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
            dict(zip(PARTS, _parts(address), strict=True)) | {"record": document(record)}
            for address, record in sorted(self.records.items(), key=lambda each: each[0])
        ]
        lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in entries)
        return f'{{"webtune": "bundle", "schema": {SCHEMA}, "entries": [\n{lines}\n]}}\n'

    def merge(self, other: Bundle) -> Bundle:
        """Both in one: of two records of a place, the one with more and newer evidence."""
        unreadable = tuple(sorted({*self.unreadable, *other.unreadable}))
        return Bundle(merge_all(self.records, other.records), unreadable)

    def import_into(self, store: Store) -> int:
        """Merge into a store; how many of its places changed."""
        return sum(_absorb(store, address, record) for address, record in self.records.items())


def _absorb(store: Store, address: Address, record: Decision) -> bool:
    if isinstance(store, Absorbing):
        return store.absorb(address, record)
    known = store.get(address)
    after = record if known is None else merge(known, record)
    if after == known:
        return False
    store.put(address, after)
    return True


def _parts(address: Address) -> tuple[str, str, str, str]:
    return address.environment, address.hardware, address.name, address.key


def _entry(entry: Any) -> tuple[Address, Decision] | Unreadable:
    if not isinstance(entry, dict):
        return Unreadable("it is no JSON object")
    parts = [part for name in PARTS if isinstance(part := entry.get(name), str)]
    if len(parts) < len(PARTS):
        return Unreadable(f"it lacks one of {', '.join(PARTS)}")
    address = Address(*parts)
    if not (address.environment + address.name).isprintable():
        return Unreadable("its environment or name has characters that cannot be printed")
    record = read(entry.get("record"))
    return record if isinstance(record, Unreadable) else (address, record)


class Layered:
    """A user's store above a bundle that is only read. Everything written goes to the user's."""

    def __init__(self, user: Store, bundle: Bundle) -> None:
        self._user = user
        self._bundle = bundle
        text = bundle.dumps() if hasattr(user, "scope") else ""
        self._digest = hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def scope(self) -> str | None:
        """The user's, with what the bundle says: picks of the one are none without the other."""
        scope = getattr(self._user, "scope", None)
        return None if scope is None else f"{scope} above {self._digest}"

    @property
    def location(self) -> str:
        return f"{self._user.location}, above a bundle of {len(self._bundle.records)} records"

    async def open(self) -> None:
        """Open the user's store; tells with one warning what in the bundle cannot be read."""
        await self._user.open()
        if self._bundle.unreadable:
            count, first = len(self._bundle.unreadable), self._bundle.unreadable[0]
            warn(StoreWarning(f"{count} entries of the bundle cannot be read ({first})"))

    def get(self, address: Address) -> Decision | None:
        """The user's record; the bundle's where the user has none. Which is newer is not asked: a
        clock that ran ahead would hide every pick of the user's own. So after an update of the
        kernels a user who has a pick of the old ones measures once."""
        own = self._user.get(address)
        return self._bundle.records.get(address) if own is None else own

    def put(self, address: Address, record: Decision) -> bool:
        """Into the user's store."""
        return self._user.put(address, record)

    def absorb(self, address: Address, record: Decision) -> bool:
        """Merge into the user's store; True when that changed it."""
        return _absorb(self._user, address, record)

    def entries(self) -> Iterable[tuple[Address, Decision]]:
        """What `get` would give, ordered by address."""
        places = {address for address, _ in self._user.entries()} | set(self._bundle.records)
        found = ((address, self.get(address)) for address in sorted(places))
        return [(address, record) for address, record in found if record is not None]

    def purge(
        self,
        *,
        environment: str | None = None,
        hardware: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> int:
        """From the user's store; the bundle stays."""
        return self._user.purge(environment=environment, hardware=hardware, name=name, key=key)

    def begin(self, hardware: str, candidate: str) -> None:
        self._user.begin(hardware, candidate)

    def end(self, hardware: str, candidate: str) -> None:
        self._user.end(hardware, candidate)

    def abandon(self, hardware: str) -> None:
        abandon = getattr(self._user, "abandon", None)
        if abandon is not None:
            abandon(hardware)

    def suspects(self, hardware: str) -> frozenset[str]:
        return self._user.suspects(hardware)

    async def flush(self) -> None:
        await self._user.flush()

    def close(self) -> None:
        self._user.close()
