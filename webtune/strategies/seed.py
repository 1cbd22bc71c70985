"""The protocols of CubeCL's tuner, `seed-adaptive` and `seed-fixed`, kept for comparison.

They are known to be weak: the score trusts the fastest sample, and the penalty for spread that
CubeCL names never counts. Their samples follow its rule that the first one of a candidate is
biased (caches and clocks are cold): once there are three, no statistic sees it any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_high

from webtune.config import Config
from webtune.strategies.model import Problem, Request, Rounds, StrategyRun
from webtune.strategies.short_circuit import ShortCircuit, first_pass
from webtune.strategies.standings import Standings, Verdict

OPTIMISM = 0.8
"""Share of the fastest sample in the score; the rest is the median's (cubecl-common, benchmark)."""
FIXED_WARMUPS = 3
BIASED_UNTIL = 3
"""With fewer samples than this, throwing one away costs more than its bias."""
STABLE_SAMPLES = 2
IMPROVEMENT = 0.02
TIE_RULE = "the lowest score wins; of equal scores the smaller content digest"


def reliable(samples_ns: Sequence[int]) -> Sequence[int]:
    """The samples that statistics may use."""
    return samples_ns[1:] if len(samples_ns) >= BIASED_UNTIL else samples_ns


def converged(samples_ns: Sequence[int]) -> bool:
    """Whether the last two samples improved the best by less than 2 % each. The sample that drops
    the biased one cannot be compared: the best before it may have been that one."""
    count = len(samples_ns)
    last = range(count - STABLE_SAMPLES, count)
    return last[0] > 0 and all(
        index + 1 != BIASED_UNTIL and _improves_little(samples_ns[:index], samples_ns[index])
        for index in last
    )


def _improves_little(before_ns: Sequence[int], sample_ns: int) -> bool:
    best_ns = min(reliable(before_ns))
    return best_ns - min(best_ns, sample_ns) < IMPROVEMENT * best_ns


def score_ns(samples_ns: Sequence[int]) -> float:
    """What candidates are ranked by: 0.8 of the fastest and 0.2 of the upper median."""
    return OPTIMISM * min(samples_ns) + (1 - OPTIMISM) * median_high(samples_ns)


def survivors(
    samples_ns: Mapping[int, Sequence[int]], min_samples: int, speed_factor: float
) -> tuple[int, ...]:
    """Who stays: those with enough samples whose best exceeds `speed_factor` times the leader's
    go, slowest first, never below two."""
    bests = {candidate: min(reliable(taken)) for candidate, taken in samples_ns.items() if taken}
    bound = speed_factor * min(bests.values(), default=0)
    slow = [c for c in bests if len(samples_ns[c]) >= min_samples and bests[c] > bound]
    slow.sort(key=lambda candidate: -bests[candidate])
    out = slow[: max(0, len(samples_ns) - 2)]
    return tuple(candidate for candidate in samples_ns if candidate not in out)


def seed_adaptive(problem: Problem, config: Config) -> StrategyRun:
    """One warm-up and one sample each, then rounds of one sample with elimination and
    convergence; the numbers are those of the configuration."""
    standings = Standings(problem, "seed-adaptive", TIE_RULE)
    return standings.first_verdict(lambda batch: _run_adaptive(standings, config, batch))


def _run_adaptive(
    standings: Standings, config: Config, batch: Sequence[int]
) -> Rounds[Verdict | None]:
    least, factor = config.usable_min_samples, config.usable_speed_factor
    short_circuit = ShortCircuit.of(standings.problem, config)
    winner = yield from first_pass(standings, batch, short_circuit)
    while winner is None:
        live = standings.live(batch)
        counts = [len(standings.samples[candidate]) for candidate in live]
        wanted = [c for c, n in zip(live, counts, strict=True) if n < config.usable_max_samples]
        if not wanted or (len(live) == 1 and counts[0] >= least):
            return ranked(standings, batch)
        yield from standings.measure(Request(candidate) for candidate in wanted)
        samples = {candidate: standings.samples[candidate] for candidate in standings.live(batch)}
        winner = next((c for c in samples if short_circuit.confirmed(samples[c])), None)
        if winner is not None:
            break
        keep = survivors(samples, least, factor)
        for candidate in samples:
            if candidate not in keep:
                reason = f"its best is over {factor:g} times the leader's best"
                standings.eliminate(candidate, reason)
        enough = min((len(samples[candidate]) for candidate in keep), default=0) >= least
        if enough and all(converged(samples[candidate]) for candidate in keep):
            standings.note("converged", "two samples in a row of every survivor improved nothing")
            return ranked(standings, batch)
    short_circuit.note(standings, winner)
    return Verdict(winner)


def seed_fixed(problem: Problem, config: Config) -> StrategyRun:
    """Three warm-ups and `max_samples` samples each. With a limit, candidate by candidate, up to
    the first whose median is within it."""
    standings = Standings(problem, "seed-fixed", TIE_RULE)
    return standings.first_verdict(lambda batch: _run_fixed(standings, config, batch))


def _run_fixed(
    standings: Standings, config: Config, batch: Sequence[int]
) -> Rounds[Verdict | None]:
    short_circuit = ShortCircuit.of(standings.problem, config)
    wanted = [Request(c, FIXED_WARMUPS, config.usable_max_samples) for c in batch]
    if short_circuit.limit_ns is None:
        yield from standings.measure(wanted)
        return ranked(standings, batch, drop_biased=False)
    for request in wanted:
        candidate = request.candidate
        yield from standings.measure([request])
        samples = standings.samples[candidate]
        if standings.is_live(candidate) and short_circuit.allows(median_high(samples)):
            short_circuit.note(standings, candidate)
            return Verdict(candidate)
    return ranked(standings, batch, drop_biased=False)


def ranked(
    standings: Standings, batch: Sequence[int], *, drop_biased: bool = True
) -> Verdict | None:
    """The live candidate of the batch with the best score, or None where there is none."""
    taken = {candidate: standings.samples[candidate] for candidate in standings.live(batch)}
    scores = {c: score_ns(reliable(ns) if drop_biased else ns) for c, ns in taken.items()}
    if not scores:
        return None
    winner = min(scores, key=lambda candidate: (scores[candidate], standings.digest(candidate)))
    best = scores[winner]
    losers = {candidate: score for candidate, score in scores.items() if candidate != winner}
    standings.reasons |= {
        c: f"{100 * (s / best - 1):.2g} % worse by score" for c, s in losers.items()
    }
    ties = tuple(candidate for candidate, score in losers.items() if score <= best)
    return Verdict(winner, ties=ties, confidence=0.0 if losers else 1.0)
