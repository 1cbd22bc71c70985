"""From rounds to readings, on a scripted GPU."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from webtune.errors import DeviceLost, DeviceTimeout, Failure, FailureKind, UsageError
from webtune.gpu.base import Copy, Dispatch, Program
from webtune.measure.bench import Bench, BenchCandidate, BenchSettings, ProgressEvent, Slot
from webtune.strategies.drive import complete
from webtune.strategies.model import Reading, Request, Round
from webtune.testing import Faults, ScriptedClock, ScriptedDevice

COARSE = 65_536


def dispatch(label: str) -> Dispatch:
    return Dispatch("", "main", (), (), (1, 1, 1), label)


def entrant(index: int, *, repeatable: bool = True) -> BenchCandidate:
    return BenchCandidate(f"id{index}", f"k{index}", (dispatch(f"k{index}"),), repeatable)


def bench_of(device: ScriptedDevice, **options: Any) -> Bench:
    enter: Callable[[int], BenchCandidate | Failure] = options.pop("enter", entrant)
    return Bench(device, enter, **options)


def ask(bench: Bench, *requests: tuple[int, int, int]) -> list[Reading]:
    return complete(bench.measure(Round(tuple(Request(*one) for one in requests))))


def kinds(readings: Sequence[Reading]) -> list[FailureKind | None]:
    return [None if r.failure is None else r.failure.kind for r in readings]


class Journal:
    """The store's journal alone."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.begun: list[str] = []
        self.suspects: set[str] = set()

    def begin(self, hardware: str, candidate: str) -> None:
        assert hardware == "hw"
        self.begun.append(candidate)
        self.open.add(candidate)

    def end(self, hardware: str, candidate: str) -> None:
        self.open.discard(candidate)

    def abandon(self, hardware: str) -> None:
        self.suspects |= self.open
        self.open.clear()


def journal() -> tuple[Journal, Any]:
    made = Journal()
    return made, (made, "hw")


# -- rounds


def test_readings_answer_requests_in_order_with_times_of_one_execution() -> None:
    device = ScriptedDevice({"k0": 3_000, "k1": 700_000})
    readings = ask(bench_of(device), (1, 1, 2), (0, 1, 3))
    assert [r.candidate for r in readings] == [1, 0]
    assert readings[0].durations_ns == (700_000, 700_000)
    assert readings[1].durations_ns == (3_000,) * 3
    assert kinds(readings) == [None, None]


def test_samples_of_a_round_interleave() -> None:
    device = ScriptedDevice({"k0": 200_000, "k1": 300_000, "k2": 400_000})
    bench = bench_of(device)
    ask(bench, (0, 1, 0), (1, 1, 0), (2, 1, 0))
    device.submits.clear()
    ask(bench, (0, 0, 2), (1, 0, 2), (2, 0, 1))
    assert device.submits == ["k0", "k1", "k2", "k0", "k1"]


def test_launches_count_warmups_and_samples() -> None:
    device = ScriptedDevice({"k0": 2_000_000})
    bench = bench_of(device)
    (first,) = ask(bench, (0, 1, 1))
    assert (first.launches, len(first.durations_ns)) == (2, 1)
    (second,) = ask(bench, (0, 2, 3))
    assert (second.launches, len(second.durations_ns)) == (5, 3)
    assert bench.launches == len(device.submits) == 7


def test_the_first_dispatch_is_never_a_sample_even_without_warmups() -> None:
    device = ScriptedDevice({"k0": 1_000_000}, cold_ns=20_000_000)
    (reading,) = ask(bench_of(device), (0, 0, 3))
    assert reading.durations_ns == (1_000_000,) * 3


def test_warmups_asked_for_are_spent_before_the_first_sample() -> None:
    device = ScriptedDevice({"k0": [9_000_000, 8_000_000, 7_000_000, 1_000_000]})
    (reading,) = ask(bench_of(device), (0, 3, 1))
    assert reading.durations_ns == (1_000_000,)
    assert reading.launches == 4


