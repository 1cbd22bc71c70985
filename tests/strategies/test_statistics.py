"""The statistics hold for any samples, not only for the ones that were thought of."""

import math
import random
import statistics as stdlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtune.strategies.statistics import (
    compare,
    granularity,
    mad,
    median,
    median_interval,
    normal_cdf,
    quantile,
)

times = st.integers(1_000, 10**9)
samples = st.lists(times, min_size=1, max_size=40)


@st.composite
def columns(draw, least=1):
    rounds = draw(st.integers(1, 10))
    count = draw(st.integers(least, 6))
    return [draw(st.lists(times, min_size=rounds, max_size=rounds)) for _ in range(count)]


@given(samples)
def test_the_median_is_that_of_the_standard_library(values):
    assert median(values) == stdlib.median(values)


@given(samples, st.randoms())
def test_order_of_samples_changes_no_statistic(values, chance):
    shuffled = values[:]
    chance.shuffle(shuffled)
    assert median(shuffled) == median(values)
    assert mad(shuffled) == mad(values)
    assert median_interval(shuffled) == median_interval(values)


@given(samples, st.floats(0, 1))
def test_a_quantile_lies_among_the_values_and_grows_with_its_share(values, share):
    found = quantile(values, share)
    assert min(values) <= found <= max(values)
    assert quantile(values, share / 2) <= found * (1 + 1e-12)
    assert quantile(values, 0) == min(values)
    assert quantile(values, 1) == max(values)


@given(samples, st.integers(1, 10**6))
def test_a_shift_moves_the_median_and_leaves_the_spread(values, shift):
    moved = [each + shift for each in values]
    assert median(moved) == median(values) + shift
    assert mad(moved) == mad(values)


def test_nothing_has_no_statistic():
    for statistic in (median, mad, lambda values: quantile(values, 0.5), compare):
        with pytest.raises(ValueError, match="no"):
            statistic([])
    assert median_interval([]) is None


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


@given(st.floats(-6, 6))
def test_the_normal_law_is_symmetric(value):
    assert normal_cdf(value) + normal_cdf(-value) == pytest.approx(1)


def test_the_normal_law_knows_its_landmarks():
    assert normal_cdf(0) == 0.5
    assert normal_cdf(1.96) == pytest.approx(0.975, abs=1e-4)


def test_a_coarse_clock_shows_and_a_fine_one_does_not():
    assert granularity([[100, 105, 105, 100], [105, 105, 110, 110]]) == pytest.approx(0.05, rel=0.1)
    assert granularity([[100, 101, 103, 107], [105, 109, 110, 112]]) == 0
    assert granularity([[100, 100, 100]]) == 0


@settings(deadline=None)
@given(columns(), st.randoms())
def test_the_order_of_candidates_changes_no_estimate(given_columns, chance):
    order = list(range(len(given_columns)))
    chance.shuffle(order)
    one, other = compare(given_columns), compare([given_columns[each] for each in order])
    assert other.at == pytest.approx([one.at[each] for each in order])
    assert other.error == pytest.approx(one.error)


@settings(deadline=None)
@given(columns())
def test_an_estimate_lies_among_the_candidates_samples_but_for_the_drift(given_columns):
    found = compare(given_columns)
    for at, steady in zip(found.at, found.steady, strict=True):
        assert steady[0] - 1e-9 <= at <= steady[-1] + 1e-9
    assert found.error > 0
    assert math.isfinite(found.error)


@settings(deadline=None)
@given(columns(least=2), st.floats(1.5, 8))
def test_a_candidate_that_repeats_another_slower_is_behind_it(given_columns, factor):
    first = given_columns[0]
    found = compare([first, [round(each * factor) for each in first]])
    assert found.at[1] > found.at[0]
    assert found.leader == 0


@settings(deadline=None)
@given(st.integers(1_000_000, 10**8), st.lists(st.floats(0.5, 2), min_size=5, max_size=12))
def test_what_all_rounds_have_in_common_takes_nothing_from_the_comparison(base, speeds):
    steps = sorted(speeds)
    found = compare([[round(base * k * s) for s in steps] for k in (1, 1.1, 1.3)])
    assert found.at[1] - found.at[0] == pytest.approx(math.log(1.1), abs=1e-3)
    assert found.at[2] - found.at[0] == pytest.approx(math.log(1.3), abs=1e-3)


@settings(deadline=None)
@given(st.integers(0, 11), st.floats(2, 100))
def test_one_outlier_moves_no_estimate(place, factor):
    chance = random.Random(3)
    clean = [[round(1e6 * (1 + chance.gauss(0, 0.01))) for _ in range(12)] for _ in range(4)]
    hit = [column[:] for column in clean]
    hit[0][place] = round(hit[0][place] * factor)
    moved = compare(hit).at[0] - compare(clean).at[0]
    assert abs(moved) < 0.01


def test_within_a_step_of_the_clock_the_mean_tells_two_apart():
    # A clock of 20 steps a span: 1.02 and 1.04 read as mixtures of 1.00 and 1.05.
    one = [100_000] * 7 + [105_000] * 5
    two = [100_000] * 3 + [105_000] * 9
    found = compare([sorted(one, key=lambda x: x % 7), sorted(two, key=lambda x: x % 7)])
    assert found.at[0] < found.at[1]
