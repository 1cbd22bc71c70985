"""Groups: which candidates are tried together, in which order, and which never."""

from __future__ import annotations

import pytest

import webtune as wt
from webtune.testing import Faults, ScriptedDevice

TIMES = {"plain": 5_000, "wide": 1_000, "tiled": 2_000, "naive": 500}


def grouped(make, by_key):
    """`tiled` and `wide` are tried first on large problems, `naive` on small ones."""
    large = wt.Group("large", priority=by_key(2, 1))
    small = wt.Group("small", priority=by_key(1, 2))
    return make(
        ["plain", "tiled", "wide", "naive"],
        groups={"tiled": {large: 1}, "wide": {large: 0}, "naive": {small: 0}},
    )


def by_size(for_large, for_small):
    return lambda key: for_large if key[0][1][0] >= 100 else for_small


def measured(report):
    return {one.name for one in report.results if one.samples_ns}


def reasons(report):
    return {one.name: one.reason for one in report.results if one.status == "skipped"}


def test_the_key_decides_which_group_is_tried_first(make, opened):
    tuner = opened(ScriptedDevice(TIMES))
    ops = grouped(make, by_size)
    large = tuner.tune(ops, tuner.empty(100, "u32"))
    assert measured(large) == {"plain", "tiled"}
    assert large.winner.name == "tiled"
    small = tuner.tune(ops, tuner.empty(10, "u32"))
    assert measured(small) == {"plain", "naive"}
    assert small.winner.name == "naive"


def test_the_next_batch_is_tried_only_when_nothing_of_this_one_was_measured(make, opened):
    faults = Faults(compile={"plain": "no", "tiled": "no"})
    tuner = opened(ScriptedDevice(TIMES, faults=faults))
    report = tuner.tune(grouped(make, by_size), tuner.empty(100, "u32"))
    assert measured(report) == {"wide"}
    assert report.winner.name == "wide"


def test_explain_says_why_a_candidate_was_never_reached(make, opened):
    tuner = opened(ScriptedDevice(TIMES))
    ops = grouped(make, by_size)
    y = tuner.empty(100, "u32")
    tuner.tune(ops, y)
    why = reasons(tuner.explain(ops, y))
    assert set(why) == {"wide", "naive"}
    assert all("never reached" in reason for reason in why.values())
    assert "never reached" in str(tuner.explain(ops, y))


def test_a_negative_priority_skips_the_group_and_says_so(make, opened):
    device = ScriptedDevice(TIMES)
    tuner = opened(device)
    ops = grouped(make, lambda large, small: by_size(large, -1))
    y = tuner.empty(10, "u32")
    report = tuner.tune(ops, y)
    assert "tiled" not in device.submits
    assert reasons(report)["tiled"] == (
        "group 'large' has priority -1 for this key (negative: skipped)"
    )
    assert "group 'large' has priority -1" in str(tuner.explain(ops, y))


def test_where_every_group_is_left_out_the_error_says_why(make, opened):
    closed = wt.Group("slow", priority=-1)
    decisions = []
    tuner = opened(ScriptedDevice(), decision_log=decisions.append)
    with pytest.raises(wt.NoValidKernel, match="group 'slow' has priority -1 for this key"):
        tuner.tune(make("ab", groups={name: {closed: 0} for name in "ab"}), tuner.empty(4, "u32"))
    told = [event["text"] for each in decisions for event in each["events"]]
    assert not any("no batch of the plan" in text for text in told)


def test_patience_skips_the_rest_of_a_group_that_does_not_improve(make, opened):
    names = ["best", "g1", "g2", "g3", "g4", "free"]
    stubborn = wt.Group("stubborn", patience=2)
    ops = make(names, groups={name: {stubborn: 0} for name in names if name[0] == "g"})
    times = {"best": 1_000, "g1": 3_000, "g2": 2_000, "g3": 10, "g4": 10, "free": 1_500}
    device = ScriptedDevice(times)
    tuner = opened(device)
    report = tuner.tune(ops, tuner.empty(4, "u32"), strategy="adaptive")
    assert measured(report) == {"best", "g1", "g2", "free"}
    assert report.winner.name == "best"
    assert reasons(report) == dict.fromkeys(
        ["g3", "g4"], "2 in a row of group 'stubborn' did not improve on the best"
    )
    assert "g3" not in device.submits


def test_fixed_has_no_patience(make, opened):
    stubborn = wt.Group("stubborn", patience=1)
    names = ["best", "g1", "g2", "g3"]
    ops = make(names, groups={name: {stubborn: 0} for name in names if name[0] == "g"})
    tuner = opened(ScriptedDevice({"best": 1_000, "g1": 3_000, "g2": 3_000, "g3": 10}))
    report = tuner.tune(ops, tuner.empty(4, "u32"), strategy="fixed")
    assert report.winner.name == "g3"
