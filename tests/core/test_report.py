"""What people read: units, alignment, order."""

from __future__ import annotations

import io

import pytest

from webtune import report
from webtune.core.model import Interval


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
    assert report.duration(time_ns) == text


def test_spread_is_half_the_interval_relative_to_the_time() -> None:
    assert report.spread(1_000_000, (990_000, 1_010_000)) == "1.000 ms ± 1.0 %"
    assert report.spread(1_000_000, Interval(980_000, 1_020_000)) == "1.000 ms ± 2.0 %"
    assert report.spread(5_000, None) == "5.000 µs"


def test_interval_names_a_shared_unit_once() -> None:
    assert report.between((1_230_000, 1_250_000)) == "1.230 … 1.250 ms"
    assert report.between((900, 1_100)) == "900 ns … 1.100 µs"
    assert report.between(None) == "–"


def test_arithmetic_is_preferred_to_traffic_as_a_rate() -> None:
    assert report.rate(2e9, 1e6, 1_000_000) == "2000 GFLOP/s"
    assert report.rate(None, 1.5e6, 1_000_000) == "1.50 GB/s"
    assert report.rate(None, None, 1_000_000) == "–"
    assert report.rate(2e9, None, None) == "–"


def test_unknown_times_have_no_factor() -> None:
    assert report.factor(3_000, 1_000) == "3.00×"
    assert report.factor(None, 1_000) == "–"
    assert report.factor(1_000, 0) == "–"


LINES = [
    report.CandidateLine("slow", {"WG": 32}, 4_000, (3_900, 4_100), 3, "slower", "4× the best"),
    report.CandidateLine("broken", {}, None, None, 0, "launch", "\nerror: no such\nmore lines"),
    report.CandidateLine("quick", {"WG": 64}, 1_000, (990, 1_010), 9, "winner"),
    report.CandidateLine("near", {"WG": 128}, 990, (980, 1_020), 9, "ties"),
]


def test_winner_stands_first_even_where_a_tie_has_a_smaller_estimate() -> None:
    table = report.candidate_table(LINES)
    names = [row[0].split()[0] for row in table.rows]
    assert names == ["quick", "near", "slow", "broken"]
    assert table.strong == {0}


def test_reasons_are_cut_to_one_line() -> None:
    row = report.candidate_table(LINES).rows[-1]
    assert row[1:] == ("–", "–", "–", "–", "launch", "error: no such")
    assert len(report.first_line("x" * 500)) == 120


def test_columns_of_plain_text_line_up() -> None:
    table = report.Table(("name", ">n"), (("a", "1"), ("日本", "100")), title="T", notes=("note",))
    assert table.plain().splitlines() == [
        "T",
        "name    n",
        "----  ---",
        "a       1",
        "日本  100",
        "note",
    ]


def test_markdown_keeps_bars_inside_cells() -> None:
    table = report.Table(("name", ">n"), (("a|b", "1"),))
    assert table.markdown() == "| name | n |\n| --- | ---: |\n| a\\|b | 1 |"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    piped, terminal = io.StringIO(), Terminal()
    table = report.candidate_table(LINES)
    table.show(piped)
    table.show(terminal)
    assert piped.getvalue() == table.plain() + "\n"
    assert "\x1b[" in terminal.getvalue()
    assert "quick" in terminal.getvalue()
