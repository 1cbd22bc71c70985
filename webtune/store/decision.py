"""The decision: who won a tune and why. It is what a store keeps, and what bundles exchange.

A decision is one JSON document with a schema version and a checksum. Reports, log lines and the
explanation of a pick are projections of it. What cannot be read as a decision is `Unreadable`
with a reason, and never a wrong decision.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, TypeVar

from webtune.errors import Failure, FailureKind
from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.strategies.bounds import Bound
from webtune.strategies.model import Event

SCHEMA = 2
"""Raised when the meaning of a decision changes. A stored decision of another schema is a miss."""

CHECKSUM_DIGITS = 16
LONGEST_NS = 1 << 62
LATEST_S = 253_402_300_799.0
"""The end of the year 9999 as Unix time; no calendar writes a later date."""

STATUSES = frozenset({"winner", "tie", "slower", "eliminated", *map(str, FailureKind)})


# ---- reading single values -----------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    value.encode()  # a lone surrogate can be neither stored nor printed
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("true or false was expected")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("a whole number was expected")
    if not 0 <= value <= LONGEST_NS:
        raise ValueError("a number is negative or beyond all use")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError("a finite number was expected")
    return float(value)


def _time_ns(value: Any) -> int:
    if _whole(value) == 0:
        raise ValueError("a time is not positive")
    return int(value)


def _date(value: Any) -> float:
    if not 0 <= _number(value) <= LATEST_S:
        raise ValueError("a date is out of range")
    return float(value)


def _interval_ns(value: Any) -> tuple[int, int]:
    low_ns, high_ns = (_whole(end) for end in value)
    if low_ns > high_ns:
        raise ValueError("an interval ends before it begins")
    return low_ns, high_ns


def _status(value: Any) -> str:
    if _text(value) not in STATUSES:
        raise ValueError(f"no candidate has the status {value!r}")
    return str(value)


def _params(value: Any) -> Params:
    if not isinstance(value, dict):
        raise TypeError("an object of parameters was expected")
    for name, setting in value.items():
        _text(name)
        if not isinstance(setting, bool):
            _text(setting) if isinstance(setting, str) else _number(setting)
    return Params(value)


_READERS: dict[Any, Callable[[Any], Any]] = {str: _text, bool: _flag, int: _whole, float: _number}

TimeNs = Annotated[int, _time_ns]
IntervalNs = Annotated[tuple[int, int], _interval_ns]


# ---- the decision --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What became of one candidate in a tune.

    `id` is the digest of everything that the candidate is made of. `status` is "winner", "tie"
    (the evidence cannot tell it from the winner), "slower", "eliminated", "skipped", or the kind
    of its failure. `time_ns` is the estimated time of one execution in ns, `interval_ns` its 95 %
    confidence interval, `samples_ns` every sample in the order taken. `reason` says why the
    candidate did not win, where there is more to say than its status.
    """

    id: str
    name: str
    params: Annotated[Params, _params]
    status: Annotated[str, _status] = "skipped"
    time_ns: TimeNs | None = None
    interval_ns: IntervalNs | None = None
    samples_ns: tuple[TimeNs, ...] = ()
    reason: str = ""

    @property
    def failure(self) -> Failure | None:
        """Why the candidate is out, or None where it was measured or never reached."""
        if self.status == FailureKind.SKIPPED or self.status not in set(FailureKind):
            return None
        return Failure(FailureKind(self.status), self.reason)

    @property
    def least_ns(self) -> int | None:
        """The low end of the interval of the time in ns; the time where it has none."""
        return self.interval_ns[0] if self.interval_ns else self.time_ns

    @property
    def label(self) -> str:
        """The name, with the parameters where it does not show them already."""
        text = str(self.params)
        return self.name if not text or text in self.name else f"{self.name}: {text}"

    def __repr__(self) -> str:
        took = f", {self.time_ns} ns" if self.time_ns is not None else ""
        return f"<CandidateResult {self.label}: {self.status}{took}>"


