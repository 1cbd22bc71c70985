"""Selectors of addresses, and the check of a caller's own store."""

from dataclasses import replace

import pytest

from webtune.errors import UsageError
from webtune.store.base import EVERYTHING, Address, Selector, checked_store
from webtune.store.memory import MemoryStore

A = Address("default", "gpu-a", "saxpy", "[1024]")


def test_a_selector_takes_what_has_every_part_that_is_given():
    assert EVERYTHING.takes(A)
    assert Selector(name="saxpy", key="[1024]").takes(A)
    assert not Selector(name="saxpy", key="[2048]").takes(A)


def test_the_selector_of_an_address_takes_it_alone():
    selector = Selector.of(A)
    assert selector.takes(A)
    for part in ("environment", "hardware", "name", "key"):
        assert not selector.takes(replace(A, **{part: "other"}))


@pytest.mark.parametrize(
    ("selector", "whole"),
    [
        (EVERYTHING, True),
        (Selector(hardware="gpu-a"), True),
        (Selector(hardware="gpu-a", key="[1]"), False),
        (Selector(name="saxpy"), False),
    ],
)
def test_a_selector_tells_whether_it_means_whole_hardware(selector, whole):
    assert selector.whole_hardware == whole


def test_a_store_passes_its_check_as_it_is():
    store = MemoryStore()
    assert checked_store(store, "None") is store


def test_a_store_that_lacks_members_is_refused_with_their_names():
    class Half:
        location = scope = lasting = open = get = put = entries = purge = begin = end = None
        suspects = flush = close = None

    with pytest.raises(UsageError, match=r"type Half; use None or a .*lacks absorb, abandon\)"):
        checked_store(Half(), "None or a folder")


@pytest.mark.parametrize("given", [3, 2.5, ["a"]])
def test_what_is_no_store_is_refused_with_the_choices(given):
    with pytest.raises(UsageError, match=rf"store= is of type {type(given).__name__}; use None"):
        checked_store(given, "None")
