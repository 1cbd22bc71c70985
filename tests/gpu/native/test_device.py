"""The native device on a caller's own device and buffers, and from several threads."""

from __future__ import annotations

import gc
import logging
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import wgpu

from webtune.errors import (
    ArgumentError,
    UsageError,
)
from webtune.gpu.base import Copy, Shot
from webtune.gpu.native.adapters import adopt_device, open_device
from webtune.gpu.native.device import NativeDevice
from webtune.strategies.drive import complete

Compile = Callable[..., Any]
Alone = Callable[..., str]

STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


def test_a_callers_device_and_buffer_work_and_survive_webtune(
    raw: Any, counter: Compile, read_word: Callable[..., int]
) -> None:
    mine = raw.create_buffer(size=64, usage=STORAGE)
    device = adopt_device(raw)
    assert device.adopt(mine) == 64
    program = counter(device, mine)
    device.submit(program)
    made = device.create_buffer(16)
    device.copy([Copy(mine, made, 16)])
    assert read_word(device, made) == 1
    device.close()
    assert device.lost
    assert struct.unpack("<I", raw.queue.read_buffer(mine, 0, 4)) == (1,)
    again = adopt_device(raw)
    again.submit(counter(again, mine))
    assert read_word(again, mine) == 2
    again.close()


def test_a_callers_buffer_without_storage_usage_is_refused_with_advice(raw: Any) -> None:
    device = adopt_device(raw)
    staging = raw.create_buffer(size=64, usage=wgpu.BufferUsage.COPY_DST)
    with pytest.raises(ArgumentError, match="STORAGE"):
        device.adopt(staging)
    device.close()


def test_a_program_is_recorded_into_a_callers_own_pass(
    raw: Any, counter: Compile, read_word: Callable[..., int]
) -> None:
    device = adopt_device(raw)
    mine = raw.create_buffer(size=4, usage=STORAGE)
    program = counter(device, mine)
    encoder = raw.create_command_encoder()
    compute_pass = encoder.begin_compute_pass()
    device.encode(compute_pass, program)
    device.encode(compute_pass, program)
    compute_pass.end()
    raw.queue.submit([encoder.finish()])
    assert read_word(device, mine) == 2
    device.close()


def test_a_program_of_another_device_is_refused(
    raw: Any, device: NativeDevice, counter: Compile
) -> None:
    other = adopt_device(raw)
    program = counter(other, other.create_buffer(4))
    with pytest.raises(UsageError):
        device.submit(program)
    other.close()


def test_a_forgotten_buffer_is_not_kept_alive(device: NativeDevice, counter: Compile) -> None:
    handle = device.create_buffer(4)
    watch = weakref.ref(handle)
    program = counter(device, handle)
    device.release(program)
    del handle, program
    gc.collect()
    assert watch() is None


def test_measuring_keeps_other_threads_off_the_queue(device: NativeDevice, spin: Compile) -> None:
    handle = device.create_buffer(4 * 32 * 16)
    program = spin(device, handle, 30_000)
    complete(device.time([Shot(program)]))
    intervals: dict[str, tuple[float, float]] = {}
    measuring = threading.Event()
    take = device._timer.take

    def watched(shots: Any) -> Any:
        measuring.set()
        started = time.perf_counter()
        spans = take(shots)
        intervals["time"] = (started, time.perf_counter())
        return spans

    device._timer.take = watched  # type: ignore[method-assign]
    worker = threading.Thread(target=lambda: complete(device.time([Shot(program, 8)] * 4)))
    worker.start()
    assert measuring.wait(10)
    device.submit(program)
    submitted = time.perf_counter()
    worker.join()
    assert submitted >= intervals["time"][1]


def test_many_threads_compile_and_launch_without_harm(
    device: NativeDevice, counter: Compile, read_word: Callable[..., int]
) -> None:
    handle = device.create_buffer(4)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            program = counter(device, handle)
            for _ in range(5):
                device.submit(program)
                complete(device.time([Shot(program)]))
            device.release(program)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert read_word(device, handle) == 80


def test_closing_logs_no_loss(caplog: pytest.LogCaptureFixture, counter: Compile) -> None:
    with caplog.at_level(logging.WARNING):
        device = open_device()
        complete(device.time([Shot(counter(device, device.create_buffer(4)))]))
        device.close()
    assert not caplog.records


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


def test_other_data_in_every_call_costs_no_memory(alone: Alone) -> None:
    assert int(alone(OTHER_DATA)) < 60