def test_a_short_kernel_repeats_until_its_span_has_twenty_quanta() -> None:
    device = ScriptedDevice({"k0": 1_000}, clock=ScriptedClock(quantum_ns=COARSE))
    (reading,) = ask(bench_of(device), (0, 1, 5))
    assert all(shot.repeat * 1_000 >= 20 * COARSE for shot in device.shots[-5:])
    assert all(abs(ns - 1_000) < 50 for ns in reading.durations_ns)


@pytest.mark.parametrize("duration_ns", [1, 900, 60_000, 5_000_000, 90_000_000])
@pytest.mark.parametrize("quantum_ns", [1, 1_000, COARSE, 1_000_000])
def test_no_submit_exceeds_its_limit(duration_ns: int, quantum_ns: int) -> None:
    device = ScriptedDevice({"k0": duration_ns}, clock=ScriptedClock(quantum_ns=quantum_ns))
    ask(bench_of(device), (0, 1, 4))
    assert max(shot.repeat for shot in device.shots) * duration_ns <= 250_000_000


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_the_wall_cannot_stretch_a_launch(seed: int) -> None:
    clock = ScriptedClock(kind="wall", claimed_quantum_ns=2_000_000, jitter_ns=60_000_000)
    device = ScriptedDevice({"k0": 30_000}, clock=clock, seed=seed)
    ask(bench_of(device), (0, 1, 9))
    assert max(shot.repeat for shot in device.shots) * 3 * 30_000 <= 250_000_000


def test_a_clock_set_back_during_calibration_cannot_stretch_a_submit() -> None:
    back = ScriptedClock(jumps=((1_060_000_000, -58_000_000),))
    device = ScriptedDevice({"k0": 59_000_000}, clock=back)
    ask(bench_of(device), (0, 1, 3))
    assert max(shot.repeat for shot in device.shots) * 59_000_000 <= 250_000_000


def test_a_clock_that_reads_zero_cannot_stretch_a_submit() -> None:
    device = ScriptedDevice({"k0": 50_000_000}, clock=ScriptedClock(zero_every=1))
    (reading,) = ask(bench_of(device), (0, 1, 1))
    assert reading.failure is not None
    assert max(shot.repeat for shot in device.shots) * 50_000_000 <= 250_000_000


def test_a_kernel_that_must_not_be_repeated_is_not() -> None:
    device = ScriptedDevice({"k0": 90_000}, clock=ScriptedClock(quantum_ns=1_000))
    bench = bench_of(device, enter=lambda index: entrant(index, repeatable=False))
    (reading,) = ask(bench, (0, 1, 4))
    assert len(reading.durations_ns) == 4
    assert {shot.repeat for shot in device.shots} == {1}


def test_an_unrepeatable_kernel_below_the_quantum_is_not_measured_rather_than_zero() -> None:
    device = ScriptedDevice({"k0": 10}, clock=ScriptedClock(quantum_ns=COARSE))
    bench = bench_of(device, enter=lambda index: entrant(index, repeatable=False))
    (reading,) = ask(bench, (0, 1, 4))
    assert reading.durations_ns == ()
    assert kinds([reading]) == [FailureKind.NOT_MEASURED]


def test_a_kernel_that_becomes_fast_is_repeated_more() -> None:
    device = ScriptedDevice(
        {"k0": lambda n, now: 3_000_000 if n < 3 else 20_000},
        clock=ScriptedClock(quantum_ns=COARSE),
    )
    (reading,) = ask(bench_of(device), (0, 1, 8))
    assert reading.failure is None
    assert all(abs(ns - 20_000) < 1_000 for ns in reading.durations_ns[4:])


def test_a_sample_of_too_few_quanta_is_taken_again_with_more_repetitions() -> None:
    device = ScriptedDevice(
        {"k0": lambda n, now: 3_000_000 if n < 3 else 300_000},
        clock=ScriptedClock(quantum_ns=COARSE),
    )
    (reading,) = ask(bench_of(device), (0, 1, 8))
    assert reading.failure is None
    assert all(abs(ns - 300_000) < 15_000 for ns in reading.durations_ns[2:])


