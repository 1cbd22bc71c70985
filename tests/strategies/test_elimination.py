"""Who is given up and who wins, on samples that were thought out."""

from hypothesis import given
from hypothesis import strategies as st

from webtune.strategies.elimination import choose, doubt, halving, hopeless, outpaced
from webtune.strategies.statistics import Comparison, compare


def name(candidate):
    return f"{97 * candidate % 101:04d}"


def compared(at, spread=None, error=0.01):
    steady = tuple((each - 1e-3, each, each + 1e-3) for each in at)
    return Comparison(tuple(at), tuple(spread or (0.001,) * len(at)), error, steady)


def test_equal_times_go_to_the_smaller_spread_then_to_the_digest():
    at = (10.0, 10.00005, 10.00002)
    assert choose(compared(at, (0.02, 0.01, 0.03)), (4, 5, 6), name).winner == 5
    digests = {4: "c", 5: "b", 6: "a"}
    assert choose(compared(at), (4, 5, 6), digests.__getitem__).winner == 6


def test_candidates_within_two_errors_are_ties_and_those_given_up_within_them_too():
    found = choose(compared((10.0, 10.01, 10.5)), (0, 1, 2), name, {3: 1.0, 4: 9.0})
    assert found.winner == 0
    assert found.ties == (1, 3)


def test_confidence_falls_with_every_rival_that_is_near():
    alone = choose(compared((10.0,)), (0,), name).confidence
    one = choose(compared((10.0, 10.01)), (0, 1), name).confidence
    two = choose(compared((10.0, 10.01, 10.01)), (0, 1, 2), name).confidence
    assert 1 == alone > one > two > 0.5


def test_one_sample_condemns_only_what_is_far_off_and_two_must_agree():
    assert hopeless({0: [100], 1: [200], 2: [1900], 3: [9000]}, 20, 2) == {3: (90.0, 1)}
    assert hopeless({0: [100]}, 20, 2) == {}
    agreed = hopeless({0: [100, 100], 1: [300, 250], 2: [400, 101]}, 5, 2)
    assert agreed == {1: (2.5, 2)}
    assert hopeless({}, 5, 2) == {}


def test_one_sample_that_is_far_too_fast_condemns_nobody():
    assert hopeless({0: [1], 1: [100], 2: [110]}, 20, 2) == {}
    assert hopeless({0: [1, 105], 1: [100, 100], 2: [110, 110]}, 20, 2) == {}


def test_confidence_falls_with_everyone_given_up_as_hopeless():
    assert 0 < doubt(6, 2) < doubt(2.1, 2) < doubt(30, 1) < doubt(20, 1) < 0.01
    found = choose(compared((10.0,)), (0,), name, {}, {1: 0.25, 2: 0.5})
    assert found.confidence == 0.375
    assert found.ties == ()


def test_a_step_within_a_round_condemns_nobody():
    # The device slows down to a third after candidate 0 in the first round; 1 is the best.
    assert hopeless({0: [110, 330], 1: [300, 300], 2: [315, 315]}, 5, 2) == {}


def test_a_candidate_is_outpaced_only_when_its_samples_lie_apart_too():
    steady = ((10.0, 10.0, 10.0), (9.99, 10.1, 10.2), (10.09, 10.1, 10.11), (10.01, 10.02, 10.03))
    found = Comparison((10.0, 10.1, 10.1, 10.02), (0.0,) * 4, 0.01, steady)
    assert outpaced(found, 3) == [2]


def test_halving_keeps_the_fastest_whatever_their_order():
    assert halving(compared((3.0, 1.0, 2.0, 4.0)), 2, name) == [3, 0]
    assert halving(compared((3.0, 1.0)), 2, name) == []


@given(st.lists(st.lists(st.integers(1000, 10**7), min_size=6, max_size=6), min_size=2, max_size=6))
def test_the_leader_is_never_outpaced_and_somebody_always_wins(columns):
    found = compare(columns)
    assert found.leader not in outpaced(found, 4)
    verdict = choose(found, range(len(columns)), name)
    assert verdict.winner not in verdict.ties
    assert 0 <= verdict.confidence <= 1
    assert found.at[verdict.winner] - min(found.at) <= 1e-4
