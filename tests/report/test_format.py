"""What people read: units, alignment, order."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from webtune.kernel.space import Params
from webtune.kernel.work import Work
from webtune.report import format as report
from webtune.report.report import CandidateReport, TuneReport
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
    assert report.duration(time_ns) == text


def test_spread_is_half_the_interval_relative_to_the_time() -> None:
    assert report.spread(1_000_000, (990_000, 1_010_000)) == "1.000 ms ± 1.0 %"
    assert report.spread(1_000_000, Interval(980_000, 1_020_000)) == "1.000 ms ± 2.0 %"
    assert report.spread(5_000, None) == "5.000 µs"


def test_interval_names_a_shared_unit_once() -> None:
    assert report.between((1_230_000, 1_250_000)) == "1.230 … 1.250 ms"
    assert report.between((900, 1_100)) == "900 ns … 1.100 µs"
    assert report.between(None) == "–"


def test_a_rate_counts_arithmetic_where_that_is_most_of_the_work() -> None:
    assert report.rate(2e9, 1e6, 1_000_000) == "2000 GFLOP/s"
    assert report.rate(2e6, 12e6, 1_000_000) == "12.0 GB/s"
    assert report.rate(None, 1.5e6, 1_000_000) == "1.50 GB/s"
    assert report.rate(None, None, 1_000_000) == "–"
    assert report.rate(2e9, None, None) == "–"


def test_unknown_times_have_no_factor() -> None:
    assert report.factor(3_000, 1_000) == "3.00×"
    assert report.factor(None, 1_000) == "–"
    assert report.factor(1_000, 0) == "–"


def candidate(name: str, status: str, **rest: Any) -> CandidateReport:
    return CandidateReport(name, Params(rest.pop("params", {})), f"id of {name}", status, **rest)


QUICK = candidate(
    "WG=64", "winner", params={"WG": 64}, time_ns=1_000, interval_ns=(990, 1_010),
    samples_ns=(990, 1_000, 1_010),
)  # fmt: skip
REPORT = TuneReport(
    "saxpy",
    "[16]",
    QUICK,
    (
        candidate("slow", "slower", params={"WG": 32}, time_ns=4_000, samples_ns=(4_000,)),
        candidate("broken", "launch", reason="\nerror: no such\nmore lines"),
        QUICK,
        candidate("near", "tie", time_ns=990, interval_ns=(980, 1_020), samples_ns=(990, 991)),
    ),
    "tuned",
    strategy="adaptive",
    ties=("near",),
    confidence=0.6,
    tie_rule="least digest",
    launches=12,
    wall_s=0.25,
    clock=("timestamp", 65_536, 1.0),
    hardware="a card",
    work=Work(flops=2_000.0),
)


def test_winner_stands_first_even_where_a_tie_has_a_smaller_estimate() -> None:
    table = report.candidate_table(REPORT)
    assert [row[0] for row in table.rows] == ["WG=64", "near", "slow: WG=32", "broken"]
    assert table.strong == {0}


def test_a_decision_is_told_with_its_interval_rate_ties_cost_and_clock() -> None:
    text = str(REPORT)
    assert text.startswith("saxpy [16]: WG=64 in 1.000 µs ± 1.0 %, 2.00 GFLOP/s\n")
    assert text.splitlines()[-4:] == [
        "4 candidates: 3 measured, 1 failed.",
        "Not to be told from the winner: near. Any of them would do.",
        "Tuned by adaptive in 0.25 s with 12 launches, 60% sure.",
        "On a card; timestamp clock in steps of 65.54 µs.",
    ]


def test_a_decision_without_a_measured_winner_says_so() -> None:
    assert "no candidate could be taken" in str(replace(REPORT, winner=None))
    assert "none could be timed" in str(replace(REPORT, measured=False))
    assert "nothing was measured" in str(replace(REPORT, source="single"))


def test_reasons_are_cut_to_one_line() -> None:
    row = report.candidate_table(REPORT).rows[-1]
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
    table = report.candidate_table(REPORT)
    table.show(piped)
    table.show(terminal)
    assert piped.getvalue() == table.plain() + "\n"
    assert "\x1b[" in terminal.getvalue()
    assert "WG=64" in terminal.getvalue()


@pytest.mark.parametrize("width", [50, 60, 80, 100, 120, 160, 240])
def test_a_table_fits_its_terminal_and_breaks_no_short_cell(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", str(width))
    row = ("matmul", "256×256×256", "vec4 direct: WX=32, WY=4, TM=8", "3.250 ms ± 19.4 %", "10.7×")
    table = report.Table(("kernel", ">size", "winner", ">time", ">vs default"), (row, row))
    terminal = Terminal()
    table.show(terminal)
    lines = terminal.getvalue().splitlines()
    assert max(map(report.cell_width, lines)) <= width
    short = [cell for cell in row if len(cell) <= 24]
    for text in (*short, *row[2].split()):
        assert sum(text in line for line in lines) == 2


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_titles_notes_and_long_cells_are_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", str(width))
    sentence = "a sentence of many words that goes on past the end of any narrow terminal"
    row = (sentence, "a" * 20, sentence)
    table = report.Table(("one", "two", "why"), (row,), title=sentence, notes=(sentence,))
    terminal = Terminal()
    table.show(terminal)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert set(" ".join(lines).split()) >= {*sentence.split(), "a" * 20}


def test_a_number_alone_heads_no_stacked_row() -> None:
    table = report.Table((">", "adapter", "kind"), (("0", "a card", "CPU"),))
    assert table.stacked(40) == ["0  a card", "    kind CPU"]


def test_a_set_that_was_never_tuned_is_not_said_to_be_skipped() -> None:
    untried = [candidate(f"c{n}", "skipped", reason="not tuned yet") for n in range(4)]
    text = str(TuneReport("k", "[]", None, tuple(untried), "miss"))
    assert text.startswith("k []: not tuned yet\n")
    assert "4 candidates: 4 not tuned yet." in text
    assert "skipped" not in text


def test_one_is_singular() -> None:
    assert [report.counted(n, "pick") for n in (0, 1, 2)] == ["0 picks", "1 pick", "2 picks"]
    assert [report.counted(n, "launch") for n in (1, 2)] == ["1 launch", "2 launches"]
    assert "with 1 launch," in str(replace(REPORT, launches=1))


def test_many_candidates_with_one_reason_share_a_row() -> None:
    skipped = [
        CandidateReport(f"c{n}", Params({}), f"id{n}", "skipped", reason="it was enough")
        for n in range(5)
    ]
    won = CandidateReport("best", Params({}), "w", "winner", 1000, (990, 1010), (1000,))
    table = str(TuneReport("k", "[]", won, (won, *skipped), "tuned"))
    assert "c0 and 4 more" in table
    assert "c3" not in table
    assert "5 skipped" in table


def test_a_report_is_one_line_among_other_values_and_a_table_in_print() -> None:
    line = "<TuneReport saxpy [16]: WG=64 in 1.000 µs ± 1.0 %, 2.00 GFLOP/s; 4 candidates, tuned>"
    assert f"{[REPORT]}" == f"[{line}]"
    assert repr(QUICK) == "<CandidateReport WG=64: winner, 1.000 µs>"
    assert len(str(REPORT).splitlines()) > 6


@pytest.mark.parametrize("width", range(12, 40))
def test_no_line_ends_inside_a_number_with_its_unit(width: int) -> None:
    lines = report.wrapped("it won in 51.76 µs ± 11.1 %, or 0.16 GB/s, of 3.2 s each", width)
    whole = ("51.76 µs ± 11.1 %,", "0.16 GB/s,", "3.2 s")
    assert all(any(text in line for line in lines) for text in whole)
