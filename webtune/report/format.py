"""Tables for people. Everything is plain text first; colour is only ever added on a terminal.

Nothing is decided here: winners, ties and verdicts arrive as they were decided. Times come in as
integer nanoseconds and are written with a unit.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

from webtune.strategies.model import Interval
from webtune.tuning.peaks import BELIEVED

if TYPE_CHECKING:
    from webtune.report.report import CandidateReport, TuneReport

__all__ = [
    "Table",
    "between",
    "candidate_table",
    "candidate_text",
    "counted",
    "duration",
    "explain_table",
    "factor",
    "headline",
    "rate",
    "spread",
    "wrapped",
]

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_NOTHING = "–"
_TOLD_APART = 3
_TIES_TOLD = 5
_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|GB/s|GFLOP/s)(?!\w))| (?=±)|(?<=±) ")
"""The blanks inside of `1.235 ms ± 0.4 %`, at which no line is broken."""
_KEPT_WHOLE = 24
"""Cells up to so many columns wide are not broken on a narrow terminal."""


def duration(time_ns: float | None) -> str:
    """`1234567` → `1.235 ms`: four digits in the largest unit that leaves one before the point."""
    if time_ns is None:
        return _NOTHING
    for size, unit in _UNITS:
        if abs(time_ns) >= size or size == 1:
            return f"{_four_digits(time_ns / size, whole=size == 1)} {unit}"
    raise AssertionError("unreachable")


def spread(time_ns: float | None, interval: Interval | tuple[int, int] | None) -> str:
    """A time with half the width of its interval, in per cent: `1.235 ms ± 0.4 %`."""
    if time_ns is None or interval is None:
        return duration(time_ns)
    low, high = _ends(interval)
    half = 50 * (high - low) / time_ns if time_ns else 0.0
    return f"{duration(time_ns)} ± {half:.1f} %"


def between(interval: Interval | tuple[int, int] | None) -> str:
    """An interval's ends: `1.23 … 1.25 ms`, one unit where both share it."""
    if interval is None:
        return _NOTHING
    low, high = (duration(end) for end in _ends(interval))
    return f"{low.removesuffix(' ' + high.split()[-1])} … {high}"


def factor(numerator_ns: float | None, denominator_ns: float | None) -> str:
    """How many times: `2.41×`, or a dash where either is not known."""
    if not numerator_ns or not denominator_ns:
        return _NOTHING
    return f"{_three_digits(numerator_ns / denominator_ns)}×"


def rate(flops: float | None, nbytes: float | None, time_ns: float | None) -> str:
    """Throughput: in GFLOP/s where there is at least one operation a byte, else in GB/s."""
    if not time_ns or not (flops or nbytes):
        return _NOTHING
    if flops and flops >= (nbytes or 0):
        return f"{_three_digits(flops / time_ns)} GFLOP/s"
    return f"{_three_digits((nbytes or 0) / time_ns)} GB/s"


def counted(count: int, what: str) -> str:
    """A count with its noun: `1 pick`, `2 picks`, `2 launches`."""
    plural = "es" if what.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{count} {what}{plural * (count != 1)}"


def _ends(interval: Interval | tuple[int, int]) -> tuple[int, int]:
    if isinstance(interval, Interval):
        return interval.low_ns, interval.high_ns
    return interval[0], interval[1]


def _four_digits(value: float, *, whole: bool) -> str:
    if whole:
        return f"{value:.0f}"
    return f"{value:.3f}" if value < 10 else f"{value:.2f}" if value < 100 else f"{value:.1f}"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


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
                [f"{h} {cell}" for h, cell in told if cell not in ("", _NOTHING)], width
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


def candidate_table(report: TuneReport) -> Table:
    """What became of every candidate: the winner first, then by time, then those without one."""
    ordered = sorted(
        report.results,
        key=lambda one: (
            one.status != "winner",
            one.time_ns is None,
            one.time_ns or 0,
            *(("", "") if one.time_ns else (one.status, one.reason)),
        ),
    )
    best_ns = report.winner_ns
    rows = tuple(
        (
            _together(same),
            duration(same[0].time_ns),
            between(same[0].interval_ns) if len(same[0].samples_ns) > 1 else _NOTHING,
            factor(same[0].time_ns, best_ns),
            str(len(same[0].samples_ns)) if same[0].samples_ns else _NOTHING,
            *_verdict(same[0]),
        )
        for same in _alike(ordered)
    )
    columns = ("candidate", ">time", ">interval", ">vs winner", ">samples", "verdict", "why")
    strong = frozenset(i for i, one in enumerate(ordered) if one.status == "winner")
    return Table(columns, rows, title=headline(report), notes=_notes(report), strong=strong)


