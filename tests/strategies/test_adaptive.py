"""The race: who is given up, who wins, and that neither drift nor order decides."""

from collections.abc import Callable
from itertools import chain

import pytest

from webtune.config import Config
from webtune.errors import Failure, FailureKind
from webtune.strategies.adaptive import adaptive
from webtune.strategies.model import Problem, Reading

US = 1_000
BROKEN = Failure(FailureKind.LAUNCH, "refused")


def times(noise, *bases, spread=0.01):
    return [noise(base, place, spread) for place, base in enumerate(bases)]


def test_the_fastest_wins_and_the_outcome_says_how_sure(play, noise):
    found = play("adaptive", times(noise, 130 * US, 100 * US, 120 * US)).outcome
    assert found.winner == 1
    assert found.measured
    assert found.strategy == "adaptive"
    assert found.ties == ()
    assert found.confidence > 0.99
    assert found.tie_rule
    assert found.interval.low_ns <= 100 * US <= found.interval.high_ns
    assert found.results[1].time_ns == pytest.approx(100 * US, rel=0.01)


def test_every_candidate_is_warmed_up_once_before_its_first_sample(play, noise):
    played = play("adaptive", times(noise, 100 * US, 130 * US))
    first = {}
    for each in played.rounds:
        for request in each.requests:
            assert request.warmups == (0 if request.candidate in first else 1)
            first[request.candidate] = True


@pytest.mark.parametrize(("factor", "launches"), [(30, 2), (6, 3), (2.5, 3)])
def test_a_hopeless_candidate_is_dropped_after_one_or_two_samples(play, noise, factor, launches):
    played = play("adaptive", times(noise, 100 * US, 101 * US, 100 * US * factor))
    assert played.launches(2) == launches
    assert played.outcome.results[2].eliminated
    assert "times the leader" in played.outcome.results[2].reason


def test_eliminated_candidate_never_wins(play):
    # Candidate 0 would have the best samples of all, had it not been given up before.
    early = [900 * US, 900 * US] + [10 * US] * 100
    found = play("adaptive", [early, 100 * US, 104 * US]).outcome
    assert found.results[0].eliminated
    assert found.winner == 1


def test_one_bad_sample_ends_no_good_candidate(play, noise):
    best = iter([400 * US, *[next(g) for g in [noise(100 * US, 1)] for _ in range(200)]])
    found = play("adaptive", [best, noise(115 * US, 2), noise(116 * US, 3)]).outcome
    assert found.winner == 0


@pytest.mark.parametrize("bad", [100, 300, 1000])
@pytest.mark.parametrize("fast", [20, 50])
def test_one_bad_first_sample_ends_no_good_candidate(play, noise, fast, bad):
    best = chain([bad * US], noise(fast * US, 1))
    assert play("adaptive", [best, noise(55 * US, 2)]).outcome.winner == 0
    best = chain([bad * US], noise(fast * US, 1))
    rest = times(noise, 55 * US, 56 * US, 80 * US)
    assert play("adaptive", [best, *rest]).outcome.winner == 0


def test_one_first_sample_that_is_far_too_good_ends_nobody(play, noise):
    lucky = chain([1 * US], noise(100 * US, 1))
    found = play("adaptive", [lucky, *times(noise, 80 * US, 90 * US)]).outcome
    assert found.winner == 1


def test_who_was_given_up_as_hopeless_counts_in_the_confidence(play):
    unlucky = [130 * US, 130 * US] + [20 * US] * 200
    found = play("adaptive", [unlucky, 55 * US]).outcome
    assert found.winner == 1
    assert found.results[0].eliminated
    assert 0.99 < found.confidence < 1


def test_launches_stay_within_the_budget_when_nobody_stands_out(play, noise):
    played = play("adaptive", times(noise, *[100 * US] * 16, spread=0.1))
    assert played.outcome.launches <= 20 * 16
    assert played.outcome.winner is not None


