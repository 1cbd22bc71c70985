"""The strategies by name. A strategy yields rounds, is sent readings, and names the winner."""

from __future__ import annotations

import functools
import importlib

from webtune.errors import UsageError, choices_text
from webtune.strategies.adaptive import adaptive
from webtune.strategies.fixed import fixed
from webtune.strategies.model import Strategy

__all__ = ["get", "names"]

_STRATEGIES: dict[str, Strategy] = {"adaptive": adaptive, "fixed": fixed}
_SEEDS = {"seed-adaptive": "seed_adaptive", "seed-fixed": "seed_fixed"}
"""The seed's own protocols, for comparison: loaded when they are asked for, so that a page need not
carry them."""


def names() -> tuple[str, ...]:
    """The strategies that there are, the hosts' defaults first."""
    return (*_STRATEGIES, *_SEEDS)


@functools.cache
def get(name: str) -> Strategy:
    """The strategy of that name, called as `strategy(problem, config)`. Raises `UsageError` for
    another name, with those there are, and in a page that did not load the strategy's wheel."""
    if name in _STRATEGIES:
        return _STRATEGIES[name]
    if name not in _SEEDS:
        raise UsageError(f"no strategy {name!r}; {choices_text(name, names())}")
    try:
        seed = importlib.import_module("webtune.strategies.seed")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the strategy {name!r} is for comparison and comes with the wheel of the bundled "
            "kernels, which this page has not loaded"
        ) from error
    strategy: Strategy = getattr(seed, _SEEDS[name])
    return strategy
