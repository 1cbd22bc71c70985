"""OpenGL serves one thread at a time, and whatever threads do, no process is aborted."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from webtune.errors import DeviceTimeout
from webtune.gpu.native.lane import Lane, guard_library
from webtune.gpu.native.link import Link

Alone = Callable[..., str]


class Occupied:
    """A lane that another thread holds until it is told to leave."""

    def __init__(self, lane: Lane) -> None:
        self._leave, inside = threading.Event(), threading.Event()

        def stay() -> None:
            inside.set()
            self._leave.wait(20)

        self._thread = threading.Thread(target=lambda: lane.call(stay))
        self._thread.start()
        assert inside.wait(5)

    def leave(self) -> None:
        self._leave.set()
        self._thread.join(10)


def test_a_call_gives_what_its_function_gives() -> None:
    lane = Lane()
    assert lane.call(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        lane.call(lambda: 1 // 0)
    assert lane.call(lambda: lane.call(lambda: "a call inside a call")) == "a call inside a call"


def test_calls_of_several_threads_never_meet() -> None:
    lane, inside, most = Lane(), [], []

    def visit() -> None:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.0002)
        inside.pop()

    threads = [
        threading.Thread(target=lambda: [lane.call(visit) for _ in range(50)]) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(most) == 300
    assert max(most) == 1


def test_a_release_never_waits_and_is_done_when_the_lane_is_left() -> None:
    lane, released = Lane(), []
    occupied = Occupied(lane)
    started_s = time.perf_counter()
    lane.release(released.append, 1)
    assert time.perf_counter() - started_s < 1
    assert released == []
    occupied.leave()
    assert released == [1]


def test_what_is_released_inside_a_call_waits_for_its_end() -> None:
    lane, order = Lane(), []

    def collecting() -> None:
        lane.release(order.append, "release")
        order.append("call")

    lane.call(collecting)
    assert order == ["call", "release"]


def test_every_release_is_done_however_threads_meet() -> None:
    lane, released = Lane(), []

    def work(start: int) -> None:
        for number in range(start, start + 500):
            lane.release(released.append, number)
            lane.call(int)

    threads = [threading.Thread(target=work, args=(500 * n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(released) == list(range(3000))


def test_a_release_that_fails_leaves_the_others() -> None:
    lane, released = Lane(), []
    occupied = Occupied(lane)
    lane.release(lambda: 1 // 0)
    lane.release(released.append, 2)
    occupied.leave()
    assert released == [2]


def test_waiting_for_a_call_that_stays_ends_with_a_sentence() -> None:
    lane = Lane(patience_s=0.2)
    occupied = Occupied(lane)
    with pytest.raises(DeviceTimeout, match="OpenGL"):
        lane.call(int)
    occupied.leave()
    assert lane.call(int) == 0


def test_a_call_that_is_known_to_hang_is_hardly_waited_for() -> None:
    lane = Lane(patience_s=60)
    occupied = Occupied(lane)
    lane.give_up()
    started_s = time.perf_counter()
    with pytest.raises(DeviceTimeout):
        lane.call(int)
    assert time.perf_counter() - started_s < 5
    occupied.leave()
    assert lane.call(int) == 0


def test_a_device_given_up_on_opengl_gives_the_lane_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = []
    monkeypatch.setattr(Lane, "give_up", lambda lane: given_up.append(lane))
    for backend in ("Vulkan", "OpenGL"):
        adapter = SimpleNamespace(info={"backend_type": backend})
        Link(SimpleNamespace(adapter=adapter), 1.0).abandon(1.0)
    assert len(given_up) == 1


def test_a_library_of_another_make_stays_as_it_is() -> None:
    guard_library(object(), wholly=True)


STRESS = """
import gc, random, sys, threading, time
import wgpu
import webtune as wt
from webtune.gpu.base import Binding, Dispatch, Shot
from webtune.gpu.native.adapters import adapters, adopt_device, open_device
from webtune.strategies.drive import complete

SOURCE = '''
override WG: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(WG) fn main(@builtin(local_invocation_index) i: u32) {
  if (i == 0u) { y[0] = y[0] + 1u; }
}'''
if not any(adapter.backend == "OpenGL" for adapter in adapters()):
    print("no OpenGL"); sys.exit()
