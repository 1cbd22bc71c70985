"""Equal counts: nobody is given up, and neither drift nor order decides."""

import pytest

from webtune.errors import Failure, FailureKind

US = 1_000
BROKEN = Failure(FailureKind.LAUNCH, "refused")


def times(noise, *bases, spread=0.01):
    return [noise(base, place, spread) for place, base in enumerate(bases)]


def test_every_candidate_gets_thirteen_launches(play, noise):
    played = play("fixed", times(noise, 100 * US, 130 * US, 900 * US))
    assert [played.launches(each) for each in range(3)] == [13, 13, 13]
    assert {len(each.samples_ns) for each in played.outcome.results} == {12}
    assert played.outcome.launches == 39


def test_the_fastest_wins_and_the_outcome_says_how_sure(play, noise):
    found = play("fixed", times(noise, 130 * US, 100 * US, 100.1 * US, 120 * US)).outcome
    assert found.winner in (1, 2)
    assert found.ties == (3 - found.winner,)
    assert found.strategy == "fixed"
    assert found.interval.low_ns <= found.results[found.winner].time_ns <= found.interval.high_ns
    assert found.tie_rule


@pytest.mark.parametrize("slope", [-0.002, 0.0005, 0.003, 0.02])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_ramp_changes_no_winner_with_a_gap_of_ten_percent(play, noise, slope, reverse):
    bases = [(100 + 10 * each) * US for each in range(8)]
    bases = bases[::-1] if reverse else bases
    speed = lambda launch: max(0.3, 1 + slope * launch)  # noqa: E731
    found = play("fixed", times(noise, *bases), speed=speed).outcome
    assert found.winner == bases.index(100 * US)


@pytest.mark.parametrize("at", range(4, 80, 3))
@pytest.mark.parametrize("step", [0.5, 0.9, 1.1, 1.4, 2.0])
def test_a_step_in_speed_changes_no_winner_with_a_gap_of_ten_percent(play, noise, at, step):
    bases = [(100 + 10 * each) * US for each in (3, 0, 1, 2, 5, 1)]
    speed = lambda launch: step if launch >= at else 1.0  # noqa: E731
    assert play("fixed", times(noise, *bases), speed=speed).outcome.winner == 1


def test_one_outlier_in_five_changes_no_winner(play, noise):
    hit = [100 * US, 350 * US, 101 * US, 99 * US, 100 * US, 102 * US]
    found = play("fixed", [hit, noise(110 * US, 1), noise(112 * US, 2)]).outcome
    assert found.winner == 0


def test_order_of_the_list_decides_nothing(play):
    digests = ("c", "a", "b")
    assert play("fixed", [US, US, US], tie_order=digests).outcome.winner == 1
    assert play("fixed", [US, US, US], tie_order=digests[::-1]).outcome.winner == 1


def test_any_failure_disqualifies_and_the_others_go_on(play, noise):
    streams = times(noise, 50 * US, 100 * US, 120 * US)
    found = play("fixed", streams, fails={0: (7, BROKEN)}).outcome
    assert found.winner == 1
    assert found.results[0].failure == BROKEN


def test_the_next_batch_is_tried_only_when_nothing_of_this_one_was_measured(play):
    fails = {0: (0, BROKEN), 1: (0, BROKEN)}
    played = play("fixed", [1, 1, 9, 2], fails=fails, batches=((0, 1), (2,), (3,)))
    assert played.outcome.winner == 2
    assert played.launches(3) == 0


def test_a_median_within_the_limit_ends_the_tune_after_equal_first_rounds(play):
    played = play("fixed", [300 * US, 90 * US, 250 * US], limit_ns=100 * US)
    assert played.outcome.winner == 1
    assert [played.launches(each) for each in range(3)] == [7, 13, 7]
    assert "short circuit" in played.kinds()


def test_a_median_that_leaves_the_limit_ends_nothing(play):
    lucky = [90 * US] * 6 + [200 * US] * 94
    played = play("fixed", [lucky, 120 * US], limit_ns=100 * US)
    assert [played.launches(each) for each in range(2)] == [13, 13]


def test_group_patience_is_not_for_equal_counts(play):
    patience = dict.fromkeys(range(4), (("g", 1),))
    played = play("fixed", [1 * US, 2 * US, 3 * US, 4 * US], patience=patience)
    assert all(played.launches(each) == 13 for each in range(4))


def test_nothing_measured_takes_one_that_ran_and_says_so(play):
    ran = Failure(FailureKind.NOT_MEASURED, "zero span")
    found = play("fixed", [1, 1], fails={0: (0, BROKEN), 1: (0, ran)}).outcome
    assert found.winner == 1
    assert not found.measured


def test_one_outlier_on_a_steady_device_is_no_step_of_its_clock(play):
    found = play("fixed", [[300_000] + [50_000] * 200, 55_000]).outcome
    assert found.winner == 0
    assert found.ties == ()
    assert found.confidence > 0.99
