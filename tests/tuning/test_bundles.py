"""Picks travel as one JSON document; what ships with an application lies beneath the user's."""

from __future__ import annotations

import asyncio

import pytest

import webtune as wt
from webtune.hosts.auto import open_tuner
from webtune.store.bundle import Bundle
from webtune.testing import ScriptedAdapter, ScriptedDevice

TIMES = {"a": 5_000, "b": 1_000}
OTHERWISE = {"a": 1_000, "b": 5_000}


@pytest.fixture
def shipped(make, opened):
    """What the application's author tuned."""
    tuner = opened(ScriptedDevice(TIMES))
    tuner.tune(make("ab"), tuner.empty(4, "u32"))
    return Bundle.of(tuner.store)


@pytest.mark.parametrize("form", ["bundle", "text", "path"])
def test_a_bundle_is_read_beneath_the_users_store(make, opened, shipped, tmp_path, form):
    path = tmp_path / "picks.json"
    path.write_text(shipped.dumps())
    given = {"bundle": shipped, "text": shipped.dumps(), "path": path}[form]
    device = ScriptedDevice(OTHERWISE)
    tuner = opened(device, store=tmp_path / "user", bundle=given)
    y = tuner.empty(4, "u32")
    assert tuner.run(make("ab"), y) == wt.Hit(1)
    assert device.shots == []
    assert tuner.explain(make("ab"), y).winner.name == "b"
    assert path.read_text() == shipped.dumps()


def test_the_users_own_pick_lies_above_the_bundle(make, opened, shipped, tmp_path):
    first = opened(ScriptedDevice(OTHERWISE), store=tmp_path, bundle=shipped)
    y = first.empty(4, "u32")
    assert first.tune(make("ab"), y, fresh=True).winner.name == "a"
    first.close()
    second = opened(ScriptedDevice(OTHERWISE), store=tmp_path, bundle=shipped)
    assert second.run(make("ab"), second.empty(4, "u32")) == wt.Hit(0)


def test_without_the_bundle_its_picks_are_not_known(make, opened, shipped, tmp_path):
    first = opened(ScriptedDevice(OTHERWISE), store=tmp_path, bundle=shipped)
    assert first.run(make("ab"), first.empty(4, "u32")) == wt.Hit(1)
    second = opened(ScriptedDevice(OTHERWISE), store=tmp_path)
    y = second.empty(4, "u32")
    assert second.lookup(make("ab"), y) == wt.Miss()
    assert second.run(make("ab"), y) == wt.Hit(0)


def test_a_bundle_of_other_hardware_is_never_read(make, opened, shipped):
    tuner = opened(
        ScriptedDevice(OTHERWISE, adapter=ScriptedAdapter(label="another GPU")), bundle=shipped
    )
    assert tuner.run(make("ab"), tuner.empty(4, "u32")) == wt.Hit(0)


def test_picks_are_exported_and_imported_between_tuners(make, opened, tmp_path):
    first = opened(ScriptedDevice(TIMES), store=tmp_path / "one")
    first.tune(make("ab"), first.empty(4, "u32"))
    text = Bundle.of(first.store).dumps()
    device = ScriptedDevice(TIMES)
    second = opened(device, store=tmp_path / "two")
    assert Bundle.loads(text).import_into(second.store) == 1
    assert Bundle.loads(text).import_into(second.store) == 0
    assert second.run(make("ab"), second.empty(4, "u32")) == wt.Hit(1)
    assert device.shots == []


def test_bundles_of_two_machines_merge_the_same_in_either_order(make, opened):
    def tuned(label, size):
        tuner = opened(ScriptedDevice(TIMES, adapter=ScriptedAdapter(label=label)))
        tuner.tune(make("ab"), tuner.empty(size, "u32"))
        return Bundle.of(tuner.store)

    one, two = tuned("one GPU", 4), tuned("two GPU", 4)
    merged = one.merge(two)
    assert merged.dumps() == two.merge(one).dumps()
    assert len(merged.decisions) == 2
    assert {a.hardware for a in merged.decisions} == {
        ScriptedDevice(adapter=ScriptedAdapter(label="one GPU")).identity.digest,
        ScriptedDevice(adapter=ScriptedAdapter(label="two GPU")).identity.digest,
    }


@pytest.mark.parametrize("given", ["/nowhere/picks.json", '{"no": "bundle"}', 5])
def test_a_bundle_that_cannot_be_read_is_told_when_the_tuner_is_opened(given):
    with pytest.raises(wt.UsageError, match="bundle"):
        open_tuner(device=ScriptedDevice(), store="memory", bundle=given)


def test_the_awaited_front_door_takes_a_bundle_too(make, shipped):
    async def main():
        device = ScriptedDevice(OTHERWISE)
        async with await wt.open_tuner_async(device, store="memory", bundle=shipped) as tuner:
            assert tuner.run(make("ab"), tuner.empty(4, "u32")) == wt.Hit(1)

    asyncio.run(main())
