"""One body of tests over every store that remembers: the promises of `Store`."""

import threading
from dataclasses import replace

import pytest

from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.base import Address, Selector, Store, checked_store
from webtune.store.bundle import Bundle, Layered
from webtune.store.decision import CandidateResult, Decision
from webtune.store.memory import MemoryStore, NoStore
from webtune.store.sqlite import SqliteStore
from webtune.strategies.drive import complete

A = Address("default", "gpu-a", "saxpy", "[1024]")
ELSEWHERE = [
    replace(A, environment="other"),
    replace(A, hardware="gpu-b"),
    replace(A, name="sum"),
    replace(A, key="[2048]"),
]


def decision(samples=3, created_s=1.0, **changes):
    one = CandidateResult("id", "a", Params({}), "winner", 1000, None, (1000,) * samples)
    decision = Decision(
        "f", (one,), confidence=0.9, strategy="fixed", clock=Clock("wall", 1), device="gpu",
        created_s=created_s,
    )  # fmt: skip
    return replace(decision, **changes)


REOPENING = ["memory", "sqlite", "layered over memory", "layered over sqlite"]


def made(request, tmp_path):
    """An open store of the kind that the fixture's parameter names."""
    if request.param == "opfs":
        store = request.getfixturevalue("opfs").open("contract")
        wait = request.getfixturevalue("opfs").wait
        request.getfixturevalue("monkeypatch").setitem(globals(), "complete", wait)
        return store
    below = Bundle({replace(A, name="shipped"): decision()})
    store = SqliteStore(folder=tmp_path) if "sqlite" in request.param else MemoryStore()
    whole = Layered(store, below) if "layered" in request.param else store
    complete(whole.open())
    return whole


@pytest.fixture(params=[*REOPENING, "opfs"])
def store(request, tmp_path):
    """Every store that remembers."""
    store = made(request, tmp_path)
    yield store
    store.close()


@pytest.fixture(params=REOPENING)
def reopening(request, tmp_path):
    """Those that threads may share, and that can be used after they were closed."""
    store = made(request, tmp_path)
    yield store
    store.close()


def own(store):
    """What was put, without what a bundle beneath ships."""
    return [(address, each) for address, each in store.entries() if address.name != "shipped"]


def test_an_unknown_address_is_none(store):
    assert store.get(A) is None


def test_what_was_put_is_there_at_once_and_comes_back_equal(store):
    kept = store.put(A, decision())
    assert store.get(A) == decision()
    assert kept == store.lasting


def test_a_record_is_found_under_its_own_address_only(store):
    store.put(A, decision())
    assert [store.get(other) for other in ELSEWHERE] == [None] * 4


def test_a_later_put_replaces_whatever_is_there(store):
    store.put(A, decision(samples=30, created_s=5.0))
    store.put(A, decision(samples=1, created_s=2.0))
    assert store.get(A) == decision(samples=1, created_s=2.0)


def test_absorbing_keeps_the_better_evidence_and_says_whether_it_changed_something(store):
    assert store.absorb(A, decision(samples=5))
    assert not store.absorb(A, decision(samples=4))
    assert not store.absorb(A, decision(samples=5))
    assert store.get(A) == decision(samples=5)
    assert store.absorb(A, decision(samples=6))
    assert store.get(A) == decision(samples=6)


def test_entries_are_ordered_by_address(store):
    for address in (*ELSEWHERE, A):
        store.put(address, decision())
    assert [address for address, _ in own(store)] == sorted([*ELSEWHERE, A])
    assert list(store.entries()) == sorted(store.entries(), key=lambda each: each[0])


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ({}, []),
        ({"environment": "other"}, ["gpu-a/saxpy/[1024]", "gpu-a/saxpy/[2048]"]),
        ({"hardware": "gpu-a"}, []),
        ({"name": "saxpy"}, []),
        ({"key": "[1024]"}, ["gpu-a/saxpy/[2048]"]),
        ({"environment": "default", "key": "[2048]"}, ["gpu-a/saxpy/[1024]"] * 2),
        ({"name": "unknown"}, ["gpu-a/saxpy/[1024]", "gpu-a/saxpy/[2048]", "gpu-a/saxpy/[1024]"]),
    ],
)
def test_purging_forgets_what_matches_every_given_part(store, parts, left):
    for address in (A, replace(A, key="[2048]"), replace(A, environment="other")):
        store.put(address, decision())
    assert store.purge(Selector(**parts)) == 3 - len(left)
    assert [f"{a.hardware}/{a.name}/{a.key}" for a, _ in own(store)] == left


def test_a_start_that_ended_is_no_suspect(store):
    store.begin("gpu-a", "c")
    store.end("gpu-a", "c")
    store.abandon("gpu-a")
    assert store.suspects("gpu-a") == frozenset()


def test_a_start_of_a_live_process_is_no_suspect(store):
    store.begin("gpu-a", "c")
    assert store.suspects("gpu-a") == frozenset()