# -- what happens before a sample


def test_restored_buffers_are_restored_and_caches_evicted_before_every_sample() -> None:
    device = ScriptedDevice({"k0": 500_000, "evict": 4_000_000})
    pristine, work = device.create_buffer(16), device.create_buffer(16)
    slot = Slot("y", 0, work, 16, "f32", (4,), Copy(pristine, work, 16))
    bench = bench_of(device, slots=[slot], evict=[dispatch("evict")])
    (reading,) = ask(bench, (0, 1, 3))
    assert reading.durations_ns == (500_000,) * 3
    assert all(shot.before == (slot.restore,) and shot.evict for shot in device.shots)


def test_an_evictor_that_cannot_be_compiled_is_the_callers_fault() -> None:
    device = ScriptedDevice(faults=Faults(compile={"evict": "no such type"}))
    with pytest.raises(UsageError, match="no such type"):
        ask(bench_of(device, evict=[dispatch("evict")]), (0, 1, 1))


# -- bad spans


def test_a_transient_bad_sample_is_retaken_once() -> None:
    device = ScriptedDevice({"k0": 500_000}, clock=ScriptedClock(zero_every=5))
    (reading,) = ask(bench_of(device), (0, 1, 6))
    assert reading.failure is None
    assert reading.durations_ns == (500_000,) * 6
    assert reading.launches == 8


def test_a_sample_that_stays_bad_disqualifies() -> None:
    class Tired(ScriptedClock):
        def span_ns(self, begin_ns: int, end_ns: int, count: int) -> int:
            return end_ns - begin_ns if count < 5 else begin_ns - end_ns

    device = ScriptedDevice({"k0": 500_000}, clock=Tired())
    (reading,) = ask(bench_of(device), (0, 1, 9))
    assert kinds([reading]) == [FailureKind.INVALID_SAMPLES]
    assert reading.durations_ns == (500_000,) * 3


@pytest.mark.parametrize("seed", range(10))
def test_by_the_wall_a_difference_that_noise_swallowed_is_repeated_more(seed: int) -> None:
    clock = ScriptedClock(kind="wall", claimed_quantum_ns=20_000, jitter_ns=4_000_000)
    device = ScriptedDevice({"k0": 40_000}, clock=clock, seed=seed)
    bench = bench_of(device)
    ask(bench, (0, 1, 0))
    (reading,) = ask(bench, (0, 0, 40))
    assert reading.failure is None
    assert len(reading.durations_ns) == 40
    assert reading.launches > 40


@pytest.mark.parametrize("seed", range(10))
def test_a_busy_machine_costs_no_candidate_its_place_by_the_wall(seed: int) -> None:
    clock = ScriptedClock(kind="wall", claimed_quantum_ns=20_000, jitter_ns=400_000_000)
    device = ScriptedDevice({"k0": 40_000, "k1": 80_000}, clock=clock, seed=seed)
    bench = bench_of(device)
    readings = ask(bench, (0, 1, 20), (1, 1, 20))
    assert kinds(readings) == [None, None]
    assert {len(reading.durations_ns) for reading in readings} == {20}
    assert all(min(reading.durations_ns) > 0 for reading in readings)


def test_the_bound_of_a_swallowed_difference_is_never_below_the_truth() -> None:
    class Backward(ScriptedClock):
        def span_ns(self, begin_ns: int, end_ns: int, count: int) -> int:
            return begin_ns - end_ns

    device = ScriptedDevice({"k0": 40_000, "evict": 90_000_000}, clock=Backward(kind="wall"))
    (reading,) = ask(bench_of(device, evict=[dispatch("evict")]), (0, 1, 5))
    assert reading.failure is None
    assert all(40_000 <= ns < 200_000 for ns in reading.durations_ns)


