"""What a caller, a signal or a fork does to a native device costs a sentence, never the process.

What could abort the interpreter runs in a process of its own.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import wgpu

from webtune.errors import ArgumentError, DeviceLost, HostUnavailable, LaunchError
from webtune.gpu.base import Binding, Copy, Dispatch, Shot
from webtune.gpu.native.adapters import adopt_device, open_device
from webtune.gpu.native.device import NativeDevice
from webtune.gpu.native.link import Waiter
from webtune.gpu.native.programs import _KEPT_MODULES, _KEPT_PIPELINES
from webtune.strategies.drive import complete

STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST

SPIN = """
override TURNS: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var state = y[id.x] + id.x;
  for (var i = 0u; i < TURNS; i++) { state = state * 1664525u + 1013904223u; }
  y[id.x] = state;
}
"""


@pytest.fixture(params=[True, False], ids=["timestamps", "wall"])
def device(request: pytest.FixtureRequest) -> Iterator[NativeDevice]:
    opened = open_device(timestamps=request.param)
    yield opened
    opened.close()


@pytest.fixture
def plain() -> Iterator[NativeDevice]:
    opened = open_device()
    yield opened
    opened.close()


def spin(device: NativeDevice, handle: Any, turns: int = 1) -> Any:
    binding = Binding(0, "storage", handle, handle.size)
    groups = (max(1, handle.size // 128), 1, 1)
    one = Dispatch(SPIN, "main", (("TURNS", turns),), (binding,), groups, "spin")
    return complete(device.compile([one]))


def alone(code: str) -> str:
    """The last line that `code` prints in a process that ends well."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


def interrupt_after(delay_s: float) -> threading.Timer:
    timer = threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_an_interrupt_waits_until_the_job_has_ended() -> None:
    waiter, ended = Waiter(), threading.Event()

    def job() -> None:
        time.sleep(0.5)
        ended.set()

    interrupt_after(0.1)
    with pytest.raises(KeyboardInterrupt):
        waiter.run(job, 10.0)
    assert ended.is_set()
    assert waiter.run(lambda: 7, 10.0) == 7
    waiter.stop()


def test_a_second_interrupt_does_not_cut_the_wait_short() -> None:
    waiter, ended = Waiter(), threading.Event()

    def job() -> None:
        time.sleep(0.6)
        ended.set()

    timers = [interrupt_after(delay_s) for delay_s in (0.1, 0.2, 0.3)]
    with pytest.raises(KeyboardInterrupt):
        waiter.run(job, 10.0)
    assert ended.is_set()
    for timer in timers:
        timer.join()
    waiter.stop()


def test_an_interrupted_job_stops_before_its_next_submit(device: NativeDevice) -> None:
    program = spin(device, device.create_buffer(4 * 32 * 64), 60_000)
    complete(device.time([Shot(program)]))
    started = time.perf_counter()
    (span,) = complete(device.time([Shot(program)]))
    one_s = time.perf_counter() - started
    interrupt_after(0.05)
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        complete(device.time([Shot(program)] * 2000))
    assert time.perf_counter() - started < 1 + 1000 * one_s
    assert device.lost is None
    assert span.repeat == 1


def test_an_interrupted_batch_leaves_the_next_one_whole(device: NativeDevice) -> None:
    program = spin(device, device.create_buffer(4 * 32 * 64), 20_000)
    for delay_s in (0.01, 0.03, 0.05):
        interrupt_after(delay_s)
        with pytest.raises(KeyboardInterrupt):
            complete(device.time([Shot(program)] * 2000))
        assert device._timer._mapped.map_state == "unmapped"  # type: ignore[attr-defined]
        spans = complete(device.time([Shot(program)] * 3))
        assert [span.repeat for span in spans] == [1, 1, 1]


