"""What a Python function is made of, as text: part of a candidate's fingerprint.

Theory of operation. A stored pick is good for as long as its candidates do the same. Of a candidate
that is a function that means: its code, and all that the code reads from outside itself, however
deep. `content_of` writes this down as one text; equal texts are equal candidates.

- A function counts by its source text without docstring and decorators, or by its bytecode where
  the source cannot be read (`code.py`). Then follow the globals that it names, the cells of its
  closure, its defaults, and the text of modules that it imports when it runs (`functions.py`).
- A value counts by its content: numbers, text, containers, arrays (`values.py`).
- Of an object, a class or a module only those attributes count that some code met here names
  (`Walk.named`): an application's object holds much that has nothing to do with a kernel. Special
  methods count always, as code calls them without naming them. An object counts whole where the
  code may read any attribute: it uses `getattr` or `vars`, or the object's class has a method such
  as `__getitem__` (`classes.py`).
- The standard library, numpy, wgpu and webtune itself count by the names used of them
  (`packages.py`), as do objects that stand for the process: a lock, the environment.
- A helper that is met late may name an attribute of an object that was met early. So the walk is
  repeated with the names that it found, until it finds no more.
- Every object is described once; met again, it is a number, and a container inside itself is "…".
  Past `MOST_DEPTH` and `MOST_PARTS` (`walk.py`) only the type counts.

No path and no address gets in, so the text is the same after the function is moved and in another
process; under another version of Python too, where the source can be read. What a file, a device
or a clock says when the code runs cannot be seen, nor attributes whose names are made as it runs.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property, partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

from webtune.fingerprint import classes, functions, values
from webtune.fingerprint.packages import is_process_state, package_of, type_name
from webtune.fingerprint.walk import Describe, Walk

MOST_WALKS = 4

_BASES = (list, tuple, deque, set, frozenset, dict, Enum, *values.SCALARS)
"""What a class of the user's may be derived from: its methods count beside the content."""

_DESCRIBED: tuple[tuple[Any, Describe], ...] = (
    (Enum, values.enum_member),
    (values.PLAIN, values.plain),
    (FunctionType, functions.function),
    (MethodType, functions.method),
    ((BuiltinFunctionType, MethodWrapperType), functions.builtin),
    (partial, functions.partial_function),
    (ModuleType, functions.module),
    (type, classes.class_object),
    ((property, cached_property, staticmethod, classmethod), functions.descriptor),
    ((list, tuple, deque), values.sequence),
    ((set, frozenset), values.unordered),
    ((dict, MappingProxyType), values.mapping),
    ((array, bytearray, memoryview), values.raw_bytes),
    (re.Pattern, values.pattern),
    (os.PathLike, values.path),
)
"""The types that are described, most particular first, and how."""


def content_of(function: Callable[..., Any] | None) -> str:
    """The text of everything that a function is made of; of a callable object, of its whole state.

    Never raises. Equal functions give equal text in every process; no function gives "".
    """
    if function is None:
        return ""
    named: set[str] = set()
    text = ""
    for _ in range(MOST_WALKS):
        count = len(named)
        walk = Walk(named, _home(function), _describe)
        text = walk.text(function)
        if len(named) == count or not walk.selective:
            break
    return text


def _describe(walk: Walk, value: Any) -> str:
    for types, describe in _DESCRIBED:
        if isinstance(value, types):
            kind = type(value)
            if issubclass(kind, _BASES) and not (
                kind in _BASES or walk.is_library(kind.__module__)
            ):
                return f"{describe(walk, value)} of {walk.text(kind)}"
            return describe(walk, value)
    if isinstance(value, Mapping) and not is_process_state(value):
        return type_name(value) + walk.pairs(value.items())
    if values.is_array(value):
        return values.array(walk, value)
    return walk.once(value, classes.instance)


def _home(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return package_of(getattr(function, "__module__", ""))
