"""What a Python function is made of, as text: part of a candidate's fingerprint.

Editing the function, or a value or helper that it names however deep, changes the text; moving
it, renaming its file, another process or another Python version does not, where the source can be
read. No address and no path of a machine gets in.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property, partial
from importlib.util import find_spec, resolve_name
from inspect import getattr_static
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

from webtune.fingerprint.code import code_text, names_of
from webtune.fingerprint.packages import is_acting, is_foreign, kind_of, package_of

__all__ = ["material", "state_of"]

MOST_PARTS = 20_000
MOST_DEPTH = 40
MOST_WALKS = 4
MOST_ARRAY_BYTES = 1 << 26
"""Larger arrays are known by dtype and shape: they are data, not parameters of code."""
LONG = 256

_PLACES = frozenset(
    {
        "__builtins__",
        "__cached__",
        "__doc__",
        "__file__",
        "__loader__",
        "__name__",
        "__package__",
        "__path__",
        "__spec__",
    }
)
_LIVE = frozenset({"handle", "owner"})
"""Attributes of a buffer that are of this process."""
_REFLECTING = frozenset({"__dict__", "asdict", "astuple", "getattr", "vars"})
"""Code that names one of these may read any attribute."""
_GENERATED = frozenset(
    f"__{name}__"
    for name in (
        *("delattr", "eq", "ge", "getnewargs", "getstate", "gt", "hash", "init", "le", "lt", "new"),
        *("replace", "repr", "setattr", "setstate"),
    )
)
"""Methods that a dataclass or a named tuple is given; its fields say all that they say."""
_WHOLE = frozenset(
    {
        "__add__",
        "__bool__",
        "__call__",
        "__contains__",
        "__float__",
        "__format__",
        "__get__",
        "__getattr__",
        "__getattribute__",
        "__getitem__",
        "__index__",
        "__int__",
        "__iter__",
        "__len__",
        "__mul__",
        "__radd__",
        "__rmul__",
        "__str__",
    }
)
"""Methods that code calls without naming them: a class that has one may read all its state."""
_PARTS = ("name", "source", "_constants", "_workgroups")
"""What a kernel that another one runs is made of."""
_ADDRESS = re.compile("0x[0-9a-fA-F]{4}")


def material(function: Callable[..., Any] | None) -> str:
    """The function's code and all that it reads from outside itself. Never raises.

    Followed are globals, closures, defaults, helper functions, containers, enums, arrays, partial
    functions, methods, and of modules, classes and instances the attributes that some code here
    names. Of a callable object it is the whole state. What cannot be told from its value, a file
    or a device say, is known by its type.
    """
    if function is None:
        return ""
    names: set[str] = set()
    text = ""
    for _ in range(MOST_WALKS):
        known = len(names)
        walk = _Walk(names, _home(function))
        text = walk.root(function)
        # A helper found late may name an attribute of an object that was met early.
        if len(names) == known or not walk.chose:
            break
    return text


class _Walk:
    """One pass over everything that can be reached. `names` are the attributes that the code met
    so far names; it grows on the way."""

    def __init__(self, names: set[str], home: str) -> None:
        self.names = names
        self.home = home
        self.met: dict[int, int] = {}
        self.kept: list[object] = []
        self.open: set[int] = set()
        self.parts = 0
        self.depth = 0
        self.chose = False
        """Whether a part of an object was taken by `names`."""

    def root(self, function: Any) -> str:
        if isinstance(function, FunctionType):
            return self._guarded(function, self._function)
        return self.value(function)

    def value(self, value: Any) -> str:
        """Any value as text."""
        return self._guarded(value, self._any)

    def _guarded(self, value: Any, render: Callable[[Any], str]) -> str:
        self.parts += 1
        if self.parts > MOST_PARTS or self.depth > MOST_DEPTH:
            return f"…{kind_of(value)}"
        self.depth += 1
        try:
            return render(value)
        except Exception:
            # A foreign object may do anything when it is looked at.
            return kind_of(value)
        finally:
            self.depth -= 1

    def _any(self, value: Any) -> str:
        if value is None or isinstance(value, Enum) or type(value) in _PLAIN:
            return self._enum(value) if isinstance(value, Enum) else _short(repr(value))
        for types, render in _RENDER:
            if isinstance(value, types):
                kind = type(value)
                own = isinstance(value, _CONTAINERS) and not self._by_name(kind.__module__)
                return (
                    f"{render(self, value)} of {self.value(kind)}" if own else render(self, value)
                )
        if isinstance(value, Mapping) and not is_acting(value):
            return f"{kind_of(value)}{self._pairs(value.items())}"
        plain = _scalar_or_array(self, value)
        return self._once(value, self._instance) if plain is None else plain

    def _once(self, value: Any, render: Callable[[Any], str]) -> str:
        """What has an identity is told once; met again, it is the same one."""
        if id(value) in self.met:
            return f"#{self.met[id(value)]}"
        self.met[id(value)] = len(self.met)
        self.kept.append(value)
        return render(value)

    # -- plain things --------------------------------------------------------------------------

    def _enum(self, value: Enum) -> str:
        kind = type(value)
        told = f"{kind.__name__}.{value.name}={self.value(value.value)}"
        return told if self._by_name(kind.__module__) else f"{told} of {self.value(kind)}"

    def _number(self, value: Any) -> str:
        for base in (bool, int, float, complex, str, bytes):
            if isinstance(value, base):
                return _short(base.__repr__(value))
        return kind_of(value)

    def _pattern(self, value: re.Pattern[Any]) -> str:
        return f"pattern {value.flags} {self.value(value.pattern)}"

    def _bytes(self, value: Any) -> str:
        view = memoryview(value)
        return f"{view.format}{view.shape}:{_digest(view.tobytes())}"

    def _sequence(self, value: Sequence[Any]) -> str:
        if len(value) > LONG and all(type(each) in _PLAIN for each in value):
            return f"{kind_of(value)}[{_short(repr(list(value)))}]"
        with _Open(self, value) as again:
            inner = "…" if again else ",".join([self.value(each) for each in value])
        return f"{kind_of(value)}[{inner}]"

    def _set(self, value: Iterable[Any]) -> str:
        return f"{kind_of(value)}{{{','.join(sorted(self.value(each) for each in value))}}}"

    def _mapping(self, value: Mapping[Any, Any]) -> str:
        with _Open(self, value) as again:
            if again:
                return "{…}"
            made = self.value(value.default_factory) if isinstance(value, defaultdict) else ""
            return made + self._pairs(value.items())

    def _pairs(self, items: Iterable[tuple[Any, Any]]) -> str:
        return f"{{{','.join([f'{self.value(k)}:{self.value(v)}' for k, v in list(items)])}}}"

    def _path(self, value: os.PathLike[str]) -> str:
        # Where it lies is of this machine.
        return f"path {os.path.basename(os.fspath(value))!r}"

    # -- code ----------------------------------------------------------------------------------

    def _helper(self, function: FunctionType) -> str:
        if self._by_name(function.__module__):
            return f"{function.__module__}.{function.__qualname__}"
        return f"<{self._once(function, self._function)}>"

    def _function(self, function: FunctionType) -> str:
        code = function.__code__
        self.met.setdefault(id(function), len(self.met))
        self.kept.append(function)
        reads, attributes, imports = names_of(code)
        self.names |= attributes | _REFLECTING.intersection(reads)
        parts = [code_text(code)]
        for name in reads:
            if name in function.__globals__ and name not in _PLACES:
                parts.append(f"{name}={self.value(function.__globals__[name])}")
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                parts.append(f"{name}:={self.value(cell.cell_contents)}")
            except ValueError:
                parts.append(f"{name}:=…")
        parts += [self.value(each) for each in function.__defaults__ or ()]
        for name, each in sorted((function.__kwdefaults__ or {}).items()):
            parts.append(f"{name}*={self.value(each)}")
        parts += self._state(vars(function))
        registry = vars(function).get("registry")
        if isinstance(registry, MappingProxyType):  # of functools.singledispatch
            parts.append(self._pairs(registry.items()))
        for name in imports:
            parts.append(f"import {self._imported(name, function.__globals__)}")
        return "\n".join(parts)

    def _imported(self, name: str, space: Mapping[str, Any]) -> str:
        """A module that is imported when the code runs, by its file's text: whether it is loaded
        by now is chance."""
        whole = name if name[0] != "." else resolve_name(name, str(space.get("__package__")))
        if self._by_name(whole):
            return whole
        spec = find_spec(whole)
        origin = spec.origin if spec is not None and spec.has_location else None
        if origin is None or not origin.endswith(".py"):
            return whole
        with open(origin, "rb") as file:
            return f"{whole}={_digest(file.read())}"

    def _method(self, method: MethodType) -> str:
        return f"{self.value(method.__func__)} of {self.value(method.__self__)}"

    def _builtin(self, function: Any) -> str:
        owner = getattr(function, "__self__", None)
        name = f"{getattr(function, '__module__', None)}.{function.__qualname__}"
        bound = owner is not None and not isinstance(owner, ModuleType)
        return f"{name} of {self.value(owner)}" if bound else name

    def _partial(self, value: partial[Any]) -> str:
        given = self._pairs(sorted(value.keywords.items()))
        return f"partial({self.value(value.func)},{self.value(value.args)},{given})"

    def _descriptor(self, value: Any) -> str:
        inner = (getattr(value, name, None) for name in ("fget", "func", "__func__"))
        return f"{kind_of(value)}({self.value(next(each for each in inner if each is not None))})"

    # -- what has attributes -------------------------------------------------------------------

    def _by_name(self, module: object) -> bool:
        package = package_of(module)
        return package != self.home and is_foreign(package)

    def _module(self, module: ModuleType) -> str:
        if self._by_name(module.__name__):
            return f"module {module.__name__}"
        return self._once(module, self._contents)

    def _contents(self, module: ModuleType) -> str:
        # Code that reflects may read any value of a module, but not what the module imports.
        state = {
            name: value
            for name, value in vars(module).items()
            if name in self.names or not isinstance(value, ModuleType | type)
        }
        return f"module({self._listed(state)})"

    def _class(self, kind: type) -> str:
        if self._by_name(kind.__module__) or not hasattr(kind, "__dict__"):
            return f"{kind.__module__}.{kind.__qualname__}"
        return self._once(kind, lambda k: f"class {k.__name__}({'; '.join(self._members(k))})")

    def _members(self, kind: type, own: Mapping[str, Any] | None = None) -> list[str]:
        """The class attributes that the code names, or calls without naming them; of an instance
        that has attributes of its `own`, without those and without what made it."""
        found = []
        self.chose = True
        made = {"__init__", "__new__", "__post_init__"}
        holders = [k for k in kind.__mro__ if not self._by_name(k.__module__)]
        names = self.names.union(made, *map(_special, holders))
        for name in sorted(names if own is None else names - made - own.keys()):
            # All of them, since a method may call the one that it stands for.
            for value in [vars(holder)[name] for holder in holders if name in vars(holder)]:
                if not self._is_given(kind, name, value):
                    found.append(f"{name}={self.value(value)}")
        if type(kind) is not type and not self._by_name(type(kind).__module__):
            found.append(f"made by {self.value(type(kind))}")
        if own is None and issubclass(kind, Enum):
            found += [self._enum(each) for each in kind]
        fields = getattr_static(kind, "__dataclass_fields__", {}) if own is None else {}
        for name, field in fields.items():
            default = (self.value(field.default), self.value(field.default_factory))
            found.append(f"{name}?={default}")
        if own is None and "_field_defaults" in vars(kind):
            found.append(f"{kind._fields}?={self._pairs(kind._field_defaults.items())}")  # type: ignore[attr-defined]
        return found

    def _is_given(self, kind: type, name: str, value: Any) -> bool:
        """Whether a member of a class is not of its author: a slot, or a method that the library
        put there, which differs from one version of Python to the next."""
        if isinstance(value, GetSetDescriptorType | MemberDescriptorType):
            return True
        if not isinstance(value, FunctionType) or name[:2] != "__":
            return False
        records = hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_field_defaults")
        generated = name in _GENERATED and value.__code__.co_filename.startswith("<string")
        return (records and generated) or self._by_name(value.__module__)

    def _instance(self, value: Any) -> str:
        kind = type(value)
        state = state_of(value)
        if self._by_name(kind.__module__):
            return self._foreign(value, state)
        if not state and isinstance(getattr_static(value, "__qualname__", None), str):
            return f"{kind.__name__} {value.__qualname__}"
        whole = any(self._defines(kind, name) for name in ("__dataclass_fields__", *_WHOLE))
        members = "; ".join(self._members(kind, state))
        return f"{kind.__name__}({self._listed(state, whole=whole)}; {members})"

    def _foreign(self, value: Any, state: Mapping[str, Any]) -> str:
        """An instance of a class that is known by name."""
        package = package_of(type(value).__module__)
        name = getattr_static(value, "__name__", None)
        if name is not None and self._by_name(getattr(value, "__module__", "")):
            return f"{value.__module__}.{getattr(value, '__qualname__', value.__name__)}"
        if package in ("operator", "_operator"):
            _, given = value.__reduce__()[:2]
            self.names.update(*(str(each).split(".") for each in given))
            return f"{kind_of(value)}({self.value(given)})"
        if hasattr(value, "__wrapped__"):
            return f"{kind_of(value)}({self.value(value.__wrapped__)})"
        acting = is_acting(value)
        if state and not acting and package in sys.stdlib_module_names:
            return f"{kind_of(value)}({self._listed(state, whole=True)})"
        text = "" if state or acting else repr(value)
        chosen = self.names.union(_PARTS) - _LIVE if package == "webtune" else self.names
        self.chose = True
        parts = [f"{n}={self.value(state[n])}" for n in sorted(chosen & state.keys())]
        return (
            f"{kind_of(value)}({'' if _ADDRESS.search(text) else _short(text)}{', '.join(parts)})"
        )

    def _defines(self, kind: type, name: str) -> bool:
        holder = next((k for k in kind.__mro__ if name in vars(k)), None)
        return holder is not None and not self._by_name(holder.__module__)

    def _listed(self, state: Mapping[str, Any], *, whole: bool = False) -> str:
        return ", ".join(self._state(state, whole=whole))

    def _state(self, state: Mapping[str, Any], *, whole: bool = False) -> list[str]:
        """The attributes that the code names; all of them where `whole`."""
        if not whole:
            self.chose = self.chose or bool(state)
            whole = not self.names.isdisjoint(_REFLECTING)
        names = sorted(str(each) for each in state if whole or each in self.names)
        return [
            f"{name}={self.value(state[name])}"
            for name in names
            if name in state and not (name.startswith("__") and name.endswith("__"))
        ]


class _Open:
    """Marks a container as being told: True where it already is."""

    def __init__(self, walk: _Walk, value: object) -> None:
        self.walk, self.key = walk, id(value)

    def __enter__(self) -> bool:
        self.again = self.key in self.walk.open
        self.walk.open.add(self.key)
        return self.again

    def __exit__(self, *error: object) -> None:
        if not self.again:
            self.walk.open.discard(self.key)


_CONTAINERS = (list, tuple, deque, set, frozenset, dict, bool, int, float, complex, str, bytes)
"""What a class of the user's may be derived from: its methods count beside the content."""
_PLAIN = (bool, int, float, complex, str, bytes, type(...), range, slice)
_RENDER: tuple[tuple[Any, Callable[[_Walk, Any], str]], ...] = (
    (FunctionType, _Walk._helper),
    (MethodType, _Walk._method),
    ((BuiltinFunctionType, MethodWrapperType), _Walk._builtin),
    (partial, _Walk._partial),
    (ModuleType, _Walk._module),
    (type, _Walk._class),
    ((property, cached_property, staticmethod, classmethod), _Walk._descriptor),
    ((list, tuple, deque), _Walk._sequence),
    ((set, frozenset), _Walk._set),
    ((dict, MappingProxyType), _Walk._mapping),
    ((bool, int, float, complex, str, bytes), _Walk._number),
    ((array, bytearray, memoryview), _Walk._bytes),
    (re.Pattern, _Walk._pattern),
    (os.PathLike, _Walk._path),
)


