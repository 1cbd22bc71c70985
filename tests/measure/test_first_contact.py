"""The first contact with a candidate: compiled, checked, calibrated, and journalled meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from webtune.errors import DeviceLost, DeviceTimeout, Failure, FailureKind
from webtune.gpu.base import Dispatch, Program
from webtune.measure.bench_candidate import WrittenArgument
from webtune.strategies.model import Request, Round
from webtune.testing import Faults, Pace, ScriptedClock, ScriptedDevice

COARSE = 65_536


def test_the_first_dispatch_is_never_a_sample_even_without_warmups(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice({"k0": 1_000_000}, pace=Pace(cold_ns=20_000_000))
    (reading,) = ask(bench_of(device), (0, 0, 3))
    assert reading.durations_ns == (1_000_000,) * 3


def test_warmups_asked_for_are_spent_before_the_first_sample(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice({"k0": [9_000_000, 8_000_000, 7_000_000, 1_000_000]})
    (reading,) = ask(bench_of(device), (0, 3, 1))
    assert reading.durations_ns == (1_000_000,)
    assert reading.launches == 4


def test_a_short_kernel_repeats_until_its_span_has_twenty_quanta(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice({"k0": 1_000}, clock=ScriptedClock(quantum_ns=COARSE))
    (reading,) = ask(bench_of(device), (0, 1, 5))
    assert all(shot.repeat * 1_000 >= 20 * COARSE for shot in device.shots[-5:])
    assert all(abs(ns - 1_000) < 50 for ns in reading.durations_ns)


@pytest.mark.parametrize("duration_ns", [1, 900, 60_000, 5_000_000, 90_000_000])
@pytest.mark.parametrize("quantum_ns", [1, 1_000, COARSE, 1_000_000])
def test_no_submit_exceeds_its_limit(
    duration_ns: int, quantum_ns: int, ask: Any, bench_of: Any
) -> None:
    device = ScriptedDevice({"k0": duration_ns}, clock=ScriptedClock(quantum_ns=quantum_ns))
    ask(bench_of(device), (0, 1, 4))
    assert max(shot.repeat for shot in device.shots) * duration_ns <= 250_000_000


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_the_wall_cannot_stretch_a_launch(seed: int, ask: Any, bench_of: Any) -> None:
    clock = ScriptedClock(kind="wall", claimed_quantum_ns=2_000_000, jitter_ns=60_000_000)
    device = ScriptedDevice({"k0": 30_000}, clock=clock, pace=Pace(seed=seed))
    ask(bench_of(device), (0, 1, 9))
    assert max(shot.repeat for shot in device.shots) * 3 * 30_000 <= 250_000_000


def test_a_clock_set_back_during_calibration_cannot_stretch_a_submit(
    ask: Any, bench_of: Any
) -> None:
    back = ScriptedClock(jumps=((1_060_000_000, -58_000_000),))
    device = ScriptedDevice({"k0": 59_000_000}, clock=back)
    ask(bench_of(device), (0, 1, 3))
    assert max(shot.repeat for shot in device.shots) * 59_000_000 <= 250_000_000


def test_a_clock_that_reads_zero_cannot_stretch_a_submit(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice({"k0": 50_000_000}, clock=ScriptedClock(zero_every=1))
    (reading,) = ask(bench_of(device), (0, 1, 1))
    assert reading.failure is not None
    assert max(shot.repeat for shot in device.shots) * 50_000_000 <= 250_000_000


def test_a_kernel_that_must_not_be_repeated_is_not(ask: Any, bench_of: Any, candidate: Any) -> None:
    device = ScriptedDevice({"k0": 90_000}, clock=ScriptedClock(quantum_ns=1_000))
    bench = bench_of(device, record=lambda index: candidate(index, repeatable=False))
    (reading,) = ask(bench, (0, 1, 4))
    assert len(reading.durations_ns) == 4
    assert {shot.repeat for shot in device.shots} == {1}


def test_an_unrepeatable_kernel_below_the_quantum_is_not_measured_rather_than_zero(
    ask: Any, bench_of: Any, kinds: Any, candidate: Any
) -> None:
    device = ScriptedDevice({"k0": 10}, clock=ScriptedClock(quantum_ns=COARSE))
    bench = bench_of(device, record=lambda index: candidate(index, repeatable=False))
    (reading,) = ask(bench, (0, 1, 4))
    assert reading.durations_ns == ()
    assert kinds([reading]) == [FailureKind.NOT_MEASURED]


def test_a_clock_that_always_reads_zero_measures_nothing(
    ask: Any, bench_of: Any, kinds: Any
) -> None:
    device = ScriptedDevice({"k0": 500_000}, clock=ScriptedClock(zero_every=1))
    (reading,) = ask(bench_of(device), (0, 1, 3))
    assert kinds([reading]) == [FailureKind.NOT_MEASURED]
    assert reading.durations_ns == ()


def test_a_candidate_that_does_not_compile_fails_with_the_compilers_message(
    ask: Any, bench_of: Any, kinds: Any
) -> None:
    device = ScriptedDevice(faults=Faults(compile={"k1": "line 3: unknown type"}))
    readings = ask(bench_of(device), (0, 1, 1), (1, 1, 1))
    assert kinds(readings) == [None, FailureKind.LAUNCH]
    assert "line 3: unknown type" in str(readings[1].failure)
    assert readings[1].launches == 0


def test_a_launch_that_is_refused_fails_its_candidate_only(
    ask: Any, bench_of: Any, kinds: Any
) -> None:
    device = ScriptedDevice(faults=Faults(launch={"k0": "binding too small"}))
    assert kinds(ask(bench_of(device), (0, 1, 2), (1, 1, 2))) == [FailureKind.LAUNCH, None]


def test_first_contacts_are_journalled_and_ended(ask: Any, bench_of: Any, journal: Any) -> None:
    ask(bench_of(ScriptedDevice(), crash_guard=journal.guard), (0, 1, 1), (1, 1, 1))
    assert journal.begun == ["id0", "id1"]
    assert journal.open == set()


def test_a_refused_candidate_ends_its_journal_entry(ask: Any, bench_of: Any, journal: Any) -> None:
    device = ScriptedDevice(faults=Faults(compile={"k0": "no"}, launch={"k1": "no"}))
    ask(bench_of(device, crash_guard=journal.guard), (0, 1, 1), (1, 1, 1))
    assert journal.open == set()


def test_a_process_that_ends_while_it_compiles_blames_nobody(
    ask: Any, bench_of: Any, journal: Any
) -> None:
    device = ScriptedDevice()
    compiling = device.compile
    noted: list[set[str]] = []

    async def watched(dispatches: Any) -> Program:
        noted.append(set(journal.open))
        return await compiling(dispatches)

    device.compile = watched  # type: ignore[method-assign]
    ask(bench_of(device, crash_guard=journal.guard), (0, 1, 1), (1, 1, 1))
    assert noted == [set(), set()]
    assert journal.begun == ["id0", "id1"]
    assert journal.open == journal.suspects == set()


@pytest.mark.parametrize("kind", [DeviceTimeout, DeviceLost])
def test_a_candidate_whose_compiling_takes_the_device_is_remembered(
    kind: Any, ask: Any, bench_of: Any, journal: Any
) -> None:
    device = ScriptedDevice()

    async def never(_: Any) -> Program:
        device.lose("the driver was reset")
        raise kind("no answer")

    device.compile = never  # type: ignore[method-assign]
    with contextlib.suppress(DeviceLost):
        ask(bench_of(device, crash_guard=journal.guard), (0, 1, 1))
    assert journal.suspects == {"id0"}


def test_a_hang_times_out_stays_in_the_journal_and_lets_the_others_go_on(
    ask: Any, bench_of: Any, kinds: Any, journal: Any
) -> None:
    device = ScriptedDevice(faults=Faults(hang=["k0"], recovers=True))
    readings = ask(bench_of(device, crash_guard=journal.guard), (0, 1, 1), (1, 1, 1))
    assert kinds(readings) == [FailureKind.TIMED_OUT, None]
    assert journal.suspects == {"id0"}


def test_a_hang_that_takes_the_device_blames_nobody_else(
    ask: Any, bench_of: Any, journal: Any
) -> None:
    device = ScriptedDevice(faults=Faults(hang=["k0"]))
    with pytest.raises(DeviceLost):
        ask(bench_of(device, crash_guard=journal.guard), (0, 1, 1), (1, 1, 1))
    assert journal.suspects == {"id0"}
    assert journal.begun == ["id0"]


def test_a_hang_of_the_last_candidate_still_gives_its_reading(
    ask: Any, bench_of: Any, kinds: Any
) -> None:
    device = ScriptedDevice(faults=Faults(hang=["k1"]))
    readings = ask(bench_of(device), (0, 1, 1), (1, 1, 1))
    assert kinds(readings) == [None, FailureKind.TIMED_OUT]
    assert readings[0].durations_ns


def test_a_candidate_that_kills_the_device_is_remembered(
    ask: Any, bench_of: Any, journal: Any
) -> None:
    device = ScriptedDevice(faults=Faults(kill=["k0"]))
    with pytest.raises(DeviceLost):
        ask(bench_of(device, crash_guard=journal.guard), (0, 1, 1))
    assert journal.suspects == {"id0"}


@pytest.mark.parametrize("why", ["it was destroyed by its owner", "it was closed"])
def test_a_device_destroyed_by_its_owner_blames_nobody(
    why: str, ask: Any, bench_of: Any, journal: Any
) -> None:
    device = ScriptedDevice(faults=Faults(kill=["k0"]))
    bench = bench_of(device, crash_guard=journal.guard)

    def lose(*_: Any) -> Any:
        device.lose(why)
        raise DeviceLost("gone")

    device.time = lose  # type: ignore[method-assign]
    with pytest.raises(DeviceLost):
        ask(bench, (0, 1, 1))
    assert journal.open == journal.suspects == set()


class Wrong:
    """Finds fault with one candidate."""

    def __init__(self, bad: str) -> None:
        self.bad = bad
        self.closed = False

    async def verify(
        self, device: Any, written: Sequence[WrittenArgument], program: Any, name: str
    ) -> Failure | None:
        device.submit(program)
        return Failure(FailureKind.WRONG_ANSWER, "y[0]") if name == self.bad else None

    def close(self, device: Any) -> None:
        self.closed = True


def test_a_wrong_answer_is_out_before_it_is_timed(ask: Any, bench_of: Any, kinds: Any) -> None:
    device, checker = ScriptedDevice(), Wrong("k0")
    bench = bench_of(device, checker=checker)
    readings = ask(bench, (0, 1, 3), (1, 1, 3))
    assert kinds(readings) == [FailureKind.WRONG_ANSWER, None]
    assert {shot.program.label for shot in device.shots} == {"k1"}
    assert readings[0].launches == 1
    bench.close()
    assert checker.closed


def test_the_checks_launch_serves_as_the_warmup(ask: Any, bench_of: Any) -> None:
    device = ScriptedDevice({"k0": 400_000}, pace=Pace(cold_ns=9_000_000))
    (reading,) = ask(bench_of(device, checker=Wrong("")), (0, 1, 1))
    assert (reading.durations_ns, reading.launches) == ((400_000,), 2)


def test_an_awaiting_device_compiles_in_parallel(bench_of: Any, kinds: Any) -> None:
    device = ScriptedDevice(awaiting=True)
    under_way, most = 0, 0
    plain = device.compile

    async def compile_slowly(dispatches: Sequence[Dispatch]) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await plain(dispatches)

    device.compile = compile_slowly  # type: ignore[method-assign]
    bench = bench_of(device, parallel=4)
    wanted = Round(tuple(Request(index, 1, 1) for index in range(9)))
    readings = asyncio.run(bench.measure(wanted))
    assert most == 4
    assert kinds(readings) == [None] * 9
    assert len(device.compiled) == 9


def test_a_failure_of_parallel_compilation_is_its_candidates_own(bench_of: Any, kinds: Any) -> None:
    device = ScriptedDevice(awaiting=True, faults=Faults(compile={"k2": "no"}))
    wanted = Round(tuple(Request(index, 1, 1) for index in range(5)))
    readings = asyncio.run(bench_of(device, parallel=4).measure(wanted))
    assert kinds(readings) == [None, None, FailureKind.LAUNCH, None, None]
    assert sorted(program.label for program in device.compiled) == ["k0", "k1", "k3", "k4"]


def test_a_candidate_asked_for_twice_in_a_round_is_compiled_once(bench_of: Any) -> None:
    device = ScriptedDevice(awaiting=True)
    wanted = Round((Request(0, 1, 1), Request(0, 0, 1), Request(1, 1, 1)))
    asyncio.run(bench_of(device, parallel=4).measure(wanted))
    assert sorted(program.label for program in device.compiled) == ["k0", "k1"]


def test_a_compilation_that_never_ends_fails_its_candidate(bench_of: Any, kinds: Any) -> None:
    device = ScriptedDevice(awaiting=True)
    plain = device.compile

    async def hang(dispatches: Sequence[Dispatch]) -> Any:
        if dispatches[0].label == "k1":
            raise DeviceTimeout("the pipeline was not there after 30 s")
        return await plain(dispatches)

    device.compile = hang  # type: ignore[method-assign]
    bench = bench_of(device, parallel=4)
    wanted = Round(tuple(Request(index, 1, 1) for index in range(3)))
    readings = asyncio.run(bench.measure(wanted))
    assert kinds(readings) == [None, FailureKind.TIMED_OUT, None]
