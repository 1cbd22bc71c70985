"""Classes and instances as text: the members that the code names, or calls without naming them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from enum import Enum
from inspect import getattr_static
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from webtune.fingerprint.packages import is_process_state, package_of, type_name
from webtune.fingerprint.values import enum_member, shortened
from webtune.fingerprint.walk import Walk

_MAKING = frozenset({"__init__", "__new__", "__post_init__"})
"""Methods that made an instance: its attributes say what they did."""
_GENERATED = frozenset({
    "__delattr__", "__eq__", "__ge__", "__getnewargs__", "__getstate__", "__gt__", "__hash__",
    "__init__", "__le__", "__lt__", "__new__", "__replace__", "__repr__", "__setattr__",
    "__setstate__",
})  # fmt: skip
"""Methods that a dataclass or a named tuple is given; its fields say all that they say."""
_READING_ALL = frozenset({
    "__add__", "__bool__", "__call__", "__contains__", "__dataclass_fields__", "__float__",
    "__format__", "__get__", "__getattr__", "__getattribute__", "__getitem__", "__index__",
    "__int__", "__iter__", "__len__", "__mul__", "__radd__", "__rmul__", "__str__",
})  # fmt: skip
"""Members that code uses without naming them: a class that has one may read all its state."""
_KERNEL = ("name", "source", "constants", "workgroups")
"""What a kernel that another one runs is made of."""
_OF_THE_PROCESS = frozenset({"handle", "owner"})
"""Attributes of a buffer."""
_ADDRESS = re.compile("0x[0-9a-fA-F]{4}")


def class_object(walk: Walk, kind: type) -> str:
    """A class by its name in a library, else by its members."""
    if walk.is_library(kind.__module__) or not hasattr(kind, "__dict__"):
        return f"{kind.__module__}.{kind.__qualname__}"
    return walk.once(kind, _class_content)


def _class_content(walk: Walk, kind: type) -> str:
    parts = _members(walk, kind)
    if issubclass(kind, Enum):
        parts += [f"{enum_member(walk, member)} of {walk.text(kind)}" for member in kind]
    for name, field in getattr_static(kind, "__dataclass_fields__", {}).items():
        defaults = (walk.text(field.default), walk.text(field.default_factory))
        parts.append(f"{name}?={defaults}")
    if "_field_defaults" in vars(kind):  # a named tuple
        record: Any = kind
        parts.append(f"{record._fields}?={walk.pairs(record._field_defaults.items())}")
    return f"class {kind.__name__}({'; '.join(parts)})"


def instance(walk: Walk, value: Any) -> str:
    """An instance by its attributes and its class's members."""
    kind = type(value)
    state = state_of(value)
    if walk.is_library(kind.__module__):
        return _library_instance(walk, value, state)
    if not state and isinstance(getattr_static(value, "__qualname__", None), str):
        return f"{kind.__name__} {value.__qualname__}"
    whole = any(not _READING_ALL.isdisjoint(vars(own)) for own in _own_classes(walk, kind))
    attributes = ", ".join(walk.attributes(state, whole=whole))
    members = "; ".join(_members(walk, kind, hidden=_MAKING.union(state)))
    return f"{kind.__name__}({attributes}; {members})"


def state_of(value: Any) -> dict[str, Any]:
    """An instance's own attributes, those in slots included, whatever its class makes of them."""
    state: Any = object.__getstate__(value)
    attributes, slots = state if isinstance(state, tuple) else (state, {})
    return {**slots, **(attributes or {})}


def _library_instance(walk: Walk, value: Any, state: Mapping[str, Any]) -> str:
    kind, package = type_name(value), package_of(type(value).__module__)
    if getattr_static(value, "__name__", None) is not None and walk.is_library(
        getattr(value, "__module__", "")
    ):
        return f"{value.__module__}.{getattr(value, '__qualname__', value.__name__)}"
    if package in ("operator", "_operator"):
        arguments = value.__reduce__()[1]
        walk.named.update(*(str(name).split(".") for name in arguments))
        return f"{kind}({walk.text(arguments)})"
    if hasattr(value, "__wrapped__"):
        return f"{kind}({walk.text(value.__wrapped__)})"
    acting = is_process_state(value)
    if state and not acting and package in sys.stdlib_module_names:
        return f"{kind}({', '.join(walk.attributes(state, whole=True))})"
    walk.selective = True
    chosen = walk.named.union(_KERNEL) - _OF_THE_PROCESS if package == "webtune" else walk.named
    shown = "" if state or acting else repr(value)
    parts = ", ".join(f"{name}={walk.text(state[name])}" for name in sorted(chosen & state.keys()))
    return f"{kind}({'' if _ADDRESS.search(shown) else shortened(shown)}{parts})"


def _members(walk: Walk, kind: type, hidden: frozenset[str] = frozenset()) -> list[str]:
    """The members of a class that the code names, or calls without naming them, and what made the
    class. `hidden` members are left out."""
    walk.selective = True
    holders = _own_classes(walk, kind)
    parts = []
    for name in sorted(walk.named.union(_MAKING, *map(_special, holders)) - hidden):
        # All of them, since a method may call the one that it stands for.
        for value in [vars(holder)[name] for holder in holders if name in vars(holder)]:
            if not _is_given(walk, kind, name, value):
                parts.append(f"{name}={walk.text(value)}")
    if type(kind) is not type and not walk.is_library(type(kind).__module__):
        parts.append(f"made by {walk.text(type(kind))}")
    return parts


def _own_classes(walk: Walk, kind: type) -> list[type]:
    """A class and its bases, libraries' left out."""
    return [base for base in kind.__mro__ if not walk.is_library(base.__module__)]


def _special(kind: type) -> list[str]:
    """The special methods that a class defines itself: code calls them without naming them."""
    return [
        name
        for name, value in vars(kind).items()
        if name[:2] == name[-2:] == "__"
        and "annotate" not in name
        and isinstance(value, FunctionType | property | staticmethod | classmethod)
    ]


def _is_given(walk: Walk, kind: type, name: str, value: Any) -> bool:
    """Whether a member of a class is not of its author: a slot, or a method that the library put
    there, which differs from one version of Python to the next."""
    if isinstance(value, GetSetDescriptorType | MemberDescriptorType):
        return True
    if not isinstance(value, FunctionType) or name[:2] != "__":
        return False
    has_fields = hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_field_defaults")
    generated = name in _GENERATED and value.__code__.co_filename.startswith("<string")
    return (has_fields and generated) or walk.is_library(value.__module__)
