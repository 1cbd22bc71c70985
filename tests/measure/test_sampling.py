"""Samples: interleaved, believed only where they may be, and failures pinned on who caused them."""

from __future__ import annotations

from typing import Any

import pytest

from webtune.errors import FailureKind
from webtune.gpu.base import Copy
from webtune.measure.bench_candidate import WrittenArgument
from webtune.testing import Faults, Pace, ScriptedClock, ScriptedDevice

COARSE = 65_536


def test_samples_of_a_round_interleave(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice({"k0": 200_000, "k1": 300_000, "k2": 400_000})
    bench = bench_of(device)
    ask(bench, (0, 1, 0), (1, 1, 0), (2, 1, 0))
    device.submits.clear()
    ask(bench, (0, 0, 2), (1, 0, 2), (2, 0, 1))
    assert device.submits == ["k0", "k1", "k2", "k0", "k1"]


def test_a_kernel_that_becomes_fast_is_repeated_more(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice(
        {"k0": lambda n, now: 3_000_000 if n < 3 else 20_000},
        clock=ScriptedClock(quantum_ns=COARSE),
    )
    (reading,) = ask(bench_of(device), (0, 1, 8))
    assert reading.failure is None
    assert all(abs(ns - 20_000) < 1_000 for ns in reading.durations_ns[4:])


def test_a_sample_of_too_few_quanta_is_taken_again_with_more_repetitions(
    ask: Any, bench_of: Any
) -> None:
    device = ScriptedDevice(
        {"k0": lambda n, now: 3_000_000 if n < 3 else 300_000},
        clock=ScriptedClock(quantum_ns=COARSE),
    )
    (reading,) = ask(bench_of(device), (0, 1, 8))
    assert reading.failure is None
    assert all(abs(ns - 300_000) < 15_000 for ns in reading.durations_ns[2:])


def test_restored_buffers_are_restored_and_caches_evicted_before_every_sample(
    ask: Any, bench_of: Any, dispatch: Any
) -> None:
    device = ScriptedDevice({"k0": 500_000, "evict": 4_000_000})
    pristine, work = device.create_buffer(16), device.create_buffer(16)
    argument = WrittenArgument("y", 0, work, 16, "f32", (4,), Copy(pristine, work, 16))
    bench = bench_of(device, written=[argument], evict=[dispatch("evict")])
    (reading,) = ask(bench, (0, 1, 3))
    assert reading.durations_ns == (500_000,) * 3
    assert all(shot.before == (argument.restore,) and shot.evict for shot in device.shots)


def test_a_transient_bad_sample_is_retaken_once(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice({"k0": 500_000}, clock=ScriptedClock(zero_every=5))
    (reading,) = ask(bench_of(device), (0, 1, 6))
    assert reading.failure is None
    assert reading.durations_ns == (500_000,) * 6
    assert reading.launches == 8


def test_a_sample_that_stays_bad_disqualifies(ask: Any, bench_of: Any, kinds: Any) -> None:
    class Tired(ScriptedClock):
        def span_ns(self, begin_ns: int, end_ns: int, count: int) -> int:
            return end_ns - begin_ns if count < 5 else begin_ns - end_ns

    device = ScriptedDevice({"k0": 500_000}, clock=Tired())
    (reading,) = ask(bench_of(device), (0, 1, 9))
    assert kinds([reading]) == [FailureKind.INVALID_SAMPLES]
    assert reading.durations_ns == (500_000,) * 3


@pytest.mark.parametrize("seed", range(10))
def test_by_the_wall_a_difference_that_noise_swallowed_is_repeated_more(
    seed: int, ask: Any, bench_of: Any
) -> None:
    clock = ScriptedClock(kind="wall", claimed_quantum_ns=20_000, jitter_ns=4_000_000)
    device = ScriptedDevice({"k0": 40_000}, clock=clock, pace=Pace(seed=seed))
    bench = bench_of(device)
    ask(bench, (0, 1, 0))
    (reading,) = ask(bench, (0, 0, 40))
    assert reading.failure is None
    assert len(reading.durations_ns) == 40
    assert reading.launches > 40


@pytest.mark.parametrize("seed", range(10))
def test_a_busy_machine_costs_no_candidate_its_place_by_the_wall(
    seed: int, ask: Any, bench_of: Any, kinds: Any
) -> None:
    clock = ScriptedClock(kind="wall", claimed_quantum_ns=20_000, jitter_ns=400_000_000)
    device = ScriptedDevice({"k0": 40_000, "k1": 80_000}, clock=clock, pace=Pace(seed=seed))
    bench = bench_of(device)
    readings = ask(bench, (0, 1, 20), (1, 1, 20))
    assert kinds(readings) == [None, None]
    assert {len(reading.durations_ns) for reading in readings} == {20}
    assert all(min(reading.durations_ns) > 0 for reading in readings)


def test_the_bound_of_a_swallowed_difference_is_never_below_the_truth(
    ask: Any, bench_of: Any, dispatch: Any
) -> None:
    class Backward(ScriptedClock):
        def span_ns(self, begin_ns: int, end_ns: int, count: int) -> int:
            return begin_ns - end_ns

    device = ScriptedDevice({"k0": 40_000, "evict": 90_000_000}, clock=Backward(kind="wall"))
    (reading,) = ask(bench_of(device, evict=[dispatch("evict")]), (0, 1, 5))
    assert reading.failure is None
    assert all(40_000 <= ns < 200_000 for ns in reading.durations_ns)


def test_a_failure_amid_a_shared_batch_fails_the_culprit_only(
    ask: Any, bench_of: Any, kinds: Any
) -> None:
    device = ScriptedDevice()
    bench = bench_of(device)
    ask(bench, (0, 1, 0), (1, 1, 0), (2, 1, 0))
    device.faults = Faults(launch={"k1": "out of memory"})
    readings = ask(bench, (0, 0, 2), (1, 0, 2), (2, 0, 2))
    assert kinds(readings) == [None, FailureKind.LAUNCH, None]
    assert [len(r.durations_ns) for r in readings] == [2, 0, 2]


def test_a_hang_amid_a_shared_batch_is_pinned_on_the_culprit(
    ask: Any, bench_of: Any, kinds: Any
) -> None:
    device = ScriptedDevice()
    bench = bench_of(device)
    ask(bench, (0, 1, 0), (1, 1, 0), (2, 1, 0))
    device.faults = Faults(hang=["k2"], recovers=True)
    assert kinds(ask(bench, (0, 0, 2), (1, 0, 2), (2, 0, 2))) == [
        None,
        None,
        FailureKind.TIMED_OUT,
    ]


def test_a_hang_of_a_later_launch_is_remembered_too(ask: Any, bench_of: Any, journal: Any) -> None:
    device = ScriptedDevice()
    bench = bench_of(device, crash_guard=journal.guard)
    ask(bench, (0, 1, 0), (1, 1, 0))
    device.faults = Faults(hang=["k1"], recovers=True)
    ask(bench, (0, 0, 2), (1, 0, 2))
    assert journal.suspects == {"id1"}


def test_the_host_may_breathe_between_chunks(ask: Any, bench_of: Any) -> None:
    breaths = 0

    async def pause() -> None:
        nonlocal breaths
        breaths += 1

    device = ScriptedDevice({"k0": 50_000_000})
    bench = bench_of(device, pause=pause)
    ask(bench, (0, 1, 1))
    assert breaths == 1
    ask(bench, (0, 0, 12))
    assert breaths >= 4
