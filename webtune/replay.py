"""Judges measuring protocols on recorded timings of real GPUs: regret of the pick, and its cost.

A strategy is driven here as it is on a device; only its readings come from a file.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from webtune.config import Config
from webtune.errors import UsageError
from webtune.gpu.clock import ABSURD_NS
from webtune.report.table import Table
from webtune.strategies import drive, get, names
from webtune.strategies.model import Problem, Reading, Round

FASTEST_SHARE = 0.05
LEAST_POOL = 60
RAMP_LAUNCHES = 10
"""A drift is reached after so many launches of every candidate, and goes on."""

PLAIN: dict[str, tuple[int, Callable[[Sequence[float]], float]]] = {
    "median-10": (10, median),
    "median-30": (30, median),
    "mean-7": (7, fmean),
    "min-3": (3, min),
}
"""Protocols that are no strategies: so many launches of each, interleaved, and a statistic."""

PROTOCOLS = (*names(), *PLAIN)
ORDERS = ("resampled", "recorded")


@dataclass(frozen=True, slots=True)
class Space:
    """The near-best configurations of one recorded space, fastest first.

    `samples_ns` has their runs in the order recorded, `truth_ns` the medians of those.
    """

    name: str
    samples_ns: tuple[tuple[int, ...], ...]
    truth_ns: tuple[float, ...]


def load(path: Path) -> Space:
    """Read one gzipped JSON document of a space (its form: docs/replay.md). `UsageError` on what is
    none."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            document = json.load(file)
        factor = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[document.get("unit", "ms")]
        runs = [
            tuple(max(1, round(sample * factor)) for sample in samples)
            for samples in document["samples"]
            if samples and min(samples) > 0
        ]
        if max(map(max, runs), default=0) >= ABSURD_NS:
            raise ValueError("a run of an hour or more")
    except Exception as error:  # whatever a damaged file, or one of another kind, may raise
        raise UsageError(f"{path.name} is no recorded space: {error}") from error
    if not runs:
        raise UsageError(f"{path.name} has no configuration that ran")
    ranked = sorted((median(samples), index) for index, samples in enumerate(runs))
    pool = ranked[: max(LEAST_POOL, int(FASTEST_SHARE * len(ranked)))]
    return Space(
        path.name.removesuffix(".json.gz"),
        tuple(runs[index] for _, index in pool),
        tuple(truth for truth, _ in pool),
    )


def measure(
    spaces: Path,
    protocol: str,
    *,
    candidates: int = 16,
    seeds: int = 200,
    order: str = "resampled",
    drift: float = 0.0,
) -> dict[str, Any]:
    """Replay a protocol on every `*.json.gz` of a folder, `seeds` trials a space.

    A trial takes the best configuration and others drawn from the fastest 5 % (at least 60), the
    same for every protocol. Their samples come `resampled`, or in `recorded` order from a random
    start, round and round. `drift` is a common ramp: 0.1 makes everything 10 % slower by the time
    that every candidate could have run ten times. Regret is the pick's true median over the
    best's, less one; launches are per candidate, warm-ups included. `UsageError` on a folder
    without spaces, an unknown protocol or order, or numbers that cannot be used.
    """
    if protocol not in PROTOCOLS:
        raise UsageError(f"no protocol {protocol!r}; there are {', '.join(PROTOCOLS)}")
    if order not in ORDERS:
        raise UsageError(f"no order {order!r}; there are {', '.join(ORDERS)}")
    if candidates < 1 or seeds < 1 or not -1 < drift < 100:
        raise UsageError("candidates and seeds are at least 1, and drift is above -1")
    paths = sorted(spaces.glob("*.json.gz")) if spaces.is_dir() else [spaces]
    if not paths or not paths[0].is_file():
        raise UsageError(f"{spaces} has no *.json.gz; pass a folder of recorded spaces")
    trials = {}
    for space in map(load, paths):
        trial = partial(_trial, space, protocol, min(candidates, len(space.truth_ns)))
        trials[space.name] = [trial(seed, order, drift) for seed in range(seeds)]
    return {
        "protocol": protocol,
        "order": order,
        "drift": drift,
        "candidates": candidates,
        "seeds": seeds,
        **_summary(list(chain.from_iterable(trials.values()))),
        "spaces": [{"space": name, **_summary(found)} for name, found in trials.items()],
    }


