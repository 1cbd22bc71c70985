"""The strategies by name. A strategy yields rounds, is sent readings, and names the winner."""

from __future__ import annotations

from webtune.errors import UsageError, choices_text
from webtune.strategies.adaptive import adaptive
from webtune.strategies.fixed import fixed
from webtune.strategies.model import Strategy
from webtune.strategies.seed import seed_adaptive, seed_fixed

__all__ = ["get", "names"]

_STRATEGIES: dict[str, Strategy] = {
    "adaptive": adaptive,
    "fixed": fixed,
    "seed-adaptive": seed_adaptive,
    "seed-fixed": seed_fixed,
}


def names() -> tuple[str, ...]:
    """The strategies that there are, the hosts' defaults first."""
    return tuple(_STRATEGIES)


def get(name: str) -> Strategy:
    """The strategy of that name, called as `strategy(problem, config)`. `UsageError` for another
    name, with those there are."""
    if name not in _STRATEGIES:
        raise UsageError(f"no strategy {name!r}; {choices_text(name, _STRATEGIES)}")
    return _STRATEGIES[name]