assert {adapter.backend for adapter in adapters()} == {"OpenGL"}
ends_s = time.monotonic() + 6
failures, rounds, tunes = [], [], []

def own_device(chance):
    features = ["timestamp-query"] if chance.random() < 0.5 else []
    return wgpu.gpu.request_adapter_sync().request_device_sync(required_features=features)

def use_device(number):
    chance = random.Random(number)
    device = open_device() if chance.random() < 0.5 else adopt_device(own_device(chance))
    cycle = [device]
    cycle.append(cycle)  # left to the garbage collector, in whatever thread that runs
    handle = device.create_buffer(4)
    binding = Binding(0, "storage", handle, 4)
    dispatch = Dispatch(SOURCE, "main", (("WG", 1),), (binding,), (1, 1, 1))
    program = complete(device.compile([dispatch]))
    complete(device.time([Shot(program)] * 3))
    device.submit(program)
    assert bytes(complete(device.read(handle, 4)))[0] in (4, 10)
    if chance.random() < 0.5:
        device.close()
    rounds.append(number)

kernel = wt.Kernel("count", source=SOURCE, params=wt.grid(WG=[1, 2]), workgroups=1, restore=["y"])

def tune(number):
    tuner = wt.open_tuner(store="none", min_span_us=0.0, max_samples=3)
    y = tuner.empty(1, "u32")
    tuner.tune(kernel, y, fresh=True)
    tuner.run(kernel, y)
    tuner.download(y)
    if number % 2:
        tuner.close()
    tunes.append(number)

def collect(number):
    gc.collect()
    time.sleep(0.02)

def until_the_end(work):
    number = 0
    try:
        while not number or time.monotonic() < ends_s:
            number += 1
            work(number)
    except BaseException as error:
        failures.append(error)
        raise

threads = [threading.Thread(target=until_the_end, args=(work,))
           for work in (use_device, use_device, tune, tune, collect)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert rounds and tunes
kept = wt.open_tuner(store="none")  # and open when the interpreter ends, with threads at work
ends_s += 1000
for work in (use_device, tune):
    threading.Thread(target=until_the_end, args=(work,), daemon=True).start()
time.sleep(0.3)
print("failures:", len(failures), flush=True)
"""


def skip_without_opengl(answer: str) -> str:
    if answer == "no OpenGL":
        pytest.skip("this machine has no OpenGL to test on")
    return answer


def test_threads_tuners_and_garbage_on_opengl_abort_no_process(on_opengl: Alone) -> None:
    assert skip_without_opengl(on_opengl(STRESS)) == "failures: 0"


LONG = """
import sys, time
from webtune.errors import DeviceLost, DeviceTimeout
from webtune.gpu.base import Binding, Dispatch, Shot
from webtune.gpu.native.adapters import adapters, open_device
from webtune.strategies.drive import complete

if not adapters():
    print("no OpenGL"); sys.exit()
device, other = open_device(), open_device()
handle = device.create_buffer(4 * 32 * 64 * 200)
binding = Binding(0, "storage", handle, handle.size)
dispatch = Dispatch({source!r}, "main", (("TURNS", 60_000),), (binding,), (64 * 200, 1, 1))
program = complete(device.compile([dispatch]))
device._link.timeout_s = 0.1
seen = []
started = time.perf_counter()
for act in (
    lambda: complete(device.time([Shot(program)])),
    lambda: complete(device.read(handle, 4)),
    lambda: other.create_buffer(4),
):
    try:
        act()
    except (DeviceLost, DeviceTimeout) as error:
        seen.append(type(error).__name__)
device.close()
other.close()
seen.append("quick" if time.perf_counter() - started < 40 else "late")
print(*seen)
"""


def test_a_kernel_that_does_not_come_back_holds_up_opengl_and_is_told(
    on_opengl: Alone, spin_source: str
) -> None:
    told = skip_without_opengl(on_opengl(LONG.format(source=spin_source)))
    assert told == "DeviceTimeout DeviceLost DeviceTimeout quick"


def test_the_contract_of_devices_is_kept_on_opengl(on_opengl: Alone, root: Path) -> None:
    code = "from webtune.gpu.native.adapters import adapters\nprint(len(adapters()) or 'no OpenGL')"
    skip_without_opengl(on_opengl(code))
    drivers = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    env: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **drivers}
    contract = root / "tests" / "gpu" / "test_contract.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "native", str(contract)],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