def _alike(ordered: Sequence[CandidateReport]) -> Iterator[list[CandidateReport]]:
    """Candidates one by one; those without a time that share verdict and reason, together."""
    for (without, *_), group in groupby(
        ordered,
        key=lambda one: (
            (one.time_ns is None, one.status, one.reason)
            if one.time_ns is None
            else (False, one.id, "")
        ),
    ):
        same = list(group)
        if without and len(same) > _TOLD_APART:
            yield same
        else:
            yield from ([one] for one in same)


def _verdict(one: CandidateReport) -> tuple[str, str]:
    """What became of a candidate, and why."""
    if _untried(one):
        return "not tuned yet", ""
    return one.status, first_line(one.reason)


def _untried(one: CandidateReport) -> bool:
    return one.status == "skipped" and one.reason in ("", "not tuned yet")


def _together(same: Sequence[CandidateReport]) -> str:
    first = candidate_text(same[0])
    return first if len(same) == 1 else f"{first} and {len(same) - 1} more"


def explain_table(report: TuneReport) -> str:
    """The table of a decision as plain text."""
    return candidate_table(report).plain()


def candidate_text(one: CandidateReport) -> str:
    """A candidate's name with its parameters, each told once."""
    text = str(one.params)
    return one.name if not text or text in one.name else f"{one.name}: {text}"


def headline(report: TuneReport) -> str:
    """One line: which problem, who won, how sure, and where that comes from."""
    where = f"{report.name} {report.key}"
    if report.winner is None:
        untried = all(map(_untried, report.results))
        return f"{where}: {'not tuned yet' if untried else 'no candidate could be taken'}"
    best = candidate_text(report.winner)
    if report.source == "single":
        return f"{where}: {best} is the only candidate, so nothing was measured"
    if not report.measured:
        return f"{where}: {best} ran, and none could be timed"
    work = report.work
    speed = rate(work.flops, work.bytes, report.winner_ns) if work else _NOTHING
    took = spread(report.winner_ns, report.interval_ns)
    return f"{where}: {best} in {took}" + (f", {speed}" if speed != _NOTHING else "")


def _tally(report: TuneReport) -> str:
    candidates = counted(len(report.results), "candidate")
    counts = report.counts()
    untried = sum(map(_untried, report.results))
    counts["skipped"] -= untried
    told = {**counts, "not tuned yet": untried}
    return f"{candidates}: {', '.join(f'{n} {what}' for what, n in told.items() if n)}."


def _notes(report: TuneReport) -> tuple[str, ...]:
    notes = [_tally(report)] if report.results else []
    if report.achieved is not None:
        enough = f"; at {duration(report.limit_ns)} it is fast enough" if report.limit_ns else ""
        notes.append(
            f"It reaches {report.achieved:.0%} of this device's roofline{enough}."
            if report.achieved <= BELIEVED
            else f"It is {report.achieved:.2f} times as fast as this device's roofline allows: "
            "the work is declared too large, or a peak was measured too low (peaks(fresh=True) "
            "measures it again); the limit is not used."
        )
    if report.ties:
        some = "; ".join(report.ties[:_TIES_TOLD])
        more = len(report.ties) - _TIES_TOLD
        some += f" and {more} more" if more > 0 else ""
        notes.append(f"Not to be told from the winner: {some}. Any of them would do.")
    if report.strategy and report.source != "single":
        origin = "From the store, tuned" if report.source == "store" else "Tuned"
        sure = f", {report.confidence:.0%} sure" if report.confidence else ""
        cost = f"in {report.wall_s:.2f} s with {counted(report.launches, 'launch')}"
        notes.append(f"{origin} by {report.strategy} {cost}{sure}.")
    if report.clock[0]:
        kind, quantum_ns, _ = report.clock
        device = f"On {report.hardware}; " if report.hardware else ""
        notes.append(f"{device}{kind} clock in steps of {duration(quantum_ns)}.")
    return tuple(notes)


def first_line(text: str, most: int = 120) -> str:
    """The first line with anything in it, cut where it would break the table."""
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    return line if len(line) <= most else line[: most - 1] + "…"
