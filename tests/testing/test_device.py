"""The scripted GPU does what its script says: tests of everything else lean on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import pstdev

import pytest

from webtune.errors import DeviceLost, DeviceTimeout, LaunchError
from webtune.gpu.base import Binding, Device, Dispatch, Shot
from webtune.strategies.drive import complete
from webtune.testing import Faults, Pace, ScriptedClock, ScriptedDevice, ScriptedProgram


def program(device: ScriptedDevice, label: str = "k", *handles: object) -> ScriptedProgram:
    bindings = tuple(Binding(i, "storage", handle, 8) for i, handle in enumerate(handles))
    return device.compile_now([Dispatch("", "main", (), bindings, (1, 1, 1), label)])


def spans(device: ScriptedDevice, label: str = "k", repeats: Sequence[int] = (1,)) -> list[int]:
    one = program(device, label)
    taken = complete(device.time([Shot(one, repeat) for repeat in repeats]))
    return [span.elapsed_ns for span in taken]


def test_it_is_a_device() -> None:
    device: Device = ScriptedDevice()
    assert device.clock.kind == "timestamp"


def test_times_are_constant_or_listed_or_computed() -> None:
    device = ScriptedDevice(
        {"a": 500, "b": [100, 200], "c": lambda launch, now_ns: 1_000 + launch},
        pace=Pace(default_ns=7),
    )
    assert spans(device, "a", [1, 3]) == [500, 1_500]
    assert spans(device, "b", [1, 1, 1]) == [100, 200, 100]
    assert spans(device, "c", [1, 1]) == [1_000, 1_001]
    assert spans(device, "other") == [7]


def test_labels_match_in_whole_words_and_the_longest_wins() -> None:
    device = ScriptedDevice({"WG=3": 1, "saxpy": 20, "saxpy(WG=32": 300})
    assert spans(device, "saxpy(WG=32, PER=1)") == [300]
    assert spans(device, "saxpy(WG=64)") == [20]
    assert spans(device, "saxpy2(WG=3)") == [1]


def test_wall_time_bounds_every_span_of_an_honest_clock() -> None:
    device = ScriptedDevice(pace=Pace(default_ns=40_000))
    one = program(device)
    taken = complete(device.time([Shot(one, repeat) for repeat in (1, 10, 100)]))
    assert all(span.wall_ns >= span.elapsed_ns for span in taken)
    assert taken[0].wall_ns > taken[-1].wall_ns  # shots of a batch resolve together


def test_a_coarse_clock_reads_in_steps_and_right_on_average() -> None:
    device = ScriptedDevice(clock=ScriptedClock(quantum_ns=65_536))
    read = spans(device, repeats=[1] * 400)
    assert set(read) == {65_536, 131_072}
    assert sum(read) / len(read) == pytest.approx(100_000, rel=0.05)


def test_faults_of_the_clock_come_when_they_are_due() -> None:
    assert spans(ScriptedDevice(clock=ScriptedClock(zero_every=2)), repeats=[1] * 4) == [
        100_000,
        0,
        100_000,
        0,
    ]
    assert spans(ScriptedDevice(clock=ScriptedClock(backward_every=2)), repeats=[1, 1]) == [
        100_000,
        -100_000,
    ]
    assert spans(ScriptedDevice(clock=ScriptedClock(period_error=0.5))) == [50_000]
    device = ScriptedDevice(clock=ScriptedClock(jumps=((1_000_050_000, -30_000),)))
    assert spans(device, repeats=[1, 1]) == [70_000, 100_000]


def test_a_wall_clock_jitters_and_a_timestamp_does_not() -> None:
    wall = ScriptedClock(kind="wall", jitter_ns=20_000)
    assert pstdev(spans(ScriptedDevice(clock=wall), repeats=[1] * 20)) > 1_000
    assert pstdev(spans(ScriptedDevice(), repeats=[1] * 20)) == 0


def test_noise_and_everything_else_repeat_with_the_seed() -> None:
    first, second, other = (
        spans(ScriptedDevice(pace=Pace(noise=0.1, seed=seed)), repeats=[1] * 5)
        for seed in (1, 1, 2)
    )
    assert first == second != other


def test_the_first_launch_may_be_cold_and_the_device_may_slow_down() -> None:
    cold = ScriptedDevice(pace=Pace(cold_ns=9_000_000))
    assert spans(cold, repeats=[1, 1]) == [9_100_000, 100_000]
    slow = Pace(speed=lambda now_ns: 2.0 if now_ns > 1_000_100_000 else 1.0)
    device = ScriptedDevice(pace=slow)
    assert spans(device, repeats=[1, 1]) == [100_000, 200_000]


def test_effects_change_buffers_and_wrong_answers_are_wrong() -> None:
    def count(views: Sequence[memoryview], dispatch: Dispatch) -> None:
        views[0][0] += 1

    device = ScriptedDevice(effect=count, faults=Faults(wrong=["bad"]))
    right, wrong = device.create_buffer(8), device.create_buffer(8)
    device.submit(program(device, "good", right))
    device.submit(program(device, "bad", wrong))
    assert complete(device.read(right, 8))[0] == 1
    assert bytes(complete(device.read(wrong, 8))) != bytes(complete(device.read(right, 8)))


def test_programs_fail_as_scripted() -> None:
    device = ScriptedDevice(
        faults=Faults(compile={"a": "bad WGSL"}, launch={"b": "bad launch"}, hang=["c"])
    )
    with pytest.raises(LaunchError, match="bad WGSL"):
        program(device, "a")
    with pytest.raises(LaunchError, match="bad launch"):
        spans(device, "b")
    with pytest.raises(DeviceTimeout, match="c did not come back within 30 s"):
        spans(device, "c")
    assert device.now_ns > 31_000_000_000
    with pytest.raises(DeviceLost):
        spans(device, "d")


def test_a_device_that_recovers_answers_after_a_hang() -> None:
    device = ScriptedDevice(faults=Faults(hang=["c"], recovers=True))
    with pytest.raises(DeviceTimeout):
        spans(device, "c")
    assert spans(device, "d") == [100_000]


def test_the_device_is_lost_at_the_launch_that_was_given() -> None:
    device = ScriptedDevice(faults=Faults(lose_at=3))
    with pytest.raises(DeviceLost):
        spans(device, repeats=[1] * 5)
    assert len(device.submits) == 3
    assert device.lost


def test_awaiting_devices_suspend_and_blocking_ones_do_not() -> None:
    async def through(device: ScriptedDevice) -> int:
        one = await device.compile([Dispatch("", "main", (), (), (1, 1, 1), "k")])
        [span] = await device.time([Shot(one)])
        await device.drain()
        return span.elapsed_ns

    assert complete(through(ScriptedDevice())) == 100_000
    assert asyncio.run(through(ScriptedDevice(awaiting=True))) == 100_000
    with pytest.raises(RuntimeError):
        complete(through(ScriptedDevice(awaiting=True)))
