"""An environment is another set of picks; memory follows a switch, and tunes under way settle."""

from __future__ import annotations

import asyncio

import pytest

import webtune as wt
from webtune.testing import ScriptedDevice

TIMES = {"a": 5_000, "b": 1_000}


def test_an_environment_has_its_own_picks_and_memory_follows(make, opened):
    device = ScriptedDevice(TIMES)
    tuner = opened(device)
    ops, y = make("ab"), tuner.empty(4, "u32")
    tuner.tune(ops, y)
    device.shots.clear()
    with wt.environment("battery"):
        assert tuner.lookup(ops, y) == wt.Miss()
        assert tuner.settled_index(ops, y) is None
        assert tuner.tune(ops, y).source == "tuned"
        assert tuner.lookup(ops, y) == wt.Hit(1)
    assert tuner.lookup(ops, y) == wt.Miss()
    measured = len(device.shots)
    assert tuner.run(ops, y) == wt.Hit(1)
    assert len(device.shots) == measured
    assert [address.environment for address, _ in tuner.store.entries()] == ["battery", "default"]


def test_environments_nest_and_the_configured_one_is_outermost(make, opened):
    tuner = opened(ScriptedDevice(TIMES), environment="lab")
    y = tuner.empty(4, "u32")
    tuner.tune(make("ab", name="x"), y)
    with wt.environment("one"):
        with wt.environment("two"):
            tuner.tune(make("ab", name="y"), y)
        tuner.tune(make("ab", name="z"), y)
    found = {address.name: address.environment for address, _ in tuner.store.entries()}
    assert found == {"x": "lab", "y": "two", "z": "one"}


@pytest.mark.parametrize("back", [False, True], ids=["and stays", "and back"])
def test_a_tune_under_way_at_the_switch_settles_without_harm(make, page, back):
    async def main():
        tuner = page(ScriptedDevice(TIMES, awaiting=True))
        ops, y = make("ab"), tuner.empty(4, "u32")
        assert tuner.run(ops, y) == wt.Pending()
        for _ in range(3):
            await asyncio.sleep(0)
        with wt.environment("battery"):
            assert tuner.lookup(ops, y) == wt.Miss()
            if not back:
                await tuner.settled()
                assert tuner.lookup(ops, y) == wt.Miss()
        await tuner.settled()
        [(address, _)] = tuner.store.entries()
        assert address.environment == "default"
        assert tuner.run(ops, y) == wt.Hit(1)
        assert tuner.failures == ()

    asyncio.run(main())


def test_who_waits_across_a_switch_gets_the_answer_of_their_own_environment(make, page):
    async def main():
        times = {"a": 5_000, "b": lambda launch, now: 1_000 if slow[0] else 9_000}
        slow = [True]
        tuner = page(ScriptedDevice(times, awaiting=True))
        ops, y = make("ab"), tuner.empty(4, "u32")
        first = asyncio.ensure_future(tuner.tune_async(ops, y))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(tuner.tune_async(ops, y))
        await asyncio.sleep(0)
        with wt.environment("battery"):
            tuner.lookup(ops, y)
            await asyncio.sleep(0)
        assert (await first).winner.name == "b"
        assert (await second).winner.name == "b"
        slow[0] = False
        with wt.environment("battery"):
            assert tuner.lookup(ops, y) == wt.Miss()
            assert (await tuner.tune_async(ops, y)).winner.name == "a"
        assert (await tuner.tune_async(ops, y)).winner.name == "b"

    asyncio.run(main())


def test_an_environment_needs_a_name():
    with pytest.raises(wt.ArgumentError, match="has a name"), wt.environment(""):
        pass
