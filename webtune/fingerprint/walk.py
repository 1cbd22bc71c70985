"""One pass over everything that a function reaches: its limits, its cycles, and which attributes
of an object count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from webtune.fingerprint.packages import is_library, package_of, type_name

MOST_PARTS = 20_000
MOST_DEPTH = 40

REFLECTING = frozenset({"__dict__", "asdict", "astuple", "getattr", "vars"})
"""Code that names one of these may read any attribute."""

Describe = Callable[["Walk", Any], str]
"""How one type of value becomes text."""


class Walk:
    """Describes values as text, each object once.

    `named` are the attributes that the code met so far names; functions add to it as they are
    met. `home` is the package of the function where the walk began, which is read even if it is a
    library. `describe` is the text of a value of any type.
    """

    def __init__(self, named: set[str], home: str, describe: Describe) -> None:
        self.named = named
        self.home = home
        self.selective = False
        """Whether an object was described by its `named` attributes only."""
        self._describe = describe
        self._met: dict[int, tuple[int, object]] = {}
        self._open: set[int] = set()
        self._parts = 0
        self._depth = 0

    def text(self, value: Any) -> str:
        """Any value as text. Past the limits, and where looking at the value raises, the name of
        its type."""
        self._parts += 1
        if self._parts > MOST_PARTS or self._depth > MOST_DEPTH:
            return f"…{type_name(value)}"
        self._depth += 1
        try:
            return self._describe(self, value)
        except Exception:
            # A foreign object may do anything when it is looked at.
            return type_name(value)
        finally:
            self._depth -= 1

    def once(self, value: Any, describe: Describe) -> str:
        """The text of an object with an identity; its number where it is met again."""
        if id(value) in self._met:
            return f"#{self._met[id(value)][0]}"
        self._met[id(value)] = len(self._met), value  # kept, so that its id stays its own
        return describe(self, value)

    def inside(self, container: object, describe: Callable[[], str]) -> str:
        """The content of a container; "…" where it holds itself."""
        if id(container) in self._open:
            return "…"
        self._open.add(id(container))
        try:
            return describe()
        finally:
            self._open.discard(id(container))

    def pairs(self, items: Iterable[tuple[Any, Any]]) -> str:
        """Keys and values as text, in their order."""
        return f"{{{','.join([f'{self.text(k)}:{self.text(v)}' for k, v in list(items)])}}}"

    def attributes(self, state: Mapping[str, Any], *, whole: bool = False) -> list[str]:
        """Those of an object's attributes that the code names; all of them where `whole`, or where
        the code may read any. Special names are left out."""
        if not whole:
            self.selective = self.selective or bool(state)
            whole = not self.named.isdisjoint(REFLECTING)
        return [
            f"{name}={self.text(state[name])}"
            for name in sorted(map(str, state))
            if (whole or name in self.named)
            and name in state
            and not (name.startswith("__") and name.endswith("__"))
        ]

    def is_library(self, module: object) -> bool:
        """Whether a `__module__` is of a library that is known by the names used of it."""
        package = package_of(module)
        return package != self.home and is_library(package)
