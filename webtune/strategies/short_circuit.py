"""The end of a tune at a candidate close enough to the device's peak, and the first pass over a
batch, which looks for one and honours the patience of groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from webtune.config import Config
from webtune.strategies.model import Problem, Request, Rounds
from webtune.strategies.standings import Standings, time_text


@dataclass(frozen=True, slots=True)
class ShortCircuit:
    """A tune stops at a candidate of which so many samples took at most `limit_ns`. Without a
    limit it never does."""

    limit_ns: int | None
    confirmations: int

    @classmethod
    def of(cls, problem: Problem, config: Config) -> ShortCircuit:
        """What the problem allows and the configuration asks for."""
        limit_ns = problem.limit_ns if config.short_circuit else None
        return cls(limit_ns, config.usable_confirmations)

    def allows(self, time_ns: float) -> bool:
        """Whether a time is within the limit."""
        return self.limit_ns is not None and time_ns <= self.limit_ns

    def confirmed(self, samples_ns: Sequence[int]) -> bool:
        """Whether enough samples, the first one too, are within the limit."""
        return sum(map(self.allows, samples_ns)) >= self.confirmations

    def note(self, standings: Standings, winner: int, rest: str = "nothing else is tried") -> None:
        """Note that the tune ends with this winner."""
        limit = time_text(self.limit_ns or 0)
        text = f"{standings.name(winner)} is within the limit of {limit}; {rest}"
        standings.note("short circuit", text, winner)


def first_pass(
    standings: Standings, candidates: Sequence[int], short_circuit: ShortCircuit
) -> Rounds[int | None]:
    """One warm-up and one sample of each candidate, one candidate after the other. Returns the
    first whose samples are confirmed within the limit, or None.

    A group of which so many candidates in a row, its patience, did not improve on the best is
    skipped from there on.
    """
    best_ns = math.inf
    misses: Counter[str] = Counter()
    for position, candidate in enumerate(candidates):
        groups = standings.problem.patience.get(candidate, ())
        spent = [(name, patience) for name, patience in groups if misses[name] >= max(1, patience)]
        if spent:
            name, patience = spent[0]
            reason = f"{patience} in a row of group {name!r} did not improve on the best"
            standings.skip([candidate], reason)
            continue
        yield from standings.measure([Request(candidate, 1, 1)])
        while standings.is_live(candidate):
            samples = standings.samples[candidate]
            if not short_circuit.allows(samples[-1]):
                break
            if short_circuit.confirmed(samples):
                reason = f"{standings.name(candidate)} is close enough to the device's peak"
                standings.skip(candidates[position + 1 :], reason)
                return candidate
            yield from standings.measure([Request(candidate)])
        if standings.is_live(candidate):
            first_ns = standings.samples[candidate][0]
            for name, _ in groups:
                misses[name] = 0 if first_ns < best_ns else misses[name] + 1
            best_ns = min(best_ns, first_ns)
    return None
