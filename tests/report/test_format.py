"""Numbers as people read them."""

from __future__ import annotations

import pytest

from webtune.report import format as formats
from webtune.strategies.model import Interval


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (None, "–"),
        (7, "7 ns"),
        (999, "999 ns"),
        (1_000, "1.000 µs"),
        (12_345, "12.35 µs"),
        (123_456, "123.5 µs"),
        (1_234_567, "1.235 ms"),
        (2_500_000_000, "2.500 s"),
    ],
)
def test_a_time_has_four_digits_and_the_largest_unit_that_fits(
    time_ns: int | None, text: str
) -> None:
    assert formats.duration(time_ns) == text


def test_spread_is_half_the_interval_relative_to_the_time() -> None:
    assert formats.spread(1_000_000, (990_000, 1_010_000)) == "1.000 ms ± 1.0 %"
    assert formats.spread(1_000_000, Interval(980_000, 1_020_000)) == "1.000 ms ± 2.0 %"
    assert formats.spread(5_000, None) == "5.000 µs"


def test_interval_names_a_shared_unit_once() -> None:
    assert formats.between((1_230_000, 1_250_000)) == "1.230 … 1.250 ms"
    assert formats.between((900, 1_100)) == "900 ns … 1.100 µs"
    assert formats.between(None) == "–"


def test_a_rate_counts_arithmetic_where_that_is_most_of_the_work() -> None:
    assert formats.rate(2e9, 1e6, 1_000_000) == "2000 GFLOP/s"
    assert formats.rate(2e6, 12e6, 1_000_000) == "12.0 GB/s"
    assert formats.rate(None, 1.5e6, 1_000_000) == "1.50 GB/s"
    assert formats.rate(None, None, 1_000_000) == "–"
    assert formats.rate(2e9, None, None) == "–"


def test_unknown_times_have_no_factor() -> None:
    assert formats.factor(3_000, 1_000) == "3.00×"
    assert formats.factor(None, 1_000) == "–"
    assert formats.factor(1_000, 0) == "–"


def test_one_is_singular() -> None:
    assert [formats.counted(n, "pick") for n in (0, 1, 2)] == ["0 picks", "1 pick", "2 picks"]
    assert [formats.counted(n, "launch") for n in (1, 2)] == ["1 launch", "2 launches"]


def test_a_text_is_cut_to_its_first_line() -> None:
    assert formats.first_line("\nerror: no such\nmore") == "error: no such"
    assert len(formats.first_line("x" * 500)) == 120
