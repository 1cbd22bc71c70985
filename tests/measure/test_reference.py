"""What a reference is given, and what it may return, with numpy and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webtune.errors import UsageError
from webtune.kernel.arguments import HostArray
from webtune.measure.check import AllClose

pytestmark = pytest.mark.usefixtures("arithmetic")


def test_the_reference_gets_every_argument_as_it_was_before_the_tune(
    arithmetic: str, one: Any
) -> None:
    seen: list[Any] = []

    def reference(h: Any, y: Any) -> Any:
        seen.append((type(h).__name__, list(h), list(y)))
        return [5, 6, 7, 8]

    host = HostArray(memoryview(np.array([7, 8], np.uint32)))
    rig = one(reference, restore=["y"], start={"y": [1, 2, 3, 4]}, host=[host])
    assert rig.writes([5, 6, 7, 8]) is None
    assert rig.writes([5, 6, 7, 8]) is None
    kind = "ndarray" if arithmetic == "numpy" else "memoryview"
    assert seen == [(kind, [7, 8], [1.0, 2.0, 3.0, 4.0])]


def test_a_reference_may_name_outputs_or_list_them(rig_of: Any) -> None:
    outputs = {"a": ("f32", (2,)), "b": ("i32", (2,))}
    for answer in (
        {"b": [3, 4], "a": [1, 2]},
        ([1, 2], [3, 4]),
        (None, [3, 4]),
        {"b": [3, 4]},
    ):
        rig = rig_of(AllClose(lambda a, b, answer=answer: answer), outputs)
        assert rig.writes([1, 2], [3, 4]) is None
        failure = rig.writes([1, 2], [3, 5])
        assert failure is not None
        assert "b[1] is 5, expected 4" in failure.reason


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "returned nothing"),
        ([1, 2, 3], r"shape \[3\], the argument has \[4\]"),
        ({"z": [1]}, "returned z; the candidates write y"),
        ({}, "empty dict"),
        ((None,), "no answer is checked"),
        ({"y": None}, "no answer is checked"),
        (([1], [2]), "returned 2 arrays, the candidates write 1"),
    ],
)
def test_an_answer_that_does_not_fit_says_what_to_return(
    answer: Any, message: str, one: Any
) -> None:
    with pytest.raises(UsageError, match=message):
        one(lambda y: answer).writes([1, 2, 3, 4])


def test_a_transposed_answer_is_refused(rig_of: Any) -> None:
    rig = rig_of(
        AllClose(lambda c: [[1, 2], [3, 4], [5, 6]]),
        {"c": ("f32", (2, 3))},
    )
    with pytest.raises(UsageError, match=r"shape \[3, 2\], the argument has \[2, 3\]"):
        rig.writes([1, 2, 3, 4, 5, 6])


def test_a_flat_answer_serves_a_matrix_and_a_matrix_serves_a_flat_argument(
    one: Any, gives: Any, rig_of: Any
) -> None:
    matrix = rig_of(AllClose(gives(1, 2, 3, 4)), {"c": ("f32", (2, 2))})
    assert matrix.writes([1, 2, 3, 4]) is None
    assert one(lambda y: [[1, 2], [3, 4]]).writes([1, 2, 3, 4]) is None


def test_a_reference_that_raises_is_the_callers_error(one: Any) -> None:
    def broken(y: Any) -> Any:
        raise ZeroDivisionError("oh")

    with pytest.raises(UsageError, match=r"ZeroDivisionError: oh.*y f32\[4\]") as caught:
        one(broken).writes([1, 2, 3, 4])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
