"""Clocks that lie: kernels from 1 µs to 100 ms still rank, and no time is ever made up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from statistics import median

import pytest

from webtune.errors import FailureKind
from webtune.gpu.base import Dispatch
from webtune.measure.bench import Bench
from webtune.measure.bench_candidate import BenchCandidate
from webtune.strategies.drive import complete
from webtune.strategies.model import Reading, Request, Round
from webtune.testing import Pace, ScriptedClock, ScriptedDevice

QUANTUM_NS = 65_536
SECOND_NS = 1_000_000_000


def ramp(now_ns: int) -> float:
    """A clock that loses up to a fifth of its speed in a second."""
    return max(0.8, 1.0 - 0.2 * (now_ns - SECOND_NS) / SECOND_NS)


CLOCKS: Mapping[str, ScriptedClock] = {
    "fine": ScriptedClock(),
    "of 100 ns": ScriptedClock(quantum_ns=100),
    "of 65,536 ns": ScriptedClock(quantum_ns=QUANTUM_NS),
    "drifting": ScriptedClock(rate=ramp),
    "coarse and drifting": ScriptedClock(quantum_ns=QUANTUM_NS, rate=ramp),
    "stepping forward": ScriptedClock(
        jumps=tuple((SECOND_NS + at * 300_000_000, 40_000_000) for at in range(8))
    ),
    "stepping back": ScriptedClock(
        quantum_ns=QUANTUM_NS,
        jumps=tuple((SECOND_NS + at * 300_000_000, -40_000_000) for at in range(8)),
    ),
    "with zeros": ScriptedClock(zero_every=5),
    "coarse with zeros": ScriptedClock(quantum_ns=QUANTUM_NS, zero_every=5),
    "running backward": ScriptedClock(backward_every=5),
    "coarse and running backward": ScriptedClock(quantum_ns=QUANTUM_NS, backward_every=5),
    "of ticks counted as ns": ScriptedClock(quantum_ns=1_000, period_error=1 / 52.08),
    "by the wall": ScriptedClock(kind="wall", quantum_ns=100, jitter_ns=50_000),
    "by a coarse wall": ScriptedClock(
        kind="wall", quantum_ns=100_000, claimed_quantum_ns=500_000, jitter_ns=300_000
    ),
}
LENGTHS_NS = (1_000, 9_000, 70_000, 500_000, 4_000_000, 10_000_000)


def readings_of(device: ScriptedDevice, count: int, samples: int = 9) -> list[Reading]:
    """First contact and one sample of each, then the other samples one a round."""

    def record(index: int) -> BenchCandidate:
        label = f"k{index}"
        return BenchCandidate(label, label, (Dispatch("", "main", (), (), (1, 1, 1), label),))

    bench = Bench(device, record)
    taken: list[list[int]] = [[] for _ in range(count)]
    last: list[Reading] = []
    for turn in range(samples):
        warmups = 1 if turn == 0 else 0
        wanted = Round(tuple(Request(index, warmups, 1) for index in range(count)))
        last = complete(bench.measure(wanted))
        for reading in last:
            taken[reading.candidate].extend(reading.durations_ns)
    return [Reading(r.candidate, tuple(taken[r.candidate]), r.failure) for r in last]


def pick_within_rounds(readings: list[Reading]) -> int:
    """The least median of times relative to what the whole round took: rounds share a speed."""
    rounds = zip(*(reading.durations_ns for reading in readings), strict=True)
    relative = [[ns / sum(one) for ns in one] for one in rounds]
    times = [median(one[index] for one in relative) for index in range(len(readings))]
    return times.index(min(times))


def pick(readings: list[Reading]) -> int | None:
    """The least median of those without a failure."""
    times = {r.candidate: median(r.durations_ns) for r in readings if r.failure is None}
    return min(times, key=lambda index: times[index]) if times else None


@pytest.mark.parametrize("length_ns", LENGTHS_NS)
@pytest.mark.parametrize("clock", CLOCKS)
def test_a_gap_of_ten_is_ranked_right_by_every_clock(clock: str, length_ns: int) -> None:
    times = {"k0": 10 * length_ns, "k1": length_ns, "k2": 3 * length_ns}
    pace = Pace(noise=0.03, cold_ns=15_000_000)
    device = ScriptedDevice(times, clock=CLOCKS[clock], pace=pace)
    readings = readings_of(device, 3)
    assert all(ns > 0 for reading in readings for ns in reading.durations_ns)
    assert [reading.failure for reading in readings] == [None] * 3
    slow, fast, _ = (median(reading.durations_ns) for reading in readings)
    assert slow > 5 * fast
    assert pick(readings) == 1


@pytest.mark.parametrize("length_ns", [1_000, 1_000_000, 10_000_000])
def test_ticks_that_make_spans_longer_than_the_wall_never_pick_the_slower(length_ns: int) -> None:
    clock = ScriptedClock(period_error=41.67)
    times = {"k0": 10 * length_ns, "k1": length_ns}
    readings = readings_of(ScriptedDevice(times, clock=clock), 2)
    assert pick(readings) != 0
    if length_ns >= 1_000_000:  # what is shorter hides in the overhead of a launch
        assert [reading.durations_ns for reading in readings] == [(), ()]


@pytest.mark.parametrize("length_ns", LENGTHS_NS)
def test_a_dead_clock_measures_nothing_and_picks_nothing(length_ns: int) -> None:
    clock = ScriptedClock(zero_every=1)
    readings = readings_of(ScriptedDevice({"k0": length_ns}, clock=clock), 2, samples=2)
    assert pick(readings) is None
    assert {r.failure.kind for r in readings if r.failure} == {FailureKind.NOT_MEASURED}


def test_a_coarse_clock_agrees_with_a_fine_one_where_the_gap_is_five_per_cent() -> None:
    trials, disagreed = 400, 0
    for seed in range(trials):
        chance = random.Random(seed)
        base_ns = round(10 ** chance.uniform(3, 8))
        times = {"k0": base_ns, "k1": round(base_ns * chance.uniform(1.05, 1.10))}
        picks = [
            pick(
                readings_of(
                    ScriptedDevice(
                        times,
                        clock=ScriptedClock(quantum_ns=quantum_ns),
                        pace=Pace(noise=0.01, seed=seed),
                    ),
                    2,
                )
            )
            for quantum_ns in (1, QUANTUM_NS)
        ]
        disagreed += picks[0] != picks[1]
    assert disagreed / trials < 0.01


SPEEDS: Mapping[str, Callable[[int], float]] = {
    "a slow ramp": lambda now_ns: 1.0 + 0.3 * min(1.0, (now_ns - SECOND_NS) / SECOND_NS),
    "a step": lambda now_ns: 1.4 if now_ns > SECOND_NS + 60_000_000 else 1.0,
    "a step to faster": lambda now_ns: 0.6 if now_ns > SECOND_NS + 90_000_000 else 1.0,
}


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("seed", range(8))
def test_drift_of_the_device_changes_no_winner_where_the_gap_is_ten_per_cent(
    speed: str, seed: int
) -> None:
    order = list(range(6))
    random.Random(seed).shuffle(order)
    times = {f"k{place}": round(2_000_000 * 1.1**rank) for place, rank in enumerate(order)}
    pace = Pace(speed=SPEEDS[speed], noise=0.01, seed=seed)
    device = ScriptedDevice(times, pace=pace)
    assert pick_within_rounds(readings_of(device, 6)) == order.index(0)
