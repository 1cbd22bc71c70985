"""The sample set keeps the seed's rules."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.strategies.samples import SampleSet

CASES = json.loads(
    (Path(__file__).parent.parent / "data" / "conformance.json").read_text(encoding="utf-8")
)["samples"]
MS = 1_000_000

durations = st.lists(st.integers(1, 10**9), max_size=12)


@pytest.mark.parametrize("case", CASES, ids=[json.dumps(case["push_ms"]) for case in CASES])
def test_conformance(case):
    found = SampleSet(each * MS for each in case["push_ms"])

    def same(key, value):
        expected = case[key]
        assert value == (None if expected is None else expected * MS)

    if "reliable_ms" in case:
        assert found.reliable_ns == tuple(each * MS for each in case["reliable_ms"])
    if "best_ms" in case:
        same("best_ms", found.best_ns)
    if "min_ms" in case:
        same("min_ms", found.best_ns)
    if "max_ms" in case:
        same("max_ms", found.worst_ns)
    if "converged" in case:
        assert found.converged is case["converged"]
    if "confirmed" in case:
        limit = case["confirmed_under_ms"] * MS
        assert found.confirmed_under(limit, case["required"]) is case["confirmed"]


def test_the_conformance_cases_are_all_there():
    assert len(CASES) == 14


@pytest.mark.parametrize("duration", [0, -1])
def test_no_measurement_is_never_a_time(duration):
    with pytest.raises(ValueError, match="no measurement"):
        SampleSet([5]).push(duration)


def test_nothing_is_within_a_limit_that_is_not_there():
    assert not SampleSet([1, 1, 1]).confirmed_under(None, 1)


@given(durations)
def test_the_best_is_one_of_the_reliable_samples_and_none_is_faster(pushed):
    found = SampleSet(pushed)
    assert len(found) == len(pushed)
    if pushed:
        assert found.best_ns in found.reliable_ns
        assert found.best_ns <= found.median_ns <= found.worst_ns


@given(durations, st.integers(1, 10**9), st.integers(1, 5))
def test_a_confirmation_is_never_taken_back(pushed, limit, required):
    found = SampleSet()
    before = False
    for each in pushed:
        found.push(each)
        now = found.confirmed_under(limit, required)
        assert now or not before
        before = now


@given(durations)
def test_a_sample_that_halves_the_best_ends_convergence(pushed):
    found = SampleSet([*pushed, 10**9, 10**9, 10**9])
    best = found.best_ns
    if best > 1:
        found.push(best // 2)
        assert not found.converged
