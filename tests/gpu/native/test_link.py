"""What a caller, a signal, a fork or a hang does to a native device costs no process."""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import wgpu

from webtune.errors import (
    ArgumentError,
    DeviceLost,
    DeviceTimeout,
    HostUnavailable,
    LaunchError,
)
from webtune.gpu.base import Copy, Shot
from webtune.gpu.native.adapters import adopt_device
from webtune.gpu.native.device import NativeDevice
from webtune.gpu.native.link import Waiter
from webtune.strategies.drive import complete

Compile = Callable[..., Any]
Alone = Callable[..., str]
Interrupt = Callable[[float], threading.Timer]

STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


def test_work_that_does_not_come_back_gives_the_device_up(
    device: NativeDevice, monkeypatch: pytest.MonkeyPatch, spin: Compile
) -> None:
    handle = device.create_buffer(4 * 32 * 64)
    program = spin(device, handle, 60_000)
    complete(device.time([Shot(program)]))
    monkeypatch.setattr(device._link, "timeout_s", 0.001)
    with pytest.raises(DeviceTimeout, match="did not come back"):
        complete(device.time([Shot(program, 30)]))
    assert device.lost
    with pytest.raises(DeviceLost):
        complete(device.drain())
    device.close()


HANG = """
import time
from webtune.strategies.drive import complete
from webtune.errors import DeviceLost, DeviceTimeout
from webtune.gpu.base import Binding, Dispatch, Shot
from webtune.gpu.native.adapters import open_device

source = (
    "@group(0) @binding(0) var<storage, read_write> y: array<atomic<u32>>;"
    "@compute @workgroup_size(1) fn main() { loop { if (atomicLoad(&y[0]) == 7u) { break; } } }"
)
device = open_device("swiftshader", library={library!r}, timeout_s=0.5)
handle = device.create_buffer(4)
binding = Binding(0, "storage", handle, 4)
program = complete(device.compile([Dispatch(source, "main", (), (binding,), (1, 1, 1))]))
seen = []
started = time.perf_counter()
try:
    complete(device.time([Shot(program)]))
except DeviceTimeout:
    seen.append("timeout" if time.perf_counter() - started < 5 else "late")
try:
    complete(device.read(handle, 4))
except DeviceLost:
    seen.append("lost")
device.close()
print(*seen)
"""


@pytest.mark.parametrize("library", ["wgpu", "wgpudawn"])
def test_a_kernel_that_never_ends_costs_one_device_and_no_process(
    library: str, on_swiftshader: Alone
) -> None:
    code = HANG.replace("{library!r}", repr(library))
    assert on_swiftshader(code) == "timeout lost"


def test_an_interrupt_waits_until_the_job_has_ended(interrupt_after: Interrupt) -> None:
    waiter, ended = Waiter(), threading.Event()

    def job() -> None:
        time.sleep(0.5)
        ended.set()

    interrupt_after(0.1)
    with pytest.raises(KeyboardInterrupt):
        waiter.run(job, 10.0)
    assert ended.is_set()
    assert waiter.run(lambda: 7, 10.0) == 7
    waiter.close()


def test_a_second_interrupt_does_not_cut_the_wait_short(interrupt_after: Interrupt) -> None:
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
    waiter.close()


def test_an_interrupt_that_another_thread_receives_ends_the_wait_too() -> None:
    waiter = Waiter()

    def job() -> None:
        ends_s = time.perf_counter() + 20
        while time.perf_counter() < ends_s:
            waiter.stop_if_asked()
            time.sleep(0.01)

    def interrupt() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Timer(0.1, interrupt).start()
    started_s = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        waiter.run(job, 30.0)
    assert time.perf_counter() - started_s < 10
    waiter.close()


def test_an_interrupted_job_stops_before_its_next_submit(
    either_clock: NativeDevice, spin: Compile, interrupt_after: Interrupt
) -> None:
    program = spin(either_clock, either_clock.create_buffer(4 * 32 * 64), 60_000)
    complete(either_clock.time([Shot(program)]))
    started = time.perf_counter()
    (span,) = complete(either_clock.time([Shot(program)]))
    one_s = time.perf_counter() - started
    interrupt_after(0.05)
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        complete(either_clock.time([Shot(program)] * 2000))
    assert time.perf_counter() - started < 1 + 1000 * one_s
    assert either_clock.lost is None
    assert span.repeat == 1


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


