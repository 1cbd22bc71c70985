"""From rounds to readings, on a scripted GPU."""

from __future__ import annotations

from typing import Any

import pytest

from webtune.errors import DeviceLost, Failure, FailureKind, UsageError
from webtune.measure.crash_guard import CrashGuard
from webtune.measure.progress_events import ProgressEvent
from webtune.strategies.model import Reading
from webtune.testing import Faults, ScriptedDevice


def test_readings_answer_requests_in_order_with_times_of_one_execution(
    ask: Any, bench_of: Any, kinds: Any
) -> None:
    device = ScriptedDevice({"k0": 3_000, "k1": 700_000})
    readings = ask(bench_of(device), (1, 1, 2), (0, 1, 3))
    assert [r.candidate for r in readings] == [1, 0]
    assert readings[0].durations_ns == (700_000, 700_000)
    assert readings[1].durations_ns == (3_000,) * 3
    assert kinds(readings) == [None, None]


def test_launches_count_warmups_and_samples(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice({"k0": 2_000_000})
    bench = bench_of(device)
    (first,) = ask(bench, (0, 1, 1))
    assert (first.launches, len(first.durations_ns)) == (2, 1)
    (second,) = ask(bench, (0, 2, 3))
    assert (second.launches, len(second.durations_ns)) == (5, 3)
    assert first.launches + second.launches == len(device.submits) == 7


def test_an_evictor_that_cannot_be_compiled_is_the_callers_fault(
    ask: Any, bench_of: Any, dispatch: Any
) -> None:
    device = ScriptedDevice(faults=Faults(compile={"evict": "no such type"}))
    with pytest.raises(UsageError, match="no such type"):
        ask(bench_of(device, evict=[dispatch("evict")]), (0, 1, 1))


def test_a_rejected_candidate_is_never_launched(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice()
    reject = Failure(FailureKind.REJECTED, "odd size")
    bench = bench_of(device, record=lambda index: reject)
    assert ask(bench, (0, 1, 1)) == [Reading(0, (), reject, 0)]
    assert device.submits == []


def test_a_failed_candidate_stays_failed(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice(faults=Faults(compile={"k0": "no"}))
    bench = bench_of(device)
    first, second = ask(bench, (0, 1, 1)), ask(bench, (0, 0, 5))
    assert first == second


def test_a_suspect_is_not_touched(ask: Any, bench_of: Any, kinds: Any) -> None:
    device = ScriptedDevice()
    bench = bench_of(device, crash_guard=CrashGuard(suspects=frozenset({"id0"})))
    readings = ask(bench, (0, 1, 1), (1, 1, 1))
    assert kinds(readings) == [FailureKind.TIMED_OUT, None]
    assert "k0" not in device.submits
    assert [program.label for program in device.compiled] == ["k1"]


@pytest.mark.parametrize("at", [1, 2, 3, 5, 9])
def test_loss_of_the_device_is_raised_whenever_it_happens(at: int, ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice(faults=Faults(lose_at=at))
    with pytest.raises(DeviceLost):
        ask(bench_of(device), (0, 1, 5), (1, 1, 5))


def test_a_candidate_is_compiled_once(ask: Any, bench_of: Any, kinds: Any) -> None:
    device = ScriptedDevice(faults=Faults(compile={"k1": "no"}))
    bench = bench_of(device)
    assert kinds(ask(bench, (0, 1, 1), (1, 1, 1))) == [None, FailureKind.LAUNCH]
    ask(bench, (0, 0, 1), (2, 1, 1))
    assert [program.label for program in device.compiled] == ["k0", "k2"]


def test_progress_tells_what_happened_in_order(ask: Any, bench_of: Any) -> None:
    told: list[ProgressEvent] = []
    device = ScriptedDevice({"k0": 700_000}, faults=Faults(compile={"k1": "no"}))
    ask(bench_of(device, on_progress=told.append), (0, 1, 2), (1, 1, 2))
    assert [(p.kind, p.candidate) for p in told] == [
        ("compiled", 0),
        ("sampled", 0),
        ("ran", 0),
        ("failed", 1),
        ("sampled", 0),
    ]
    assert told[1].duration_ns == 700_000
    assert told[-1].launches == len(device.submits) == 3


def test_close_releases_every_program(ask: Any, bench_of: Any, dispatch: Any) -> None:
    device = ScriptedDevice()
    bench = bench_of(device, evict=[dispatch("evict")])
    ask(bench, (0, 1, 1), (1, 1, 1))
    bench.close()
    assert len(device.compiled) == 3
    assert all(program.released for program in device.compiled)


def test_a_bench_that_was_closed_compiles_again_when_asked(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice()
    bench = bench_of(device)
    ask(bench, (0, 1, 1))
    bench.close()
    (reading,) = ask(bench, (0, 0, 2))
    assert (reading.failure, len(reading.durations_ns)) == (None, 2)
