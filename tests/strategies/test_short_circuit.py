"""When a tune may stop early, against the seed's answers, and the patience of groups."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.config import Config
from webtune.errors import Failure, FailureKind
from webtune.strategies.model import Problem
from webtune.strategies.short_circuit import ShortCircuit

CASES = json.loads(
    (Path(__file__).parent.parent / "data" / "conformance.json").read_text(encoding="utf-8")
)
US, MS = 1_000, 1_000_000
SAMPLES = [case for case in CASES["samples"] if "confirmed" in case]


def short_circuit(limit_ns, required):
    problem = Problem(batches=((0,),), count=1, limit_ns=limit_ns)
    return ShortCircuit.of(problem, Config(short_circuit_samples=required))


@pytest.mark.parametrize("case", CASES["short_circuit"])
def test_conformance(case):
    limit_ns = None if case["limit_us"] is None else case["limit_us"] * US
    samples_ns = [us * US for us in case["samples_us"]]
    assert short_circuit(limit_ns, case["required"]).confirmed(samples_ns) is case["hit"]


@pytest.mark.parametrize("case", SAMPLES, ids=[json.dumps(case["push_ms"]) for case in SAMPLES])
def test_conformance_of_samples(case):
    found = short_circuit(case["confirmed_under_ms"] * MS, case["required"])
    assert found.confirmed([ms * MS for ms in case["push_ms"]]) is case["confirmed"]


def test_the_conformance_cases_are_all_there():
    assert (len(CASES["short_circuit"]), len(SAMPLES)) == (3, 2)


def test_nothing_is_within_a_limit_that_is_not_there():
    assert not short_circuit(None, 1).confirmed([1, 1, 1])
    assert not short_circuit(None, 1).allows(1)


def test_a_limit_counts_only_where_short_circuits_are_on():
    problem = Problem(batches=((0,),), count=1, limit_ns=100)
    assert ShortCircuit.of(problem, Config(short_circuit=False)).limit_ns is None


@given(st.lists(st.integers(1, 10**9), max_size=12), st.integers(1, 10**9), st.integers(1, 5))
def test_a_confirmation_is_never_taken_back(samples_ns, limit_ns, required):
    found = short_circuit(limit_ns, required)
    confirmed = [found.confirmed(samples_ns[:count]) for count in range(len(samples_ns) + 1)]
    assert confirmed == sorted(confirmed)


@pytest.mark.parametrize("strategy", ["adaptive", "seed-adaptive"])
def test_a_candidate_that_fails_while_it_is_confirmed_counts_for_no_groups_patience(play, strategy):
    broken = Failure(FailureKind.LAUNCH, "refused")
    patience = dict.fromkeys(range(1, 4), (("g", 2),))
    played = play(
        strategy,
        [50, 300, 250, 200],
        limit_ns=100,
        fails={0: (1, broken)},
        patience=patience,
    )
    assert played.outcome.winner == 3
    assert all(played.launches(candidate) for candidate in range(4))