def test_a_clock_that_always_reads_zero_measures_nothing() -> None:
    device = ScriptedDevice({"k0": 500_000}, clock=ScriptedClock(zero_every=1))
    (reading,) = ask(bench_of(device), (0, 1, 3))
    assert kinds([reading]) == [FailureKind.NOT_MEASURED]
    assert reading.durations_ns == ()


# -- failures of candidates


def test_a_candidate_that_does_not_compile_fails_with_the_compilers_message() -> None:
    device = ScriptedDevice(faults=Faults(compile={"k1": "line 3: unknown type"}))
    readings = ask(bench_of(device), (0, 1, 1), (1, 1, 1))
    assert kinds(readings) == [None, FailureKind.LAUNCH]
    assert "line 3: unknown type" in str(readings[1].failure)
    assert readings[1].launches == 0


def test_a_launch_that_is_refused_fails_its_candidate_only() -> None:
    device = ScriptedDevice(faults=Faults(launch={"k0": "binding too small"}))
    assert kinds(ask(bench_of(device), (0, 1, 2), (1, 1, 2))) == [FailureKind.LAUNCH, None]


def test_a_rejected_candidate_is_never_launched() -> None:
    device = ScriptedDevice()
    reject = Failure(FailureKind.REJECTED, "odd size")
    bench = bench_of(device, enter=lambda index: reject)
    assert ask(bench, (0, 1, 1)) == [Reading(0, (), reject, 0)]
    assert device.submits == []


def test_a_failed_candidate_stays_failed() -> None:
    device = ScriptedDevice(faults=Faults(compile={"k0": "no"}))
    bench = bench_of(device)
    first, second = ask(bench, (0, 1, 1)), ask(bench, (0, 0, 5))
    assert first == second


def test_a_failure_amid_a_shared_batch_fails_the_culprit_only() -> None:
    device = ScriptedDevice()
    bench = bench_of(device)
    ask(bench, (0, 1, 0), (1, 1, 0), (2, 1, 0))
    device.faults = Faults(launch={"k1": "out of memory"})
    readings = ask(bench, (0, 0, 2), (1, 0, 2), (2, 0, 2))
    assert kinds(readings) == [None, FailureKind.LAUNCH, None]
    assert [len(r.durations_ns) for r in readings] == [2, 0, 2]


# -- hangs, loss and the journal


def test_first_contacts_are_journalled_and_ended() -> None:
    store, pair = journal()
    ask(bench_of(ScriptedDevice(), journal=pair), (0, 1, 1), (1, 1, 1))
    assert store.begun == ["id0", "id1"]
    assert store.open == set()


def test_a_refused_candidate_ends_its_journal_entry() -> None:
    store, pair = journal()
    device = ScriptedDevice(faults=Faults(compile={"k0": "no"}, launch={"k1": "no"}))
    ask(bench_of(device, journal=pair), (0, 1, 1), (1, 1, 1))
    assert store.open == set()


def test_a_process_that_ends_while_it_compiles_blames_nobody() -> None:
    store, pair = journal()
    device = ScriptedDevice()
    compiling = device.compile
    noted: list[set[str]] = []

    async def watched(dispatches: Any) -> Program:
        noted.append(set(store.open))
        return await compiling(dispatches)

    device.compile = watched  # type: ignore[method-assign]
    ask(bench_of(device, journal=pair), (0, 1, 1), (1, 1, 1))
    assert noted == [set(), set()]
    assert store.begun == ["id0", "id1"]
    assert store.open == store.suspects == set()


@pytest.mark.parametrize("kind", [DeviceTimeout, DeviceLost])
def test_a_candidate_whose_compiling_takes_the_device_is_remembered(kind: Any) -> None:
    store, pair = journal()
    device = ScriptedDevice()

    async def never(_: Any) -> Program:
        device.lose("the driver was reset")
        raise kind("no answer")

    device.compile = never  # type: ignore[method-assign]
    with contextlib.suppress(DeviceLost):
        ask(bench_of(device, journal=pair), (0, 1, 1))
    assert store.suspects == {"id0"}


