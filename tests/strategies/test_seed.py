"""The seed's protocols reproduce the seed's recorded answers."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.config import Config
from webtune.errors import Failure, FailureKind, UsageError
from webtune.strategies import get, names
from webtune.strategies.model import Problem, Reading
from webtune.strategies.seed import converged, ranked, reliable, score_ns, survivors
from webtune.strategies.standings import Standings

ALL = json.loads(
    (Path(__file__).parent.parent / "data" / "conformance.json").read_text(encoding="utf-8")
)
US, MS = 1_000, 1_000_000
BROKEN = Failure(FailureKind.LAUNCH, "refused")
durations = st.lists(st.integers(1, 10**9), max_size=12)


def by_candidate(samples_us):
    pairs = samples_us.items() if isinstance(samples_us, dict) else enumerate(samples_us)
    return {int(candidate): [us * US for us in taken] for candidate, taken in pairs}


@pytest.mark.parametrize("case", ALL["samples"], ids=lambda case: json.dumps(case["push_ms"]))
def test_conformance_of_samples(case):
    samples_ns = [ms * MS for ms in case["push_ms"]]
    counted = reliable(samples_ns)
    if "reliable_ms" in case:
        assert counted == [ms * MS for ms in case["reliable_ms"]]
    for key, value in (("best_ms", min), ("min_ms", min), ("max_ms", max)):
        if key in case:
            expected = None if case[key] is None else case[key] * MS
            assert value(counted, default=None) == expected
    if "converged" in case:
        assert converged(samples_ns) is case["converged"]


@given(durations)
def test_a_sample_that_halves_the_best_ends_convergence(taken):
    samples_ns = [*taken, 10**9, 10**9, 10**9]
    best_ns = min(reliable(samples_ns))
    if best_ns > 1:
        assert not converged([*samples_ns, best_ns // 2])


@given(durations)
def test_only_the_first_sample_is_ever_dropped(taken):
    counted = list(reliable(taken))
    assert counted == (taken[1:] if len(taken) >= 3 else taken)


@pytest.mark.parametrize("case", ALL["eliminate"])
def test_conformance_of_elimination(case):
    samples_ns = by_candidate(case["samples_us"])
    assert list(survivors(samples_ns, case["min_samples"], case["speed_factor"])) == case["live"]


@pytest.mark.parametrize("case", ALL["decide"])
def test_conformance_of_the_decision(case):
    samples_ns = by_candidate(case["samples_us"])
    count = max(samples_ns, default=-1) + 1
    standings = Standings(Problem(batches=(tuple(range(count)),), count=count), "test", "")
    for candidate, taken in samples_ns.items():
        failure = BROKEN if candidate in case.get("failed", ()) else None
        standings.add(Reading(candidate, tuple(taken), failure))
    for candidate in case.get("eliminated", ()):
        standings.eliminate(candidate, "too slow")
    verdict = ranked(standings, range(count))
    assert (None if verdict is None else verdict.winner) == case["winner"]


def test_the_conformance_cases_are_all_there():
    assert [len(ALL[part]) for part in ("samples", "eliminate", "decide")] == [14, 5, 3]


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
