"""What webtune reads in WGSL text: bindings of group 0, override constants, enabled features.

This is no compiler: it reads declarations at module scope, so that a mistake in a call is told
before a device is asked. What it cannot read it leaves to the device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from webtune.kernel.layout import Layout, attributes_in, split

__all__ = ["BindingDecl", "Interface", "Override", "interface", "workgroup_size"]

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
        Override(name, attributes_in(attributes).get("id", name), type_, bool(default))
        for attributes, name, type_, default in _OVERRIDE.findall(text)
    )
    extensions = [name.strip() for names in _ENABLE.findall(text) for name in names.split(",")]
    return Interface(
        _bindings(text),
        overrides,
        frozenset(_FEATURES[name] for name in extensions if name in _FEATURES),
        tuple(name for given, name in _ENTRY.findall(text) if "compute" in attributes_in(given)),
    )


def _bindings(text: str) -> tuple[BindingDecl, ...]:
    layout = Layout(dict(_ALIAS.findall(text)), dict(_STRUCT.findall(text)))
    bindings = []
    for attributes, space, name, type_ in _GLOBAL.findall(text):
        found = attributes_in(attributes)
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
    sides = [_whole(side, values) for side in split(sizes[-1])]
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