@dataclass(frozen=True, slots=True)
class Decision:
    """Who won a tune and why: everything that is stored, reported and logged of it.

    - `fingerprint`: what the decision is valid for (`TunableSet.validity`).
    - `candidates`: one result for each candidate of the kernel, in the kernel's order.
    - `measured`: False where the winner ran but could not be timed; such a pick is not stored.
    - `confidence`: how sure it is (0 to 1) that no other candidate is faster than the winner by
      more than the tie margin. `tie_rule` says how the winner was chosen among ties.
    - `strategy`, `launches`, `wall_s`: how it was found, and what finding it cost.
    - `batches`: the indices of the candidates that were tried together, in the order of trying.
    - `events`: what the strategy decided on the way.
    - `bounds`, `limit_ns`: the roofs over the kernel's work, and the time that was fast enough.
    - `checked`: whether answers were compared with a reference.
    - `clock`, `device`, `versions`, `created_s`: where it was measured and when (Unix time).
    """

    fingerprint: str
    candidates: tuple[CandidateResult, ...]
    measured: bool = True
    confidence: float = 0.0
    tie_rule: str = ""
    strategy: str = ""
    launches: int = 0
    wall_s: float = 0.0
    batches: tuple[tuple[int, ...], ...] = ()
    events: tuple[Event, ...] = ()
    bounds: tuple[Bound, ...] = ()
    limit_ns: int | None = None
    checked: bool = False
    clock: Clock = field(default_factory=lambda: Clock("", 0))
    device: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    created_s: Annotated[float, _date] = 0.0

    @property
    def winner(self) -> CandidateResult | None:
        """The candidate that won, or None where none could be taken."""
        return next((result for result in self.candidates if result.status == "winner"), None)

    @property
    def ties(self) -> tuple[CandidateResult, ...]:
        """The candidates that the evidence cannot tell from the winner."""
        return tuple(result for result in self.candidates if result.status == "tie")

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        plain: dict[str, Any] = _plain(self)
        return plain


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stored text that is no decision of this schema. `reason` is a sentence for people."""

    reason: str


# ---- writing and reading -------------------------------------------------------------------------


def encode(decision: Decision) -> str:
    """The decision as one line of JSON. Raises `ValueError` on a float that is not finite."""
    return _dumps(document(decision))


def document(decision: Decision) -> dict[str, Any]:
    """The decision as plain JSON values with schema and checksum, to lie inside another document.
    Raises `ValueError` on a float that is not finite."""
    body = decision.to_dict()
    return {"schema": SCHEMA, "checksum": _checksum(body), "decision": body}


def decode(text: str | bytes) -> Decision | Unreadable:
    """The decision in a stored text, or why there is none. Never raises."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return Unreadable("it is empty, truncated or no JSON" if text else "it is empty")
    return read(value)


def read(value: Any) -> Decision | Unreadable:
    """The decision in a parsed document, or why there is none. Never raises.

    Fields that this version does not know are passed over; the checksum covers them too.
    """
    if not isinstance(value, dict) or not {"schema", "checksum"} <= value.keys():
        return Unreadable("it is not a decision of webtune")
    schema = value["schema"]
    if schema != SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        remedy = "it was written by a newer webtune" if newer else "its schema is not used any more"
        return Unreadable(f"schema {schema!r} instead of {SCHEMA}: {remedy}")
    try:
        if value["checksum"] != _checksum(value["decision"]):
            return Unreadable("its checksum does not fit its content")
        return _sound(_read(Decision, value["decision"]))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return Unreadable(f"a field is missing or of the wrong type ({error})")


def _sound(decision: Decision) -> Decision:
    """The decision, if its parts fit together. Raises `ValueError` where they do not."""
    if sum(result.status == "winner" for result in decision.candidates) != 1:
        raise ValueError("it does not name one winner")
    named = [index for batch in decision.batches for index in batch]
    named += [event.candidate for event in decision.events if event.candidate is not None]
    if max(named, default=-1) >= len(decision.candidates):
        raise ValueError("it speaks of a candidate that it does not list")
    return decision


def _plain(value: Any) -> Any:
    """Dataclasses as objects, tuples as lists: what JSON can hold."""
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value


def _read(hint: Any, value: Any) -> Any:
    """A parsed JSON value as what the type `hint` says. Raises where it is something else."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return args[1](value)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _read(args[0], value)
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError("a list was expected")
        parts = [args[0]] * len(value) if args[-1] is Ellipsis else args
        return tuple(_read(part, item) for part, item in zip(parts, value, strict=True))
    if is_dataclass(hint):
        kind: Any = hint
        needed, hints = _fields(kind)
        if not isinstance(value, dict):
            raise TypeError("an object was expected")
        if not needed <= value.keys():
            raise KeyError(", ".join(sorted(needed - value.keys())))
        return kind(**{name: _read(hints[name], value[name]) for name in hints if name in value})
    return _READERS[hint](value)


@functools.cache
def _fields(kind: Any) -> tuple[frozenset[str], dict[str, Any]]:
    """The names of a dataclass' fields that have no default, and the type of every field."""
    needed = frozenset(
        item.name
        for item in fields(kind)
        if item.default is MISSING and item.default_factory is MISSING
    )
    return needed, typing.get_type_hints(kind, include_extras=True)


def _dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(body: Any) -> str:
    return hashlib.sha256(_dumps(body).encode()).hexdigest()[:CHECKSUM_DIGITS]


# ---- which of two --------------------------------------------------------------------------------


def evidence(decision: Decision) -> int:
    """How many samples the decision rests on."""
    return sum(len(result.samples_ns) for result in decision.candidates)


def merge(first: Decision, second: Decision) -> Decision:
    """Of two decisions of one address, the one with more samples, else the newer one, else the one
    whose text sorts last. It is taken whole, since samples of two sessions cannot be compared.
    Commutative, associative and idempotent."""
    return max(first, second, key=_rank)


Key = TypeVar("Key")


def merge_all(first: Mapping[Key, Decision], second: Mapping[Key, Decision]) -> dict[Key, Decision]:
    """Both tables in one, address by address."""
    merged = dict(first)
    for address, decision in second.items():
        merged[address] = merge(merged[address], decision) if address in merged else decision
    return merged


def _rank(decision: Decision) -> tuple[int, float, str]:
    return evidence(decision), decision.created_s, encode(decision)
