"""A player of invented durations: a strategy sees what it would see of a device, and nothing is
left to chance."""

import random
from dataclasses import dataclass, field

import pytest

from webtune.config import Config
from webtune.strategies import drive, get
from webtune.strategies.model import Outcome, Problem, Reading, Round


@dataclass
class Played:
    """What a strategy asked for and what it concluded."""

    outcome: Outcome
    rounds: list[Round] = field(default_factory=list)

    def launches(self, candidate):
        return sum(
            request.warmups + request.samples
            for each in self.rounds
            for request in each.requests
            if request.candidate == candidate
        )

    def kinds(self):
        return [event.kind for event in self.outcome.events]


def noisy(base_ns, seed, spread=0.01):
    """An endless stream of times round a base, the same for a seed."""
    chance = random.Random(f"{base_ns} {seed}")
    while True:
        yield base_ns * (1 + chance.uniform(-spread, spread))


def _endless(given):
    if isinstance(given, int | float):
        while True:
            yield given
    if not isinstance(given, list | tuple):
        yield from given
    while True:
        yield from given


def _play(strategy, streams, *, fails=None, speed=lambda launch: 1.0, config=None, **problem):
    """`streams`: candidate's samples in ns, a number, a list that starts again or an iterator;
    warm-ups take none. `fails`: candidate → (after so many samples, its failure). `speed`: what a
    time is multiplied by at a launch of the whole tune."""
    count = len(streams)
    problem.setdefault("batches", (tuple(range(count)),))
    problem.setdefault("tie_order", tuple(f"{97 * each % 101:04d}" for each in range(count)))
    sources = [_endless(each) for each in streams]
    taken = [0] * count
    fails = fails or {}
    launch = 0
    rounds = []

    def measure(wanted):
        nonlocal launch
        rounds.append(wanted)
        launch += sum(request.warmups for request in wanted.requests)
        durations = {request.candidate: [] for request in wanted.requests}
        for number in range(max(request.samples for request in wanted.requests)):
            for request in wanted.requests:
                if number < request.samples:
                    factor = speed(launch)
                    time_ns = next(sources[request.candidate]) * factor
                    durations[request.candidate].append(max(1, round(time_ns)))
                    launch += 1
        readings = []
        for request in wanted.requests:
            each = request.candidate
            taken[each] += request.samples
            after, failure = fails.get(each, (0, None))
            failed = failure if failure is not None and taken[each] > after else None
            spent = request.warmups + request.samples
            kept = () if failed else tuple(durations[each])
            readings.append(Reading(each, kept, failed, spent))
        return readings

    run = get(strategy)(Problem(count=count, **problem), config or Config())
    return Played(drive.blocking(run, measure), rounds)


@pytest.fixture
def play():
    return _play


@pytest.fixture
def noise():
    return noisy
