"""A candidate that runs tuned kernels: the inner key is settled before the outer is measured."""

from __future__ import annotations

import asyncio
import threading
from array import array

import pytest

import webtune as wt
from webtune.testing import Faults, ScriptedDevice

ADD = """
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main() { y[0] = y[0] + 1u; }
"""


def inner_set():
    inner = wt.TunableSet("inner", outputs=["y"])

    @inner.tunable("slow")
    def slow(rec, y):
        rec.dispatch(ADD, [y], 1)

    @inner.tunable("fast")
    def fast(rec, y):
        rec.dispatch(ADD, [y], 2)

    return inner


def outer_set(inner, scratch=False):
    outer = wt.TunableSet("outer", outputs=["y"])

    @outer.tunable("alone")
    def alone(rec, y):
        rec.dispatch(ADD, [y], 4)

    @outer.tunable("with inner")
    def with_inner(rec, y):
        target = rec.scratch((8,), "u32") if scratch else y
        rec.dispatch(ADD, [y], 3)
        rec.run(inner, target)

    return outer


def by_label(dispatch):
    return {"slow": 9_000, "fast": 2_000, "alone": 50_000, "with inner": 10_000}[dispatch.label]


def inner_parts(device):
    """Which inner candidate each timed launch of the outer one ran."""
    return {
        shot.program.dispatches[1].label
        for shot in device.shots
        if shot.program.label == "with inner"
    }


@pytest.mark.parametrize("scratch", [False, True], ids=["on its arguments", "on scratch memory"])
def test_natively_the_inner_key_is_settled_first(opened, scratch):
    device = ScriptedDevice(by_label)
    tuner = opened(device)
    inner = inner_set()
    y = tuner.empty(4, "u32")
    outer = outer_set(inner, scratch)
    report = tuner.tune(outer, y)
    assert report.winner.name == "with inner"
    assert inner_parts(device) == {"fast"}
    labels = [shot.program.label for shot in device.shots]
    last_inner = max(i for i, label in enumerate(labels) if label in ("slow", "fast"))
    assert last_inner < labels.index("with inner")
    target = tuner.empty(8, "u32") if scratch else y
    assert tuner.lookup(inner, target) == wt.Hit(1)


@pytest.mark.parametrize("scratch", [False, True], ids=["on its arguments", "on scratch memory"])
def test_on_a_page_the_fallback_runs_and_the_outer_tune_waits_for_the_inner(page, scratch):
    async def main():
        device = ScriptedDevice(by_label, awaiting=True)
        tuner = page(device)
        outer = outer_set(inner_set(), scratch)
        y = tuner.empty(4, "u32")
        assert tuner.run(outer, y) == wt.Pending()
        assert device.submits == ["alone"]
        await tuner.settled()
        assert inner_parts(device) == {"fast"}
        assert tuner.run(outer, y) == wt.Hit(1)
        await tuner.settled()
        assert tuner.failures == ()

    asyncio.run(main())


def test_an_inner_key_that_is_under_way_is_waited_for_and_tuned_once(page):
    async def main():
        device = ScriptedDevice(by_label, awaiting=True)
        tuner = page(device)
        inner = inner_set()
        y = tuner.empty(4, "u32")
        alone, nested = await asyncio.gather(
            tuner.tune_async(inner, y), tuner.tune_async(outer_set(inner), y)
        )
        labels = [shot.program.label for shot in device.shots]
        assert inner_parts(device) == {"fast"}
        assert alone.winner.name == "fast"
        assert nested.winner.name == "with inner"
        return labels.count("slow")

    together = asyncio.run(main())

    async def one():
        device = ScriptedDevice(by_label, awaiting=True)
        tuner = page(device)
        await tuner.tune_async(inner_set(), tuner.empty(4, "u32"))
        return [shot.program.label for shot in device.shots].count("slow")

    assert together == asyncio.run(one())


def test_an_outer_candidate_whose_inner_kernel_fails_is_out_and_says_why(opened):
    device = ScriptedDevice(by_label, faults=Faults(compile={"slow": "bad", "fast": "worse"}))
    tuner = opened(device)
    report = tuner.tune(outer_set(inner_set()), tuner.empty(4, "u32"))
    assert report.winner.name == "alone"
    out = {r.name: r for r in report.results}["with inner"]
    assert "inner" in out.reason
    assert "every candidate failed" in out.reason


def test_the_outer_kernel_runs_with_the_inner_pick_of_the_day(opened):
    device = ScriptedDevice(by_label)
    tuner = opened(device)
    inner = inner_set()
    outer = outer_set(inner)
    y = tuner.upload(array("I", [0, 0, 0, 0]))
    tuner.run(outer, y)
    assert [d.label for d in device.compiled[-1].dispatches] == ["with inner", "fast"]


def mutual():
    """Two kernels, each of which has a candidate that runs the other."""
    left = wt.TunableSet("left", outputs=["y"])
    right = wt.TunableSet("right", outputs=["y"])

    @left.tunable("left by right")
    def left_by_right(rec, y):
        rec.run(right, y)

    @left.tunable("left alone")
    def left_alone(rec, y):
        rec.dispatch(ADD, [y], 1)

    @right.tunable("right by left")
    def right_by_left(rec, y):
        rec.run(left, y)

    @right.tunable("right alone")
    def right_alone(rec, y):
        rec.dispatch(ADD, [y], 2)

    return left, right


def test_kernels_that_run_each_other_are_decided_and_nobody_waits_in_a_circle(opened):
    left, right = mutual()
    tuner = opened(ScriptedDevice())
    y = tuner.empty(4, "u32")
    assert isinstance(tuner.run(left, y), wt.Hit)
    assert isinstance(tuner.run(right, y), wt.Hit)


def test_kernels_that_run_each_other_do_not_lock_two_threads(opened):
    for _ in range(5):
        left, right = mutual()
        tuner = opened(ScriptedDevice())
        y = tuner.empty(4, "u32")
        start = threading.Barrier(2)
        states = []

        def call(kernel, tuner=tuner, y=y, start=start, states=states):
            start.wait()
            states.append(tuner.tune(kernel, y).winner)

        threads = [threading.Thread(target=call, args=(k,), daemon=True) for k in (left, right)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert len(states) == 2
        assert None not in states


def test_kernels_that_run_each_other_are_decided_on_a_page(page):
    async def main():
        left, right = mutual()
        tuner = page(ScriptedDevice(awaiting=True))
        y = tuner.empty(4, "u32")
        reports = await asyncio.wait_for(
            asyncio.gather(tuner.tune_async(left, y), tuner.tune_async(right, y)), 30
        )
        assert all(report.winner is not None for report in reports)

    asyncio.run(main())


def test_a_kernel_may_run_itself_on_a_smaller_problem(opened):
    sizes = wt.TunableSet("halving", outputs=["y"])

    @sizes.tunable("direct")
    def direct(rec, y):
        rec.dispatch(ADD, [y], 1)

    @sizes.tunable("by halves")
    def by_halves(rec, y):
        if y.size < 2:
            raise wt.Reject("it cannot be halved")
        rec.dispatch(ADD, [y], 1)
        rec.run(sizes, rec.scratch((y.size // 2,), "u32"))

    tuner = opened(ScriptedDevice({"direct": 9_000, "by halves": 1_000}))
    y = tuner.empty(8, "u32")
    assert tuner.run(sizes, y) == wt.Hit(1)
    keys = [address.key for address, _ in tuner.store.entries()]
    assert keys == ['[["u32",[1]]]', '[["u32",[2]]]', '[["u32",[4]]]', '[["u32",[8]]]']
