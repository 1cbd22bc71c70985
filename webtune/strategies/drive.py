"""The two drivers of a strategy, one that blocks and one that awaits, and what runs a coroutine
on a host that blocks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from webtune.strategies.model import Outcome, Reading, Round, StrategyRun

T = TypeVar("T")


async def awaiting(
    run: StrategyRun, measure: Callable[[Round], Awaitable[Sequence[Reading]]]
) -> Outcome:
    """Run a strategy to its end; `measure` answers each round before the next is asked for."""
    readings: Any = None  # which starts the generator
    try:
        while True:
            try:
                wanted = run.send(readings)
            except StopIteration as stop:
                outcome: Outcome = stop.value
                return outcome
            readings = await measure(wanted)
    finally:
        run.close()


def blocking(run: StrategyRun, measure: Callable[[Round], Sequence[Reading]]) -> Outcome:
    """Run a strategy to its end with a `measure` that blocks until it has the readings."""

    async def measured(wanted: Round) -> Sequence[Reading]:
        return measure(wanted)

    return complete(awaiting(run, measured))


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of a blocking host, whose waits all happen inside: it never suspends.

    Raises `RuntimeError` when it does, which means that an awaiting device was used here.
    """
    try:
        work.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        work.close()
    raise RuntimeError("a blocking host was given work that awaits; use the _async form")