def test_the_launches_go_to_those_that_are_hard_to_tell_apart(play, noise):
    bases = [100 * US, 100.5 * US] + [(110 + 3 * each) * US for each in range(14)]
    played = play("adaptive", times(noise, *bases, spread=0.03))
    assert played.outcome.winner in (0, 1)
    assert min(played.launches(0), played.launches(1)) > 3 * played.launches(15)


@pytest.mark.parametrize("slope", [-0.003, 0.0005, 0.003, 0.02])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_ramp_changes_no_winner_with_a_gap_of_ten_percent(play, noise, slope, reverse):
    bases = [(100 + 10 * each) * US for each in range(8)]
    bases = bases[::-1] if reverse else bases
    speed = lambda launch: max(0.3, 1 + slope * launch)  # noqa: E731
    found = play("adaptive", times(noise, *bases), speed=speed).outcome
    assert found.winner == bases.index(100 * US)


@pytest.mark.parametrize("at", range(4, 60, 3))
@pytest.mark.parametrize("step", [0.5, 0.9, 1.1, 1.4, 2.0])
def test_a_step_in_speed_changes_no_winner_with_a_gap_of_ten_percent(play, noise, at, step):
    bases = [(100 + 10 * each) * US for each in (3, 0, 1, 2, 5, 1)]
    speed = lambda launch: step if launch >= at else 1.0  # noqa: E731
    assert play("adaptive", times(noise, *bases), speed=speed).outcome.winner == 1


def test_order_of_the_list_decides_nothing(play, noise):
    bases = [100 * US, 100 * US, 100 * US]
    digests = ("c", "a", "b")
    ahead = play("adaptive", bases, tie_order=digests).outcome
    assert ahead.winner == 1
    back = play("adaptive", bases[::-1], tie_order=digests[::-1]).outcome
    assert back.winner == 1
    assert set(ahead.ties) == {0, 2}
    assert 0.1 < ahead.confidence <= 1


def test_any_failure_disqualifies_and_the_others_go_on(play, noise):
    streams = times(noise, 50 * US, 100 * US, 120 * US)
    found = play("adaptive", streams, fails={0: (2, BROKEN)}).outcome
    assert found.winner == 1
    assert found.results[0].failure == BROKEN
    assert found.results[0].time_ns is None


def test_when_the_leader_fails_last_those_given_up_are_taken_back(play):
    played = play("adaptive", [10 * US, 100 * US, 130 * US], fails={0: (2, BROKEN)})
    assert played.outcome.winner == 1
    assert "taken back" in played.kinds()


def test_the_next_batch_is_tried_only_when_nothing_of_this_one_was_measured(play):
    batches = ((0, 1), (2,), (3,))
    fails = {0: (0, BROKEN), 1: (0, BROKEN)}
    played = play("adaptive", [10, 10, 500 * US, 10 * US], fails=fails, batches=batches)
    assert played.outcome.winner == 2
    assert played.launches(3) == 0
    assert played.outcome.results[3].failure.kind is FailureKind.SKIPPED


def test_nothing_measured_takes_one_that_ran_and_says_so(play):
    ran = Failure(FailureKind.NOT_MEASURED, "zero span")
    found = play("adaptive", [1, 1], fails={0: (0, BROKEN), 1: (0, ran)}).outcome
    assert found.winner == 1
    assert not found.measured
    assert found.interval is None
    assert play("adaptive", [1], fails={0: (0, BROKEN)}).outcome.winner is None


def test_a_sample_within_the_limit_is_confirmed_on_the_spot_and_ends_the_tune(play):
    played = play("adaptive", [300 * US, 90 * US, 50 * US], limit_ns=100 * US)
    assert played.outcome.winner == 1
    assert played.launches(1) == 3
    assert played.launches(2) == 0
    assert "short circuit" in played.kinds()
    assert "peak" in played.outcome.results[2].failure.reason


def test_an_unconfirmed_sample_within_the_limit_ends_nothing(play, noise):
    lucky = [90 * US, *[200 * US] * 99]
    found = play("adaptive", [lucky, noise(150 * US, 1)], limit_ns=100 * US).outcome
    assert found.winner == 1


