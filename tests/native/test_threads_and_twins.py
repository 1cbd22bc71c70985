"""Threads on one real device, and two real devices of one identity."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import webtune as wt

SCALE = """
override WG: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&x)) { y[id.x] = y[id.x] + 2.0 * x[id.x]; }
}
"""
SIZES = (100, 1000, 3000)


def scale(source: str = SCALE, name: str = "scale") -> wt.Kernel:
    return wt.Kernel(
        name,
        source=source,
        params=wt.grid(WG=[16, 32, 64]),
        workgroups=lambda p, x, y: wt.ceil_div(x.size, p.WG),
        restore=["y"],
    )


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    start, results = threading.Barrier(count), [None] * count

    def run(number: int) -> None:
        start.wait()
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    return results


def test_32_threads_on_one_device_compute_rightly_and_tune_each_key_once() -> None:
    decisions: list[dict[str, Any]] = []
    with wt.open_tuner(store="memory", decision_log=decisions.append) as tuner:
        kernel = scale()

        def work(number: int) -> list[float]:
            dice = random.Random(number)
            found = []
            for _ in range(4):
                size = dice.choice(SIZES)
                x = tuner.upload(np.full(size, number, np.float32))
                y = tuner.empty(size)
                for _ in range(3):
                    assert isinstance(tuner.run(kernel, x, y), wt.Hit | wt.Pending)
                content = tuner.download(y)
                assert (content == content[0]).all()
                found.append(float(content[0]))
                x.destroy()
                y.destroy()
            return found

        results = together(32, work)
    assert results == [[6.0 * number] * 4 for number in range(32)]
    assert len(decisions) == len({str(line["key"]) for line in decisions}) == len(SIZES)


def test_a_kernel_that_fails_in_many_threads_fails_in_each_and_stops_no_other() -> None:
    broken = scale(SCALE.replace("2.0 *", "no_such_name *"), "broken")
    with wt.open_tuner(store="memory") as tuner:
        fine, x, y = scale(), tuner.empty(500), tuner.empty(500)

        def work(number: int) -> Any:
            return tuner.run(broken if number % 2 else fine, x, y)

        results = together(16, work)
        assert all(isinstance(each, wt.NoValidKernel) for each in results[1::2])
        assert all(isinstance(each, wt.Hit | wt.Pending) for each in results[::2])
        assert isinstance(tuner.lookup(fine, x, y), wt.Hit)
        assert tuner.lookup(broken, x, y) == wt.Miss()


def opened(store: Path) -> tuple[Any, wt.Tuner]:
    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    raw = adapter.request_device_sync(required_features=["timestamp-query"])
    return raw, wt.open_tuner(device=raw, store=store)


def test_two_devices_of_one_card_share_their_picks(tmp_path: Path) -> None:
    kernel = scale()
    (_, first), (_, second) = opened(tmp_path), opened(tmp_path)
    with first, second:
        assert first.device.identity == second.device.identity
        state = first.run(kernel, first.empty(512), first.empty(512))
        assert isinstance(state, wt.Hit)
        assert second.lookup(kernel, second.empty(512), second.empty(512)) == state


def test_a_lost_device_answers_pending_and_leaves_its_keys_to_its_twin(tmp_path: Path) -> None:
    kernel = scale()
    (raw, first), (_, second) = opened(tmp_path), opened(tmp_path)
    with first, second:
        mine = first.empty(512), first.empty(512)
        its = second.empty(512), second.empty(512)
        raw.destroy()
        with pytest.raises(wt.DeviceLost):
            first.tune(kernel, *mine)
        assert first.lookup(kernel, *mine) == wt.Pending()
        assert second.lookup(kernel, *its) == wt.Miss()
        state = second.run(kernel, *its)
        assert isinstance(state, wt.Hit)
        assert first.lookup(kernel, *mine) == state
