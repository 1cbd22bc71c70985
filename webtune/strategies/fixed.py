"""The strategy `fixed`: the same number of samples of every candidate, interleaved; none is
eliminated on the way."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from webtune.config import Config
from webtune.strategies.elimination import TIE_RULE, choose_winner
from webtune.strategies.model import Problem, Request, Rounds, StrategyRun
from webtune.strategies.short_circuit import ShortCircuit
from webtune.strategies.standings import Standings, Verdict, slower_text
from webtune.strategies.statistics import compare

SAMPLES = 6
"""Of every candidate in each of the two rounds."""


def fixed(problem: Problem, config: Config) -> StrategyRun:
    """Thirteen launches of every candidate of a batch, in two interleaved rounds: a warm-up and
    six samples, then six samples.

    The second round runs the list backwards, so that a ramp of the device's speed favours nobody.
    With a limit, a candidate whose median is within it after the first round takes its second
    round alone, and when its median is still within it, nothing else is measured further. Those
    that an earlier tune left far behind are spared.
    """
    standings = Standings(problem, "fixed", TIE_RULE)
    short_circuit = ShortCircuit.of(problem, config)
    return standings.first_verdict(lambda batch: _run(standings, short_circuit, batch))


def _run(
    standings: Standings, short_circuit: ShortCircuit, batch: Sequence[int]
) -> Rounds[Verdict | None]:
    yield from standings.measure(Request(c, 1, SAMPLES) for c in standings.spare(batch))
    if not standings.live(batch):
        # Those that led the earlier tune have failed: the others are measured after all.
        yield from standings.measure(Request(c, 1, SAMPLES) for c in standings.unspare())
    live = standings.live(batch)
    alone = _within_limit(standings, short_circuit, live)
    if alone is not None:
        yield from standings.measure([Request(alone, 0, SAMPLES)])
        if _within_limit(standings, short_circuit, standings.live([alone])) == alone:
            short_circuit.note(standings, alone, "nothing else is measured further")
            return Verdict(alone, confidence=1.0 if len(batch) == 1 else 0.0)
    yield from standings.measure(Request(c, 0, SAMPLES) for c in reversed(live) if c != alone)
    live = standings.live(batch)
    if not live:
        return None
    found = compare([standings.samples[candidate] for candidate in live])
    verdict = choose_winner(found, live, standings.digest)
    winner, times = verdict.winner, verdict.log_times
    standings.reasons |= {c: slower_text(times[c] - times[winner]) for c in live if c != winner}
    standings.note("decided", f"{standings.name(winner)} wins over equal counts", winner)
    return verdict


def _within_limit(
    standings: Standings, short_circuit: ShortCircuit, live: Sequence[int]
) -> int | None:
    """The fastest candidate whose median is within the limit."""
    medians = {candidate: median(standings.samples[candidate]) for candidate in live}
    near = [candidate for candidate in live if short_circuit.allows(medians[candidate])]
    return min(near, key=lambda c: (medians[c], standings.digest(c)), default=None)
