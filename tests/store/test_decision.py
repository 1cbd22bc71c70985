"""Records come back as they were, broken ones are told, and merging obeys its laws."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webtune.store.record import (
    SCHEMA,
    CandidateRecord,
    Record,
    Unreadable,
    decode,
    document,
    encode,
    evidence,
    merge,
    merge_all,
    read,
)

texts = st.text(st.characters(codec="utf-8"), max_size=6)
times = st.integers(1, 10**12)
candidates = st.builds(
    CandidateRecord,
    id=texts,
    name=texts,
    samples_ns=st.lists(times, max_size=4).map(tuple),
    time_ns=st.none() | times,
    failure=texts,
    reason=texts,
    eliminated=st.booleans(),
)
finite = st.floats(0, 1e10)
records = st.builds(
    Record,
    fingerprint=st.sampled_from(["f", "g"]),
    winner=texts,
    candidates=st.lists(candidates, max_size=3).map(tuple),
    interval_ns=st.none() | st.tuples(times, times).map(lambda ends: (min(ends), max(ends))),
    ties=st.lists(texts, max_size=2).map(tuple),
    confidence=st.floats(0, 1),
    strategy=texts,
    clock=st.tuples(st.sampled_from(["timestamp", "wall"]), times, finite),
    hardware_label=texts,
    created_s=st.sampled_from([0.0, 1.5, 2.0]),
    versions=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    limit_ns=st.none() | times,
    launches=st.integers(0, 1000),
    wall_s=finite,
)


def record(samples=3, created_s=1.0, **changes):
    one = CandidateRecord("id", "a", (1000,) * samples, 1000)
    return replace(
        Record("f", "id", (one,), None, (), 0.9, "fixed", ("wall", 1, 1.0), "gpu", created_s),
        **changes,
    )


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
        ("[]", "not a record"),
        ("17", "not a record"),
        ('{"schema": 1}', "not a record"),
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
    changed["record"]["winner"] = "another"
    found = read(changed)
    assert isinstance(found, Unreadable)
    assert "checksum" in found.reason


def resealed(monkeypatch, **changes):
    """A document whose checksum is right for a content that no version wrote."""
    body = document(record())["record"] | changes
    monkeypatch.setattr("webtune.store.record._checksum", lambda body: "right")
    return read({"schema": SCHEMA, "checksum": "right", "record": body})


@pytest.mark.parametrize(
    "changes",
    [
        {"winner": 5},
        {"clock": ["wall", 1]},
        {"clock": ["wall", 1.5, 1.0]},
        {"candidates": {}},
        {"candidates": [{}]},
        {"candidates": [{"id": "i", "name": "n", "samples_ns": [0]}]},
        {"candidates": [{"id": "i", "name": "n", "samples_ns": [True]}]},
        {"interval_ns": [1]},
        {"created_s": "now"},
        {"created_s": 10**400},
        {"created_s": -1.0},
        {"created_s": 1e300},
        {"launches": None},
        {"launches": -1},
        {"limit_ns": 10**400},
        {"interval_ns": [1, 10**400]},
        {"interval_ns": [2, 1]},
        {"clock": ["wall", 10**400, 1.0]},
        {"hardware_label": "\ud800"},
        {"ties": "ab"},
    ],
)
def test_a_field_of_the_wrong_type_is_unreadable(monkeypatch, changes):
    assert isinstance(resealed(monkeypatch, **changes), Unreadable)


def test_a_field_of_a_later_version_is_passed_over(monkeypatch):
    assert resealed(monkeypatch, mood="good") == record()


def test_a_later_field_is_covered_by_the_checksum():
    text = json.loads(encode(record()))
    text["record"]["mood"] = "good"
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


@pytest.mark.parametrize("time_ns", [0, -5, 10**400, 1 << 63])
def test_a_time_that_no_launch_can_take_is_unreadable(time_ns):
    one = replace(record(), candidates=(CandidateRecord("id", "a", (1000,), time_ns),))
    assert isinstance(read(document(one)), Unreadable)
    two = replace(record(), candidates=(CandidateRecord("id", "a", (time_ns,), 1000),))
    assert isinstance(read(document(two)), Unreadable)


@pytest.mark.parametrize("body", [None, 7, 1.5, ["a"]])
def test_a_body_that_is_no_text_is_unreadable(body):
    assert isinstance(decode(body), Unreadable)
