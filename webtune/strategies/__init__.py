"""The strategies by name. Each is a generator with one effect: a round out, its readings in."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from webtune.errors import UsageError
from webtune.strategies.adaptive import adaptive
from webtune.strategies.fixed import fixed
from webtune.strategies.model import Strategy
from webtune.strategies.seed import seed_adaptive, seed_fixed

__all__ = ["STRATEGIES", "get", "names"]

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "adaptive": adaptive,
        "fixed": fixed,
        "seed-adaptive": seed_adaptive,
        "seed-fixed": seed_fixed,
    }
)


def names() -> tuple[str, ...]:
    """The known strategies, the host defaults first."""
    return tuple(STRATEGIES)


def get(name: str) -> Strategy:
    """The strategy of that name, called as `strategy(problem, config)`. `UsageError` for another
    name, with those there are."""
    if name not in STRATEGIES:
        near = difflib.get_close_matches(str(name), STRATEGIES, n=1)
        meant = f"did you mean {near[0]!r}? There" if near else "there"
        raise UsageError(f"no strategy {name!r}; {meant} are {', '.join(STRATEGIES)}")
    return STRATEGIES[name]
