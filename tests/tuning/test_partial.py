"""What was measured stays measured: a changed set re-times what changed and the leaders only."""

from __future__ import annotations

import pytest

import webtune as wt
from webtune.testing import ScriptedDevice

NAMES = [f"c{number}" for number in range(12)]
TIMES = {name: 1_000 + 500 * number for number, name in enumerate(NAMES)} | {"new": 1_200}

EDITED = """
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main() { y[0] = 1u + y[0]; }
"""


@pytest.fixture(params=["adaptive", "fixed"])
def tuned(request, make, opened, shots):
    """`tuned(set)`: tune it on the same store; the report and the candidates that were run."""
    device = ScriptedDevice(TIMES)
    tuner = opened(device, strategy=request.param)
    y = tuner.empty(4, "u32")

    def tune(ops):
        device.shots.clear()
        report = tuner.tune(ops, y)
        return report, set(shots(device))

    report, ran = tune(make(NAMES))
    assert ran == set(NAMES)
    tune.before = report
    return tune


def test_adding_a_candidate_times_it_and_the_leaders_only(make, tuned):
    report, ran = tuned(make([*NAMES, "new"]))
    assert ran == {"new", "c0", "c1", "c2"}
    assert report.winner.name == "c0"
    assert report.decision.launches < tuned.before.decision.launches / 2
    kept = {one.name: one for one in report.results}["c7"]
    assert kept.time_ns == TIMES["c7"]
    assert "earlier tune" in kept.reason


def test_a_new_candidate_that_is_faster_wins(make, opened):
    device = ScriptedDevice({**TIMES, "new": 500})
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    tuner.tune(make(NAMES), y)
    assert tuner.tune(make([*NAMES, "new"]), y).winner.name == "new"


def test_editing_the_wgsl_of_one_candidate_times_that_one_and_the_leaders(make, tuned):
    _, ran = tuned(make(NAMES, sources={"c7": EDITED}))
    assert ran == {"c7", "c0", "c1", "c2"}


def test_removing_a_candidate_that_lost_times_the_leaders_only(make, tuned):
    report, ran = tuned(make(NAMES[:-1]))
    assert ran == {"c0", "c1", "c2"}
    assert report.winner.name == "c0"


def test_the_same_set_made_again_keeps_everything(make, tuned):
    report, ran = tuned(make(NAMES))
    assert ran == set()
    assert report.source == "memory"


def test_the_same_candidates_in_another_order_keep_everything(make, tuned):
    report, ran = tuned(make(NAMES[::-1]))
    assert ran == set()
    assert report.winner.name == "c0"


def test_a_kernels_override_space_can_grow(opened, shots):
    source = """
    override V: u32;
    @group(0) @binding(0) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(1)
    fn main() { y[0] = V; }
    """

    def kernel(values):
        return wt.Kernel("grown", source=source, params=wt.grid(V=values), workgroups=1)

    device = ScriptedDevice({f"V={n}": 1_000 * n for n in range(1, 12)})
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    tuner.tune(kernel(range(1, 9)), y)
    device.shots.clear()
    tuner.tune(kernel(range(1, 10)), y)
    assert set(shots(device)) == {"V=1", "V=2", "V=3", "V=9"}


def test_leaders_that_fail_now_give_the_others_another_chance(make, opened):
    device = ScriptedDevice(TIMES)
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    tuner.tune(make(NAMES[:6]), y)
    from webtune.testing import Faults

    device.faults = Faults(launch=dict.fromkeys(["c0", "c1", "c2", "new"], "driver says no"))
    assert tuner.tune(make([*NAMES[:6], "new"]), y).winner.name == "c3"
