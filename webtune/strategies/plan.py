"""Which candidates are tried together, and in which order.

A batch is one level: the priority of a group, then a priority inside it, both highest first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from webtune.errors import UsageError

Membership = Sequence[tuple[str, int]]
"""The groups of one candidate, each with the candidate's priority inside it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Batches of candidate indices in the order to try them; a later batch is wanted only when
    nothing of the earlier ones could be taken. `never` says why an index is in no batch."""

    batches: tuple[tuple[int, ...], ...]
    never: Mapping[int, str] = field(default_factory=dict)


def plan(groups: Mapping[str, int], candidates: Sequence[Membership]) -> Plan:
    """The plan for one key.

    `groups` has the priority of each group for this key; `candidates` has the memberships of each
    candidate. Groups of one priority act as one. A candidate of several groups is tried at the
    highest of its levels, once. A negative priority, of the group or inside it, closes that
    membership; a candidate whose memberships are all closed is never tried. Candidates without
    a group come with the first batch. Raises `UsageError` when a candidate names a group
    that `groups` lacks.
    """
    levels: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    ungrouped: list[int] = []
    never: dict[int, str] = {}
    for index, memberships in enumerate(candidates):
        if not memberships:
            ungrouped.append(index)
            continue
        ranked = [(_priority(groups, name), inside) for name, inside in memberships]
        usable = [level for level in ranked if min(level) >= 0]
        if usable:
            levels[max(usable)].append(index)
        else:
            never[index] = _closed(groups, memberships)
    ordered = [levels[level] for level in sorted(levels, reverse=True)]
    if ungrouped:
        ordered[:1] = [sorted(ungrouped + (ordered[0] if ordered else []))]
    return Plan(tuple(tuple(batch) for batch in ordered), never)


def _priority(groups: Mapping[str, int], name: str) -> int:
    if name not in groups:
        there_are = ", ".join(sorted(groups)) or "none"
        raise UsageError(
            f"no group named {name!r} has a priority for this key (known: {there_are})"
        )
    return groups[name]


def _closed(groups: Mapping[str, int], memberships: Membership) -> str:
    reasons = (
        f"group {name!r} has priority {groups[name]} for this key"
        if groups[name] < 0
        else f"its priority in group {name!r} is {inside}"
        for name, inside in memberships
    )
    return "; ".join(reasons) + " (negative: skipped)"
