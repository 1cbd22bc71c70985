"""Everybody gets the same number of samples, interleaved; nobody is given up on the way."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from webtune.config import Config
from webtune.strategies.elimination import TIE_RULE, choose
from webtune.strategies.ledger import Ledger, Verdict, apart, text_ns
from webtune.strategies.model import Problem, Reading, Request, Round, StrategyRun
from webtune.strategies.statistics import compare, median

__all__ = ["FixedSettings", "fixed"]

DEFAULT_CONFIG = Config()


@dataclass(frozen=True, slots=True)
class FixedSettings:
    """`samples` of every candidate (at least 1) after `warmups` (at least 1: the first launch of a
    candidate compiles)."""

    samples: int = 12
    warmups: int = 1


DEFAULTS = FixedSettings()


def fixed(
    problem: Problem, config: Config = DEFAULT_CONFIG, settings: FixedSettings = DEFAULTS
) -> StrategyRun:
    """Thirteen launches of every candidate of a batch, in two interleaved rounds.

    The second round runs the list backwards, so that a ramp of the device's speed favours nobody.
    With a limit, a candidate whose median is within it after the first round takes its second
    round alone, and when its median is still within it, nothing else is measured further. Those
    that an earlier tune left far behind are spared.
    """
    ledger = Ledger(problem, "fixed", TIE_RULE)
    limit_ns = problem.limit_ns if config.short_circuit else None
    for batch in problem.batches:
        verdict = yield from _measure(ledger, settings, limit_ns, batch)
        if verdict is not None:
            return ledger.outcome(verdict)
    return ledger.outcome(None)


def _measure(
    ledger: Ledger, settings: FixedSettings, limit_ns: int | None, batch: Sequence[int]
) -> Generator[Round, Sequence[Reading], Verdict | None]:
    first = -(-max(1, settings.samples) // 2)
    second = max(1, settings.samples) - first
    warmups = max(1, settings.warmups)
    yield from ledger.ask(Request(each, warmups, first) for each in ledger.spare(batch))
    if not ledger.live(batch):
        # Those that were known to lead have failed: the others are measured after all.
        yield from ledger.ask(Request(each, warmups, first) for each in ledger.recall())
    live = ledger.live(batch)
    alone = _within(ledger, live, limit_ns)
    if alone is not None and second:
        yield from ledger.ask([Request(alone, 0, second)])
    if alone is not None and _within(ledger, ledger.live([alone]), limit_ns) == alone:
        text = f"{ledger.name(alone)} is within the limit of {text_ns(limit_ns or 0)}"
        ledger.say("short circuit", text + "; nothing else is measured further", alone)
        return Verdict(alone, confidence=1.0 if len(batch) == 1 else 0.0)
    if second:
        behind = [each for each in reversed(live) if each != alone]
        yield from ledger.ask(Request(each, 0, second) for each in behind)
    return _decide(ledger, ledger.live(batch))


def _within(ledger: Ledger, live: Sequence[int], limit_ns: int | None) -> int | None:
    """The fastest candidate whose median is within the limit."""
    if limit_ns is None:
        return None
    medians = {each: median(ledger.samples[each]) for each in live}
    near = [each for each in live if medians[each] <= limit_ns]
    return min(near, key=lambda each: (medians[each], ledger.digest(each)), default=None)


def _decide(ledger: Ledger, live: Sequence[int]) -> Verdict | None:
    if not live:
        return None
    verdict = choose(compare([ledger.samples[each] for each in live]), live, ledger.digest)
    for each in live:
        if each != verdict.winner:
            behind = apart(verdict.times[each] - verdict.times[verdict.winner])
            ledger.reasons[each] = behind
    winner = ledger.name(verdict.winner)
    ledger.say("decided", f"{winner} wins over equal counts", verdict.winner)
    return verdict
