"""What a stored pick is valid for, as digests over content. Equal content, equal digest, anywhere.

Everything is hashed through one canonical JSON text, so parts cannot run into each other.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from webtune.errors import KeyUnserialisable

MEASUREMENT_SCHEMA = 1
"""Raised when samples come to mean something else, so that earlier ones are not compared."""

DIGEST_DIGITS = 20
DEEPEST = 32

ADVICE = "use None, bool, int, float, str, and tuples, lists or dicts (with str keys) of these"


def canonical(key: Any) -> str:
    """One JSON text for a key: the same for equal keys, in every process and on every host.

    Tuples and lists are the same thing, dicts are sorted, numpy's scalars are numbers, a subclass
    of str (an enum) is its text. 1, 1.0 and true are three different keys. The text is ASCII.
    Raises `KeyUnserialisable`, with the path inside the key and what to use instead.
    """
    plain = _plain(key, "key", 0)
    try:
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:  # an integer of thousands of digits
        raise KeyUnserialisable(f"the key cannot be written as JSON: {error}; {ADVICE}") from error


def digest(value: Any) -> str:
    """20 hex digits over the canonical text of `value`. Raises `KeyUnserialisable`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:DIGEST_DIGITS]


def candidate_id(
    name: str,
    *,
    wgsl: Sequence[str],
    params: Mapping[str, Any],
    entries: Sequence[str],
    extra: Any = None,
) -> str:
    """The id of one candidate: its name, the WGSL of its dispatches with their entry points, its
    parameters and whatever else changes what runs (`extra`: constants, workgroups, features).

    Samples under another `MEASUREMENT_SCHEMA` have another id. 20 hex digits. Raises
    `KeyUnserialisable` when a parameter is no plain value.
    """
    return digest([MEASUREMENT_SCHEMA, name, list(wgsl), dict(params), list(entries), extra])


def set_fingerprint(name: str, candidates: Iterable[str]) -> str:
    """The fingerprint of a set out of its candidates' ids, whatever order they stand in: a
    stored winner is named by its id, so moving candidates about loses nothing."""
    return digest([MEASUREMENT_SCHEMA, name, sorted(candidates)])


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise KeyUnserialisable(f"{path[:60]}… is nested too deeply, or holds itself; {ADVICE}")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping):
        return {
            _name(name, path): _plain(part, f"{path}[{name!r}]", depth + 1)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(part, f"{path}[{index}]", depth + 1) for index, part in enumerate(value)]
    # numpy's booleans are no `bool`; asked by name, since numpy is not to be imported for it.
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise KeyUnserialisable(f"{path} is {_remedy(value)}")


def _name(name: Any, path: str) -> str:
    if not isinstance(name, str):
        raise KeyUnserialisable(
            f"{path} is a dict with the key {name!r}; use str keys, or a tuple of pairs"
        )
    return str.__str__(name)


def _remedy(value: Any) -> str:
    if isinstance(value, numbers.Real):
        return f"{float(value)}, which JSON cannot hold; use None or a word"
    remedy = ADVICE
    if isinstance(value, set | frozenset):
        remedy = "it has no order; use tuple(sorted(...))"
    elif isinstance(value, bytes | bytearray | memoryview):
        remedy = "use its .hex() or a digest of it"
    elif hasattr(value, "__dataclass_fields__"):
        remedy = "use dataclasses.astuple(...) of it"
    elif hasattr(value, "shape"):
        remedy = "a key tells problems apart by shape and dtype: use tuple(x.shape), str(x.dtype)"
    return f"of type {type(value).__name__}: {remedy}"
