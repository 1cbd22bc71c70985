"""Picks belong to hardware: twins share them, a lost device leaves its keys, others never read."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import webtune as wt
from webtune.store.memory import MemoryStore
from webtune.testing import Faults, ScriptedAdapter, ScriptedDevice

TIMES = {"a": 5_000, "b": 1_000, "c": 2_000}


def test_a_pick_found_on_one_card_serves_its_twin(make, opened):
    store = MemoryStore()
    one, two = ScriptedDevice(TIMES), ScriptedDevice(TIMES)
    assert one.identity == two.identity
    first, second = opened(one, store=store), opened(two, store=store)
    first.tune(make("abc"), first.empty(4, "u32"))
    y = second.empty(4, "u32")
    assert second.lookup(make("abc"), y) == wt.Hit(1)
    assert second.run(make("abc"), y) == wt.Hit(1)
    assert two.shots == []
    assert two.submits == ["b"]


def test_a_key_that_one_card_tunes_is_pending_for_its_twin(make, page):
    async def main():
        store = MemoryStore()
        first = page(ScriptedDevice(TIMES, awaiting=True), store=store)
        twin = ScriptedDevice(TIMES, awaiting=True)
        second = page(twin, store=store)
        assert first.run(make("abc"), first.empty(4, "u32")) == wt.Pending()
        y = second.empty(4, "u32")
        assert second.run(make("abc"), y) == wt.Pending()
        assert twin.submits == ["a"]
        await first.settled()
        assert second.run(make("abc"), y) == wt.Hit(1)
        assert twin.shots == []

    asyncio.run(main())


def test_a_card_lost_during_a_tune_leaves_the_key_to_its_twin(make, opened):
    store = MemoryStore()
    lost = ScriptedDevice(TIMES, faults=Faults(lose_at=30))
    first = opened(lost, store=store, strategy="fixed")
    second = opened(ScriptedDevice(TIMES), store=store)
    mine, its = first.empty(4, "u32"), second.empty(4, "u32")
    with pytest.raises(wt.DeviceLost):
        first.run(make("abc"), mine)
    assert first.lookup(make("abc"), mine) == wt.Pending()
    assert second.lookup(make("abc"), its) == wt.Miss()
    assert second.run(make("abc"), its) == wt.Hit(1)
    # What the twin found is the lost device_token's answer too: memory is asked first.
    assert first.lookup(make("abc"), mine) == wt.Hit(1)


def test_a_lost_card_answers_pending_for_every_key_and_starts_nothing(make, opened):
    device = ScriptedDevice(TIMES)
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    tuner.tune(make("abc", name="known"), y)
    device.lose()
    assert tuner.lookup(make("abc", name="known"), y) == wt.Hit(1)
    for name in ("one", "two"):
        assert tuner.lookup(make("abc", name=name), y) == wt.Pending()
    before = list(device.submits)
    for call in (tuner.run, tuner.tune):
        with pytest.raises(wt.DeviceLost):
            call(make("abc", name="one"), y)
    with wt.gather(tuner) as g:
        assert tuner.run(make("abc", name="one"), y) == wt.Pending()
    assert device.submits == before
    assert [entry.state for entry in g.tune()] == [wt.GatherState.FAILED]


def test_a_page_whose_card_is_lost_keeps_answering_pending(make, page):
    class Falling(ScriptedDevice):
        """Lost for timed work, while submits still seem to go through, as in a browser."""

        def _alive(self):
            pass

        async def time(self, shots):
            self.lose("the driver was reset")
            raise wt.DeviceLost(self.lost)

    async def main():
        device = Falling(TIMES, awaiting=True)
        tuner = page(device)
        y = tuner.empty(4, "u32")
        assert tuner.run(make("abc"), y) == wt.Pending()
        with pytest.warns(wt.TuneWarning, match="driver was reset"):
            await tuner.settled()
        for name in ("job", "another"):
            assert tuner.run(make("abc", name=name), y) == wt.Pending()
        await tuner.settled()
        # What was running when the device_token was lost is not tried again.
        assert device.submits == ["a", "b", "b"]

    asyncio.run(main())


def test_a_new_device_after_a_loss_is_not_taken_for_the_lost_one(make, opened):
    store = MemoryStore()
    for _ in range(20):
        device = ScriptedDevice(TIMES, faults=Faults(lose_at=30))
        tuner = opened(device, store=store, strategy="fixed")
        with pytest.raises(wt.DeviceLost):
            tuner.tune(make("abc"), tuner.empty(4, "u32"))
        del device, tuner
    tuner = opened(ScriptedDevice(TIMES), store=store)
    assert tuner.run(make("abc"), tuner.empty(4, "u32")) == wt.Hit(1)


def test_another_identity_never_reads_anothers_picks(make, opened, tmp_path):
    first = opened(ScriptedDevice(TIMES), store=tmp_path)
    first.tune(make("abc"), first.empty(4, "u32"))
    device = ScriptedDevice({**TIMES, "c": 10}, adapter=ScriptedAdapter(label="another GPU"))
    second = opened(device, store=tmp_path)
    y = second.empty(4, "u32")
    assert second.lookup(make("abc"), y) == wt.Miss()
    assert second.tune(make("abc"), y).source == "tuned"
    assert second.run(make("abc"), y) == wt.Hit(2)
    assert first.lookup(make("abc"), first.empty(4, "u32")) == wt.Hit(1)
    assert len(list(second.store.entries())) == 2


def test_two_stores_of_this_process_are_two_memories(make, opened):
    for _ in range(20):
        tuner = opened(ScriptedDevice(TIMES), store=MemoryStore())
        y = tuner.empty(4, "u32")
        assert tuner.lookup(make("abc"), y) == wt.Miss()
        tuner.tune(make("abc"), y)


def test_who_waits_for_a_card_that_is_lost_tunes_on_its_own(make, opened):
    """On a twin, in another thread, the wait ends with the loss."""
    store = MemoryStore()
    begun = threading.Event()

    class Dying(ScriptedDevice):
        async def time(self, shots):
            begun.set()
            time.sleep(0.002)
            return await super().time(shots)

    dying = Dying(TIMES, faults=Faults(lose_at=30))
    first = opened(dying, store=store, strategy="fixed")
    second = opened(ScriptedDevice(TIMES), store=store)
    mine, its = first.empty(4, "u32"), second.empty(4, "u32")
    errors = []

    def on_first():
        try:
            first.tune(make("abc"), mine)
        except wt.DeviceLost as error:
            errors.append(error)

    thread = threading.Thread(target=on_first, daemon=True)
    thread.start()
    assert begun.wait(10)
    assert second.lookup(make("abc"), its) == wt.Pending()
    assert second.tune(make("abc"), its).winner.name == "b"
    thread.join(20)
    assert not thread.is_alive()
    assert len(errors) == 1
