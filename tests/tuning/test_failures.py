"""What fails is given up, told, and not done twice; the caller gets the result."""

from __future__ import annotations

from array import array

import pytest

import webtune as wt
from webtune.testing import Faults, ScriptedDevice

TIMES = {"a": 5_000, "b": 1_000, "c": 2_000}

EDITED = """
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main() { y[0] = 1u + y[0]; }
"""


def add_one(views, dispatch):
    views[0].cast("I")[0] += 1


def stored_pick(make, opened, store, faults):
    """A tuner that finds `b` in its store, on a device where something has changed."""
    first = opened(ScriptedDevice(TIMES), store=store)
    assert first.tune(make("abc"), first.empty(4, "u32")).winner.name == "b"
    first.close()
    device = ScriptedDevice(TIMES, faults=faults, effect=add_one)
    return device, opened(device, store=store)


@pytest.mark.parametrize("moment", ["compile", "launch"])
def test_a_stored_winner_that_fails_is_evicted_and_the_runner_up_runs(
    make, opened, tmp_path, moment
):
    device, tuner = stored_pick(make, opened, tmp_path, Faults(**{moment: {"b": "driver says no"}}))
    y = tuner.upload(array("I", [7, 0, 0, 0]))
    assert tuner.run(make("abc"), y) == wt.Hit(2)
    assert list(tuner.download(y)) == [8, 0, 0, 0]
    assert device.shots == []
    failed = {r.name: r for r in tuner.explain(make("abc"), y).results}["b"]
    assert failed.status == "launch"
    assert failed.reason == "driver says no"
    assert tuner.run(make("abc"), y) == wt.Hit(2)
    [(_, decision)] = tuner.store.entries()
    assert decision.winner.id == make("abc").candidates[2].id


def test_where_every_candidate_fails_the_call_is_blamed_and_the_pick_stays(make, opened, tmp_path):
    every = dict.fromkeys("abc", "driver says no")
    _, tuner = stored_pick(make, opened, tmp_path, Faults(compile=every))
    y = tuner.empty(4, "u32")
    with pytest.raises(wt.NoValidKernel):
        tuner.run(make("abc"), y)
    [(_, decision)] = tuner.store.entries()
    assert decision.winner.id == make("abc").candidates[1].id


def test_a_fallback_that_fails_to_launch_leaves_its_turn_to_the_next(make, opened):
    device = ScriptedDevice(faults=Faults(launch={"a": "driver says no"}), effect=add_one)
    tuner = opened(device)
    with wt.gather(tuner, launch=True):
        y = tuner.upload(array("I", [0]))
        assert tuner.run(make("abc"), y) == wt.Compiled()
    assert list(tuner.download(y)) == [1]
    assert device.submits[-1] == "b"


def test_a_candidate_that_hangs_is_left_alone_until_its_source_changes(make, opened, tmp_path):
    faults = Faults(hang=["b"], recovers=True)
    device = ScriptedDevice(TIMES, faults=faults)
    tuner = opened(device, store=tmp_path)
    report = tuner.tune(make("abc"), tuner.empty(4, "u32"))
    assert report.winner.name == "c"
    assert {r.name: r.status for r in report.results}["b"] == "timed out"
    tuner.close()

    # Another process: a new device, the same folder, and a new set with this candidate in it.
    device = ScriptedDevice(TIMES, faults=faults)
    tuner = opened(device, store=tmp_path)
    report = tuner.tune(make("abcd"), tuner.empty(4, "u32"))
    assert "b" not in device.submits
    assert {r.name: r.status for r in report.results}["b"] == "timed out"
    assert "never came back" in {r.name: r.reason for r in report.results}["b"]
    tuner.close()

    device = ScriptedDevice(TIMES)
    tuner = opened(device, store=tmp_path)
    report = tuner.tune(make("abc", sources={"b": EDITED}), tuner.empty(4, "u32"))
    assert report.winner.name == "b"


def test_a_candidate_that_kills_the_device_is_left_alone_by_the_next(make, opened, tmp_path):
    device = ScriptedDevice(TIMES, faults=Faults(kill=["b"]))
    tuner = opened(device, store=tmp_path)
    with pytest.raises(wt.DeviceLost):
        tuner.tune(make("abc"), tuner.empty(4, "u32"))
    tuner.close()
    device = ScriptedDevice(TIMES, faults=Faults(kill=["b"]))
    tuner = opened(device, store=tmp_path)
    assert tuner.tune(make("abc"), tuner.empty(4, "u32")).winner.name == "c"
    assert "b" not in device.submits


def test_a_wrong_candidate_never_wins(make, opened):
    device = ScriptedDevice(TIMES, faults=Faults(wrong=["b"]), effect=add_one)
    tuner = opened(device)
    ops = make("abc", check=wt.AllClose())
    report = tuner.tune(ops, tuner.empty(1, "u32"))
    assert {r.name: r.status for r in report.results}["b"] == "wrong answer"
    assert report.winner.name == "c"


def test_what_a_candidate_raises_is_its_failure_and_no_one_elses(opened):
    ops = wt.TunableSet("job", outputs=["y"])

    @ops.tunable("broken")
    def broken(rec, y):
        raise ZeroDivisionError("a mistake")

    @ops.tunable("fine")
    def fine(rec, y):
        rec.dispatch(EDITED, [y], 1)

    tuner = opened(ScriptedDevice())
    report = tuner.tune(ops, tuner.empty(4, "u32"))
    assert report.winner.name == "fine"
    assert "ZeroDivisionError: a mistake" in str(report)


def test_where_no_candidate_is_left_a_lost_device_is_told_first(make, opened):
    device = ScriptedDevice(faults=Faults(hang=["a"]))
    tuner = opened(device)
    ops = wt.TunableSet("job", outputs=["y"])
    ops.add(make("a", name="only"))

    @ops.tunable("declines")
    def declines(rec, y):
        raise wt.Reject("odd sizes only")

    y = tuner.empty(4, "u32")
    with pytest.raises(wt.DeviceLost, match="did not come back") as caught:
        tuner.tune(ops, y)
    assert isinstance(caught.value.__cause__, wt.NoValidKernel)
    assert "odd sizes only" in str(caught.value.__cause__)
    assert tuner.lookup(ops, y) == wt.Pending()


def test_kills_in_the_middle_of_tunes_never_end_in_having_no_kernel(make, opened, tmp_path):
    ops = make("abc")
    tuner = opened(ScriptedDevice(TIMES), store=tmp_path)
    hardware = tuner.device.identity.digest
    for one in ops.candidates:  # as processes leave it that were killed while they tuned
        tuner.store.begin(hardware, one.id)
    tuner.store.abandon(hardware)
    assert tuner.store.suspects(hardware) == {one.id for one in ops.candidates}
    assert tuner.tune(ops, tuner.empty(4, "u32")).winner.name == "b"
    assert tuner.run(ops, tuner.empty(4, "u32")) == wt.Hit(1)
