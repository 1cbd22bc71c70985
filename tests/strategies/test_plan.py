"""The order in which candidates are tried, against the recorded answers and by its laws."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.errors import UsageError
from webtune.strategies.plan import plan

CASES = json.loads(
    (Path(__file__).parent.parent / "data" / "conformance.json").read_text(encoding="utf-8")
)["plan"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_conformance(case):
    expected = tuple(tuple(batch) for batch in case["batches"])
    assert plan(case["groups"], case["tunables"]).batches == expected


def test_the_conformance_cases_are_all_there():
    assert len(CASES) == 11


def test_negative_group_skips_its_candidates_and_says_why():
    found = plan({"slow": -1, "fast": 0}, [[("slow", 5)], [("fast", 0)]])
    assert found.batches == ((1,),)
    assert "'slow' has priority -1" in found.never[0]


def test_negative_priority_inside_a_group_is_told_with_the_group():
    found = plan({"g": 3}, [[], [("g", -2)]])
    assert found.batches == ((0,),)
    assert "-2" in found.never[1]
    assert "'g'" in found.never[1]


def test_a_closed_membership_leaves_the_other_one_open():
    found = plan({"a": -1, "b": 1}, [[("a", 9), ("b", 0)], [("b", 1)]])
    assert found.batches == ((1,), (0,))
    assert not found.never


def test_nothing_to_plan_gives_no_batches():
    assert plan({}, []).batches == ()
    assert plan({"g": 1}, [[("g", -1)]]).batches == ()


def test_an_unknown_group_is_named_with_the_known_ones():
    with pytest.raises(UsageError, match=r"'gone'.*known: here"):
        plan({"here": 1}, [[("gone", 1)]])


names = st.sampled_from("abc")
memberships = st.lists(st.tuples(names, st.integers(-2, 3)), max_size=3, unique_by=lambda m: m[0])


@given(
    groups=st.fixed_dictionaries({name: st.integers(-2, 3) for name in "abc"}),
    tunables=st.lists(memberships, max_size=8),
)
def test_every_candidate_is_in_one_batch_or_has_a_reason(groups, tunables):
    found = plan(groups, tunables)
    placed = [index for batch in found.batches for index in batch]
    assert sorted([*placed, *found.never]) == list(range(len(tunables)))
    assert all(found.batches)


@given(
    groups=st.fixed_dictionaries({name: st.integers(0, 3) for name in "abc"}),
    tunables=st.lists(memberships.filter(len), max_size=8),
)
def test_batches_fall_in_the_best_level_of_their_candidates(groups, tunables):
    def best(index):
        return max((groups[name], inside) for name, inside in tunables[index] if inside >= 0)

    levels = [{best(index) for index in batch} for batch in plan(groups, tunables).batches]
    assert all(len(level) == 1 for level in levels)
    flat = [level for each in levels for level in each]
    assert flat == sorted(set(flat), reverse=True)