def _scalar_or_array(walk: _Walk, value: Any) -> str | None:
    """A number or an array of numpy or alike, None for anything else."""
    # The type is asked: a foreign object's own attributes may be made up as they are asked for.
    if not all(hasattr(type(value), each) for each in ("dtype", "shape", "tobytes")):
        return None
    dtype, shape = value.dtype, value.shape
    head = f"{dtype}{shape}"
    if getattr(dtype, "hasobject", False):
        return f"{head}:{walk.value(value.tolist())}"
    if shape == () and hasattr(value, "item"):
        return f"{head}:{value.item()!r}"
    if value.nbytes > MOST_ARRAY_BYTES:
        return head
    return f"{head}:{_digest(value.tobytes())}"


def state_of(value: Any) -> dict[str, Any]:
    """An instance's own attributes, those in slots too."""
    return dict(_slots(value)) | _attributes(value)


def _special(kind: type) -> list[str]:
    """The special methods that a class defines itself: code calls them without naming them."""
    return [
        name
        for name, value in vars(kind).items()
        if name[:2] == name[-2:] == "__"
        and "annotate" not in name
        and isinstance(value, FunctionType | property | staticmethod | classmethod)
    ]


def _attributes(value: Any) -> dict[str, Any]:
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return {}


def _slots(value: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            stored = f"_{kind.__name__.lstrip('_')}{name}" if private else name
            slot = vars(kind).get(stored)
            if isinstance(slot, MemberDescriptorType):
                try:
                    yield stored, slot.__get__(value, type(value))
                except AttributeError:
                    continue


def _home(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return package_of(getattr(function, "__module__", ""))


def _short(text: str) -> str:
    return text if len(text) <= LONG else _digest(text.encode("utf-8", "surrogatepass"))


def _digest(raw: bytes) -> str:
    return f"{len(raw)}:{hashlib.blake2b(raw, digest_size=16).hexdigest()}"
