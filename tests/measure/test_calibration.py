"""Repetitions of a sample: long enough to be believed, and never longer than a submit may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.config import Config
from webtune.gpu.base import Clock, Span
from webtune.measure.calibration import SpanTarget

clocks = st.builds(Clock, st.sampled_from(["timestamp", "wall"]), st.integers(1, 10_000_000))
spans = st.builds(
    Span,
    elapsed_ns=st.integers(-(10**9), 10**12),
    repeat=st.integers(1, 10_000),
    wall_ns=st.integers(1, 10**10),
)


@given(clocks, spans)
def test_no_repetition_is_chosen_whose_submit_would_be_too_long(clock: Clock, span: Span) -> None:
    target = SpanTarget.of(clock, Config())
    repeat = target.next_repeat(span)
    assert repeat == 1 or repeat * span.wall_ns / span.repeat <= target.submit_ns


@given(clocks)
def test_what_is_aimed_at_is_above_what_is_enough(clock: Clock) -> None:
    target = SpanTarget.of(clock, Config())
    assert target.precise_ns <= target.floor_ns <= target.aim_ns <= target.submit_ns


@pytest.mark.parametrize(("elapsed_ns", "repeat"), [(1_000_000, 3), (10_000_000, 1), (100_000, 29)])
def test_a_believable_span_tells_the_repetitions_of_samples(elapsed_ns: int, repeat: int) -> None:
    target = SpanTarget.of(Clock("timestamp", 65_536), Config())
    assert target.settled_repeat(Span(elapsed_ns, 1, elapsed_ns + 100_000)) == repeat