def test_a_hang_times_out_stays_in_the_journal_and_lets_the_others_go_on() -> None:
    store, pair = journal()
    device = ScriptedDevice(faults=Faults(hang=["k0"], recovers=True))
    readings = ask(bench_of(device, journal=pair), (0, 1, 1), (1, 1, 1))
    assert kinds(readings) == [FailureKind.TIMED_OUT, None]
    assert store.suspects == {"id0"}


def test_a_hang_that_takes_the_device_blames_nobody_else() -> None:
    store, pair = journal()
    device = ScriptedDevice(faults=Faults(hang=["k0"]))
    with pytest.raises(DeviceLost):
        ask(bench_of(device, journal=pair), (0, 1, 1), (1, 1, 1))
    assert store.suspects == {"id0"}
    assert store.begun == ["id0"]


def test_a_hang_of_the_last_candidate_still_gives_its_reading() -> None:
    device = ScriptedDevice(faults=Faults(hang=["k1"]))
    readings = ask(bench_of(device), (0, 1, 1), (1, 1, 1))
    assert kinds(readings) == [None, FailureKind.TIMED_OUT]
    assert readings[0].durations_ns


def test_a_hang_amid_a_shared_batch_is_pinned_on_the_culprit() -> None:
    device = ScriptedDevice()
    bench = bench_of(device)
    ask(bench, (0, 1, 0), (1, 1, 0), (2, 1, 0))
    device.faults = Faults(hang=["k2"], recovers=True)
    assert kinds(ask(bench, (0, 0, 2), (1, 0, 2), (2, 0, 2))) == [
        None,
        None,
        FailureKind.TIMED_OUT,
    ]


def test_a_candidate_that_kills_the_device_is_remembered() -> None:
    store, pair = journal()
    device = ScriptedDevice(faults=Faults(kill=["k0"]))
    with pytest.raises(DeviceLost):
        ask(bench_of(device, journal=pair), (0, 1, 1))
    assert store.suspects == {"id0"}


def test_a_hang_of_a_later_launch_is_remembered_too() -> None:
    store, pair = journal()
    device = ScriptedDevice()
    bench = bench_of(device, journal=pair)
    ask(bench, (0, 1, 0), (1, 1, 0))
    device.faults = Faults(hang=["k1"], recovers=True)
    ask(bench, (0, 0, 2), (1, 0, 2))
    assert store.suspects == {"id1"}


@pytest.mark.parametrize("why", ["it was destroyed by its owner", "it was closed"])
def test_a_device_destroyed_by_its_owner_blames_nobody(why: str) -> None:
    store, pair = journal()
    device = ScriptedDevice(faults=Faults(kill=["k0"]))
    bench = bench_of(device, journal=pair)

    def lose(*_: Any) -> Any:
        device.lose(why)
        raise DeviceLost("gone")

    device.time = lose  # type: ignore[method-assign]
    with pytest.raises(DeviceLost):
        ask(bench, (0, 1, 1))
    assert store.open == store.suspects == set()


def test_a_suspect_is_not_touched() -> None:
    device = ScriptedDevice()
    bench = bench_of(device, suspects=frozenset({"id0"}))
    readings = ask(bench, (0, 1, 1), (1, 1, 1))
    assert kinds(readings) == [FailureKind.TIMED_OUT, None]
    assert "k0" not in device.submits
    assert [program.label for program in device.compiled] == ["k1"]


@pytest.mark.parametrize("at", [1, 2, 3, 5, 9])
def test_loss_of_the_device_is_raised_whenever_it_happens(at: int) -> None:
    device = ScriptedDevice(faults=Faults(lose_at=at))
    with pytest.raises(DeviceLost):
        ask(bench_of(device), (0, 1, 5), (1, 1, 5))


# -- answers