def test_short_circuit_can_be_switched_off(play):
    config = Config(short_circuit=False)
    found = play("adaptive", [90 * US, 50 * US], limit_ns=100 * US, config=config).outcome
    assert found.winner == 1


def test_a_group_that_does_not_improve_is_left_after_its_patience(play):
    streams = [100 * US, 150 * US, 160 * US, 50 * US, 40 * US]
    patience = dict.fromkeys(range(1, 4), (("tiled", 2),))
    played = play("adaptive", streams, patience=patience)
    assert played.launches(3) == 0
    assert "'tiled'" in played.outcome.results[3].failure.reason
    assert played.outcome.winner == 4


def test_an_earlier_tune_spares_those_far_behind(play, noise):
    known = {each: (base,) * 5 for each, base in enumerate([100, 101, 102, 150, 900])}
    streams = times(noise, *[base[0] for base in known.values()], 95)
    streams = [[max(1, 1000 * round(next(s))) for _ in range(99)] for s in streams]
    played = play(
        "adaptive", streams, prior_ns={k: tuple(1000 * e for e in v) for k, v in known.items()}
    )
    assert played.launches(3) == played.launches(4) == 0
    assert all(played.launches(each) for each in (0, 1, 2, 5))
    assert played.outcome.results[4].eliminated
    assert played.outcome.results[4].samples_ns == (900 * US,) * 5


def test_those_spared_are_measured_when_all_leaders_fail(play):
    known = {each: (base * US,) * 5 for each, base in enumerate([100, 101, 102, 150])}
    fails = dict.fromkeys(range(3), (0, BROKEN))
    streams = [base[0] for base in known.values()]
    played = play("adaptive", streams, prior_ns=known, fails=fails)
    assert played.outcome.winner == 3
    assert played.launches(3) > 0


def test_a_clock_that_quantises_still_ranks_gaps_of_five_percent(play):
    # Spans of 20 steps of the clock; the phase of a span against the steps is arbitrary.
    def quantised(base, phase):
        number = 0
        while True:
            number += 1
            start = (number * 0.618034 + phase) % 1.0
            yield int(base + start) - int(start)

    streams = [quantised(20 * 1.05**each + 0.3, 0.1 * each) for each in (3, 1, 0, 2, 4)]
    streams = [(steps * 65_536 for steps in each) for each in streams]
    assert play("adaptive", streams).outcome.winner == 2


def test_a_single_candidate_is_measured_enough_for_an_interval(play):
    played = play("adaptive", [100 * US])
    assert played.outcome.winner == 0
    assert played.outcome.confidence == 1
    assert len(played.outcome.results[0].samples_ns) == 3


def test_who_left_early_is_told_beside_the_winner_whatever_the_device_did_since() -> None:
    # Everything runs three times slower from the 40th launch on.
    taken = 0

    def at(base_ns: int) -> Callable[[int], int]:
        def one(_: int) -> int:
            nonlocal taken
            taken += 1
            return round(base_ns * (3 if taken > 40 else 1) * (1 + 0.002 * (taken % 7)))

        return one

    durations = [at(100_000), at(100_300), at(130_000), at(700_000), at(100_100)]
    run = adaptive(Problem(batches=((0, 1, 2, 3, 4),), count=5, tie_order=tuple("abcde")), Config())
    readings = None
    while True:
        try:
            wanted = next(run) if readings is None else run.send(readings)
        except StopIteration as stop:
            outcome = stop.value
            break
        readings = [
            Reading(
                r.candidate,
                tuple(durations[r.candidate](0) for _ in range(r.samples)),
                launches=r.warmups + r.samples,
            )
            for r in wanted.requests
        ]
    times = {r.candidate: r.time_ns for r in outcome.results}
    won = times[outcome.winner]
    assert times[2] / won == pytest.approx(1.3, rel=0.05)
    assert times[3] / won == pytest.approx(7.0, rel=0.1)
