"""What memory answers, and that the claim on a key always ends and wakes all who wait."""

import asyncio
import gc
import threading
from concurrent import futures

import pytest

from webtune.tuning.pick_cache import Claim, Compiled, Hit, Miss, Pending, PickCache, PickCaches


def begin(cache, key="k", **options):
    claim = cache.start(key, candidates=3, **options)
    assert isinstance(claim, Claim)
    return claim


def test_an_unknown_key_is_a_miss_and_asking_changes_nothing():
    cache = PickCache()
    assert cache.lookup("k") == Miss()
    assert cache.pick("k") is None
    assert isinstance(cache.start("k", candidates=3), Claim)


def test_a_tune_makes_its_key_pending_and_then_a_hit():
    cache = PickCache()
    with begin(cache) as claim:
        assert cache.lookup("k") == Pending()
        assert cache.start("k", candidates=3) == Pending()
        assert claim.resolve(2)
    assert cache.lookup("k") == Hit(2)
    assert cache.pick("k") == 2
    assert cache.start("k", candidates=3) == Hit(2)


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_a_tune_that_ends_badly_leaves_the_key_to_the_next_caller(failure):
    cache = PickCache()
    with pytest.raises(failure), begin(cache):
        raise failure
    assert cache.lookup("k") == Miss()
    begin(cache)


def test_a_claim_that_nobody_entered_ends_by_itself():
    cache = PickCache()
    claim = begin(cache)
    assert cache.lookup("k") == Pending()
    del claim
    gc.collect()
    assert cache.lookup("k") == Miss()


def test_a_set_of_one_is_answered_and_the_store_is_not_asked():
    cache = PickCache()
    assert cache.start("k", candidates=1, stored=pytest.fail) == Hit(0)
    assert cache.lookup("k") == Hit(0)


def test_a_stored_pick_is_taken_into_memory_once():
    cache = PickCache()
    asked = []

    def stored():
        asked.append(1)
        return 1

    assert cache.start("k", candidates=3, stored=stored) == Hit(1)
    assert cache.start("k", candidates=3, stored=stored) == Hit(1)
    assert len(asked) == 1


def test_the_store_is_asked_after_memory_and_before_a_tune():
    cache = PickCache()
    with begin(cache) as claim:
        assert cache.start("k", candidates=3, stored=pytest.fail) == Pending()
        claim.resolve(0)
    assert cache.start("k", candidates=3, stored=pytest.fail) == Hit(0)


def test_a_lost_device_answers_pending_and_leaves_the_key_to_its_twin():
    cache = PickCache()
    cache.lose("device 0")
    assert cache.lookup("k", "device 0") == Pending()
    assert cache.start("k", device="device 0", candidates=1, stored=pytest.fail) == Pending()
    assert cache.lookup("k", "device 1") == Miss()
    with begin(cache, device="device 1") as claim:
        claim.resolve(1)
    assert cache.lookup("k", "device 0") == Hit(1)


def test_a_switch_of_environment_empties_memory():
    cache = PickCache("a")
    cache.insert("k", 1)
    assert not cache.switch("a")
    assert cache.switch("b")
    assert cache.lookup("k") == Miss()
    assert (cache.environment, len(cache)) == ("b", 0)


def test_a_lost_device_stays_lost_over_a_switch():
    cache = PickCache("a")
    cache.lose("device 0")
    cache.switch("b")
    assert cache.lookup("k", "device 0") == Pending()


def test_a_claim_from_before_a_switch_changes_nothing():
    cache = PickCache("a")
    old = begin(cache)
    cache.switch("b")
    assert cache.lookup("k") == Miss()
    new = begin(cache)
    assert not old.resolve(0)
    assert not old.release()
    assert cache.lookup("k") == Pending()
    assert new.resolve(2)
    assert cache.lookup("k") == Hit(2)


def test_a_switch_there_and_back_does_not_revive_a_claim():
    cache = PickCache("a")
    old = begin(cache)
    cache.switch("b")
    cache.switch("a")
    assert not old.resolve(0)
    assert cache.lookup("k") == Miss()


def test_the_pick_of_another_environment_is_none_and_resets_nothing():
    cache = PickCache("a")
    cache.insert("k", 1)
    assert cache.pick("k", "b") is None
    assert cache.pick("k", "a") == 1


def test_only_the_first_end_of_a_claim_counts():
    cache = PickCache()
    claim = begin(cache)
    assert claim.resolve(1)
    assert not claim.resolve(2)
    assert not claim.release()
    assert cache.lookup("k") == Hit(1)


def test_a_queued_key_answers_compiled_on_its_device_only_and_is_still_tuned():
    cache = PickCache()
    assert cache.queue("k", device="device 0", candidates=3) == Miss()
    assert cache.queue("k", device="device 0", candidates=3, stored=pytest.fail) == Compiled()
    assert cache.lookup("k", "device 0") == Compiled()
    assert cache.lookup("k", "device 1") == Miss()
    assert cache.queue("k", device="device 1", candidates=3) == Miss()
    with begin(cache, device="device 0") as claim:
        assert cache.queue("k", device="device 1", candidates=3) == Pending()
        claim.resolve(1)
    assert cache.lookup("k", "device 0") == Hit(1)
    assert cache.queue("k", device="device 1", candidates=3) == Hit(1)


def test_a_failed_tune_queues_its_candidates_again():
    cache = PickCache()
    cache.queue("k", device="device 0", candidates=3)
    begin(cache, device="device 0").release()
    assert cache.queue("k", device="device 0", candidates=3) == Miss()


def test_queueing_takes_the_short_ways_too():
    cache = PickCache()
    assert cache.queue("one", candidates=1) == Hit(0)
    assert cache.queue("known", candidates=3, stored=lambda: 2) == Hit(2)
    cache.lose("device 0")
    assert cache.queue("k", device="device 0", candidates=3) == Pending()


def test_a_switch_and_a_loss_forget_what_was_queued():
    cache = PickCache("a")
    cache.queue("k", device="device 0", candidates=3)
    cache.switch("b")
    assert cache.lookup("k", "device 0") == Miss()
    cache.queue("k", device="device 0", candidates=3)
    cache.lose("device 0")
    assert cache.lookup("k", "device 0") == Pending()


def test_an_evicted_pick_makes_room_for_the_runner_up():
    cache = PickCache()
    cache.insert("k", 2)
    cache.evict("k")
    assert cache.lookup("k") == Miss()
    cache.insert("k", 1)
    assert cache.lookup("k") == Hit(1)


def test_of_many_threads_one_gets_the_claim():
    cache = PickCache()
    barrier = threading.Barrier(16)
    answers = []

    def ask():
        barrier.wait()
        answers.append(cache.start("k", candidates=3))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(answer, Claim) for answer in answers) == 1
    assert sum(answer == Pending() for answer in answers) == 15


def test_twins_share_a_cache_and_other_hardware_has_its_own():
    picks = PickCaches()
    assert picks.of("saxpy", "gpu a") is picks.of("saxpy", "gpu a")
    picks.of("saxpy", "gpu a").insert("k", 1)
    assert picks.of("saxpy", "gpu b").lookup("k") == Miss()
    assert picks.of("sum", "gpu a").lookup("k") == Miss()
    assert picks.of("saxpy", "gpu a", "other").lookup("k") == Miss()


def waited_for(tune, seconds=5):
    return futures.wait([tune], timeout=seconds).done == {tune}


def test_all_who_wait_for_a_key_are_woken_when_its_claim_ends():
    cache = PickCache()
    with begin(cache) as claim:
        pending = cache.lookup("k")
        assert pending.tune is claim.tune
        woken = []
        threads = [
            threading.Thread(target=lambda: woken.append(waited_for(pending.tune)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        claim.resolve(1)
        assert not pending.tune.done()  # not before what was decided is kept
    for thread in threads:
        thread.join()
    assert woken == [True] * 4
    assert pending.tune.exception() is None


def test_who_waits_gets_what_the_tune_failed_with_and_nothing_of_a_cancelled_one():
    cache = PickCache()
    with pytest.raises(ValueError, match="broken"), begin(cache) as claim:
        raise ValueError("broken")
    assert str(claim.tune.exception()) == "broken"
    with pytest.raises(KeyboardInterrupt), begin(cache) as claim:
        raise KeyboardInterrupt
    assert claim.tune.exception() is None


def test_a_switch_of_environment_wakes_who_waits_only_when_the_tune_is_over():
    cache = PickCache("a")
    claim = begin(cache)
    cache.switch("b")
    assert not claim.tune.done()
    claim.release()
    assert claim.tune.done()


def test_who_waits_on_an_event_loop_is_woken_by_a_thread_and_cancels_nothing():
    cache = PickCache()
    claim = begin(cache)

    async def main():
        impatient = asyncio.wrap_future(claim.tune)
        impatient.cancel()
        patient = asyncio.wrap_future(claim.tune)
        threading.Timer(0.01, claim.release).start()
        await asyncio.wait_for(patient, 5)

    asyncio.run(main())
    assert not claim.tune.cancelled()