def test_a_start_on_an_abandoned_device_is_suspect_on_that_hardware(store):
    store.begin("gpu-a", "c")
    store.begin("gpu-b", "d")
    store.abandon("gpu-a")
    assert store.suspects("gpu-a") == {"c"}
    assert store.suspects("gpu-b") == frozenset()


def test_an_end_after_the_device_was_abandoned_forgives_nothing(store):
    store.begin("gpu-a", "c")
    store.abandon("gpu-a")
    store.end("gpu-a", "c")
    assert store.suspects("gpu-a") == {"c"}


def test_one_start_that_was_under_way_when_the_store_was_closed_accuses_nobody(store):
    store.begin("gpu-a", "c")
    store.close()
    assert store.suspects("gpu-a") == frozenset()


def test_a_start_that_ends_after_the_store_was_closed_accuses_nobody(store):
    for _ in range(3):
        store.begin("gpu-a", "c")
        store.close()
        store.end("gpu-a", "c")
    assert store.suspects("gpu-a") == frozenset()


def test_a_store_closed_twice_in_the_same_candidate_bars_it(reopening):
    for closed in (1, 2):
        reopening.begin("gpu-a", "c")
        reopening.close()
        assert reopening.suspects("gpu-a") == (frozenset() if closed == 1 else {"c"})
    reopening.begin("gpu-a", "c")
    reopening.end("gpu-a", "c")
    assert reopening.suspects("gpu-a") == frozenset()


def test_a_candidate_that_hangs_beside_a_run_of_it_that_came_back_is_suspect(store):
    store.begin("gpu-a", "c")
    store.begin("gpu-a", "c")
    store.end("gpu-a", "c")
    store.abandon("gpu-a")
    assert store.suspects("gpu-a") == {"c"}


def test_purging_a_hardware_leaves_starts_that_are_under_way(store):
    store.begin("gpu-a", "c")
    store.purge(Selector(hardware="gpu-a"))
    assert store.suspects("gpu-a") == frozenset()
    store.abandon("gpu-a")
    assert store.suspects("gpu-a") == {"c"}


def test_a_start_that_ends_well_does_not_forgive_an_abandoned_device(store):
    store.begin("gpu-a", "c")
    store.abandon("gpu-a")
    store.begin("gpu-a", "c")
    assert store.suspects("gpu-a") == {"c"}
    store.end("gpu-a", "c")
    assert store.suspects("gpu-a") == {"c"}


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ({}, {"gpu-a": set(), "gpu-b": set()}),
        ({"hardware": "gpu-a"}, {"gpu-a": set(), "gpu-b": {"d"}}),
        ({"hardware": "gpu-a", "name": "saxpy"}, {"gpu-a": {"c"}, "gpu-b": {"d"}}),
    ],
)
def test_purging_a_hardware_forgives_its_suspects(store, parts, left):
    for hardware, candidate in (("gpu-a", "c"), ("gpu-b", "d")):
        store.begin(hardware, candidate)
        store.abandon(hardware)
    store.purge(Selector(**parts))
    assert {hardware: set(store.suspects(hardware)) for hardware in left} == left


def test_threads_may_use_a_store_together(reopening):
    failures = []

    def work(number):
        try:
            for turn in range(10):
                reopening.put(replace(A, key=f"{number}/{turn}"), decision())
                reopening.begin("gpu-a", f"{number}")
                assert reopening.get(replace(A, key=f"{number}/{turn}")) == decision()
                reopening.end("gpu-a", f"{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(own(reopening)) == 80
    reopening.abandon("gpu-a")
    assert reopening.suspects("gpu-a") == frozenset()


def test_flushing_and_closing_twice_is_harmless(store):
    store.put(A, decision())
    complete(store.flush())
    store.close()
    store.close()


def test_every_member_of_the_contract_is_there(store):
    assert checked_store(store, "") is store
    for name in vars(Store):
        if not name.startswith("_"):
            found = next(vars(kind)[name] for kind in type(store).__mro__ if name in vars(kind))
            assert found is not vars(Store)[name]


def test_location_is_for_people(store):
    assert len(store.location) > 5


def test_what_was_exported_comes_in_equal_elsewhere(store):
    for address in (*ELSEWHERE, A):
        store.put(address, decision())
    target = MemoryStore()
    bundle = Bundle.loads(Bundle.of(store).dumps())
    assert bundle.import_into(target) == len(bundle.decisions)
    assert list(target.entries()) == list(store.entries())
    assert bundle.import_into(target) == 0


def test_no_store_keeps_nothing():
    store = NoStore()
    complete(store.open())
    assert not store.put(A, decision())
    assert not store.absorb(A, decision())
    store.begin("gpu-a", "c")
    store.abandon("gpu-a")
    store.end("gpu-a", "c")
    store.close()
    assert store.get(A) is None
    assert list(store.entries()) == []
    assert store.suspects("gpu-a") == frozenset()
    assert store.purge() == 0
    complete(store.flush())
    assert "nowhere" in store.location
