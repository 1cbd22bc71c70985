"""The seed's own protocols, kept by name for its conformance. Its numbers are known to be weak:
the score trusts the fastest sample, and the penalty for spread that it names never counts.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence

from webtune.config import Config
from webtune.strategies.ledger import Ledger, Verdict, text_ns
from webtune.strategies.model import Problem, Reading, Request, Round, StrategyRun
from webtune.strategies.samples import SampleSet

__all__ = ["decide", "score_ns", "seed_adaptive", "seed_fixed", "survivors"]

DEFAULT_CONFIG = Config()
OPTIMISM = 0.8
"""Share of the fastest sample in the score; the rest is the median's (cubecl-common, benchmark)."""
FIXED_WARMUPS = 3
TIE_RULE = "the lowest score wins; of equal scores the smaller content digest"

Step = Generator[Round, Sequence[Reading], Verdict | None]


def score_ns(samples_ns: Sequence[int]) -> float:
    """What the seed ranks by: 0.8 of the fastest and 0.2 of the upper median."""
    ordered = sorted(samples_ns)
    return OPTIMISM * ordered[0] + (1 - OPTIMISM) * ordered[len(ordered) // 2]


def survivors(
    sets: Mapping[int, SampleSet], min_samples: int, speed_factor: float
) -> tuple[int, ...]:
    """Who stays: those with enough samples whose best exceeds `speed_factor` times the leader's
    go, slowest first, never below two."""
    bests = {each: found.best_ns for each, found in sets.items()}
    known = {each: best for each, best in bests.items() if best is not None}
    if not known:
        return tuple(sets)
    bound = speed_factor * min(known.values())
    slow = [each for each, best in known.items() if len(sets[each]) >= min_samples and best > bound]
    slow.sort(key=lambda each: -known[each])
    out = slow[: max(0, len(sets) - 2)]
    return tuple(each for each in sets if each not in out)


def decide(
    sets: Mapping[int, SampleSet],
    eliminated: Collection[int] = (),
    failed: Collection[int] = (),
    digests: Mapping[int, str] | None = None,
) -> int | None:
    """The best score among those that were measured and are neither eliminated nor failed."""
    scores = {
        each: score_ns(found.reliable_ns)
        for each, found in sets.items()
        if len(found) and each not in eliminated and each not in failed
    }
    names = digests or {}
    return min(scores, key=lambda each: (scores[each], names.get(each, "")), default=None)


def seed_adaptive(problem: Problem, config: Config = DEFAULT_CONFIG) -> StrategyRun:
    """One warm-up and one sample each, then rounds of one sample with elimination and
    convergence; the numbers are those of the configuration."""
    ledger = Ledger(problem, "seed-adaptive", TIE_RULE)
    for batch in problem.batches:
        verdict = yield from _adaptive_batch(problem, config, ledger, batch)
        if verdict is not None:
            return ledger.outcome(verdict)
    return ledger.outcome(None)


def _adaptive_batch(problem: Problem, config: Config, ledger: Ledger, batch: Sequence[int]) -> Step:
    limit_ns = problem.limit_ns if config.short_circuit else None
    required = config.usable_confirmations
    hit = yield from _first_pass(problem, ledger, batch, limit_ns, required)
    if hit is not None:
        return _hit(ledger, hit, limit_ns)
    while True:
        live = ledger.live(batch)
        sets = _sets(ledger, live)
        wanted = [each for each in live if len(sets[each]) < config.usable_max_samples]
        lone = len(live) == 1 and len(sets[live[0]]) >= config.usable_min_samples
        if not wanted or lone:
            break
        yield from ledger.ask(Request(each) for each in wanted)
        sets = _sets(ledger, ledger.live(batch))
        under = [each for each in sets if sets[each].confirmed_under(limit_ns, required)]
        if under:
            return _hit(ledger, under[0], limit_ns)
        keep = survivors(sets, config.usable_min_samples, config.usable_speed_factor)
        for each in sets:
            if each not in keep:
                reason = f"its best is over {config.usable_speed_factor:g} times the leader's best"
                ledger.drop(each, reason)
        enough = min((len(sets[each]) for each in keep), default=0) >= config.usable_min_samples
        if enough and all(sets[each].converged for each in keep):
            ledger.say("converged", "two samples in a row of every survivor improved nothing")
            break
    return _scored(ledger, _sets(ledger, ledger.live(batch)))


def _first_pass(
    problem: Problem, ledger: Ledger, batch: Sequence[int], limit_ns: int | None, required: int
) -> Generator[Round, Sequence[Reading], int | None]:
    best: int | None = None
    misses: dict[str, int] = {}
    for place, each in enumerate(batch):
        groups = problem.patience.get(each, ())
        tired = [(name, most) for name, most in groups if misses.get(name, 0) >= max(1, most)]
        if tired:
            name, most = tired[0]
            reason = f"{most} in a row of group {name!r} did not improve on the best"
            ledger.skip([each], reason)
            continue
        yield from ledger.ask([Request(each, 1, 1)])
        while ledger.live([each]) and limit_ns is not None:
            taken = SampleSet(ledger.samples[each])
            if taken.confirmed_under(limit_ns, required):
                reason = f"{ledger.name(each)} is close enough to the device's peak"
                ledger.skip(batch[place + 1 :], reason)
                return each
            if taken.all_ns[-1] > limit_ns:
                break
            yield from ledger.ask([Request(each)])
        if not ledger.live([each]):
            continue
        first = ledger.samples[each][0]
        improved = best is None or first < best
        best = first if best is None else min(best, first)
        for name, _ in groups:
            misses[name] = 0 if improved else misses.get(name, 0) + 1
    return None


def seed_fixed(problem: Problem, config: Config = DEFAULT_CONFIG) -> StrategyRun:
    """Three warm-ups and `max_samples` samples each. With a limit, candidate by candidate, up to
    the first whose median is within it."""
    ledger = Ledger(problem, "seed-fixed", TIE_RULE)
    limit_ns = problem.limit_ns if config.short_circuit else None
    for batch in problem.batches:
        wanted = [Request(each, FIXED_WARMUPS, config.usable_max_samples) for each in batch]
        if limit_ns is None:
            yield from ledger.ask(wanted)
        for request in wanted if limit_ns is not None else ():
            yield from ledger.ask([request])
            samples = ledger.samples[request.candidate]
            if ledger.live([request.candidate]) and _upper_median(samples) <= (limit_ns or 0):
                return ledger.outcome(_hit(ledger, request.candidate, limit_ns))
        live = ledger.live(batch)
        if live:
            return ledger.outcome(_ranked(ledger, {e: score_ns(ledger.samples[e]) for e in live}))
    return ledger.outcome(None)


def _upper_median(samples_ns: Sequence[int]) -> int:
    return sorted(samples_ns)[len(samples_ns) // 2]


def _sets(ledger: Ledger, live: Sequence[int]) -> dict[int, SampleSet]:
    return {each: SampleSet(ledger.samples[each]) for each in live}


def _scored(ledger: Ledger, sets: Mapping[int, SampleSet]) -> Verdict | None:
    if not sets:
        return None
    return _ranked(ledger, {each: score_ns(found.reliable_ns) for each, found in sets.items()})


def _ranked(ledger: Ledger, scores: Mapping[int, float]) -> Verdict:
    won = min(scores, key=lambda each: (scores[each], ledger.digest(each)))
    ties = tuple(e for e, score in scores.items() if e != won and score <= scores[won])
    for each, score in scores.items():
        if each != won:
            ledger.reasons[each] = f"{100 * (score / scores[won] - 1):.2g} % worse by score"
    return Verdict(won, ties=ties, confidence=1.0 if len(scores) == 1 else 0.0)


def _hit(ledger: Ledger, candidate: int, limit_ns: int | None) -> Verdict:
    text = f"{ledger.name(candidate)} is within the limit of {text_ns(limit_ns or 0)}"
    ledger.say("short circuit", text + "; nothing else is tried", candidate)
    return Verdict(candidate)
