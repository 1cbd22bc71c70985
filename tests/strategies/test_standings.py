"""Where candidates stand: what counts as a sample, who is live, and how differences are told."""

from math import log

import pytest

from webtune.errors import Failure, FailureKind
from webtune.strategies.model import Problem, Reading
from webtune.strategies.standings import Standings, Verdict, slower_text, time_text


def standings(count=3, **problem):
    return Standings(Problem(batches=(tuple(range(count)),), count=count, **problem), "test", "")


@pytest.mark.parametrize("duration_ns", [0, -1])
def test_no_measurement_is_never_a_time(duration_ns):
    found = standings()
    found.add(Reading(0, (5, duration_ns), launches=2))
    assert found.failures[0].kind is FailureKind.INVALID_SAMPLES
    assert found.samples[0] == [5]
    assert not found.is_live(0)


def test_a_reading_without_a_time_is_not_measured():
    found = standings()
    found.add(Reading(1))
    assert found.failures[1].kind is FailureKind.NOT_MEASURED


def test_those_measured_neither_failed_nor_eliminated_are_live():
    found = standings(4)
    for candidate in (0, 1, 2):
        found.add(Reading(candidate, (100,), launches=2))
    found.eliminate(1, "too slow")
    found.add(Reading(2, (), Failure(FailureKind.LAUNCH, "refused")))
    assert found.live(range(4)) == [0]


def test_an_outcome_tells_of_everyone_and_counts_launches():
    found = standings(4, never={3: "its group is closed"}, names=("a", "b", "c", "d"))
    found.add(Reading(0, (100, 120), launches=3))
    found.add(Reading(1, (300,), launches=2))
    found.eliminate(1, "too slow")
    outcome = found.outcome(Verdict(0, {1: log(250)}))
    assert (outcome.winner, outcome.measured, outcome.launches) == (0, True, 5)
    assert [result.time_ns for result in outcome.results] == [110, 250, None, None]
    assert [result.eliminated for result in outcome.results] == [False, True, False, False]
    assert outcome.results[1].reason == "too slow"
    assert outcome.results[2].failure.reason.startswith("never reached")
    assert "b is given up: too slow" in [event.text for event in outcome.events]


def test_a_difference_is_told_as_a_share_or_a_factor():
    assert slower_text(log(1.14)) == "14 % slower"
    assert slower_text(log(2.14)) == "2.14 times slower"
    assert slower_text(-1.0) == "0 % slower"


def test_a_time_is_told_in_the_unit_that_suits_it():
    assert [time_text(ns) for ns in (12, 1_500, 2_345_678, 3e9)] == [
        "12 ns",
        "1.5 µs",
        "2.346 ms",
        "3 s",
    ]
