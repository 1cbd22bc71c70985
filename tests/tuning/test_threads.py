"""Many threads, one tune a key: the others run the fallback, and nobody waits for ever."""

from __future__ import annotations

import random
import threading
import time

import pytest

import webtune as wt
from webtune.testing import ScriptedDevice

TIMES = {"a": 5_000, "b": 1_000, "c": 2_000}


class ScriptedFailure(Exception):
    """The harness failed, as no harness should."""


class SlowDevice(ScriptedDevice):
    """Takes real time over each round, so that threads meet; and fails where it is told to."""

    def __init__(self, *args, chance=0.0, seed=0, **kwargs):
        super().__init__(*args, **kwargs)
        self.chance = chance
        self.dice = random.Random(seed)

    async def time(self, shots):
        time.sleep(0.001)
        if self.dice.random() < self.chance:
            raise ScriptedFailure
        return await super().time(shots)


def together(count, work):
    """Run `work(number)` in so many threads that start at once; what each returned or raised."""
    start = threading.Barrier(count)
    results = [None] * count

    def run(number):
        start.wait()
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    return results


def test_32_threads_start_one_tune_and_the_others_run_the_fallback(make, opened):
    decisions = []
    device = SlowDevice(TIMES)
    tuner = opened(device, decision_log=decisions.append)
    ops = make("abc")
    y = tuner.empty(4, "u32")
    states = together(32, lambda _: tuner.run(ops, y))
    assert len(decisions) == 1
    assert set(states) <= {wt.Hit(1), wt.Pending()}
    assert states.count(wt.Pending()) >= 16
    assert tuner.lookup(ops, y) == wt.Hit(1)


def test_32_threads_that_ask_for_the_decision_get_the_same_one(make, opened):
    decisions = []
    tuner = opened(SlowDevice(TIMES), decision_log=decisions.append)
    ops = make("abc")
    y = tuner.empty(4, "u32")
    reports = together(32, lambda _: tuner.tune(ops, y))
    assert len(decisions) == 1
    assert {report.winner.name for report in reports} == {"b"}


def test_those_who_wait_for_a_tune_that_fails_are_told_and_do_not_repeat_it(make, opened):
    device = SlowDevice(TIMES, chance=1.0)
    tuner = opened(device)
    ops = make("abc")
    y = tuner.empty(4, "u32")
    results = together(32, lambda _: tuner.tune(ops, y))
    assert all(isinstance(each, ScriptedFailure) for each in results)
    assert len({id(each) for each in results}) < 16
    device.chance = 0.0
    assert tuner.tune(ops, y).winner.name == "b"


@pytest.mark.parametrize("seed", range(3))
def test_32_threads_with_random_failures_end_and_leave_no_key_pending(make, opened, seed):
    device = SlowDevice(TIMES, chance=0.05, seed=seed)
    tuner = opened(device)
    sets = [make("abc", name=f"job {n}") for n in range(8)]
    y = tuner.empty(4, "u32")

    def work(number):
        dice = random.Random(1000 * seed + number)
        failures = 0
        for _ in range(20):
            ops = dice.choice(sets)
            try:
                if dice.random() < 0.2:
                    assert tuner.tune(ops, y).winner.name == "b"
                else:
                    assert tuner.run(ops, y) in (wt.Hit(1), wt.Pending())
            except ScriptedFailure:
                failures += 1
        return failures

    results = together(32, work)
    assert all(isinstance(each, int) for each in results), results
    assert sum(results) > 0
    device.chance = 0.0
    for ops in sets:
        assert tuner.lookup(ops, y) != wt.Pending()
        assert tuner.run(ops, y) == wt.Hit(1)


def test_threads_that_tune_different_keys_do_not_wait_for_each_other(make, opened):
    tuner = opened(SlowDevice(TIMES))
    sets = [make("abc", name=f"job {n}") for n in range(8)]
    y = tuner.empty(4, "u32")
    assert together(8, lambda n: tuner.run(sets[n], y)) == [wt.Hit(1)] * 8
