"""What webtune reads in WGSL text: bindings of group 0, override constants, enabled features.

This is no compiler: it reads declarations at module scope, so that a mistake in a call is told
before a device is asked. What it cannot read it leaves to the device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

_BLOCK = re.compile(r"/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/")
_LINE = re.compile(r"//[^\n]*")
_ATTRIBUTES = r"((?:@\w+\s*(?:\([^)]*\))?\s*)*)"
"""Any attributes before a declaration."""
_GLOBAL = re.compile(_ATTRIBUTES + r"\bvar\s*(?:<([^>]*)>)?\s*(\w+)\s*:\s*([^;=]+?)\s*;")
_OVERRIDE = re.compile(_ATTRIBUTES + r"\boverride\s+(\w+)\s*(?::\s*(\w+))?\s*(=)?[^;]*;")
_ENTRY = re.compile(_ATTRIBUTES + r"\bfn\s+(\w+)")
_ENABLE = re.compile(r"\benable\s+([\w\s,]+);")
_SIZE = re.compile(r"@workgroup_size\s*\(((?:[^()]|\([^()]*\))*)\)")
_CONST = re.compile(r"\b(?:const|override)\s+(\w+)\s*(?::\s*\w+)?\s*=\s*([^;]+);")
_TERM = re.compile(r"[A-Za-z_]\w*|\d+[ui]?|[-+*/%()]|\S")
_STRUCT = re.compile(r"\bstruct\s+(\w+)\s*\{([^}]*)\}")
_ALIAS = re.compile(r"\balias\s+(\w+)\s*=\s*([^;]+?)\s*;")
_SCALARS = {"f32": 4, "i32": 4, "u32": 4, "f16": 2, "bool": 4}
_SHORT = {"f": "f32", "i": "i32", "u": "u32", "h": "f16"}
_ATTRIBUTE = re.compile(r"@(\w+)\s*(?:\(\s*([^)]*?)\s*,?\s*\))?")
_MEMBER = re.compile(r"((?:@\w+\s*(?:\([^)]*\))?\s*)*)\w+\s*:\s*(.+)", re.DOTALL)
_VECTOR = re.compile(r"(vec|mat([234])x)([234])(?:([fiuh])|\s*<\s*(\w+)\s*>)")
_NESTING = re.compile(r"(array|atomic)\s*<(.*)>", re.DOTALL)

Size = tuple[int | None, int]
"""Bytes and alignment; (None, 1) where they are not known."""
_UNKNOWN: Size = (None, 1)
_FEATURES = {"f16": "shader-f16", "subgroups": "subgroups"}


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
    """The declarations of a WGSL module."""
    text = _without_comments(source)
    overrides = tuple(
        Override(name, _attributes_in(attributes).get("id", name), type_, bool(default))
        for attributes, name, type_, default in _OVERRIDE.findall(text)
    )
    extensions = [name.strip() for names in _ENABLE.findall(text) for name in names.split(",")]
    return Interface(
        _bindings(text),
        overrides,
        frozenset(_FEATURES[name] for name in extensions if name in _FEATURES),
        tuple(name for given, name in _ENTRY.findall(text) if "compute" in _attributes_in(given)),
    )


def _bindings(text: str) -> tuple[BindingDecl, ...]:
    layout = _Layout(dict(_ALIAS.findall(text)), dict(_STRUCT.findall(text)))
    bindings = []
    for attributes, space, name, type_ in _GLOBAL.findall(text):
        found = _attributes_in(attributes)
        group, index = found.get("group", "").rstrip("ui"), found.get("binding", "").rstrip("ui")
        if group == "0" and index.isdigit():
            element, least_bytes = layout.scalar(type_), layout.measure(type_)[0] or 0
            kind = _kind([word.strip() for word in space.split(",")])
            bindings.append(BindingDecl(int(index), name, kind, type_, element, least_bytes))
    return tuple(sorted(bindings, key=lambda binding: binding.index))


def _kind(words: list[str]) -> str:
    if words[0] == "storage":
        return "storage" if "read_write" in words[1:] else "read-only-storage"
    return "uniform" if words[0] == "uniform" else ""


def workgroup_size(
    source: str, entry: str, constants: Mapping[str, float | int | bool]
) -> tuple[int, ...] | None:
    """The entry point's workgroup size under these override constants; None where an expression
    is more than whole-number arithmetic."""
    text = _without_comments(source)
    function = re.search(rf"\bfn\s+{re.escape(entry)}\b", text)
    sizes = _SIZE.findall(text, 0, function.start()) if function else []
    if not sizes:
        return None
    values = dict(_CONST.findall(text)) | {name: str(value) for name, value in constants.items()}
    sides = [_whole(side, values) for side in _split(sizes[-1])]
    return None if None in sides else tuple(side for side in sides if side is not None)


def _whole(expression: str, values: Mapping[str, str], depth: int = 0) -> int | None:
    parts: list[str] = []
    for word in _TERM.findall(expression):
        if word in "+-*%()":
            parts.append(word)
        elif word == "/":
            parts.append("//")
        elif word.rstrip("ui").isdigit():
            parts.append(word.rstrip("ui"))
        elif word in values and depth < 8:
            value = _whole(values[word], values, depth + 1)
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


def _without_comments(source: str) -> str:
    while True:  # block comments nest
        shorter = _BLOCK.sub(" ", source)
        if shorter == source:
            return _LINE.sub(" ", source)
        source = shorter


# -- types ---------------------------------------------------------------------------------------


def _attributes_in(text: str) -> dict[str, str]:
    """Attributes of a declaration, with what stands in their parentheses."""
    return dict(_ATTRIBUTE.findall(text))


def _split(text: str) -> list[str]:
    """A list of types, members or expressions at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


