"""Digests over content: equal content gives equal digests, and every part counts."""

import enum
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.errors import KeyUnserialisable
from webtune.fingerprint.digests import candidate_id, canonical, digest, set_fingerprint

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Side(enum.StrEnum):
    LEFT = "left"


@given(plain)
def test_a_key_survives_the_round_trip(key):
    text = canonical(key)
    assert text.isascii()
    assert canonical(json.loads(text)) == text


def test_equal_keys_have_one_text():
    assert canonical((1, (2, "x"))) == canonical([1, [2, "x"]])
    assert canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1})
    assert canonical((np.int64(5), np.float32(0.5), np.bool_(True))) == canonical((5, 0.5, True))
    assert canonical(Side.LEFT) == canonical("left")


def test_numbers_of_different_kinds_are_different_keys():
    assert len({canonical(key) for key in (1, 1.0, True, "1", None)}) == 5


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ({1, 2}, "sorted"),
        (b"raw", "hex"),
        (float("nan"), "nan"),
        ({"a": [0, float("inf")]}, r"key\['a'\]\[1\] is inf"),
        ({1: 2}, "str keys"),
        (np.zeros(3), "shape"),
        (object(), "use None, bool"),
        ((1, print), r"key\[1\]"),
        (3j, "complex"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_advice(key, advice):
    with pytest.raises(KeyUnserialisable, match=advice):
        canonical(key)


@pytest.mark.parametrize(("value", "kind"), [(object(), "object"), ({1}, "set"), (b"", "bytes")])
def test_what_json_cannot_hold_is_told_with_its_place_and_its_type(value, kind):
    with pytest.raises(KeyUnserialisable, match=rf"key\[1\]\['a'\] is of type {kind}: "):
        canonical([0, {"a": value}])


def test_a_key_that_holds_itself_is_refused():
    key = []
    key.append(key)
    with pytest.raises(KeyUnserialisable, match="nested"):
        canonical(key)


BASE = {"wgsl": ["fn main() {}"], "params": {"WG": 64}, "entries": ["main"], "extra": [1]}


@pytest.mark.parametrize(
    "change",
    [
        {"wgsl": ["fn main() { }"]},
        {"wgsl": ["fn main()", " {}"]},
        {"params": {"WG": 128}},
        {"params": {"WG": 64.0}},
        {"params": {"wg": 64}},
        {"entries": ["other"]},
        {"extra": [2]},
    ],
)
def test_every_part_of_a_candidate_counts(change):
    assert candidate_id("a", **BASE) != candidate_id("a", **(BASE | change))


def test_a_renamed_candidate_is_another_one():
    assert candidate_id("a", **BASE) != candidate_id("b", **BASE)


def test_samples_of_another_schema_belong_to_another_candidate(monkeypatch):
    before = candidate_id("a", **BASE)
    monkeypatch.setattr("webtune.fingerprint.digests.MEASUREMENT_SCHEMA", 2)
    assert candidate_id("a", **BASE) != before


def test_the_order_of_candidates_does_not_count_and_each_of_them_does():
    assert set_fingerprint("s", ["a", "b"]) == set_fingerprint("s", ["b", "a"])
    assert set_fingerprint("s", ["a", "b"]) != set_fingerprint("s", ["a"])
    assert set_fingerprint("s", ["a", "b"]) != set_fingerprint("s", ["ab"])
    assert set_fingerprint("s", ["a"]) != set_fingerprint("t", ["a"])


def test_a_digest_is_the_same_in_another_process():
    code = (
        "from webtune.fingerprint.digests import digest; print(digest({'b': [1, 'ü'], 'a': 0.1}))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert other.stdout.strip() == digest({"a": 0.1, "b": [1, "ü"]})


def test_an_integer_of_thousands_of_digits_is_told():
    with pytest.raises(KeyUnserialisable, match="cannot be written as JSON"):
        canonical([10**5000])
