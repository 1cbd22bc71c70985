"""Spans are judged and clocks are known by arithmetic alone; every reading here is invented."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.gpu.base import Clock, Span
from webtune.gpu.clock import (
    ABSURD_NS,
    choose_period,
    estimate_quantum_ticks,
    quantum_ns,
    span_fault,
    ticks_to_ns,
    wall_resolution_ns,
)

COARSE = Clock("timestamp", 65_536)

BELIEVED = [
    Span(65_536, 1, 100_000),
    Span(100_000, 4, 100_000),
    Span(131_072, 1, 70_000),  # longer than the wall by less than one quantum
]
FAULTY = {
    "did not advance": Span(0, 1, 100_000),
    "ran backward by 5": Span(-5, 1, 100_000),
    "longer than the 1000 ns of wall time": Span(70_000, 1, 1000),
    "absurd": Span(ABSURD_NS, 1, 2 * ABSURD_NS),
    "host's clock gave 0": Span(5, 1, 0),
    "covers 0 executions": Span(5, 0, 100),
}


@pytest.mark.parametrize("span", BELIEVED)
def test_a_span_within_its_wall_time_is_believed(span: Span) -> None:
    assert span_fault(span, COARSE) is None


@pytest.mark.parametrize("reason", FAULTY)
def test_an_impossible_span_is_no_measurement_and_says_why(reason: str) -> None:
    assert reason in (span_fault(FAULTY[reason], COARSE) or "")


def test_ticks_are_subtracted_before_they_are_scaled() -> None:
    begin = (1 << 63) + 1
    assert ticks_to_ns(begin, begin + 3) == 3
    assert ticks_to_ns(begin, begin + 192, 52.083333) == 10_000
    assert ticks_to_ns(begin, begin - 2, 10.0) == -20


@given(
    st.integers(1, 1 << 20),
    st.integers(0, 1 << 62),
    st.lists(st.integers(1, 1000), min_size=12, max_size=40, unique=True),
)
def test_a_masked_clock_never_reads_finer_than_its_step(
    step: int, start: int, jumps: list[int]
) -> None:
    readings, now = [], start // step * step + step
    for jump in jumps:
        readings.append(now)
        now += jump * step
    estimate = estimate_quantum_ticks(readings)
    assert estimate % step == 0
    assert estimate <= max(jumps) * step


def test_a_masked_clock_that_mostly_stands_still_is_found() -> None:
    readings = [65_536] * 14 + [131_072] * 9 + [9 * 65_536, 9 * 65_536]
    assert estimate_quantum_ticks(readings) == 65_536


def test_a_masked_clock_that_missed_its_smallest_step_is_found() -> None:
    readings = [65_536] * 14 + [3 * 65_536] * 9 + [6 * 65_536, 6 * 65_536, 8 * 65_536]
    assert estimate_quantum_ticks(readings) == 65_536


def test_a_fine_clock_with_slow_passes_has_a_step_of_one() -> None:
    assert estimate_quantum_ticks([1, 11_505_126, 11_773_624, 11_847_222, 11_930_967]) == 1


def test_a_counter_that_ticks_finely_and_advances_rarely_is_as_coarse_as_it_advances() -> None:
    readings = [1000, 1000, 1000, 2003, 2003, 2003, 3001, 3001, 4010, 4010]
    assert estimate_quantum_ticks(readings) == 998


def test_unwritten_and_standing_clocks_have_no_step_to_show() -> None:
    assert estimate_quantum_ticks([0, 0, 0]) == 1
    assert estimate_quantum_ticks([7, 7, 7]) == 1
    assert estimate_quantum_ticks([]) == 1


def test_a_step_is_at_least_one_nanosecond() -> None:
    assert quantum_ns(1, 0.25) == 1
    assert quantum_ns(1, 52.083333) == 52


def test_the_period_that_agrees_with_the_wall_is_taken() -> None:
    assert choose_period(6_000_000, 6_400_000, [1.0]) == 1.0
    assert choose_period(115_200, 6_400_000, [52.083333, 1.0]) == 52.083333
    assert choose_period(6_000_000, 6_400_000, [52.083333, 1.0]) == 1.0


def test_a_busy_host_does_not_cost_a_good_clock() -> None:
    assert choose_period(6_000_000, 40_000_000, [1.0]) == 1.0


def test_a_clock_faster_than_the_wall_or_standing_is_not_used() -> None:
    assert choose_period(60_000_000, 6_000_000, [1.0]) is None
    assert choose_period(0, 6_000_000, [1.0]) is None
    assert choose_period(-5, 6_000_000, [1.0]) is None


def test_wall_time_is_as_fine_as_equal_launches_are_alike() -> None:
    assert wall_resolution_ns([100, 110, 95, 100, 104], 1) == 5
    assert wall_resolution_ns([100, 100, 100], 100_000) == 100_000
    assert wall_resolution_ns([], 5) == 5


def test_launches_that_were_held_up_do_not_make_the_wall_clock_coarse() -> None:
    quiet = [100_000, 104_000, 101_000, 105_000, 100_000, 103_000, 101_000]
    held_up = [*quiet, 3_000_000, *quiet, 9_000_000, *quiet]
    assert wall_resolution_ns(held_up) <= 2 * wall_resolution_ns(quiet)
    assert wall_resolution_ns([1, 9_000_000] * 5) == 500_000
