"""Tables for terminals: plain text first; colour is only ever added on a terminal."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from webtune.report.format import NOTHING

_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|GB/s|GFLOP/s)(?!\w))| (?=±)|(?<=±) ")
"""The blanks inside of `1.235 ms ± 0.4 %`, at which no line is broken."""
_KEPT_WHOLE = 24
"""Cells up to so many columns wide are not broken on a narrow terminal."""


@dataclass(frozen=True, slots=True)
class Table:
    """Headed columns. A header that starts with `>` is a column of numbers, aligned to the right.
    `notes` follow the rows; `strong` are the indices of rows to stress."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    strong: frozenset[int] = frozenset()

    def plain(self) -> str:
        """The table as text, each line without trailing blanks."""
        heads = [column.removeprefix(">") for column in self.columns]
        widths = self._widths()
        lines = [self.title] if self.title else []
        lines.append(self._line(heads, widths))
        lines.append("  ".join("-" * width for width in widths))
        lines += [self._line(row, widths) for row in self.rows]
        lines += self.notes
        return "\n".join(lines)

    def _widths(self) -> list[int]:
        return [
            max(map(cell_width, [column.removeprefix(">"), *(row[i] for row in self.rows)]))
            for i, column in enumerate(self.columns)
        ]

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        padded = []
        for column, cell, width in zip(self.columns, cells, widths, strict=True):
            blank = " " * (width - cell_width(cell))
            padded.append(blank + cell if column.startswith(">") else cell + blank)
        return "  ".join(padded).rstrip()

    def markdown(self) -> str:
        """The rows as a Markdown table, for documents."""
        heads = [column.removeprefix(">") for column in self.columns]
        rule = ["---:" if column.startswith(">") else "---" for column in self.columns]
        lines = [heads, rule, *([c.replace("|", "\\|") for c in row] for row in self.rows)]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def stacked(self, width: int) -> list[str]:
        """The rows for `width` columns that cannot hold them side by side: each begins a line of
        its own, and its other cells follow under their headers' names. No cell is broken that
        fits a line, and no word of a longer one."""
        heads = [column.removeprefix(">") for column in self.columns]
        lines = []
        for row in self.rows:
            # A number tells two rows apart, but not what they are about.
            lead = 2 if row[0].isdigit() and len(row) > 1 else 1
            lines += wrapped("  ".join(row[:lead]), width, "  ")
            told = list(zip(heads, row, strict=True))[lead:]
            lines += _flowing(
                [f"{h} {cell}" for h, cell in told if cell not in ("", NOTHING)], width
            )
        return lines

    def show(self, stream: TextIO | None = None) -> None:
        """Print: through rich on a terminal where rich is installed, else as plain text; stacked
        on a terminal that is too narrow."""
        stream = stream or sys.stdout
        if not stream.isatty():
            print(self.plain(), file=stream)
            return
        width = shutil.get_terminal_size().columns
        if self._fits(width) and self._show_rich(stream, width):
            return
        if max(map(cell_width, self.plain().splitlines())) <= width:
            print(self.plain(), file=stream)
            return
        told = [self.title] if self.title else []
        lines = [*_flowed(told, width), *self.stacked(width), *_flowed(self.notes, width)]
        print("\n".join(lines), file=stream)

    def _fits(self, width: int) -> bool:
        """Whether the short columns fit whole, so that only long texts are broken."""
        return sum(min(each, _KEPT_WHOLE) + 2 for each in self._widths()) <= width

    def _show_rich(self, stream: TextIO, width: int) -> bool:
        try:
            from rich.box import SIMPLE_HEAD
            from rich.console import Console
            from rich.table import Table as RichTable
            from rich.text import Text
        except ImportError:
            return False
        console = Console(file=stream, highlight=False, width=width)
        table = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for column, widest in zip(self.columns, self._widths(), strict=True):
            table.add_column(
                column.removeprefix(">"),
                justify="right" if column.startswith(">") else "left",
                no_wrap=widest <= _KEPT_WHOLE,
                overflow="fold",
            )
        for index, row in enumerate(self.rows):
            style = "bold green" if index in self.strong else ""
            table.add_row(*(Text(cell, style=style) for cell in row))
        if self.title:
            console.print(Text(self.title))
        console.print(table)
        for note in self.notes:
            console.print(Text(note, style="dim"))
        return True


def _flowing(parts: Sequence[str], width: int) -> list[str]:
    """Parts side by side on indented lines, a new line where the next would not fit."""
    lines: list[str] = []
    line = ""
    for part in parts:
        longer = f"{line}   {part}" if line else part
        if line and cell_width(longer) + 4 > width:
            lines += wrapped(f"    {line}", width, "      ")
            line = part
        else:
            line = longer
    return [*lines, *wrapped(f"    {line}", width, "      ")] if line else lines


def _flowed(texts: Sequence[str], width: int) -> list[str]:
    return [line for text in texts for line in wrapped(text, width, "  ")]


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """A text in lines of at most `width` columns, broken between words only; those after the first
    begin with `indent`."""
    if cell_width(text) <= width:
        return [text]
    lines = textwrap.wrap(
        _NUMBER_AND_UNIT.sub("\u00a0", text),
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


def cell_width(text: str) -> int:
    """Columns of a terminal that a text takes: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )
