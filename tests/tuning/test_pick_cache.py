"""What memory answers, and that a key marked as being tuned is always unmarked."""

import gc
import threading

import pytest

from webtune.tuning.pick_cache import Claim, Compiled, Hit, Miss, Pending, PickCache, Picks


def begin(cache, key="k", **options):
    mark = cache.start(key, candidates=3, **options)
    assert isinstance(mark, Claim)
    return mark


def test_an_unknown_key_is_a_miss_and_asking_changes_nothing():
    cache = PickCache()
    assert cache.lookup("k") == Miss()
    assert cache.settled("k") is None
    assert not cache.pending()


def test_a_tune_makes_its_key_pending_and_then_a_hit():
    cache = PickCache()
    with begin(cache) as mark:
        assert cache.lookup("k") == Pending()
        assert cache.start("k", candidates=3) == Pending()
        assert mark.settle(2)
    assert cache.lookup("k") == Hit(2)
    assert cache.settled("k") == 2
    assert cache.start("k", candidates=3) == Hit(2)


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_a_tune_that_ends_badly_leaves_the_key_to_the_next_caller(failure):
    cache = PickCache()
    with pytest.raises(failure), begin(cache):
        raise failure
    assert cache.lookup("k") == Miss()
    assert begin(cache).standing


def test_a_mark_that_nobody_entered_takes_itself_back():
    cache = PickCache()
    mark = begin(cache)
    assert cache.lookup("k") == Pending()
    del mark
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
    with begin(cache) as mark:
        assert cache.start("k", candidates=3, stored=pytest.fail) == Pending()
        mark.settle(0)
    assert cache.start("k", candidates=3, stored=pytest.fail) == Hit(0)


def test_a_lost_device_answers_pending_and_leaves_the_key_to_its_twin():
    cache = PickCache()
    cache.lose("device 0")
    assert cache.is_lost("device 0")
    assert cache.lookup("k", "device 0") == Pending()
    assert cache.start("k", device="device 0", candidates=1, stored=pytest.fail) == Pending()
    assert cache.lookup("k", "device 1") == Miss()
    with begin(cache, device="device 1") as mark:
        mark.settle(1)
    assert cache.lookup("k", "device 0") == Hit(1)


def test_a_switch_of_environment_empties_memory():
    cache = PickCache("a")
    cache.insert("k", 1)
    assert not cache.switch("a")
    assert cache.switch("b")
    assert cache.lookup("k") == Miss()
    assert (cache.environment, cache.generation) == ("b", 1)


def test_a_lost_device_stays_lost_over_a_switch():
    cache = PickCache("a")
    cache.lose("device 0")
    cache.switch("b")
    assert cache.lookup("k", "device 0") == Pending()


def test_a_mark_from_before_a_switch_changes_nothing():
    cache = PickCache("a")
    old = begin(cache)
    cache.switch("b")
    assert cache.lookup("k") == Miss()
    new = begin(cache)
    assert not old.settle(0)
    assert not old.release()
    assert new.standing
    assert cache.lookup("k") == Pending()
    assert new.settle(2)
    assert cache.lookup("k") == Hit(2)


def test_a_switch_there_and_back_does_not_revive_a_mark():
    cache = PickCache("a")
    old = begin(cache)
    cache.switch("b")
    cache.switch("a")
    assert not old.standing
    assert not old.settle(0)
    assert cache.lookup("k") == Miss()


def test_settled_of_another_environment_is_none_and_resets_nothing():
    cache = PickCache("a")
    cache.insert("k", 1)
    assert cache.settled("k", "b") is None
    assert cache.settled("k", "a") == 1


def test_only_the_first_settling_of_a_mark_counts():
    cache = PickCache()
    mark = begin(cache)
    assert mark.settle(1)
    assert not mark.settle(2)
    assert not mark.release()
    assert cache.lookup("k") == Hit(1)


def test_a_queued_key_answers_compiled_on_its_device_only_and_is_still_tuned():
    cache = PickCache()
    assert cache.queue("k", device="device 0", candidates=3) == Miss()
    assert cache.queue("k", device="device 0", candidates=3, stored=pytest.fail) == Compiled()
    assert cache.lookup("k", "device 0") == Compiled()
    assert cache.lookup("k", "device 1") == Miss()
    assert cache.queue("k", device="device 1", candidates=3) == Miss()
    with begin(cache, device="device 0") as mark:
        assert cache.queue("k", device="device 1", candidates=3) == Pending()
        mark.settle(1)
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


def test_clearing_leaves_tunes_under_way_alone():
    cache = PickCache()
    cache.insert("known", 1)
    mark = begin(cache)
    cache.clear()
    assert cache.lookup("known") == Miss()
    assert mark.settle(0)
    assert cache.lookup("k") == Hit(0)


def test_of_many_threads_one_gets_the_mark():
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
    picks = Picks()
    assert picks.of("saxpy", "gpu a") is picks.of("saxpy", "gpu a")
    picks.of("saxpy", "gpu a").insert("k", 1)
    assert picks.of("saxpy", "gpu b").lookup("k") == Miss()
    assert picks.of("sum", "gpu a").lookup("k") == Miss()
    assert picks.of("saxpy", "gpu a", "other").lookup("k") == Miss()
