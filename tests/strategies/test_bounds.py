"""The roofline's arithmetic, against the recorded answers; bad numbers give no limit."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.strategies.bounds import Bound, achieved, ideal_s, limit_ns, limit_s

CASES = json.loads(
    (Path(__file__).parent.parent / "data" / "conformance.json").read_text(encoding="utf-8")
)["bounds"]


@pytest.mark.parametrize("case", CASES)
def test_conformance(case):
    bounds = [Bound(*(float(number) for number in each)) for each in case["bounds"]]
    assert limit_s(bounds, case["overhead_s"]) == case["limit_s"]


def test_the_conformance_cases_are_all_there():
    assert len(CASES) == 9


def test_limit_is_the_larger_of_compute_and_memory_time_plus_the_overhead():
    compute = Bound(amount=1e9, peak_per_s=1e12, threshold=0.5, name="compute")
    memory = Bound(amount=1e9, peak_per_s=1e11, threshold=0.8, name="memory")
    assert limit_ns([compute, memory], overhead_s=1e-6) == 12_501_000
    assert limit_ns([compute], overhead_s=0.0) == 2_000_000


def test_a_limit_of_zero_nanoseconds_is_no_limit():
    assert limit_ns([Bound(1, 1e12)]) is None


@pytest.mark.parametrize("overhead_s", [math.nan, math.inf, -1.0])
def test_an_unusable_overhead_gives_no_limit(overhead_s):
    assert limit_s([Bound(8, 4.0)], overhead_s) is None


def test_work_that_is_zero_or_negative_gives_no_limit():
    assert limit_s([Bound(0, 4.0), Bound(-8, 4.0)]) is None


def test_achieved_is_the_share_of_the_slower_roof():
    roofs = [Bound(1e6, 1e12, 0.5), Bound(1e6, 1e11, 0.5)]
    assert achieved(roofs, 20_000) == pytest.approx(0.5)
    assert achieved(roofs, 20_000, overhead_s=10e-6) == pytest.approx(1.0)


def test_achieved_says_nothing_without_a_time_or_a_roof():
    assert achieved([], 1000) is None
    assert achieved([Bound(8, 4.0)], 0) is None
    assert achieved([Bound(8, 4.0)], 1000, overhead_s=1e-6) is None
    assert achieved([Bound(8, math.nan)], 1000) is None


@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats()), max_size=4), st.floats())
def test_no_number_breaks_the_arithmetic(numbers, overhead_s):
    bounds = [Bound(*each) for each in numbers]
    limit = limit_s(bounds, overhead_s)
    assert limit is None or limit > 0
    ideal = ideal_s(bounds)
    assert ideal is None or 0 < ideal < math.inf


@given(amount=st.floats(1, 1e15), peak=st.floats(1e6, 1e15), threshold=st.floats(0.05, 1.0))
def test_a_time_at_the_limit_achieves_the_threshold(amount, peak, threshold):
    bound = Bound(amount, peak, threshold)
    limit = limit_s([bound])
    assert achieved([bound], limit * 1e9) == pytest.approx(threshold)
