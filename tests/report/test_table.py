"""Tables on terminals of any width."""

from __future__ import annotations

import io

import pytest

from webtune.report.table import Table, cell_width, wrapped


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_of_plain_text_line_up() -> None:
    table = Table(("name", ">n"), (("a", "1"), ("日本", "100")), title="T", notes=("note",))
    assert table.plain().splitlines() == [
        "T",
        "name    n",
        "----  ---",
        "a       1",
        "日本  100",
        "note",
    ]


def test_markdown_keeps_bars_inside_cells() -> None:
    table = Table(("name", ">n"), (("a|b", "1"),))
    assert table.markdown() == "| name | n |\n| --- | ---: |\n| a\\|b | 1 |"


@pytest.mark.parametrize("width", [50, 60, 80, 100, 120, 160, 240])
def test_a_table_fits_its_terminal_and_breaks_no_short_cell(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", str(width))
    row = ("matmul", "256×256×256", "vec4 direct: WX=32, WY=4, TM=8", "3.250 ms ± 19.4 %", "10.7×")
    table = Table(("kernel", ">size", "winner", ">time", ">vs default"), (row, row))
    terminal = Terminal()
    table.show(terminal)
    lines = terminal.getvalue().splitlines()
    assert max(map(cell_width, lines)) <= width
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
    table = Table(("one", "two", "why"), (row,), title=sentence, notes=(sentence,))
    terminal = Terminal()
    table.show(terminal)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert set(" ".join(lines).split()) >= {*sentence.split(), "a" * 20}


def test_a_number_alone_heads_no_stacked_row() -> None:
    table = Table((">", "adapter", "kind"), (("0", "a card", "CPU"),))
    assert table.stacked(40) == ["0  a card", "    kind CPU"]


@pytest.mark.parametrize("width", range(12, 40))
def test_no_line_ends_inside_a_number_with_its_unit(width: int) -> None:
    lines = wrapped("it won in 51.76 µs ± 11.1 %, or 0.16 GB/s, of 3.2 s each", width)
    whole = ("51.76 µs ± 11.1 %,", "0.16 GB/s,", "3.2 s")
    assert all(any(text in line for line in lines) for text in whole)
