"""Bucketing of dimensions at the four levels."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.errors import UsageError
from webtune.kernel.anchor import Level, anchor, at_level

sizes = st.integers(1, 1 << 40)
levels = st.sampled_from(list(Level))


@pytest.mark.parametrize(
    ("level", "bucket"),
    [("minimal", 1526), ("balanced", 1024), ("extensive", 1478), ("full", 1000)],
)
def test_the_level_scales_the_base(level, bucket):
    assert anchor(1000, level=level) == bucket


@given(x=sizes, level=levels, base=st.sampled_from([1.5, 2, 2.5, 4, 10]))
def test_a_bucket_is_not_below_its_shapes_and_lies_in_itself(x, level, base):
    bucket = anchor(x, base=base, level=level)
    assert bucket >= x
    assert anchor(bucket, base=base, level=level) == bucket


@given(x=sizes, y=sizes, level=levels)
def test_buckets_keep_the_order_of_shapes(x, y, level):
    low, high = sorted((x, y))
    assert anchor(low, level=level) <= anchor(high, level=level)


@given(exponent=st.integers(0, 62))
def test_a_power_of_two_is_its_own_bucket(exponent):
    assert anchor(1 << exponent) == 1 << exponent


def test_powers_are_exact_where_a_logarithm_would_round():
    assert anchor(1000, base=10) == 1000
    assert anchor(10**15, base=10) == 10**15
    assert anchor(10**15 + 1, base=10) == 10**16


def test_coarser_levels_have_fewer_buckets():
    counts = [len({anchor(x, level=level) for x in range(1, 5000)}) for level in Level]
    assert counts == sorted(counts)
    assert counts[-1] == 4999


def test_clamps_gather_what_is_outside():
    assert anchor(5000, max=1024) == 1024
    assert anchor(3, min=64) == 64
    assert anchor(700, max=1000, min=64) == 1000


def test_full_has_no_buckets_whatever_the_clamps_say():
    assert anchor(5000, max=1024, min=64, level="full") == 5000


def test_zero_is_a_bucket_of_its_own():
    assert anchor(0) == 0
    assert anchor(0, min=16) == 16


def test_the_level_of_a_block_ends_with_it():
    with at_level("full"):
        assert anchor(1000) == 1000
        with at_level(Level.BALANCED):
            assert anchor(1000) == 1024
        assert anchor(1000) == 1000
    assert anchor(1000) == 1024


def test_the_level_of_a_block_is_not_seen_by_other_threads():
    with ThreadPoolExecutor(1) as pool, at_level("full"):
        assert pool.submit(anchor, 1000).result() == 1024


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": -1},
        {"x": 5, "min": 10, "max": 9},
        {"x": 5, "base": 1},
        {"x": 5, "base": float("nan")},
        {"x": 5, "base": float("inf")},
        {"x": 5, "level": "most"},
    ],
)
def test_what_cannot_be_bucketed_is_refused(arguments):
    with pytest.raises(UsageError, match="anchor"):
        anchor(**arguments)
