"""What webtune reads in WGSL text: bindings of group 0, override constants, enabled features.

This is no compiler: it reads declarations at module scope, so that a mistake in a call is told
before a device is asked. What it cannot read it leaves to the device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["BindingDecl", "Interface", "Override", "interface", "workgroup_size"]

_BLOCK = re.compile(r"/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/")
_LINE = re.compile(r"//[^\n]*")
_GLOBAL = re.compile(
    r"((?:@\w+\s*(?:\([^)]*\))?\s*)+)var\s*(?:<([^>]*)>)?\s*(\w+)\s*:\s*([^;=]+?)\s*;"
)
_OVERRIDE = re.compile(
    r"((?:@\w+\s*(?:\([^)]*\))?\s*)*)\boverride\s+(\w+)\s*(?::\s*(\w+))?\s*(=)?[^;]*;"
)
_ATTRIBUTE = re.compile(r"@(\w+)\s*(?:\(\s*([^)]*?)\s*,?\s*\))?")
_ENABLE = re.compile(r"\benable\s+([\w\s,]+);")
_ENTRY = re.compile(r"((?:@\w+\s*(?:\([^)]*\))?\s*)+)fn\s+(\w+)")
_SIZE = re.compile(r"@workgroup_size\s*\(((?:[^()]|\([^()]*\))*)\)")
_CONST = re.compile(r"\b(?:const|override)\s+(\w+)\s*(?::\s*\w+)?\s*=\s*([^;]+);")
_TERM = re.compile(r"[A-Za-z_]\w*|\d+[ui]?|[-+*/%()]|\S")
_STRUCT = re.compile(r"\bstruct\s+(\w+)\s*\{([^}]*)\}")
_ALIAS = re.compile(r"\balias\s+(\w+)\s*=\s*([^;]+?)\s*;")
_FEATURES = {"f16": "shader-f16", "subgroups": "subgroups"}
_SCALARS = {"f32": (4, 4), "i32": (4, 4), "u32": (4, 4), "f16": (2, 2), "bool": (4, 4)}
_SHORT = {"f": "f32", "i": "i32", "u": "u32", "h": "f16"}


@dataclass(frozen=True, slots=True)
class BindingDecl:
    """`kind` is "storage" (written), "read-only-storage", "uniform" or "" (no buffer).
    `element` is the scalar type of its elements or "". `least_bytes` is the smallest buffer that
    can be bound, 0 where it is not known."""

    index: int
    name: str
    kind: str
    type: str
    element: str
    least_bytes: int

    @property
    def written(self) -> bool:
        """Whether the shader may write it."""
        return self.kind == "storage"


@dataclass(frozen=True, slots=True)
class Override:
    """`key` is what the pipeline's constants must call it: its name, or its `@id` as text."""

    name: str
    key: str
    type: str
    has_default: bool


@dataclass(frozen=True, slots=True)
class Interface:
    """What a module declares: group 0's bindings by index, overrides, features, entry points."""

    bindings: tuple[BindingDecl, ...]
    overrides: tuple[Override, ...]
    features: frozenset[str]
    entries: tuple[str, ...]

    @property
    def required(self) -> frozenset[str]:
        """Overrides without a default: somebody must set them."""
        return frozenset(o.name for o in self.overrides if not o.has_default)


@lru_cache(maxsize=1024)
def interface(source: str) -> Interface:
    """Read the declarations of a WGSL module."""
    text = _strip(source)
    types = dict(_ALIAS.findall(text))
    structs = dict(_STRUCT.findall(text))
    bindings = []
    for attributes, space, name, type_ in _GLOBAL.findall(text):
        found = dict(_ATTRIBUTE.findall(attributes))
        group, index = found.get("group", "").rstrip("ui"), found.get("binding", "").rstrip("ui")
        if group != "0" or not index.isdigit():
            continue
        words = [word.strip() for word in space.split(",")]
        layout = _Layout(types, structs)
        bindings.append(
            BindingDecl(
                int(index),
                name,
                _kind(words),
                type_,
                layout.scalar(type_),
                layout.measure(type_)[0] or 0,
            )
        )
    overrides = tuple(
        Override(name, dict(_ATTRIBUTE.findall(attributes)).get("id", name), type_, bool(default))
        for attributes, name, type_, default in _OVERRIDE.findall(text)
    )
    words = [w.strip() for group in _ENABLE.findall(text) for w in group.split(",")]
    entries = tuple(
        name for attributes, name in _ENTRY.findall(text) if re.search(r"@compute\b", attributes)
    )
    return Interface(
        tuple(sorted(bindings, key=lambda b: b.index)),
        overrides,
        frozenset(_FEATURES[word] for word in words if word in _FEATURES),
        entries,
    )


def workgroup_size(
    source: str, entry: str, constants: Mapping[str, float | int | bool]
) -> tuple[int, ...] | None:
    """The entry point's workgroup size under these override constants; None where an expression
    is more than whole-number arithmetic."""
    text = _strip(source)
    place = re.search(rf"\bfn\s+{re.escape(entry)}\b", text)
    sizes = _SIZE.findall(text, 0, place.start()) if place else []
    if not sizes:
        return None
    known = {**dict(_CONST.findall(text)), **{name: str(v) for name, v in constants.items()}}
    values = [_whole(part, known) for part in _members(sizes[-1])]
    return None if None in values else tuple(value for value in values if value is not None)


