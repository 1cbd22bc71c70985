"""Plain values as text: numbers, text, containers, arrays, members of enums, paths, patterns."""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from webtune.fingerprint.packages import type_name
from webtune.fingerprint.walk import Walk

MOST_ARRAY_BYTES = 1 << 26
"""Larger arrays are known by dtype and shape: they are data, not parameters of code."""
LONG = 256
"""Longer texts are digested."""

SCALARS = (bool, int, float, complex, str, bytes)
PLAIN = (*SCALARS, type(None), type(...), range, slice)


def shortened(text: str) -> str:
    """A text, or the digest of a long one."""
    return text if len(text) <= LONG else digest_of(text.encode("utf-8", "surrogatepass"))


def digest_of(raw: bytes) -> str:
    """The length of some bytes and a digest of them."""
    return f"{len(raw)}:{hashlib.blake2b(raw, digest_size=16).hexdigest()}"


def plain(walk: Walk, value: Any) -> str:
    """A number or a text, also one of a class derived from these."""
    base: Any = next((base for base in SCALARS if isinstance(value, base)), type(value))
    return shortened(base.__repr__(value))


def enum_member(walk: Walk, value: Enum) -> str:
    """A member of an enum by its name and its value."""
    return f"{type(value).__name__}.{value.name}={walk.text(value.value)}"


def pattern(walk: Walk, value: re.Pattern[Any]) -> str:
    """A regular expression."""
    return f"pattern {value.flags} {walk.text(value.pattern)}"


def path(walk: Walk, value: os.PathLike[str]) -> str:
    """A path by its last part: where it lies is of this machine."""
    return f"path {os.path.basename(os.fspath(value))!r}"


def sequence(walk: Walk, value: Sequence[Any]) -> str:
    """A list, tuple or deque."""
    if len(value) > LONG and all(type(item) in PLAIN for item in value):
        return f"{type_name(value)}[{shortened(repr(list(value)))}]"
    inner = walk.inside(value, lambda: ",".join([walk.text(item) for item in value]))
    return f"{type_name(value)}[{inner}]"


def unordered(walk: Walk, value: Iterable[Any]) -> str:
    """A set, sorted: its order changes from process to process."""
    return f"{type_name(value)}{{{','.join(sorted(walk.text(item) for item in value))}}}"


def mapping(walk: Walk, value: Mapping[Any, Any]) -> str:
    """A dictionary, with what makes its missing values."""

    def content() -> str:
        default = walk.text(value.default_factory) if isinstance(value, defaultdict) else ""
        return default + walk.pairs(value.items())

    return walk.inside(value, content)


def raw_bytes(walk: Walk, value: Any) -> str:
    """A bytearray, a memoryview or an array of the standard library."""
    view = memoryview(value)
    return f"{view.format}{view.shape}:{digest_of(view.tobytes())}"


def is_array(value: Any) -> bool:
    """Whether it is a scalar or an array of numpy or alike. The type is asked: a foreign object's
    own attributes may be made up as they are asked for."""
    return all(hasattr(type(value), name) for name in ("dtype", "shape", "tobytes"))


def array(walk: Walk, value: Any) -> str:
    """A scalar or an array of numpy or alike, by its content unless that is very long."""
    dtype, shape = value.dtype, value.shape
    if getattr(dtype, "hasobject", False):
        return f"{dtype}{shape}:{walk.text(value.tolist())}"
    if shape == () and hasattr(value, "item"):
        return f"{dtype}{shape}:{value.item()!r}"
    content = f":{digest_of(value.tobytes())}" if value.nbytes <= MOST_ARRAY_BYTES else ""
    return f"{dtype}{shape}{content}"