def test_interrupted_tunes_leave_the_process_and_the_tuner_in_order(alone: Alone) -> None:
    assert alone(INTERRUPTED) == "WG="


def test_a_buffer_destroyed_by_its_owner_is_refused_at_every_door(
    device: NativeDevice, spin: Compile
) -> None:
    raw = device.raw.create_buffer(size=128, usage=STORAGE)
    assert device.adopt(raw) == 128
    program = spin(device, raw)
    device.submit(program)
    made = device.create_buffer(128)
    raw.destroy()
    with pytest.raises(LaunchError, match="destroyed"):
        device.submit(program)
    with pytest.raises(LaunchError, match="destroyed"):
        complete(device.time([Shot(program)]))
    with pytest.raises(LaunchError, match="destroyed"):
        device.copy([Copy(made, raw, 128)])
    with pytest.raises(LaunchError, match="destroyed"):
        device.write(raw, memoryview(bytes(4)))
    with pytest.raises(LaunchError, match="destroyed"):
        complete(device.read(raw, 4))
    with pytest.raises(ArgumentError, match="destroyed"):
        device.adopt(raw)
    assert device.lost is None


def test_a_buffer_destroyed_before_webtune_saw_it_is_no_argument(device: NativeDevice) -> None:
    raw = device.raw.create_buffer(size=128, usage=STORAGE)
    raw.destroy()
    with pytest.raises(ArgumentError, match="destroyed"):
        device.adopt(raw)


def test_a_mapped_buffer_is_refused_until_it_is_unmapped(
    device: NativeDevice, spin: Compile
) -> None:
    raw = device.raw.create_buffer(size=128, usage=STORAGE, mapped_at_creation=True)
    with pytest.raises(ArgumentError, match="mapped"):
        device.adopt(raw)
    with pytest.raises(LaunchError, match="mapped"):
        spin(device, raw)
    raw.unmap()
    assert device.adopt(raw) == 128
    device.submit(spin(device, raw))
    complete(device.drain())


def test_another_devices_buffer_is_no_argument(device: NativeDevice) -> None:
    other = wgpu.gpu.request_adapter_sync().request_device_sync()
    raw = other.create_buffer(size=128, usage=STORAGE)
    with pytest.raises(ArgumentError):
        device.adopt(raw)
    other.destroy()


def test_small_and_odd_buffers_of_every_usage_are_still_adopted(device: NativeDevice) -> None:
    for usage in (STORAGE, wgpu.BufferUsage.UNIFORM, STORAGE | wgpu.BufferUsage.UNIFORM):
        for size in (4, 6, 20, 1022):
            assert device.adopt(device.raw.create_buffer(size=size, usage=usage)) == size


def test_an_owner_who_destroys_during_a_measurement_waits_for_its_end(
    device: NativeDevice, spin: Compile
) -> None:
    raw = device.raw.create_buffer(size=4 * 32 * 16, usage=STORAGE)
    device.adopt(raw)
    program = spin(device, raw, 20_000)
    complete(device.time([Shot(program)]))
    began = threading.Event()
    take, ended = device._timer.take, []

    def watched(shots: Any) -> Any:
        began.set()
        spans = take(shots)
        ended.append(time.perf_counter())
        return spans

    device._timer.take = watched  # type: ignore[method-assign]
    worker = threading.Thread(target=lambda: complete(device.time([Shot(program)] * 100)))
    worker.start()
    assert began.wait(10)
    raw.destroy()
    assert ended
    assert time.perf_counter() >= ended[0]
    worker.join()


def test_an_adopted_buffer_that_is_forgotten_is_not_kept_alive(device: NativeDevice) -> None:
    raw = device.raw.create_buffer(size=128, usage=STORAGE)
    device.adopt(raw)
    watch = weakref.ref(raw)
    del raw
    gc.collect()
    assert watch() is None


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


def test_a_forked_process_is_told_at_once_and_the_parent_goes_on(alone: Alone) -> None:
    lost = f"{DeviceLost.__name__}:True "
    assert alone(FORKED) == 3 * lost + f"{HostUnavailable.__name__}:True quick"


def test_a_device_opened_after_the_fork_serves_the_forked_process(alone: Alone) -> None:
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
