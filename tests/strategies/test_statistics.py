"""The statistics hold for any samples, not only for the ones that were thought of."""

import math
import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtune.strategies.statistics import (
    compare,
    median_interval,
    relative_clock_step,
)

times = st.integers(1_000, 10**9)
samples = st.lists(times, min_size=1, max_size=40)


@st.composite
def columns(draw, least=1):
    rounds = draw(st.integers(1, 10))
    count = draw(st.integers(least, 6))
    return [draw(st.lists(times, min_size=rounds, max_size=rounds)) for _ in range(count)]


@given(samples, st.randoms())
def test_order_of_samples_changes_no_interval(values, chance):
    shuffled = values[:]
    chance.shuffle(shuffled)
    assert median_interval(shuffled) == median_interval(values)


def test_nothing_has_no_statistic():
    for statistic in (median_interval, compare):
        with pytest.raises(ValueError, match="no"):
            statistic([])


@given(samples, st.sampled_from([0.5, 0.8, 0.95, 0.99]))
def test_the_interval_holds_the_median_and_claims_no_more_than_it_has(values, level):
    found = median_interval(values, level)
    assert found.low_ns <= median(values) <= found.high_ns
    assert 0 <= found.level <= level


@given(samples)
def test_a_surer_interval_is_not_narrower(values):
    wide, narrow = median_interval(values, 0.99), median_interval(values, 0.5)
    assert wide.low_ns <= narrow.low_ns
    assert wide.high_ns >= narrow.high_ns


def test_few_samples_give_their_range_at_the_level_it_has():
    assert median_interval([7]).level == 0
    found = median_interval([3, 1, 2])
    assert (found.low_ns, found.high_ns, found.level) == (1, 3, 0.75)


@pytest.mark.parametrize("count", [6, 12, 30])
def test_the_interval_covers_the_true_median_as_often_as_it_says(count):
    chance = random.Random(count)
    held = 0
    for _ in range(1000):
        # The median of this heavy-tailed law is 1000.
        drawn = [round(1000 * 2 ** chance.gauss(0, 1)) for _ in range(count)]
        found = median_interval(drawn)
        held += found.low_ns <= 1000 <= found.high_ns
    assert held >= 930


def test_a_coarse_clock_shows_and_a_fine_one_does_not():
    assert relative_clock_step([[100, 105, 105, 100], [105, 105, 110, 110]]) == pytest.approx(
        0.05, rel=0.1
    )
    assert relative_clock_step([[100, 101, 103, 107], [105, 109, 110, 112]]) == 0
    assert relative_clock_step([[100, 100, 100]]) == 0


@settings(deadline=None)
@given(columns(), st.randoms())
def test_the_order_of_candidates_changes_no_estimate(given_columns, chance):
    order = list(range(len(given_columns)))
    chance.shuffle(order)
    one, other = compare(given_columns), compare([given_columns[each] for each in order])
    assert other.log_times == pytest.approx([one.log_times[each] for each in order])
    assert other.standard_error == pytest.approx(one.standard_error)


@settings(deadline=None)
@given(columns())
def test_an_estimate_lies_among_the_candidates_samples_but_for_the_drift(given_columns):
    found = compare(given_columns)
    for at, steady in zip(found.log_times, found.log_samples, strict=True):
        assert steady[0] - 1e-9 <= at <= steady[-1] + 1e-9
    assert found.standard_error > 0
    assert math.isfinite(found.standard_error)


@settings(deadline=None)
@given(columns(least=2), st.floats(1.5, 8))
def test_a_candidate_that_repeats_another_slower_is_behind_it(given_columns, factor):
    first = given_columns[0]
    found = compare([first, [round(each * factor) for each in first]])
    assert found.log_times[1] > found.log_times[0]
    assert found.leader == 0


@settings(deadline=None)
@given(st.integers(1_000_000, 10**8), st.lists(st.floats(0.5, 2), min_size=5, max_size=12))
def test_what_all_rounds_have_in_common_takes_nothing_from_the_comparison(base, speeds):
    steps = sorted(speeds)
    found = compare([[round(base * k * s) for s in steps] for k in (1, 1.1, 1.3)])
    assert found.log_times[1] - found.log_times[0] == pytest.approx(math.log(1.1), abs=1e-3)
    assert found.log_times[2] - found.log_times[0] == pytest.approx(math.log(1.3), abs=1e-3)


@settings(deadline=None)
@given(st.integers(0, 11), st.floats(2, 100))
def test_one_outlier_moves_no_estimate(place, factor):
    chance = random.Random(3)
    clean = [[round(1e6 * (1 + chance.gauss(0, 0.01))) for _ in range(12)] for _ in range(4)]
    hit = [column[:] for column in clean]
    hit[0][place] = round(hit[0][place] * factor)
    moved = compare(hit).log_times[0] - compare(clean).log_times[0]
    assert abs(moved) < 0.01


def test_within_a_step_of_the_clock_the_mean_tells_two_apart():
    # A clock of 20 steps a span: 1.02 and 1.04 read as mixtures of 1.00 and 1.05.
    one = [100_000] * 7 + [105_000] * 5
    two = [100_000] * 3 + [105_000] * 9
    found = compare([sorted(one, key=lambda x: x % 7), sorted(two, key=lambda x: x % 7)])
    assert found.log_times[0] < found.log_times[1]
