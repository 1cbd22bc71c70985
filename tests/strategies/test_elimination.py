"""Who is eliminated and who wins, on samples that were thought out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.strategies.elimination import (
    Elimination,
    beyond_fastest,
    choose_winner,
    hopeless,
    significantly_slower,
    wrong_chance,
)
from webtune.strategies.statistics import Comparison, compare


def digest(candidate):
    return f"{97 * candidate % 101:04d}"


def compared(log_times, spreads=None, error=0.01):
    samples = tuple((at - 1e-3, at, at + 1e-3) for at in log_times)
    return Comparison(tuple(log_times), tuple(spreads or (0.001,) * len(log_times)), error, samples)


def test_equal_times_go_to_the_smaller_spread_then_to_the_digest():
    times = (10.0, 10.00005, 10.00002)
    assert choose_winner(compared(times, (0.02, 0.01, 0.03)), (4, 5, 6), digest).winner == 5
    digests = {4: "c", 5: "b", 6: "a"}
    assert choose_winner(compared(times), (4, 5, 6), digests.__getitem__).winner == 6


def test_candidates_within_two_errors_are_ties_and_those_eliminated_within_them_too():
    gone = {3: Elimination(errors_behind=1.0), 4: Elimination(errors_behind=9.0)}
    found = choose_winner(compared((10.0, 10.01, 10.5)), (0, 1, 2), digest, gone)
    assert found.winner == 0
    assert found.ties == (1, 3)


def test_confidence_falls_with_every_rival_that_is_near():
    alone = choose_winner(compared((10.0,)), (0,), digest).confidence
    near = choose_winner(compared((10.0, 10.01)), (0, 1), digest).confidence
    two = choose_winner(compared((10.0, 10.01, 10.01)), (0, 1, 2), digest).confidence
    assert 1 == alone > near > two > 0.5


def test_confidence_takes_estimates_as_normal():
    found = choose_winner(compared((10.0, 10.0186)), (0, 1), digest)
    assert found.confidence == pytest.approx(0.975, abs=1e-4)  # 1.86 errors and the margin's 0.1


def test_an_eliminated_candidate_is_told_beside_the_winner():
    gone = {
        2: Elimination(errors_behind=9.0, log_behind={0: 0.5, 1: 0.4}),
        3: Elimination(errors_behind=9.0, log_behind={1: 0.3}),
    }
    found = choose_winner(compared((10.0, 10.5)), (0, 1), digest, gone)
    assert found.log_times == {0: 10.0, 1: 10.5, 2: 10.5}


def test_one_sample_condemns_only_what_is_far_off_and_two_must_agree():
    assert hopeless({0: [100], 1: [200], 2: [1900], 3: [9000]}, 20, 2) == {3: 90.0}
    assert hopeless({0: [100]}, 20, 2) == {}
    assert hopeless({0: [100, 100], 1: [300, 250], 2: [400, 101]}, 5, 2) == {1: 2.5}
    assert hopeless({}, 5, 2) == {}


def test_one_sample_that_is_far_too_fast_condemns_nobody():
    assert hopeless({0: [1], 1: [100], 2: [110]}, 20, 2) == {}
    assert hopeless({0: [1, 105], 1: [100, 100], 2: [110, 110]}, 20, 2) == {}


def test_confidence_falls_with_everyone_eliminated_as_hopeless():
    assert 0 < wrong_chance(6, 2) < wrong_chance(2.1, 2) < wrong_chance(30, 1)
    assert wrong_chance(30, 1) < wrong_chance(20, 1) < 0.01
    gone = {1: Elimination(wrong_chance=0.25), 2: Elimination(wrong_chance=0.5)}
    found = choose_winner(compared((10.0,)), (0,), digest, gone)
    assert found.confidence == 0.375
    assert found.ties == ()


def test_a_step_within_a_round_condemns_nobody():
    # The device slows down to a third after candidate 0 in the first round; 1 is the best.
    assert hopeless({0: [110, 330], 1: [300, 300], 2: [315, 315]}, 5, 2) == {}


def test_a_candidate_is_significantly_slower_only_when_its_samples_lie_apart_too():
    samples = ((10.0, 10.0, 10.0), (9.99, 10.1, 10.2), (10.09, 10.1, 10.11), (10.01, 10.02, 10.03))
    found = Comparison((10.0, 10.1, 10.1, 10.02), (0.0,) * 4, 0.01, samples)
    assert significantly_slower(found, 3) == [2]


def test_halving_keeps_the_fastest_whatever_their_order():
    assert beyond_fastest(compared((3.0, 1.0, 2.0, 4.0)), 2, digest) == [3, 0]
    assert beyond_fastest(compared((3.0, 1.0)), 2, digest) == []


@given(st.lists(st.lists(st.integers(1000, 10**7), min_size=6, max_size=6), min_size=2, max_size=6))
def test_the_leader_is_never_eliminated_and_somebody_always_wins(columns):
    found = compare(columns)
    assert found.leader not in significantly_slower(found, 4)
    verdict = choose_winner(found, range(len(columns)), digest)
    assert verdict.winner not in verdict.ties
    assert 0 <= verdict.confidence <= 1
    assert found.log_times[verdict.winner] - min(found.log_times) <= 1e-4
