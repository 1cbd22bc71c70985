"""`anchor` buckets a dimension as finely as the tuner is told, so that near shapes share a pick."""

from __future__ import annotations

import pytest

import webtune as wt
from webtune.testing import ScriptedDevice

SIZES = range(1, 2049)
KEYS = {"minimal": 9, "balanced": 12, "extensive": 19, "full": 2048}


def keys(opened, make, level, sizes=SIZES):
    tuner = opened(ScriptedDevice(), anchor_level=level)
    ops = make("ab", key=lambda y: wt.anchor(y.size))
    with wt.gather(tuner) as g:
        for size in sizes:
            tuner.run(ops, tuner.empty(size, "u32"))
    return [entry.key for entry in g]


@pytest.mark.parametrize("level", ["minimal", "balanced", "extensive"])
def test_a_level_says_into_how_many_keys_shapes_fall(make, opened, level):
    assert abs(len(keys(opened, make, level)) - KEYS[level]) <= 3


def test_full_has_a_key_for_every_shape(make, opened):
    assert len(keys(opened, make, "full", range(1, 200))) == 199


def test_a_finer_level_has_more_keys(make, opened):
    counts = [len(keys(opened, make, level, range(1, 600))) for level in KEYS]
    assert counts == sorted(set(counts))


def test_shapes_of_one_bucket_share_a_pick(make, opened):
    device = ScriptedDevice()
    tuner = opened(device)
    ops = make("ab", key=lambda y: wt.anchor(y.size))
    tuner.run(ops, tuner.empty(1000, "u32"))
    before = len(device.shots)
    assert isinstance(tuner.run(ops, tuner.empty(1020, "u32")), wt.Hit)
    assert len(device.shots) == before
    tuner.run(ops, tuner.empty(100, "u32"))
    assert len(device.shots) > before
