"""Parameter spaces: grids with constraints, enumerated lazily in a stable order.

The first valid point is the default candidate: order each axis with the safe value first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from webtune.errors import SpaceError

Value = int | float | bool | str


def ceil_div(a: int, b: int) -> int:
    """How many pieces of `b` cover `a`; `b` must be positive."""
    if b <= 0:
        raise ZeroDivisionError(f"ceil_div({a}, {b}): the divisor must be positive")
    return -(-a // b)


class Params(Mapping[str, Value]):
    """One point of a space: read-only, hashable, with its values as attributes and as items."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        object.__setattr__(self, "_values", dict(values))

    def __getitem__(self, name: str) -> Value:
        return self._values[name]  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_values")[name]
        except KeyError:
            names = ", ".join(self._values) or "none"
            raise AttributeError(f"no parameter {name!r}; the space has: {names}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("parameters are read-only")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self._values) == dict(other)

    def __reduce__(self) -> tuple[type[Params], tuple[dict[str, Value]]]:
        return Params, (dict(self._values),)

    def __repr__(self) -> str:
        return f"Params({self})"

    def __str__(self) -> str:
        return ", ".join(f"{name}={_text(value)}" for name, value in self._values.items())


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Space:
    """A set of `Params`. Build it with `grid`, narrow it with `where`, join spaces with `|`.

    Iterating gives its points, each once, in the order of the axes: the last one varies first.
    """

    def __init__(
        self,
        axes: Mapping[str, tuple[Value, ...]],
        constraints: tuple[Callable[[Params], object], ...] = (),
        others: tuple[Space, ...] = (),
    ) -> None:
        self._axes = dict(axes)
        self._constraints = constraints
        self._others = others
        self._count: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in order; those of joined spaces included."""
        names = itertools.chain(self._axes, *(other.names for other in self._others))
        return tuple(dict.fromkeys(names))

    def where(self, constraint: Callable[[Params], object]) -> Space:
        """The points for which `constraint(params)` is true. Raises `SpaceError` when none is
        left, or when the constraint raises."""
        if not callable(constraint):
            raise SpaceError(
                "where() takes a function of the parameters, such as lambda p: p.WG <= 256"
            )
        others = tuple(other.where(constraint) for other in self._others)
        space = Space(self._axes, (*self._constraints, constraint), others)
        if next(iter(space), None) is None:
            count = math.prod(map(len, self._axes.values()))
            raise SpaceError(
                f"the constraint leaves nothing of {count} points; widen an axis or relax it"
            )
        return space

    def __or__(self, other: Space) -> Space:
        if not isinstance(other, Space):
            return NotImplemented
        return Space(self._axes, self._constraints, (*self._others, other))

    def __iter__(self) -> Iterator[Params]:
        if not self._others:
            yield from self._points()
            return
        seen: set[Params] = set()
        for params in itertools.chain(self._points(), *self._others):
            if params not in seen:
                seen.add(params)
                yield params

    def _points(self) -> Iterator[Params]:
        for values in itertools.product(*self._axes.values()):
            params = Params(dict(zip(self._axes, values, strict=True)))
            if all(_holds(constraint, params) for constraint in self._constraints):
                yield params

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={list(values)}" for name, values in self._axes.items())
        return f"grid({axes})" + ".where(…)" * len(self._constraints)


def _holds(constraint: Callable[[Params], object], params: Params) -> bool:
    try:
        return bool(constraint(params))
    except Exception as error:
        raise SpaceError(f"where() raised {type(error).__name__} for {params}: {error}") from error


def grid(**axes: Iterable[Value] | Value) -> Space:
    """The product of the axes: `grid(WG=[64, 128], VEC=[1, 4])`. A scalar is an axis of one.

    Values are int, float, bool or str (text is for sources built by a function). Raises
    `SpaceError` for an axis without values, with repeated or endless ones, or of another type.
    """
    checked: dict[str, tuple[Value, ...]] = {}
    for name, values in axes.items():
        scalar = isinstance(values, int | float | bool | str)
        axis = (values,) if scalar else tuple(_iterate(name, values))
        if not axis:
            raise SpaceError(f"axis {name} has no values; give at least one")
        for value in axis:
            if not isinstance(value, int | float | bool | str):
                raise SpaceError(
                    f"axis {name} has {value!r} of type {type(value).__name__}; "
                    "use int, float, bool or str"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise SpaceError(f"axis {name} has {value!r}; values are finite")
        if len({(type(value) is bool, value) for value in axis}) != len(axis):
            raise SpaceError(f"axis {name} repeats a value: {list(axis)}")
        checked[name] = axis
    return Space(checked)


def _iterate(name: str, values: Any) -> Iterator[Any]:
    try:
        for value in values:
            item = getattr(value, "item", None)  # a numpy scalar
            yield item() if item is not None and not isinstance(value, str) else value
    except TypeError:
        raise SpaceError(
            f"axis {name} is {values!r}; give a list of values, such as {name}=[32, 64]"
        ) from None
