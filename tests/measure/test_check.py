"""Answers are judged before times, with numpy and without."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from webtune.errors import FailureKind, UsageError
from webtune.gpu.base import Dispatch
from webtune.measure.check import AllClose

pytestmark = pytest.mark.usefixtures("arithmetic")
NAN, INF = float("nan"), float("inf")


def test_a_right_answer_passes(one: Any, gives: Any) -> None:
    assert one(gives(1, 2, 3, 4)).writes([1, 2, 3, 4]) is None


def test_the_first_mismatch_is_told_with_index_got_and_expected(one: Any, gives: Any) -> None:
    failure = one(gives(1, 2, 3, 4)).writes([1, 2.5, 3, 9])
    assert failure is not None
    assert failure.kind is FailureKind.WRONG_ANSWER
    assert "y[1] is 2.5, expected 2; 2 of 4 elements differ" in failure.reason


def test_a_mismatch_in_a_matrix_is_told_by_its_indices_too(gives: Any, rig_of: Any) -> None:
    rig = rig_of(AllClose(gives(1, 2, 3, 4, 5, 6)), {"c": ("f32", (2, 3))})
    failure = rig.writes([1, 2, 3, 4, 5, 7])
    assert failure is not None
    assert "c[5] (at [1, 2]) is 7, expected 6" in failure.reason


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "u32", "u8"])
def test_a_candidate_that_writes_nothing_cannot_pass(dtype: str, one: Any, gives: Any) -> None:
    rig = one(gives(0, 0, 0, 0), dtype)
    failure = rig.writes(None)
    assert failure is not None
    assert "never written" in failure.reason
    assert "restore=" in failure.reason


def test_nothing_written_cannot_pass_where_nan_is_expected(one: Any, gives: Any) -> None:
    assert one(gives(NAN, NAN, NAN, NAN)).writes(None) is not None
    assert one(gives(NAN, 1, 1, 1)).writes([NAN, 1, 1, 1]) is None


def test_a_candidate_that_stops_halfway_cannot_pass(one: Any, gives: Any) -> None:
    failure = one(gives(1, 2, 3, 4)).writes([1, 2])
    assert failure is not None
    assert "2 of 4" in failure.reason
    assert "y[2]" in failure.reason


def test_candidates_that_share_an_output_cannot_hide_each_others_faults(
    one: Any, gives: Any
) -> None:
    rig = one(gives(1, 2, 3, 4))
    assert rig.writes([1, 2, 3, 4]) is None
    assert rig.writes(None) is not None
    assert rig.writes([1, 2, 3, 4]) is None


def test_restored_buffers_start_from_their_content_every_time(one: Any) -> None:
    rig = one(lambda y: [v + 1 for v in y], restore=["y"], start={"y": [1, 2, 3, 4]})

    def add_one(views: Sequence[memoryview], _: Dispatch) -> None:
        values = struct.unpack("<4f", views[0])
        views[0][:] = struct.pack("<4f", *(v + 1 for v in values))

    assert rig.effect(add_one) is None
    assert rig.effect(add_one) is None
    assert rig.writes(None) is not None


@pytest.mark.parametrize(
    ("dtype", "expected", "got", "right"),
    [
        ("f32", 100.0, 100.005, True),
        ("f32", 100.0, 100.05, False),
        ("f16", 100.0, 100.5, True),
        ("f16", 100.0, 104.0, False),
        ("i32", 1_000_000, 1_000_001, False),
        ("u32", 4_000_000_000, 4_000_000_000, True),
        ("f32", INF, INF, True),
        ("f32", INF, -INF, False),
        ("f32", INF, 3.0, False),
        ("f32", NAN, NAN, True),
        ("f32", NAN, 1.0, False),
        ("f32", 1.0, NAN, False),
        ("f32", 0.0, 0.0, True),
        ("f32", 0.0, 1e-3, False),
    ],
)
def test_default_tolerances_make_sense_per_dtype(
    dtype: str, expected: float, got: float, right: bool, one: Any, gives: Any
) -> None:
    assert (one(gives(expected), dtype, n=1).writes([got]) is None) is right


def test_a_sum_that_cancels_may_round_on_the_scale_of_the_others(one: Any, gives: Any) -> None:
    assert one(gives(1000, -1000, 0, 500)).writes([1000, -1000, 1e-3, 500]) is None
    assert one(gives(1, -1, 0, 0.5)).writes([1, -1, 1e-3, 0.5]) is not None


@pytest.mark.parametrize("share", [2, 3, 16])
@pytest.mark.parametrize("mask", [-1e9, 1e30, -3e38, INF, NAN])
def test_a_mask_lets_nothing_wrong_pass(share: int, mask: float, one: Any, gives: Any) -> None:
    """One in `share` is no mask."""
    expected = [2.0 if place % share == 0 else mask for place in range(48)]
    assert one(gives(*expected), n=48).writes(expected) is None
    wrong = [-123.0 if value == 2.0 else value for value in expected]
    failure = one(gives(*expected), n=48).writes(wrong)
    assert failure is not None
    assert f"{48 // share} of 48 elements differ" in failure.reason


@pytest.mark.parametrize("mask", [-1e9, 1e30])
def test_a_mask_beside_zeros_lets_nothing_wrong_pass(mask: float, one: Any, gives: Any) -> None:
    assert one(gives(mask, 0, 0, mask)).writes([mask, 1e-6, 0, mask]) is None
    assert one(gives(mask, 0, 0, mask)).writes([mask, 0.01, 0, mask]) is not None


def test_a_mask_that_adds_lets_nothing_wrong_pass(one: Any, gives: Any) -> None:
    expected = [1 + place / 64 - (1e4 if place % 4 else 0) for place in range(64)]
    wrong = [value + 0.05 if value > 0 else value for value in expected]
    failure = one(gives(*expected), n=64).writes(wrong)
    assert failure is not None
    assert "16 of 64 elements differ" in failure.reason


def test_one_huge_element_lets_nothing_wrong_pass(one: Any, gives: Any) -> None:
    failure = one(gives(1e8, *[3.0] * 15), n=16).writes([1e8, *[0.0] * 15])
    assert failure is not None
    assert "15 of 16 elements differ" in failure.reason
    values = [place + 0.5 for place in range(15)]
    failure = one(gives(1e30, *values), n=16).writes([1e30, *[value + 1 for value in values]])
    assert failure is not None
    assert "15 of 16 elements differ" in failure.reason


def test_long_sums_of_normal_values_may_round(one: Any) -> None:
    chance = np.random.default_rng(7)
    left = chance.standard_normal((64, 4096), dtype=np.float32)
    right = chance.standard_normal((4096, 16), dtype=np.float32)
    exact = (left.astype("f8") @ right.astype("f8")).ravel()
    backwards = np.cumsum(left[:, ::-1, None] * right[None, ::-1], axis=1)[:, -1].ravel()
    assert np.abs(backwards / exact - 1).max() > 1e-4, "some of these sums nearly cancel"
    rig = one(lambda y: exact.tolist(), n=1024)
    assert rig.writes(backwards.tolist()) is None
    assert rig.writes((backwards + 0.01).tolist()) is not None


def test_a_residue_of_sums_that_cancel_does_not_set_the_scale(one: Any, gives: Any) -> None:
    assert one(gives(1000, -1001, 1e-5, 500)).writes([1000, -1001, -2e-5, 500]) is None


def test_given_tolerances_are_kept(one: Any, gives: Any) -> None:
    assert one(gives(1, 2, 3, 4), rtol=0.5).writes([1.4, 2, 3, 4]) is None
    assert one(gives(1, 2, 3, 4), rtol=0.0, atol=0.0).writes([1.0000001, 2, 3, 4]) is not None
    assert one(gives(10, 10), "i32", n=2, atol=1).writes([11, 9]) is None
    assert one(gives(10, 10), "i32", n=2, rtol=0.5).writes([11, 9]) is not None


@pytest.mark.parametrize("value", [float("inf"), -1.0, NAN])
def test_a_negative_tolerance_is_refused(value: float) -> None:
    with pytest.raises(UsageError):
        AllClose(rtol=value)


def test_without_a_reference_the_first_answer_is_it(one: Any) -> None:
    rig = one()
    assert rig.writes([1, 2, 3, 4], name="first") is None
    assert rig.writes([1, 2, 3, 4]) is None
    failure = rig.writes([1, 2, 3, 5])
    assert failure is not None
    assert "expected 4 (from first)" in failure.reason


def test_a_first_candidate_that_writes_nothing_is_no_reference(one: Any) -> None:
    rig = one()
    failure = rig.writes(None)
    assert failure is not None
    assert "wrote nothing to y" in failure.reason
    assert rig.writes([1, 2, 3, 4]) is None


def test_a_first_candidate_that_writes_a_part_only_is_no_reference(one: Any) -> None:
    rig = one()
    failure = rig.writes([1, 2])
    assert failure is not None
    assert "wrote 2 of 4 elements to y" in failure.reason
    assert rig.writes([1, 2, 3, 4]) is None


def test_a_reference_must_be_a_function() -> None:
    with pytest.raises(UsageError, match="function"):
        AllClose([1, 2, 3])  # type: ignore[arg-type]


def test_sizes_that_are_no_multiple_of_four_are_compared_whole(one: Any, gives: Any) -> None:
    rig = one(gives(1, 2, 3, 4, 5), "u8", n=5)
    assert rig.writes([1, 2, 3, 4, 5]) is None
    failure = rig.writes([1, 2, 3, 4, 6])
    assert failure is not None
    assert "y[4] is 6, expected 5" in failure.reason


def test_closing_frees_the_poison(one: Any, gives: Any) -> None:
    rig = one(gives(1, 2, 3, 4))
    before = len(rig.device.buffers)
    rig.writes([1, 2, 3, 4])
    assert len(rig.device.buffers) == before + 1
    rig.check.close(rig.device)
    assert len(rig.device.buffers) == before