def test_a_batch_that_fails_half_way_leaves_the_next_one_whole(
    device: NativeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = spin(device, device.create_buffer(4 * 32))
    mapped = device._timer._mapped  # type: ignore[attr-defined]

    def broken(*args: Any) -> Any:
        raise RuntimeError("no view")

    monkeypatch.setattr(mapped, "read_mapped", broken)
    with pytest.raises(LaunchError, match="no view"):
        complete(device.time([Shot(program)]))
    assert mapped.map_state == "unmapped"
    monkeypatch.undo()
    assert len(complete(device.time([Shot(program)]))) == 1


def test_a_mapping_that_never_ends_costs_one_staging_buffer(device: NativeDevice) -> None:
    program = spin(device, device.create_buffer(4 * 32))
    device._timer._mapped._map_state = "pending"  # type: ignore[attr-defined]
    assert len(complete(device.time([Shot(program)]))) == 1


INTERRUPTED = """
import os, signal, threading
import webtune as wt
SOURCE = '''
override WG: u32;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&y)) { y[id.x] = 2.0 * y[id.x]; }
}
'''
tuner = wt.open_tuner(store="memory")
y = tuner.empty(1 << 18)
kernel = wt.Kernel("double", source=SOURCE, params=wt.grid(WG=[32, 64, 128, 256]),
                   workgroups=lambda p, y: wt.ceil_div(y.size, p.WG), restore=["y"])
interrupts = 0
for turn in range(12):
    timer = threading.Timer(0.03 + 0.01 * turn, lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        timer.start()
        tuner.tune(kernel, y, fresh=True)
        timer.join()
    except KeyboardInterrupt:
        interrupts += 1
    tuner.download(y)
assert interrupts > 5, interrupts
print(tuner.tune(kernel, y, fresh=True).winner.name[:3])
"""


def test_interrupted_tunes_leave_the_process_and_the_tuner_in_order() -> None:
    assert alone(INTERRUPTED) == "WG="


def test_a_buffer_destroyed_by_its_owner_is_refused_at_every_door(plain: NativeDevice) -> None:
    raw = plain.raw.create_buffer(size=128, usage=STORAGE)
    assert plain.adopt(raw) == 128
    program = spin(plain, raw)
    plain.submit(program)
    made = plain.create_buffer(128)
    raw.destroy()
    with pytest.raises(LaunchError, match="destroyed"):
        plain.submit(program)
    with pytest.raises(LaunchError, match="destroyed"):
        complete(plain.time([Shot(program)]))
    with pytest.raises(LaunchError, match="destroyed"):
        plain.copy([Copy(made, raw, 128)])
    with pytest.raises(LaunchError, match="destroyed"):
        plain.write(raw, memoryview(bytes(4)))
    with pytest.raises(LaunchError, match="destroyed"):
        complete(plain.read(raw, 4))
    with pytest.raises(ArgumentError, match="destroyed"):
        plain.adopt(raw)
    assert plain.lost is None


def test_a_buffer_destroyed_before_webtune_saw_it_is_no_argument(plain: NativeDevice) -> None:
    raw = plain.raw.create_buffer(size=128, usage=STORAGE)
    raw.destroy()
    with pytest.raises(ArgumentError, match="destroyed"):
        plain.adopt(raw)


def test_a_mapped_buffer_is_refused_until_it_is_unmapped(plain: NativeDevice) -> None:
    raw = plain.raw.create_buffer(size=128, usage=STORAGE, mapped_at_creation=True)
    with pytest.raises(ArgumentError, match="mapped"):
        plain.adopt(raw)
    with pytest.raises(LaunchError, match="mapped"):
        spin(plain, raw)
    raw.unmap()
    assert plain.adopt(raw) == 128
    plain.submit(spin(plain, raw))
    complete(plain.drain())


def test_another_devices_buffer_is_no_argument(plain: NativeDevice) -> None:
    other = wgpu.gpu.request_adapter_sync().request_device_sync()
    raw = other.create_buffer(size=128, usage=STORAGE)
    with pytest.raises(ArgumentError):
        plain.adopt(raw)
    other.destroy()


def test_small_and_odd_buffers_of_every_usage_are_still_adopted(plain: NativeDevice) -> None:
    for usage in (STORAGE, wgpu.BufferUsage.UNIFORM, STORAGE | wgpu.BufferUsage.UNIFORM):
        for size in (4, 6, 20, 1022):
            assert plain.adopt(plain.raw.create_buffer(size=size, usage=usage)) == size


def test_an_owner_who_destroys_during_a_measurement_waits_for_its_end(
    plain: NativeDevice,
) -> None:
    raw = plain.raw.create_buffer(size=4 * 32 * 16, usage=STORAGE)
    plain.adopt(raw)
    program = spin(plain, raw, 20_000)
    complete(plain.time([Shot(program)]))
    began = threading.Event()
    take, ended = plain._timer.take, []

    def watched(shots: Any) -> Any:
        began.set()
        spans = take(shots)
        ended.append(time.perf_counter())
        return spans

    plain._timer.take = watched  # type: ignore[method-assign]
    worker = threading.Thread(target=lambda: complete(plain.time([Shot(program)] * 100)))
    worker.start()
    assert began.wait(10)
    raw.destroy()
    assert ended
    assert time.perf_counter() >= ended[0]
    worker.join()


def test_an_adopted_buffer_that_is_forgotten_is_not_kept_alive(plain: NativeDevice) -> None:
    raw = plain.raw.create_buffer(size=128, usage=STORAGE)
    plain.adopt(raw)
    watch = weakref.ref(raw)
    del raw
    gc.collect()
    assert watch() is None


def test_pipelines_and_modules_of_the_past_are_let_go(plain: NativeDevice) -> None:
    handle = plain.create_buffer(128)
    binding = Binding(0, "storage", handle, 128)
    for number in range(_KEPT_PIPELINES + 20):
        source = f"{SPIN}// {number // 2}"
        constants = (("TURNS", number),)
        one = Dispatch(source, "main", constants, (binding,), (1, 1, 1))
        plain.release(complete(plain.compile([one])))
    gc.collect()
    assert len(plain._programs.pipelines) == _KEPT_PIPELINES
    assert len(plain._programs.modules) <= _KEPT_MODULES


LEAK = """
import gc, os
from webtune.strategies.drive import complete
from webtune.gpu.base import Binding, Dispatch
from webtune.gpu.native.adapters import open_device

SOURCE = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;" \\
    "@compute @workgroup_size(1) fn main() { y[0] = 7u; }"

def resident_bytes():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGESIZE")

device = open_device()

def compile_many():
    for _ in range(200):
        binding = Binding(0, "storage", device.create_buffer(4), 4)
        program = complete(device.compile([Dispatch(SOURCE, "main", (), (binding,), (1, 1, 1))]))
        complete(device.drain())
        device.release(program)
    gc.collect()
    return resident_bytes()

before = compile_many()
print((compile_many() - before) >> 20)
device.close()
"""


def test_compiling_again_and_again_costs_no_memory() -> None:
    assert int(alone(LEAK)) < 10


OTHER_DATA = """
import numpy as np, webtune as wt

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

SOURCE = '''
override WG: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) { y[id.x] = x[id.x]; }
'''
kernel = wt.Kernel("data", source=SOURCE, params=wt.grid(WG=[32, 64]), workgroups=1)
with wt.open_tuner(store="none") as tuner:
    y, x = tuner.empty(1 << 20), np.zeros(1 << 20, np.float32)

    def run(count):
        for _ in range(count):
            x[0] += 1
            tuner.run(kernel, x, y)
        assert tuner.download(y)[0] == x[0]

    tuner.tune(kernel, x, y)
    run(30)
    before = resident()
    run(120)
    print((resident() - before) >> 20)
"""


def test_other_data_in_every_call_costs_no_memory() -> None:
    assert int(alone(OTHER_DATA)) < 60


def test_a_pipeline_in_use_is_never_compiled_twice(plain: NativeDevice) -> None:
    handle = plain.create_buffer(128)
    held = spin(plain, handle, 1)
    for number in range(2, _KEPT_PIPELINES + 10):
        plain.release(spin(plain, handle, number))
    assert spin(plain, plain.create_buffer(128), 1).steps[0].pipeline is held.steps[0].pipeline
    plain.submit(held)
    complete(plain.drain())


FORKED = """
import os, signal, time
from webtune.strategies.drive import complete
from webtune.errors import WebtuneError
from webtune.gpu.base import Binding, Dispatch, Shot
from webtune.gpu.native.adapters import open_device

SOURCE = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;" \\
    "@compute @workgroup_size(1) fn main() { y[0] = 7u; }"
device = open_device()
handle = device.create_buffer(4)
binding = Binding(0, "storage", handle, 4)
program = complete(device.compile([Dispatch(SOURCE, "main", (), (binding,), (1, 1, 1))]))
complete(device.time([Shot(program)]))
told, tell = os.pipe()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    started = time.perf_counter()
    for act in (
        lambda: complete(device.time([Shot(program)])),
        lambda: device.submit(program),
        lambda: complete(device.read(handle, 4)),
        open_device,
    ):
        try:
            act()
        except WebtuneError as error:
            os.write(tell, f"{type(error).__name__}:{'fork' in str(error)} ".encode())
    device.destroy_buffer(handle)
    device.close()
    os.write(tell, b"quick" if time.perf_counter() - started < 2 else b"late")
    os._exit(0)
os.close(tell)
assert os.waitpid(pid, 0)[1] == 0
said = b""
while part := os.read(told, 1000):
    said += part
complete(device.time([Shot(program)]))
assert bytes(complete(device.read(handle, 4))) == bytes([7, 0, 0, 0])
device.close()
print(said.decode())
"""


def test_a_forked_process_is_told_at_once_and_the_parent_goes_on() -> None:
    lost = f"{DeviceLost.__name__}:True "
    assert alone(FORKED) == 3 * lost + f"{HostUnavailable.__name__}:True quick"


def test_a_device_opened_after_the_fork_serves_the_forked_process() -> None:
    code = """
import os
import webtune.gpu.native.adapters as host
pid = os.fork()
if pid == 0:
    device = host.open_device()
    assert device.lost is None
    device.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
host.open_device().close()
print("both")
"""
    assert alone(code) == "both"


def test_a_callers_device_lets_its_owner_destroy_buffers_after_webtune_left() -> None:
    owned = wgpu.gpu.request_adapter_sync().request_device_sync()
    device = adopt_device(owned)
    raw = owned.create_buffer(size=128, usage=STORAGE)
    device.adopt(raw)
    device.close()
    raw.destroy()
    again = adopt_device(owned)
    with pytest.raises(ArgumentError, match="destroyed"):
        again.adopt(raw)
    again.close()
    owned.destroy()
