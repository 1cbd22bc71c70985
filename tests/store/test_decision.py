"""Records come back as they were, broken ones are told, and merging obeys its laws."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.errors import Failure, FailureKind
from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.decision import (
    SCHEMA,
    STATUSES,
    CandidateResult,
    Decision,
    Unreadable,
    decode,
    document,
    encode,
    evidence,
    merge,
    merge_all,
    read,
)
from webtune.strategies.bounds import Bound
from webtune.strategies.model import Event

texts = st.text(st.characters(codec="utf-8"), max_size=6)
times = st.integers(1, 10**12)
intervals = st.tuples(times, times).map(lambda ends: (min(ends), max(ends)))
finite = st.floats(0, 1e10)
settings = st.integers() | finite | st.booleans() | texts
candidates = st.builds(
    CandidateResult,
    id=texts,
    name=texts,
    params=st.dictionaries(texts, settings, max_size=2).map(Params),
    status=st.sampled_from(sorted(STATUSES - {"winner"})),
    time_ns=st.none() | times,
    interval_ns=st.none() | intervals,
    samples_ns=st.lists(times, max_size=4).map(tuple),
    reason=texts,
)
winners = st.builds(replace, candidates, status=st.just("winner"))
indices = st.just(0)
records = st.builds(
    Decision,
    fingerprint=st.sampled_from(["f", "g"]),
    candidates=st.tuples(st.lists(candidates, max_size=2), winners).map(lambda c: (*c[0], c[1])),
    measured=st.booleans(),
    confidence=st.floats(0, 1),
    tie_rule=texts,
    strategy=texts,
    launches=st.integers(0, 1000),
    wall_s=finite,
    batches=st.lists(st.lists(indices, max_size=2).map(tuple), max_size=2).map(tuple),
    events=st.lists(st.builds(Event, texts, texts, st.none() | indices), max_size=2).map(tuple),
    bounds=st.lists(st.builds(Bound, finite, finite, finite, texts), max_size=2).map(tuple),
    limit_ns=st.none() | times,
    checked=st.booleans(),
    clock=st.builds(Clock, st.sampled_from(["timestamp", "wall"]), times, finite),
    device=texts,
    versions=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    created_s=st.sampled_from([0.0, 1.5, 2.0]),
)


def candidate(samples=3, **changes):
    return replace(
        CandidateResult("id", "a", Params({"WG": 64}), "winner", 1000, None, (1000,) * samples),
        **changes,
    )


def record(samples=3, created_s=1.0, **changes):
    decision = Decision(
        "f", (candidate(samples),), confidence=0.9, strategy="fixed", clock=Clock("wall", 1)
    )
    return replace(decision, created_s=created_s, **changes)


@given(records)
def test_a_record_comes_back_as_it_was(one):
    text = encode(one)
    assert "\n" not in text
    assert decode(text) == one
    assert decode(text.encode()) == one
    assert read(document(one)) == one


def test_a_record_is_not_encoded_with_a_number_that_json_cannot_hold():
    with pytest.raises(ValueError, match="JSON"):
        encode(record(confidence=float("nan")))


@given(records, st.data())
def test_a_truncated_record_is_unreadable(one, data):
    text = encode(one)
    cut = data.draw(st.integers(0, len(text) - 1))
    assert isinstance(decode(text[:cut]), Unreadable)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("\0\0\0", "truncated"),
        (b"\xff\xfe\xfa", "truncated"),
        ("[" * 100_000, "truncated"),
        ("[]", "not a decision"),
        ("17", "not a decision"),
        ('{"schema": 1}', "not a decision"),
    ],
)
def test_a_foreign_text_is_unreadable_with_the_reason(text, reason):
    found = decode(text)
    assert isinstance(found, Unreadable)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("schema", "reason"), [(SCHEMA + 1, "newer"), (0, "not used"), ("1", "not used"), ([], "not")]
)
def test_another_schema_is_unreadable_with_the_reason(schema, reason):
    found = read(document(record()) | {"schema": schema})
    assert isinstance(found, Unreadable)
    assert reason in found.reason


def test_a_changed_content_does_not_fit_its_checksum():
    changed = document(record())
    changed["decision"]["device"] = "another"
    found = read(changed)
    assert isinstance(found, Unreadable)
    assert "checksum" in found.reason


def resealed(monkeypatch, **changes):
    """A document whose checksum is right for a content that no version wrote."""
    body = document(record())["decision"] | changes
    monkeypatch.setattr("webtune.store.decision._checksum", lambda body: "right")
    return read({"schema": SCHEMA, "checksum": "right", "decision": body})


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": 5},
        {"clock": ["wall", 1]},
        {"clock": {"kind": "wall"}},
        {"clock": {"kind": "wall", "quantum_ns": 1.5}},
        {"clock": {"kind": "wall", "quantum_ns": 10**400}},
        {"candidates": {}},
        {"candidates": [{}]},
        {"candidates": []},
        {"checked": 1},
        {"created_s": "now"},
        {"created_s": 10**400},
        {"created_s": -1.0},
        {"created_s": 1e300},
        {"launches": None},
        {"launches": -1},
        {"limit_ns": 10**400},
        {"device": "\ud800"},
        {"versions": "ab"},
        {"versions": [["python"]]},
        {"batches": [[1]]},
        {"batches": [["a"]]},
        {"events": [{"kind": "k", "text": "t", "candidate": 7}]},
        {"bounds": [{"amount": float("nan"), "peak_per_s": 1.0}]},
    ],
)
def test_a_field_of_the_wrong_type_is_unreadable(monkeypatch, changes):
    assert isinstance(resealed(monkeypatch, **changes), Unreadable)


def test_a_field_of_a_later_version_is_passed_over(monkeypatch):
    assert resealed(monkeypatch, mood="good") == record()


def test_a_later_field_is_covered_by_the_checksum():
    text = json.loads(encode(record()))
    text["decision"]["mood"] = "good"
    assert isinstance(read(text), Unreadable)


@given(records, records)
def test_merging_is_commutative(one, other):
    assert merge(one, other) == merge(other, one)


@given(records, records, records)
def test_merging_is_associative(one, two, three):
    assert merge(merge(one, two), three) == merge(one, merge(two, three))


@given(records)
def test_merging_is_idempotent(one):
    assert merge(one, one) == one


@given(records, records)
def test_merging_never_mixes_two_sessions(one, other):
    assert merge(one, other) in (one, other)


def test_merging_prefers_more_evidence_and_then_newer():
    assert merge(record(samples=9, created_s=1), record(samples=3, created_s=2)).created_s == 1
    assert merge(record(created_s=1), record(created_s=2)).created_s == 2
    assert evidence(record(samples=9)) == 9


tables = st.dictionaries(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), records)


@given(tables, tables, tables)
def test_merging_tables_is_the_same_in_any_order(one, two, three):
    left = merge_all(merge_all(one, two), three)
    assert left == merge_all(one, merge_all(three, two)) == merge_all(merge_all(three, one), two)
    assert left.keys() == one.keys() | two.keys() | three.keys()


@given(tables, tables)
def test_merging_tables_never_moves_a_record_to_another_place(one, other):
    for place, found in merge_all(one, other).items():
        assert found in [table[place] for table in (one, other) if place in table]


@pytest.mark.parametrize(
    "changes",
    [
        {"samples_ns": [0]},
        {"samples_ns": [True]},
        {"samples_ns": [10**400]},
        {"samples_ns": 1},
        {"time_ns": 0},
        {"time_ns": -5},
        {"time_ns": 1 << 63},
        {"interval_ns": [1]},
        {"interval_ns": [1, 10**400]},
        {"interval_ns": [2, 1]},
        {"interval_ns": "ab"},
        {"status": "best"},
        {"status": "slower"},
        {"status": None},
        {"params": [1]},
        {"params": {"WG": None}},
        {"params": {"WG": [1]}},
        {"params": {"WG": "\ud800"}},
    ],
)
def test_a_candidate_of_the_wrong_form_is_unreadable(monkeypatch, changes):
    body = document(record())["decision"]["candidates"][0]
    assert isinstance(resealed(monkeypatch, candidates=[body | changes]), Unreadable)


def test_two_winners_are_unreadable():
    two = (candidate(), candidate(id="other"))
    assert isinstance(read(document(record(candidates=two))), Unreadable)


@pytest.mark.parametrize("body", [None, 7, 1.5, ["a"]])
def test_a_body_that_is_no_text_is_unreadable(body):
    assert isinstance(decode(body), Unreadable)


def test_a_decision_names_its_winner_its_ties_and_its_failures():
    tie, wrong = candidate(id="t", status="tie"), candidate(id="w", status="wrong answer")
    decision = record(candidates=(tie, candidate(), wrong, candidate(id="s", status="skipped")))
    assert decision.winner == candidate()
    assert decision.ties == (tie,)
    failures = [result.failure for result in decision.candidates]
    assert failures == [None, None, Failure(FailureKind.WRONG_ANSWER, ""), None]


def test_the_least_time_is_the_low_end_of_the_interval():
    assert candidate(interval_ns=(990, 1010)).least_ns == 990
    assert candidate().least_ns == 1000
    assert candidate(time_ns=None).least_ns is None
