"""One candidate, the groups that it may be in, and the enumeration of all candidates of a set."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from webtune.errors import KernelError, UsageError
from webtune.fingerprint.digests import digest, set_fingerprint
from webtune.kernel.arguments import Argument
from webtune.kernel.options import call_option
from webtune.kernel.recorder import Recorder
from webtune.kernel.space import Params

Priority = int | Callable[[Any], int]
"""A whole number, or a function of the key that gives one."""

Record = Callable[[Recorder, tuple[Argument, ...]], None]
"""Records a candidate's dispatches on the given arguments."""


@dataclass(frozen=True, slots=True)
class Group:
    """Candidates that are tried together.

    - `priority`: groups with a higher one are measured first, a group with a negative one is left
      out. A whole number, or a function of the key that gives one.
    - `patience` (adaptive strategy): how many candidates of the group in a row may fail to improve
      on the best before the rest of the group is left out. None: never.

    Raises `UsageError` where one of them is no whole number.
    """

    name: str
    priority: Priority = 0
    patience: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.priority):
            priority_of(f"group {self.name!r}", self.priority)
        if self.patience is not None and not (_is_whole(self.patience) and self.patience > 0):
            raise UsageError(
                f"group {self.name!r}: patience={self.patience!r}; it is how many candidates in a "
                "row, at least 1, or None"
            )


Memberships = tuple[tuple[Group, Priority], ...]
"""The groups of a candidate, with its priority inside each."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One way to run a kernel.

    `record` says what it runs. `id` is the digest of everything that it is made of. `requires` are
    device features without which it is rejected. Where `repeat` is false, a sample must not run it
    more than once in a row.
    """

    name: str
    params: Params
    id: str
    record: Record
    groups: Memberships = ()
    requires: frozenset[str] = frozenset()
    repeat: bool = True


@dataclass(frozen=True)
class Enumeration:
    """All candidates of the set `name`, in the order of fallbacks, with digests over them. Raises
    `KernelError` where there is none, or two have one name."""

    name: str
    candidates: tuple[Candidate, ...]

    def __post_init__(self) -> None:
        if not self.candidates:
            raise KernelError(f"{self.name} has no candidates; add at least one")
        names: set[str] = set()
        for candidate in self.candidates:
            if candidate.name in names:
                raise KernelError(f"{self.name} has two candidates called {candidate.name!r}")
            names.add(candidate.name)

    @cached_property
    def fingerprint(self) -> str:
        """A digest over the candidates in any order."""
        return set_fingerprint(self.name, [candidate.id for candidate in self.candidates])

    @cached_property
    def order(self) -> str:
        """A digest over the candidates in their order."""
        return digest([candidate.id for candidate in self.candidates])


def memberships(name: str, groups: Mapping[Group, Priority] | None) -> Memberships:
    """The `groups=` of the set `name`. `KernelError` for what are no groups with priorities."""
    given: Any = {} if groups is None else groups
    if isinstance(given, Mapping) and all(
        isinstance(group, Group) and (callable(priority) or _is_whole(priority))
        for group, priority in given.items()
    ):
        return tuple(given.items())
    raise KernelError(
        f"{name}: groups= maps wt.Group objects to priorities inside them (whole numbers, or "
        f"functions of the key), such as {{group: 0}}, not {given!r}"
    )


def feature_names(name: str, requires: Any) -> frozenset[str]:
    """The `requires=` of the set `name`. `KernelError` for what are no names of features."""
    try:
        found = frozenset([requires] if isinstance(requires, str) else requires)
    except TypeError:
        found = frozenset([requires])
    if all(isinstance(feature, str) for feature in found):
        return found
    raise KernelError(
        f"{name}: requires= takes names of features, such as ['subgroups'], not {requires!r}"
    )


def priority_of(name: str, priority: Any, key: Any = None) -> int:
    """A priority for one key as a whole number. `UsageError` on anything else."""
    if callable(priority):
        priority = call_option(name, "priority", priority, key)
    if not _is_whole(priority):
        raise UsageError(f"{name}: priority= came out as {priority!r}; it must be a whole number")
    return int(priority)


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
