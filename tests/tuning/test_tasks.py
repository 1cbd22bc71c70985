"""Many tasks of one event loop, as in a page: one tune a key, and a cancelled one is taken back."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest

import webtune as wt
from webtune.testing import Faults, ScriptedDevice

TIMES = {"a": 5_000, "b": 1_000, "c": 2_000}


def test_a_call_answers_pending_at_once_and_the_pick_comes_later(make, page):
    async def main():
        device = ScriptedDevice(TIMES, awaiting=True)
        tuner = page(device)
        y = tuner.empty(4, "u32")
        assert tuner.run(make("abc"), y) == wt.Pending()
        assert device.submits == ["a"]
        await tuner.settled()
        assert tuner.run(make("abc"), y) == wt.Hit(1)

    asyncio.run(main())


def test_many_tasks_start_one_tune_and_the_others_run_the_fallback(make, page):
    async def main():
        decisions = []
        tuner = page(ScriptedDevice(TIMES, awaiting=True), decision_log=decisions.append)
        ops = make("abc")
        y = tuner.empty(4, "u32")

        async def call():
            await asyncio.sleep(0)
            return tuner.run(ops, y)

        states = await asyncio.gather(*(call() for _ in range(32)))
        assert states == [wt.Pending()] * 32
        await tuner.settled()
        assert len(decisions) == 1

    asyncio.run(main())


def test_many_tasks_that_ask_for_the_decision_get_the_same_one(make, page):
    async def main():
        decisions = []
        tuner = page(ScriptedDevice(TIMES, awaiting=True), decision_log=decisions.append)
        ops = make("abc")
        y = tuner.empty(4, "u32")
        reports = await asyncio.gather(*(tuner.tune_async(ops, y) for _ in range(32)))
        assert {report.winner.name for report in reports} == {"b"}
        assert len(decisions) == 1

    asyncio.run(main())


def test_a_failed_tune_is_told_to_all_who_wait_for_it(make, page):
    async def main():
        faults = Faults(compile=dict.fromkeys("abc", "no"))
        tuner = page(ScriptedDevice(awaiting=True, faults=faults))
        ops = make("abc")
        y = tuner.empty(4, "u32")
        results = await asyncio.gather(
            *(tuner.tune_async(ops, y) for _ in range(8)), return_exceptions=True
        )
        assert all(isinstance(each, wt.NoValidKernel) for each in results)
        assert len({id(each) for each in results}) == 1

    asyncio.run(main())


def test_a_background_tune_that_fails_warns_and_is_kept_in_failures(make, page):
    async def main():
        faults = Faults(launch={"b": "no", "c": "no", "a": "no"})
        tuner = page(ScriptedDevice(awaiting=True, faults=faults))
        y = tuner.empty(4, "u32")
        with pytest.raises(wt.NoValidKernel):
            tuner.run(make("abc"), y)
        with pytest.warns(wt.TuneWarning, match="every candidate failed"):
            await tuner.settled()
        [failure] = tuner.failures
        assert isinstance(failure, wt.NoValidKernel)
        assert tuner.lookup(make("abc"), y) == wt.Miss()

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(0, 12, 2))
def test_a_cancelled_tune_unmarks_its_key(make, page, turns):
    async def main():
        device = ScriptedDevice(TIMES, awaiting=True)
        tuner = page(device)
        ops = make("abc")
        y = tuner.empty(4, "u32")
        task = asyncio.ensure_future(tuner.tune_async(ops, y))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        assert tuner.lookup(ops, y) == wt.Miss()
        assert len(device.buffers) == 1
        assert (await tuner.tune_async(ops, y)).winner.name == "b"

    asyncio.run(main())


def test_a_background_tune_cancelled_before_it_began_unmarks_its_key(make, page):
    async def main():
        tuner = page(ScriptedDevice(TIMES, awaiting=True))
        ops = make("abc")
        y = tuner.empty(4, "u32")
        assert tuner.run(ops, y) == wt.Pending()
        [job] = asyncio.all_tasks() - {asyncio.current_task()}
        job.cancel()
        await asyncio.wait_for(tuner.settled(), 5)
        gc.collect()
        assert tuner.run(ops, y) == wt.Pending()
        await asyncio.wait_for(tuner.settled(), 5)
        assert tuner.lookup(ops, y) == wt.Hit(1)

    asyncio.run(main())


def test_who_stops_waiting_does_not_stop_the_tune(make, page):
    async def main():
        tuner = page(ScriptedDevice(TIMES, awaiting=True))
        ops = make("abc")
        y = tuner.empty(4, "u32")
        tuner.run(ops, y)
        waiter = asyncio.ensure_future(tuner.settled())
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.sleep(0)
        await tuner.settled()
        assert tuner.lookup(ops, y) == wt.Hit(1)

    asyncio.run(main())


def test_closing_ends_what_is_under_way(make, page):
    async def main():
        tuner = page(ScriptedDevice(TIMES, awaiting=True))
        y = tuner.empty(4, "u32")
        tuner.run(make("abc"), y)
        await asyncio.sleep(0)
        await tuner.close_async()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(wt.TunerClosed):
            tuner.run(make("abc"), y)

    asyncio.run(main())


def test_tasks_with_random_cancellations_end_and_leave_no_key_pending(make, page):
    async def main():
        dice = random.Random(7)
        tuner = page(ScriptedDevice(TIMES, awaiting=True))
        sets = [make("abc", name=f"job {n}") for n in range(6)]
        y = tuner.empty(4, "u32")

        async def work():
            for _ in range(6):
                ops = dice.choice(sets)
                if dice.random() < 0.5:
                    tuner.run(ops, y)
                    await asyncio.sleep(0)
                else:
                    await tuner.tune_async(ops, y)

        tasks = [asyncio.ensure_future(work()) for _ in range(32)]
        for task in dice.sample(tasks, 12):
            await asyncio.sleep(0)
            task.cancel()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert all(each is None or isinstance(each, asyncio.CancelledError) for each in results)
        await asyncio.wait_for(tuner.settled(), 60)
        del tasks, results
        gc.collect()
        for ops in sets:
            assert tuner.lookup(ops, y) != wt.Pending()
            assert (await tuner.tune_async(ops, y)).winner.name == "b"

    asyncio.run(main())
