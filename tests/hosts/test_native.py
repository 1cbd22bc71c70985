"""Awaiting natively: the loop stays alive, a tune can be cancelled, nobody waits for himself."""

import asyncio
import threading
import time

import numpy as np
import pytest

import webtune as wt
from webtune.hosts import native

SPIN = """
override WG: u32;
override TURNS: u32;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var sum = 0.0;
  for (var i = 0u; i < TURNS; i++) { sum = sum * 0.5 + f32(i); }
  if (id.x < arrayLength(&y)) { y[id.x] = sum; }
}
"""


def spin(name):
    return wt.Kernel(
        name,
        source=SPIN,
        params=wt.grid(WG=[32, 64], TURNS=[1000, 1100, 1200, 1300]),
        workgroups=lambda p, y: wt.ceil_div(y.size, p.WG),
    )


@pytest.fixture
def tuner():
    with wt.open_tuner(store="memory") as opened:
        yield opened


class Opening:
    """A device that opens when it is let, and says when it began."""

    def __init__(self, open_device):
        self.open_device = open_device
        self.began, self.go_on = threading.Event(), threading.Event()
        self.opened = []

    def __call__(self, *args, **settings):
        self.began.set()
        assert self.go_on.wait(20)
        self.opened.append(self.open_device(*args, **settings))
        return self.opened[0]

    async def task(self):
        """A tuner under way, once its device is."""
        opening = asyncio.create_task(wt.open_tuner_async(store="memory"))
        while not self.began.is_set():
            await asyncio.sleep(0.001)
        return opening


@pytest.fixture
def slow(monkeypatch):
    opening = Opening(native.open_device)
    monkeypatch.setattr(native, "open_device", opening)
    return opening


def test_other_tasks_get_turns_while_a_native_tuner_opens(slow):
    async def main():
        opening = await slow.task()
        assert not opening.done()
        slow.go_on.set()
        with await opening as opened:
            return await opened.tune_async(spin("opened"), opened.empty(2000))

    assert asyncio.run(main()).winner is not None


def test_a_tuner_that_nobody_waits_for_any_more_is_closed_when_it_opens(slow):
    async def main():
        opening = await slow.task()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        slow.go_on.set()
        while not (slow.opened and slow.opened[0].lost):
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_other_tasks_get_turns_while_a_native_tune_is_awaited(tuner):
    y = tuner.upload(np.zeros(20_000, np.float32))

    async def main():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(count())
        report = await tuner.tune_async(spin("alive"), y)
        task.cancel()
        return turns, report

    turns, report = asyncio.run(main())
    assert report.winner is not None
    assert turns > len(report.results)


def test_a_native_tune_ends_when_its_task_is_cancelled(tuner):
    y = tuner.upload(np.zeros(20_000, np.float32))
    kernel = spin("cancelled")

    async def main():
        task = asyncio.create_task(tuner.tune_async(kernel, y))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert isinstance(tuner.lookup(kernel, y), wt.Miss)
    assert tuner.tune(kernel, y).winner is not None


def test_tasks_that_await_one_key_share_one_tune(tuner):
    y = tuner.upload(np.zeros(2000, np.float32))
    kernel = spin("shared")

    async def main():
        return await asyncio.gather(*(tuner.tune_async(kernel, y) for _ in range(4)))

    reports = asyncio.run(main())
    assert sorted(r.source for r in reports).count("tuned") == 1
    assert len({r.winner.name for r in reports}) == 1


def test_a_blocking_call_never_waits_for_a_task_of_its_own_thread(tuner):
    y = tuner.upload(np.zeros(20_000, np.float32))
    kernel = spin("blocked")

    async def main():
        task = asyncio.create_task(tuner.tune_async(kernel, y))
        await asyncio.sleep(0)
        began = time.monotonic()
        with pytest.raises(wt.UsageError, match="tune_async"):
            tuner.tune(kernel, y)
        assert time.monotonic() - began < 5
        return await task

    assert asyncio.run(main()).winner is not None


def test_a_lone_candidate_is_timed_when_asked_for_afresh(tuner):
    y = tuner.upload(np.zeros(2000, np.float32))
    lone = wt.Kernel("lone", source=SPIN, params=wt.grid(WG=64, TURNS=100), workgroups=32)
    assert tuner.tune(lone, y).winner_ns is None
    timed = tuner.tune(lone, y, fresh=True)
    assert timed.source == "tuned"
    assert timed.winner_ns > 0