class _Layout:
    """The types of a module: `aliases` by name, and the text of the bodies of its `structs`."""

    def __init__(self, aliases: dict[str, str], structs: dict[str, str]) -> None:
        self._aliases, self._structs = aliases, structs

    def scalar(self, type_: str) -> str:
        """The scalar at the bottom of an array, vector or atomic; "" for structs."""
        type_ = self._resolve(type_)
        vector, nesting = _VECTOR.fullmatch(type_), _NESTING.fullmatch(type_)
        if vector:
            return self.scalar(_SHORT.get(vector[4] or "", vector[5] or ""))
        if nesting:
            return self.scalar(next(iter(_split(nesting[2])), ""))
        return type_ if type_ in _SCALARS else ""

    def measure(self, type_: str) -> Size:
        """The size and the alignment of a type in bytes; of a runtime-sized array, of one
        element."""
        type_ = self._resolve(type_)
        if type_ in _SCALARS:
            return _SCALARS[type_], _SCALARS[type_]
        vector, nesting = _VECTOR.fullmatch(type_), _NESTING.fullmatch(type_)
        if vector:
            size = _SCALARS.get(_SHORT.get(vector[4] or "", vector[5] or ""))
            return _UNKNOWN if size is None else _measure_vector(size, vector[2], int(vector[3]))
        if nesting:
            element, *count = _split(nesting[2]) or [""]
            return self.measure(element) if nesting[1] == "atomic" else self._array(element, count)
        return self._struct(self._structs[type_]) if type_ in self._structs else _UNKNOWN

    def _array(self, element: str, count: list[str]) -> Size:
        size, align = self.measure(element)
        if size is None:
            return None, align
        number = re.fullmatch(r"(\d+)[ui]?", ",".join(count) or "1")
        return (-(-size // align) * align * int(number[1]) if number else None), align

    def _struct(self, body: str) -> Size:
        offset, largest = 0, 1
        for member in _split(body):
            found = _MEMBER.fullmatch(member)
            size, align = self.measure(found[2]) if found else _UNKNOWN
            if found is None or size is None:
                return _UNKNOWN
            attributes = _attributes_in(found[1])
            align = int(attributes.get("align", align))
            offset = -(-offset // align) * align + int(attributes.get("size", size))
            largest = max(largest, align)
        return -(-offset // largest) * largest, largest

    def _resolve(self, type_: str) -> str:
        type_ = type_.strip()
        for _ in range(16):
            if type_ not in self._aliases:
                break
            type_ = self._aliases[type_].strip()
        return type_


def _measure_vector(scalar: int, columns: str | None, rows: int) -> Size:
    """A vector of `rows` scalars, or a matrix of so many columns. Three take the room of four."""
    align = scalar * (4 if rows == 3 else rows)
    return (align * int(columns), align) if columns else (scalar * rows, align)
