"""Functions and modules as text: code, and the globals, closures, defaults and imports that it
reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec, resolve_name
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from webtune.fingerprint.code import code_text, names_of
from webtune.fingerprint.packages import type_name
from webtune.fingerprint.values import digest_of
from webtune.fingerprint.walk import REFLECTING, Walk

_OF_THE_FILE = frozenset({
    "__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__", "__package__",
    "__path__", "__spec__",
})  # fmt: skip
"""Globals that say where a module lies."""


def function(walk: Walk, value: FunctionType) -> str:
    """A function by its name in a library, else by what it is made of."""
    if walk.is_library(value.__module__):
        return f"{value.__module__}.{value.__qualname__}"
    return f"<{walk.once(value, _content)}>"


def _content(walk: Walk, value: FunctionType) -> str:
    code, space = value.__code__, value.__globals__
    names = names_of(code)
    walk.named |= names.attributes | REFLECTING.intersection(names.reads)
    parts = [code_text(code)]
    for name in names.reads:
        if name in space and name not in _OF_THE_FILE:
            parts.append(f"{name}={walk.text(space[name])}")
    for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
        try:
            parts.append(f"{name}:={walk.text(cell.cell_contents)}")
        except ValueError:  # nothing is assigned to it yet
            parts.append(f"{name}:=…")
    parts += [walk.text(default) for default in value.__defaults__ or ()]
    for name, default in sorted((value.__kwdefaults__ or {}).items()):
        parts.append(f"{name}*={walk.text(default)}")
    parts += walk.attributes(vars(value))
    registry = vars(value).get("registry")
    if isinstance(registry, MappingProxyType):  # of functools.singledispatch
        parts.append(walk.pairs(registry.items()))
    parts += [f"import {_imported(walk, name, space)}" for name in names.imports]
    return "\n".join(parts)


def _imported(walk: Walk, name: str, space: Mapping[str, Any]) -> str:
    """A module that is imported when the code runs, by its file's text: whether it is loaded by
    now is chance."""
    name = name if name[0] != "." else resolve_name(name, str(space.get("__package__")))
    if walk.is_library(name):
        return name
    spec = find_spec(name)
    origin = spec.origin if spec is not None and spec.has_location else None
    if origin is None or not origin.endswith(".py"):
        return name
    with open(origin, "rb") as file:
        return f"{name}={digest_of(file.read())}"


def method(walk: Walk, value: MethodType) -> str:
    """A bound method: its function and its object."""
    return f"{walk.text(value.__func__)} of {walk.text(value.__self__)}"


def builtin(walk: Walk, value: Any) -> str:
    """A function written in C by its name, with the object that it is bound to."""
    owner = getattr(value, "__self__", None)
    name = f"{getattr(value, '__module__', None)}.{value.__qualname__}"
    bound = owner is not None and not isinstance(owner, ModuleType)
    return f"{name} of {walk.text(owner)}" if bound else name


def partial_function(walk: Walk, value: partial[Any]) -> str:
    """A `functools.partial`."""
    keywords = walk.pairs(sorted(value.keywords.items()))
    return f"partial({walk.text(value.func)},{walk.text(value.args)},{keywords})"


def descriptor(walk: Walk, value: Any) -> str:
    """A property or a static or class method by the function in it."""
    functions = (getattr(value, name, None) for name in ("fget", "func", "__func__"))
    return f"{type_name(value)}({walk.text(next(f for f in functions if f is not None))})"


def module(walk: Walk, value: ModuleType) -> str:
    """A library by its name, another module by those of its values that the code names."""
    if walk.is_library(value.__name__):
        return f"module {value.__name__}"
    return walk.once(value, _module_content)


def _module_content(walk: Walk, value: ModuleType) -> str:
    # Code that reflects may read any value of a module, but not what the module imports.
    state = {
        name: held
        for name, held in vars(value).items()
        if name in walk.named or not isinstance(held, ModuleType | type)
    }
    return f"module({', '.join(walk.attributes(state))})"
