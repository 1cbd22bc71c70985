"""A key's life, state by state, as the tuner's caller sees it."""

from __future__ import annotations

import shutil
from array import array

import pytest

import webtune as wt
from webtune.testing import Faults, ScriptedClock, ScriptedDevice


def test_lookup_is_a_miss_even_where_the_store_knows(make, opened, tmp_path):
    first = opened(ScriptedDevice({"a": 5_000, "b": 1_000}), store=tmp_path / "one")
    y = first.empty(4, "u32")
    first.tune(make("ab"), y)
    first.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # tuners of one folder share memory
    second = opened(ScriptedDevice({"a": 5_000, "b": 1_000}), store=tmp_path / "two")
    y = second.empty(4, "u32")
    assert second.lookup(make("ab"), y) == wt.Miss()
    assert second.run(make("ab"), y) == wt.Hit(1)
    assert second.device.shots == []


def test_settled_index_reads_only(make, opened):
    device = ScriptedDevice({"a": 5_000, "b": 1_000})
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    assert tuner.settled_index(make("ab"), y) is None
    assert device.submits == []
    tuner.tune(make("ab"), y)
    assert tuner.settled_index(make("ab"), y) == 1


def test_a_set_of_one_is_answered_and_nothing_is_measured_or_stored(make, opened):
    device = ScriptedDevice()
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    assert tuner.run(make("a"), y) == wt.Hit(0)
    assert device.shots == []
    assert device.submits == ["a"]
    assert list(tuner.store.entries()) == []
    assert tuner.tune(make("a"), y).source == "single"


def test_a_stored_pick_of_another_set_is_a_miss(make, opened):
    device = ScriptedDevice({"a": 5_000, "b": 1_000})
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    tuner.tune(make("ab"), y)
    before = len(device.shots)
    edited = make("ab", sources={"b": EDITED})
    assert tuner.lookup(edited, y) == wt.Miss()
    tuner.run(edited, y)
    assert len(device.shots) > before


EDITED = """
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main() { y[0] = y[0] + 1u + 0u; }
"""


def test_candidates_run_on_generated_inputs_where_they_are_given(make, opened):
    seen = []

    def effect(views, dispatch):
        seen.append(len(views[0]))

    device = ScriptedDevice(effect=effect)
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    ops = make("ab", inputs=lambda y: [tuner.empty(16, "u32")])
    tuner.tune(ops, y)
    assert set(seen) == {64}
    tuner.run(ops, y)
    assert seen[-1] == 16


def test_candidates_run_on_clones_and_never_on_the_callers_buffers(make, opened):
    def effect(views, dispatch):
        views[0][0] = 9

    tuner = opened(ScriptedDevice(effect=effect))
    y = tuner.upload(array("I", [1, 2]))
    tuner.tune(make("ab"), y)
    assert list(tuner.download(y)) == [1, 2]


def test_the_evictor_runs_before_every_sample(make, opened):
    def evict(rec, y):
        rec.dispatch(EDITED, [y], 1)

    device = ScriptedDevice()
    tuner = opened(device)
    tuner.tune(make("ab", evict=evict), tuner.empty(4, "u32"))
    assert device.shots
    assert all(shot.evict is not None and shot.evict.label == "evict" for shot in device.shots)


READ_AND_WRITE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
override WG: u32;
@compute @workgroup_size(WG) fn main() { y[0] = x[0]; }
"""
FILL = """
@group(0) @binding(0) var<storage, read_write> b: array<f32>;
@compute @workgroup_size(64) fn main() { b[0] = 7.0; }
"""


def test_an_evictor_never_writes_a_buffer_of_the_caller(opened):
    tuner = opened(ScriptedDevice())

    def tuned(place):
        kernel = wt.Kernel(
            f"evicted {place}",
            source=READ_AND_WRITE,
            params=wt.grid(WG=[32, 64]),
            workgroups=1,
            evict=lambda rec, *args: rec.dispatch(FILL, [args[place]], 1),
        )
        return tuner.tune(kernel, tuner.empty(4, "f32"), tuner.empty(4, "f32"))

    with pytest.raises(wt.UsageError, match="evict= writes x, which is the caller's"):
        tuned(0)
    assert tuned(1).winner is not None  # of y a tune has its own copy


def test_a_tune_that_measured_nothing_decides_in_memory_and_is_never_stored(make, opened, tmp_path):
    device = ScriptedDevice(clock=ScriptedClock(zero_every=1))
    tuner = opened(device, store=tmp_path)
    y = tuner.empty(4, "u32")
    state = tuner.run(make("ab"), y)
    assert isinstance(state, wt.Hit)
    assert list(tuner.store.entries()) == []
    report = tuner.tune(make("ab"), y)
    assert report.winner is not None
    assert tuner.run(make("ab"), y) == state


def test_no_candidate_left_raises_the_table_of_reasons(make, opened):
    tuner = opened(ScriptedDevice(faults=Faults(compile={"a": "no such type", "b": "too wide"})))
    with pytest.raises(wt.NoValidKernel) as caught:
        tuner.run(make("ab"), tuner.empty(4, "u32"))
    assert "no such type" in str(caught.value)
    assert "too wide" in str(caught.value)
    assert set(caught.value.failures) == {"a", "b"}


def test_a_rejecting_candidate_is_no_fallback(opened):
    ops = wt.TunableSet("job", outputs=["y"])

    @ops.tunable("declines")
    def declines(rec, y):
        raise wt.Reject("odd sizes only")

    @ops.tunable("serves")
    def serves(rec, y):
        rec.dispatch(EDITED, [y], 1)

    device = ScriptedDevice()
    tuner = opened(device)
    assert tuner.run(ops, tuner.empty(4, "u32")) == wt.Hit(1)
    assert set(device.submits) == {"serves"}


def test_a_fresh_tune_measures_everything_again(make, opened, shots):
    device = ScriptedDevice({"a": 5_000, "b": 1_000})
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    tuner.tune(make("ab"), y)
    device.shots.clear()
    assert tuner.tune(make("ab"), y).source == "memory"
    assert shots(device) == []
    assert tuner.tune(make("ab"), y, fresh=True).source == "tuned"
    assert set(shots(device)) == {"a", "b"}
