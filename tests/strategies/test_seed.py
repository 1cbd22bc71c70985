"""The seed's protocols reproduce the seed's recorded answers."""

import json
from pathlib import Path

import pytest

from webtune.config import Config
from webtune.errors import Failure, FailureKind, UsageError
from webtune.strategies import get, names
from webtune.strategies.samples import SampleSet
from webtune.strategies.seed import decide, score_ns, survivors

ALL = json.loads(
    (Path(__file__).parent.parent / "data" / "conformance.json").read_text(encoding="utf-8")
)
US = 1_000
BROKEN = Failure(FailureKind.LAUNCH, "refused")


def sets(samples_us):
    pairs = samples_us.items() if isinstance(samples_us, dict) else enumerate(samples_us)
    return {int(each): SampleSet(us * US for us in taken) for each, taken in pairs}


@pytest.mark.parametrize("case", ALL["eliminate"])
def test_conformance_of_elimination(case):
    live = survivors(sets(case["samples_us"]), case["min_samples"], case["speed_factor"])
    assert list(live) == case["live"]


@pytest.mark.parametrize("case", ALL["decide"])
def test_conformance_of_the_decision(case):
    found = decide(sets(case["samples_us"]), case.get("eliminated", ()), case.get("failed", ()))
    assert found == case["winner"]


@pytest.mark.parametrize("case", ALL["short_circuit"])
def test_conformance_of_the_short_circuit(case):
    limit_ns = None if case["limit_us"] is None else case["limit_us"] * US
    taken = SampleSet(us * US for us in case["samples_us"])
    assert taken.confirmed_under(limit_ns, case["required"]) is case["hit"]


def test_the_conformance_cases_are_all_there():
    assert [len(ALL[each]) for each in ("eliminate", "decide", "short_circuit")] == [5, 3, 3]


def test_the_score_is_four_fifths_of_the_fastest_and_one_fifth_of_the_median():
    assert score_ns([300, 100, 200]) == pytest.approx(120)


def test_seed_adaptive_gives_one_warm_up_each_and_stops_when_all_have_converged(play):
    played = play("seed-adaptive", [100 * US, 120 * US, 130 * US])
    assert [played.launches(each) for each in range(3)] == [6, 6, 6]
    assert played.outcome.winner == 0
    assert "converged" in played.kinds()


def test_seed_adaptive_takes_max_samples_at_most(play, noise):
    restless = [US * (1000 - 40 * each) for each in range(20)]
    played = play("seed-adaptive", [restless, restless])
    assert all(len(each.samples_ns) == 10 for each in played.outcome.results)


def test_seed_adaptive_gives_up_what_is_far_slower_but_keeps_two(play):
    played = play("seed-adaptive", [100 * US, 900 * US, 950 * US])
    assert played.outcome.results[2].eliminated
    assert not played.outcome.results[1].eliminated
    assert played.launches(2) == 4


def test_seed_adaptive_confirms_a_sample_within_the_limit_on_the_spot(play):
    played = play("seed-adaptive", [100 * US, 50 * US], limit_ns=200 * US)
    assert played.outcome.winner == 0
    assert (played.launches(0), played.launches(1)) == (3, 0)


def test_seed_adaptive_honours_group_patience(play):
    patience = dict.fromkeys(range(1, 4), (("g", 1),))
    played = play("seed-adaptive", [100, 200, 50, 40], patience=patience)
    assert played.outcome.winner == 0
    assert played.launches(2) == played.launches(3) == 0


def test_seed_fixed_takes_three_warm_ups_and_ten_samples(play):
    played = play("seed-fixed", [100 * US, 90 * US])
    assert [played.launches(each) for each in range(2)] == [13, 13]
    assert len(played.rounds) == 1
    assert played.outcome.winner == 1


def test_seed_fixed_stops_at_the_first_median_within_the_limit(play):
    played = play("seed-fixed", [300 * US, 90 * US, 50 * US], limit_ns=100 * US)
    assert played.outcome.winner == 1
    assert played.launches(2) == 0


@pytest.mark.parametrize("strategy", ["seed-adaptive", "seed-fixed"])
def test_any_failure_disqualifies(play, strategy):
    found = play(strategy, [50 * US, 100 * US], fails={0: (1, BROKEN)}).outcome
    assert found.winner == 1
    assert play(strategy, [1], fails={0: (0, BROKEN)}).outcome.winner is None


def test_numbers_of_the_configuration_are_read_clamped(play):
    config = Config(min_samples=-3, max_samples=-1)
    played = play("seed-adaptive", [100 * US, 101 * US], config=config)
    assert all(len(each.samples_ns) == 1 for each in played.outcome.results)


def test_an_unknown_strategy_names_the_nearest():
    assert names()[:2] == ("adaptive", "fixed")
    with pytest.raises(UsageError, match="'adaptive'"):
        get("adaptve")
