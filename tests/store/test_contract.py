"""One body of tests over every store that remembers: the promises of `Store`."""

import threading
from dataclasses import replace

import pytest

from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.base import Address, Selector
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


def record(samples=3, created_s=1.0, **changes):
    one = CandidateResult("id", "a", Params({}), "winner", 1000, None, (1000,) * samples)
    decision = Decision(
        "f", (one,), confidence=0.9, strategy="fixed", clock=Clock("wall", 1), device="gpu",
        created_s=created_s,
    )  # fmt: skip
    return replace(decision, **changes)


@pytest.fixture(params=["memory", "sqlite", "layered over memory", "layered over sqlite"])
def store(request, tmp_path):
    below = Bundle({replace(A, name="shipped"): record()})
    made = SqliteStore(folder=tmp_path) if "sqlite" in request.param else MemoryStore()
    whole = Layered(made, below) if "layered" in request.param else made
    complete(whole.open())
    yield whole
    whole.close()


def own(store):
    """What was put, without what a bundle beneath ships."""
    return [(address, each) for address, each in store.entries() if address.name != "shipped"]


def test_an_unknown_address_is_none(store):
    assert store.get(A) is None


def test_what_was_put_is_there_at_once_and_comes_back_equal(store):
    kept = store.put(A, record())
    assert store.get(A) == record()
    assert kept == ("sqlite" in type(getattr(store, "_user", store)).__name__.lower())


def test_a_record_is_found_under_its_own_address_only(store):
    store.put(A, record())
    assert [store.get(other) for other in ELSEWHERE] == [None] * 4


def test_a_later_put_replaces_whatever_is_there(store):
    store.put(A, record(samples=30, created_s=5.0))
    store.put(A, record(samples=1, created_s=2.0))
    assert store.get(A) == record(samples=1, created_s=2.0)


def test_absorbing_keeps_the_better_evidence_and_says_whether_it_changed_something(store):
    assert store.absorb(A, record(samples=5))
    assert not store.absorb(A, record(samples=4))
    assert not store.absorb(A, record(samples=5))
    assert store.get(A) == record(samples=5)
    assert store.absorb(A, record(samples=6))
    assert store.get(A) == record(samples=6)


def test_entries_are_ordered_by_address(store):
    for address in (*ELSEWHERE, A):
        store.put(address, record())
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
        store.put(address, record())
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


def test_threads_may_use_a_store_together(store):
    failures = []

    def work(number):
        try:
            for turn in range(10):
                store.put(replace(A, key=f"{number}/{turn}"), record())
                store.begin("gpu-a", f"{number}")
                assert store.get(replace(A, key=f"{number}/{turn}")) == record()
                store.end("gpu-a", f"{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(own(store)) == 80
    store.abandon("gpu-a")
    assert store.suspects("gpu-a") == frozenset()


def test_flushing_and_closing_twice_is_harmless(store):
    store.put(A, record())
    complete(store.flush())
    store.close()
    store.close()


def test_location_is_for_people(store):
    assert len(store.location) > 5


def test_what_was_exported_comes_in_equal_elsewhere(store):
    for address in (*ELSEWHERE, A):
        store.put(address, record())
    target = MemoryStore()
    bundle = Bundle.loads(Bundle.of(store).dumps())
    assert bundle.import_into(target) == len(bundle.decisions)
    assert list(target.entries()) == list(store.entries())
    assert bundle.import_into(target) == 0


def test_no_store_keeps_nothing():
    store = NoStore()
    complete(store.open())
    assert not store.put(A, record())
    assert not store.absorb(A, record())
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