class Wrong:
    """Finds fault with one candidate."""

    def __init__(self, bad: str) -> None:
        self.bad = bad
        self.closed = False

    async def verify(
        self, device: Any, slots: Sequence[Slot], program: Any, name: str
    ) -> Failure | None:
        device.submit(program)
        return Failure(FailureKind.WRONG_ANSWER, "y[0]") if name == self.bad else None

    def close(self, device: Any) -> None:
        self.closed = True


def test_a_wrong_answer_is_out_before_it_is_timed() -> None:
    device, checker = ScriptedDevice(), Wrong("k0")
    bench = bench_of(device, checker=checker)
    readings = ask(bench, (0, 1, 3), (1, 1, 3))
    assert kinds(readings) == [FailureKind.WRONG_ANSWER, None]
    assert {shot.program.label for shot in device.shots} == {"k1"}
    assert readings[0].launches == 1
    bench.close()
    assert checker.closed


def test_the_checks_launch_serves_as_the_warmup() -> None:
    device = ScriptedDevice({"k0": 400_000}, cold_ns=9_000_000)
    (reading,) = ask(bench_of(device, checker=Wrong("")), (0, 1, 1))
    assert (reading.durations_ns, reading.launches) == ((400_000,), 2)


# -- hosts that await


def test_an_awaiting_device_compiles_in_parallel() -> None:
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
    bench = bench_of(device, settings=BenchSettings(parallel=4))
    wanted = Round(tuple(Request(index, 1, 1) for index in range(9)))
    readings = asyncio.run(bench.measure(wanted))
    assert most == 4
    assert kinds(readings) == [None] * 9
    assert len(device.compiled) == 9


def test_a_failure_of_parallel_compilation_is_its_candidates_own() -> None:
    device = ScriptedDevice(awaiting=True, faults=Faults(compile={"k2": "no"}))
    bench = bench_of(device, settings=BenchSettings(parallel=4))
    assert set(asyncio.run(bench.compile(range(5)))) == {2}
    assert sorted(bench.programs) == [0, 1, 3, 4]


def test_a_compilation_that_never_ends_fails_its_candidate() -> None:
    device = ScriptedDevice(awaiting=True)
    plain = device.compile

    async def hang(dispatches: Sequence[Dispatch]) -> Any:
        if dispatches[0].label == "k1":
            raise DeviceTimeout("the pipeline was not there after 30 s")
        return await plain(dispatches)

    device.compile = hang  # type: ignore[method-assign]
    bench = bench_of(device, settings=BenchSettings(parallel=4))
    wanted = Round(tuple(Request(index, 1, 1) for index in range(3)))
    readings = asyncio.run(bench.measure(wanted))
    assert kinds(readings) == [None, FailureKind.TIMED_OUT, None]


def test_compiling_ahead_on_a_blocking_host_needs_no_event_loop() -> None:
    device = ScriptedDevice(faults=Faults(compile={"k1": "no"}))
    bench = bench_of(device)
    assert set(complete(bench.compile([0, 1, 2]))) == {1}
    ask(bench, (0, 1, 1), (2, 1, 1))
    assert len(device.compiled) == 2


def test_the_host_may_breathe_between_chunks() -> None:
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


# -- ends


def test_progress_tells_what_happened_in_order() -> None:
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


def test_close_releases_every_program() -> None:
    device = ScriptedDevice()
    bench = bench_of(device, evict=[dispatch("evict")])
    ask(bench, (0, 1, 1), (1, 1, 1))
    bench.close()
    assert len(device.compiled) == 3
    assert all(program.released for program in device.compiled)


def test_a_released_candidate_comes_back_when_asked() -> None:
    device = ScriptedDevice()
    bench = bench_of(device)
    ask(bench, (0, 1, 1))
    bench.release(0)
    assert bench.programs == {}
    (reading,) = ask(bench, (0, 0, 2))
    assert (reading.failure, len(reading.durations_ns)) == (None, 2)
