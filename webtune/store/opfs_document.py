"""The document of picks that tabs share: its text, and the changes that one tab makes to it. Pure.

The values of a document are decisions by address. A decision that a newer webtune wrote stays as it
was read, a plain JSON value, so that writing the document does not lose it.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from typing import Any

from webtune.store.base import Address, Selector
from webtune.store.decision import SCHEMA as DECISION_SCHEMA
from webtune.store.decision import Decision, Unreadable, document, encode, merge, read

FORMAT = "webtune picks"
SCHEMA = 1
"""Of the document; the decisions inside have their own."""


class VersionError(Exception):
    """The text is a document of another version, to be left as it is."""


@dataclass(frozen=True, slots=True)
class Put:
    """A decision put into the document.

    It replaces `base`, the text of the decision that this tab knew there (empty where it knew
    none), and merges with what another tab wrote meanwhile. With None it always merges.
    """

    address: Address
    decision: Decision
    base: str | None


Values = dict[Address, Any]
Change = Put | Selector
"""A decision put, or the addresses purged."""


def apply(change: Change, values: Values) -> None:
    """Change the values of a document."""
    if isinstance(change, Selector):
        for address in [address for address in values if change.takes(address)]:
            del values[address]
        return
    there, decision = values.get(change.address), change.decision
    if isinstance(there, Decision) and encode(there) != change.base:
        decision = merge(there, decision)
    values[change.address] = decision


def readable(values: Values) -> dict[Address, Decision]:
    """The decisions among the values."""
    return {address: found for address, found in values.items() if isinstance(found, Decision)}


def loads(text: str) -> tuple[Values, str]:
    """The values in a text, and a sentence on what in it cannot be read ("" if nothing).

    Raises `VersionError`.
    """
    try:
        whole = json.loads(text)
        if whole["format"] != FORMAT:
            raise ValueError(whole["format"])
        if whole["schema"] != SCHEMA:
            raise VersionError(f"is of another version (schema {whole['schema']!r})")
        entries = [(Address(*map(str, row[:4])), row[4]) for row in whole["decisions"]]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return {}, "is empty, cut off or not webtune's: starting afresh"
    values: Values = {}
    fault = ""
    for address, value in entries:
        found = read(value)
        if not isinstance(found, Unreadable):
            values[address] = found
            continue
        fault = fault or f"has a pick of {address.name} that cannot be read: {found.reason}"
        schema = value.get("schema") if isinstance(value, dict) else None
        if isinstance(schema, int) and schema > DECISION_SCHEMA:
            values[address] = value
    return values, fault


def dumps(values: Values) -> str:
    """The text of a document with these values, ordered by address."""
    rows = [
        [*astuple(address), document(value) if isinstance(value, Decision) else value]
        for address, value in sorted(values.items(), key=lambda item: item[0])
    ]
    return json.dumps(
        {"format": FORMAT, "schema": SCHEMA, "decisions": rows}, separators=(",", ":")
    )