def _whole(expression: str, known: Mapping[str, str], depth: int = 0) -> int | None:
    words = _TERM.findall(expression)
    parts: list[str] = []
    for word in words:
        if word in "+-*%()":
            parts.append(word)
        elif word == "/":
            parts.append("//")
        elif word.rstrip("ui").isdigit():
            parts.append(word.rstrip("ui"))
        elif word in known and depth < 8:
            value = _whole(known[word], known, depth + 1)
            if value is None:
                return None
            parts.append(f"({value})")
        elif word not in ("u32", "i32"):
            return None
    try:
        value = eval(" ".join(parts), {"__builtins__": {}}, {})  # numbers and operators only
    except (SyntaxError, ArithmeticError, TypeError):
        return None
    return value if isinstance(value, int) else None


def _strip(source: str) -> str:
    while True:  # block comments nest
        shorter = _BLOCK.sub(" ", source)
        if shorter == source:
            return _LINE.sub(" ", source)
        source = shorter


def _kind(words: list[str]) -> str:
    if words[0] == "uniform":
        return "uniform"
    if words[0] == "storage":
        return "storage" if "read_write" in words[1:] else "read-only-storage"
    return ""


class _Layout:
    """Sizes and alignments by WGSL's memory layout rules (WGSL §14.4); (None, 1) if unknown."""

    def __init__(self, aliases: dict[str, str], structs: dict[str, str]) -> None:
        self._aliases, self._structs = aliases, structs

    def scalar(self, type_: str) -> str:
        """The scalar at the bottom of an array, vector or atomic; "" for structs."""
        type_ = self._resolve(type_)
        if type_ in _SCALARS:
            return type_
        short = re.fullmatch(r"(?:vec[234]|mat[234]x[234])([fiuh])", type_)
        if short:
            return _SHORT[short[1]]
        inner = re.fullmatch(r"(?:array|atomic|vec[234]|mat[234]x[234])\s*<(.*)>", type_, re.DOTALL)
        return self.scalar(_first(inner[1])) if inner else ""

    def measure(self, type_: str) -> tuple[int | None, int]:
        type_ = self._resolve(type_)
        if type_ in _SCALARS:
            return _SCALARS[type_]
        vector = re.fullmatch(r"vec([234])(?:([fiuh])|\s*<\s*(\w+)\s*>)", type_)
        if vector:
            size = _SCALARS.get(_SHORT.get(vector[2] or "", vector[3] or ""), (0, 0))[0]
            count = int(vector[1])
            return (size * count, size * (4 if count == 3 else count)) if size else (None, 1)
        matrix = re.fullmatch(r"mat([234])x([234])(?:([fh])|\s*<\s*(\w+)\s*>)", type_)
        if matrix:
            size = _SCALARS.get(_SHORT.get(matrix[3] or "", matrix[4] or ""), (0, 0))[0]
            column = size * (2 if matrix[2] == "2" else 4)
            return (column * int(matrix[1]), column) if size else (None, 1)
        inner = re.fullmatch(r"(array|atomic)\s*<(.*)>", type_, re.DOTALL)
        if inner and inner[1] == "atomic":
            return self.measure(inner[2].strip())
        if inner:
            return self._array(inner[2])
        if type_ in self._structs:
            return self._struct(self._structs[type_])
        return None, 1

    def _array(self, inside: str) -> tuple[int | None, int]:
        element = _first(inside)
        rest = inside.strip()[len(element) :].strip(" ,\n\t")
        size, align = self.measure(element)
        if size is None:
            return None, align
        stride = -(-size // align) * align
        if not rest:
            return stride, align  # a runtime-sized array holds at least one element
        count = re.fullmatch(r"(\d+)[ui]?", rest)
        return (stride * int(count[1]), align) if count else (None, align)

    def _struct(self, body: str) -> tuple[int | None, int]:
        offset, largest = 0, 1
        for member in _members(body):
            found = re.fullmatch(
                r"((?:@\w+\s*(?:\([^)]*\))?\s*)*)\w+\s*:\s*(.+)", member, re.DOTALL
            )
            if found is None:
                return None, 1
            attributes = dict(_ATTRIBUTE.findall(found[1]))
            size, align = self.measure(found[2].strip())
            if size is None:
                return None, 1
            align = int(attributes.get("align", align))
            size = int(attributes.get("size", size))
            offset = -(-offset // align) * align + size
            largest = max(largest, align)
        return -(-offset // largest) * largest, largest

    def _resolve(self, type_: str) -> str:
        type_ = type_.strip()
        for _ in range(16):
            if type_ not in self._aliases:
                break
            type_ = self._aliases[type_].strip()
        return type_


def _first(inside: str) -> str:
    """The text up to the first comma outside angle brackets."""
    depth = 0
    for place, letter in enumerate(inside):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            return inside[:place].strip()
    return inside.strip()


def _members(body: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(body):
        depth += letter in "<("
        depth -= letter in ">)"
        if letter == "," and depth == 0:
            parts.append(body[start:place])
            start = place + 1
    parts.append(body[start:])
    return [part.strip() for part in parts if part.strip()]
