"""What is stored of a decision: one JSON document a key, with a schema version and a checksum.

What cannot be read is an `Unreadable` with its reason, never a wrong record. One of two records of
a place is chosen whole: the samples of one session are comparable, those of two are not.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

__all__ = [
    "SCHEMA",
    "CandidateRecord",
    "Record",
    "Unreadable",
    "decode",
    "document",
    "encode",
    "evidence",
    "merge",
    "merge_all",
    "read",
]

SCHEMA = 1
"""Raised when the meaning of a record changes; another schema is a miss."""

CHECKSUM_DIGITS = 16
LONGEST_NS = 1 << 62
LATEST_S = 253_402_300_799.0
"""The end of the year 9999: no calendar writes a later date."""


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """What was measured of one candidate. `id` is its fingerprint (WGSL, params, entry points)."""

    id: str
    name: str
    samples_ns: tuple[int, ...] = ()
    time_ns: int | None = None
    failure: str = ""
    reason: str = ""
    eliminated: bool = False
    interval_ns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A decision that can be taken again without measuring.

    `fingerprint` is the set's; `winner` is a candidate's id. `created_s` is Unix time. `clock` is
    (kind, quantum_ns, period_ns). `versions` has webtune, python and the WebGPU implementation.
    """

    fingerprint: str
    winner: str
    candidates: tuple[CandidateRecord, ...]
    interval_ns: tuple[int, int] | None
    ties: tuple[str, ...]
    confidence: float
    strategy: str
    clock: tuple[str, int, float]
    hardware_label: str
    created_s: float
    versions: tuple[tuple[str, str], ...] = ()
    limit_ns: int | None = None
    launches: int = 0
    wall_s: float = 0.0
    tie_rule: str = ""

    @property
    def winning(self) -> CandidateRecord | None:
        """What was measured of the winner; None where the candidates lack it."""
        return next((each for each in self.candidates if each.id == self.winner), None)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stored text that is no record of this schema; `reason` is for people."""

    reason: str


def encode(record: Record) -> str:
    """The record as one line of JSON. Raises `ValueError` on a float that is not finite."""
    return _dumps(document(record))


def document(record: Record) -> dict[str, Any]:
    """The record as plain JSON values with schema and checksum, to lie inside another document."""
    body = json.loads(_dumps(asdict(record)))
    return {"schema": SCHEMA, "checksum": _checksum(body), "record": body}


def decode(text: str | bytes) -> Record | Unreadable:
    """The record in a stored text, or why there is none. Never raises."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return Unreadable("it is empty, truncated or no JSON" if text else "it is empty")
    return read(value)


def read(value: Any) -> Record | Unreadable:
    """The record in a parsed document, or why there is none. Never raises.

    Fields that this version does not know are passed over, and are covered by the checksum.
    """
    if not isinstance(value, dict) or not {"schema", "checksum", "record"} <= value.keys():
        return Unreadable("it is not a record of webtune")
    schema = value["schema"]
    if schema != SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        remedy = "it was written by a newer webtune" if newer else "its schema is not used any more"
        return Unreadable(f"schema {schema!r} instead of {SCHEMA}: {remedy}")
    try:
        if value["checksum"] != _checksum(value["record"]):
            return Unreadable("its checksum does not fit its content")
        return _record(value["record"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return Unreadable(f"a field is missing or of the wrong type ({error})")


# ---- which of two ------------------------------------------------------------------------------


def evidence(record: Record) -> int:
    """How many samples the record rests on."""
    return sum(len(each.samples_ns) for each in record.candidates)


def merge(one: Record, other: Record) -> Record:
    """Of two records of the same place, the one with more samples, else the newer one, else the
    one whose text sorts last. Commutative, associative and idempotent, as the larger of two is."""
    return one if _rank(one) >= _rank(other) else other


Place = TypeVar("Place")


def merge_all(one: Mapping[Place, Record], other: Mapping[Place, Record]) -> dict[Place, Record]:
    """Both tables in one, place by place. A place names its hardware, so hardware never mixes."""
    merged = dict(one)
    for place, record in other.items():
        merged[place] = merge(merged[place], record) if place in merged else record
    return merged


def _rank(record: Record) -> tuple[int, float, str]:
    return evidence(record), record.created_s, encode(record)


# ---- reading fields ----------------------------------------------------------------------------


def _dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(body: Any) -> str:
    return hashlib.sha256(_dumps(body).encode()).hexdigest()[:CHECKSUM_DIGITS]


def _record(body: Any) -> Record:
    kind, quantum_ns, period_ns = body["clock"]
    return Record(
        fingerprint=_text(body["fingerprint"]),
        winner=_text(body["winner"]),
        candidates=_all(_candidate, body["candidates"]),
        interval_ns=_interval(body["interval_ns"]),
        ties=_all(_text, body["ties"]),
        confidence=_number(body["confidence"]),
        strategy=_text(body["strategy"]),
        clock=(_text(kind), _whole(quantum_ns), _number(period_ns)),
        hardware_label=_text(body["hardware_label"]),
        created_s=_date(body["created_s"]),
        versions=tuple(_pair(_text, each) for each in body.get("versions", [])),
        limit_ns=_optional_whole(body.get("limit_ns")),
        launches=_whole(body.get("launches", 0)),
        wall_s=_number(body.get("wall_s", 0.0)),
        tie_rule=_text(body.get("tie_rule", "")),
    )


def _candidate(body: Any) -> CandidateRecord:
    samples_ns = _all(_time_ns, body["samples_ns"])
    return CandidateRecord(
        id=_text(body["id"]),
        name=_text(body["name"]),
        samples_ns=samples_ns,
        time_ns=None if body.get("time_ns") is None else _time_ns(body["time_ns"]),
        failure=_text(body.get("failure", "")),
        reason=_text(body.get("reason", "")),
        eliminated=bool(body.get("eliminated", False)),
        interval_ns=_interval(body.get("interval_ns")),
    )


Part = TypeVar("Part")


def _all(part: Callable[[Any], Part], values: Any) -> tuple[Part, ...]:
    if not isinstance(values, list):
        raise TypeError("a list was expected")
    return tuple(part(each) for each in values)


def _pair(part: Callable[[Any], Part], values: Any) -> tuple[Part, Part]:
    first, second = _all(part, values)
    return first, second


def _interval(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    low_ns, high_ns = _pair(_whole, value)
    if low_ns > high_ns:
        raise ValueError("an interval ends before it begins")
    return low_ns, high_ns


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    value.encode()  # a lone surrogate can be neither stored nor printed
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("a whole number was expected")
    if not 0 <= value <= LONGEST_NS:
        raise ValueError("a number is negative or beyond all use")
    return value


def _optional_whole(value: Any) -> int | None:
    return None if value is None else _whole(value)


def _time_ns(value: Any) -> int:
    if not 0 < _whole(value) <= LONGEST_NS:
        raise ValueError("a time is not positive, or longer than a century")
    return int(value)


def _date(value: Any) -> float:
    if not 0 <= _number(value) <= LATEST_S:
        raise ValueError("a date is out of range")
    return float(value)


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError("a finite number was expected")
    return float(value)