def _summary(trials: Sequence[tuple[float, float]]) -> dict[str, float]:
    regrets = [regret for regret, _ in trials]
    percentiles = quantiles(regrets, n=20, method="inclusive") if len(regrets) > 1 else regrets
    return {
        "mean_regret": fmean(regrets),
        "p95_regret": percentiles[-1],
        "mean_launches": fmean(launches for _, launches in trials),
    }


def table(measured: Sequence[dict[str, Any]]) -> Table:
    """Results of `measure`: regret in %, launches per candidate."""
    rows = tuple(
        (
            result["protocol"],
            space["space"],
            f"{100 * space['mean_regret']:.3f}",
            f"{100 * space['p95_regret']:.2f}",
            f"{space['mean_launches']:.2f}",
        )
        for result in measured
        for space in [*result["spaces"], {"space": "all spaces", **result}]
    )
    return Table(("protocol", "space", ">regret %", ">p95 %", ">launches"), rows)


# ---- one trial -----------------------------------------------------------------------------------


class _Recording:
    """The recorded samples of a trial's candidates, one at a time, on a common ramp."""

    def __init__(self, runs: Sequence[tuple[int, ...]], key: str, order: str, drift: float) -> None:
        self.launches = 0
        self._runs = runs
        self._drift = drift / (RAMP_LAUNCHES * len(runs))
        # Each candidate has its own chance, so that no protocol changes another's samples.
        self._chances = [random.Random(f"{key} {index}") for index in range(len(runs))]
        self._recorded = order == "recorded"
        self._next = [
            chance.randrange(len(run)) for chance, run in zip(self._chances, runs, strict=True)
        ]

    def launch(self, candidate: int) -> int:
        """The time of one launch, ns."""
        run = self._runs[candidate]
        index = self._next[candidate]
        if self._recorded:
            self._next[candidate] = (index + 1) % len(run)
        else:
            self._next[candidate] = self._chances[candidate].randrange(len(run))
        time_ns = run[index] * (1 + self._drift * self.launches)
        self.launches += 1
        return max(1, round(time_ns))

    def measure(self, wanted: Round) -> list[Reading]:
        """Answer a round, its samples interleaved as a device takes them."""
        taken: list[list[int]] = [[] for _ in wanted.requests]
        for request in wanted.requests:
            for _ in range(request.warmups):
                self.launch(request.candidate)
        for number in range(max((request.samples for request in wanted.requests), default=0)):
            for request, durations_ns in zip(wanted.requests, taken, strict=True):
                if number < request.samples:
                    durations_ns.append(self.launch(request.candidate))
        return [
            Reading(request.candidate, tuple(durations_ns), None, request.warmups + request.samples)
            for request, durations_ns in zip(wanted.requests, taken, strict=True)
        ]


def _trial(
    space: Space, protocol: str, count: int, seed: int, order: str, drift: float
) -> tuple[float, float]:
    """(regret, launches per candidate) of one trial."""
    key = f"{space.name} {seed}"
    chance = random.Random(key)
    drawn = [0, *chance.sample(range(1, len(space.truth_ns)), count - 1)]
    chance.shuffle(drawn)
    recording = _Recording([space.samples_ns[index] for index in drawn], key, order, drift)
    if protocol in PLAIN:
        launches, statistic = PLAIN[protocol]
        rounds = [[recording.launch(index) for index in range(count)] for _ in range(launches)]
        scores = [statistic(column) for column in zip(*rounds, strict=True)]
        pick = scores.index(min(scores))
    else:
        problem = Problem(
            batches=(tuple(range(count)),),
            count=count,
            tie_order=tuple(f"{chance.getrandbits(64):016x}" for _ in range(count)),
        )
        outcome = drive.blocking(get(protocol)(problem, Config()), recording.measure)
        if outcome.winner is None:
            raise RuntimeError(f"{protocol} named no winner on {space.name}")
        pick = outcome.winner
    return space.truth_ns[drawn[pick]] / space.truth_ns[0] - 1, recording.launches / count
