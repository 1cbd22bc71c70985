"""The exchange document, and the layer that an application ships beneath the user's store."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.errors import StoreWarning, UsageError
from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.base import Address
from webtune.store.bundle import Bundle, Layered
from webtune.store.decision import CandidateResult, Decision
from webtune.store.memory import MemoryStore
from webtune.strategies.drive import complete

A = Address("default", "gpu-a", "saxpy", "[1024]")


def decision(samples=3, created_s=1.0, fingerprint="f"):
    one = CandidateResult("id", "a", Params({}), "winner", 1000, None, (1000,) * samples)
    return Decision(
        fingerprint, (one,), confidence=0.9, strategy="fixed", clock=Clock("wall", 1), device="gpu",
        created_s=created_s,
    )  # fmt: skip


addresses = st.builds(
    Address,
    environment=st.sampled_from(["default", "other"]),
    hardware=st.sampled_from(["gpu-a", "gpu-b"]),
    name=st.just("saxpy"),
    key=st.sampled_from(["[1]", '["é"]']),
)
decisions = st.builds(
    decision, st.integers(0, 3), st.sampled_from([1.0, 2.0]), st.sampled_from(["f", "g"])
)
bundles = st.builds(Bundle, st.dictionaries(addresses, decisions, max_size=5))


@given(bundles)
def test_a_bundle_comes_back_from_its_text(bundle):
    assert Bundle.loads(bundle.dumps()) == bundle
    assert Bundle.loads(bundle.dumps()).dumps() == bundle.dumps()


@given(bundles, bundles, bundles)
def test_merging_is_the_same_in_any_order(one, two, three):
    expected = one.merge(two).merge(three).dumps()
    assert three.merge(one).merge(two).dumps() == expected
    assert two.merge(three.merge(one)).dumps() == expected
    assert one.merge(one).dumps() == one.dumps()


@given(bundles, bundles)
def test_importing_is_the_same_in_any_order(one, two):
    here, there = MemoryStore(), MemoryStore()
    one.import_into(here)
    two.import_into(here)
    two.import_into(there)
    one.import_into(there)
    assert Bundle.of(here) == Bundle.of(there) == one.merge(two)


def test_a_bundle_of_one_hardware_has_nothing_of_others():
    store = MemoryStore()
    store.put(A, decision())
    store.put(replace(A, hardware="gpu-b"), decision(samples=9))
    assert Bundle.of(store, hardware="gpu-a").decisions == {A: decision()}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no bundle"),
        ("{", "no bundle"),
        ("[]", "no bundle"),
        ('{"webtune": "bundle"}', "no bundle"),
        ('{"entries": []}', "no bundle"),
        ('{"webtune": "bundle", "schema": 2, "entries": []}', "schema 2"),
    ],
)
def test_a_foreign_text_is_refused_with_the_reason(text, reason):
    with pytest.raises(UsageError, match=reason):
        Bundle.loads(text)


def test_an_entry_that_cannot_be_read_is_told_and_the_others_stay():
    bundle = Bundle({A: decision(), replace(A, key="[2]"): decision()})
    value = json.loads(bundle.dumps())
    value["entries"][1]["decision"]["decision"]["device"] = "forged"
    value["entries"] += [17, {"environment": "default"}]
    found = Bundle.loads(json.dumps(value))
    assert found.decisions == {A: decision()}
    assert [sentence.split(":")[0] for sentence in found.unreadable] == [
        "entry 1",
        "entry 2",
        "entry 3",
    ]


def test_a_place_that_is_there_twice_is_merged():
    once, twice = (json.loads(Bundle({A: decision(n)}).dumps()) for n in (3, 9))
    once["entries"] += twice["entries"]
    assert Bundle.loads(json.dumps(once)).decisions == {A: decision(9)}


def test_the_users_pick_lies_above_the_shipped_one():
    store = Layered(MemoryStore(), Bundle({A: decision(samples=30, created_s=9.0)}))
    assert store.get(A) == decision(samples=30, created_s=9.0)
    store.put(A, decision())
    assert store.get(A) == decision()
    assert list(store.entries()) == [(A, decision())]


def test_a_bundle_dated_ahead_and_made_for_other_kernels_never_hides_the_users_pick():
    shipped = decision(created_s=4e9, fingerprint="other kernels")
    store = Layered(MemoryStore(), Bundle({A: shipped}))
    assert store.get(A) == shipped
    store.put(A, decision(created_s=1.0, fingerprint="the user's"))
    assert store.get(A).fingerprint == "the user's"


def test_purging_and_writing_never_touch_the_bundle():
    bundle = Bundle({A: decision(samples=9)})
    user = MemoryStore()
    store = Layered(user, bundle)
    store.put(A, decision())
    assert store.purge() == 1
    assert store.get(A) == decision(samples=9)
    assert list(user.entries()) == []
    assert bundle.decisions == {A: decision(samples=9)}


def test_a_bundle_with_unreadable_entries_is_told_once_when_opened():
    store = Layered(MemoryStore(), Bundle({}, ("entry 0: broken",)))
    with pytest.warns(StoreWarning, match="entry 0: broken") as caught:
        complete(store.open())
    assert len(caught) == 1


@pytest.mark.parametrize("address", [replace(A, name="\x1b[2J"), replace(A, environment="\ud800")])
def test_an_entry_whose_name_cannot_be_printed_is_passed_over(address):
    text = Bundle({address: decision(), A: decision()}).dumps()
    found = Bundle.loads(text)
    assert set(found.decisions) == {A}
    assert "cannot be printed" in found.unreadable[0]
