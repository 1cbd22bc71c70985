"""What every device refuses in the same words, and the values' own arithmetic."""

from __future__ import annotations

import pytest

from webtune.errors import ArgumentError
from webtune.gpu.base import (
    Dispatch,
    Identity,
    check_bindable,
    check_read,
    check_write,
    is_device,
    padded_bytes,
    program_label,
)
from webtune.testing import ScriptedDevice


@pytest.mark.parametrize(
    ("nbytes", "step", "padded"), [(0, 4, 4), (1, 4, 4), (4, 4, 4), (5, 4, 8), (12, 16, 16)]
)
def test_sizes_are_padded_to_whole_steps(nbytes: int, step: int, padded: int) -> None:
    assert padded_bytes(nbytes, step) == padded


@pytest.mark.parametrize(
    ("size_bytes", "nbytes", "offset_bytes"),
    [(8, 12, 0), (8, 4, 8), (8, 4, 2), (8, 4, -4), (12, 3, 0), (16, 5, 4), (6, 6, 0)],
)
def test_writes_that_do_not_fit_or_are_no_whole_words_are_refused(
    size_bytes: int, nbytes: int, offset_bytes: int
) -> None:
    with pytest.raises(ArgumentError):
        check_write(size_bytes, nbytes, offset_bytes)


@pytest.mark.parametrize(
    ("size_bytes", "nbytes", "offset_bytes"), [(8, 8, 0), (8, 4, 4), (8, 7, 0), (12, 2, 8)]
)
def test_a_write_may_end_its_buffer_within_a_word(
    size_bytes: int, nbytes: int, offset_bytes: int
) -> None:
    check_write(size_bytes, nbytes, offset_bytes)


def test_more_than_a_buffer_holds_cannot_be_read() -> None:
    check_read(8, 8)
    with pytest.raises(ArgumentError, match="12 bytes asked of a buffer of 8"):
        check_read(8, 12)


@pytest.mark.parametrize("usage", [0x40, 0x80, 0xC4])
def test_storage_and_uniform_buffers_can_be_bound(usage: int) -> None:
    check_bindable(usage)


def test_what_cannot_be_bound_is_refused_with_advice() -> None:
    with pytest.raises(ArgumentError, match="create it with usage=STORAGE"):
        check_bindable(0x8)


def test_identities_differ_by_any_fact_and_not_by_their_order() -> None:
    facts = (("device", "a"), ("driver", "b"))
    assert Identity("x", facts).digest == Identity("y", facts[::-1]).digest
    assert Identity("x", facts).digest != Identity("x", (("device", "a"), ("driver", "c"))).digest
    assert len(Identity("x", facts).digest) == 20


def test_a_program_has_the_first_label_of_its_dispatches() -> None:
    named, unnamed = (Dispatch("", "main", (), (), (1, 1, 1), label) for label in ("late", ""))
    assert program_label([unnamed, named]) == "late"
    assert program_label([]) == ""


def test_devices_are_told_from_what_hosts_call_devices() -> None:
    assert is_device(ScriptedDevice())
    assert not is_device(object())
    assert not is_device(None)
