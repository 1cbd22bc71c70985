"""What is shown while a tune goes on."""

from __future__ import annotations

import io

import pytest

from webtune.measure.progress_events import ProgressEvent
from webtune.progress import Tally, show_progress


def heard(
    kind: str, candidate: int, launches: int, duration_ns: int | None = None
) -> ProgressEvent:
    return ProgressEvent(kind, candidate, f"c{candidate}", launches, duration_ns)


EVENTS = [
    heard("compiled", 0, 0),
    heard("ran", 0, 1),
    heard("sampled", 0, 2, 5_000),
    heard("failed", 1, 3),
    heard("sampled", 2, 4, 1_500),
    heard("sampled", 0, 5, 4_000),
]


def test_tally_counts_each_candidate_once_and_keeps_the_best_time() -> None:
    tally = Tally(4)
    for event in EVENTS:
        tally.add(event)
    assert tally.text() == "3/4 tried, 5 launches, 1 out, best 1.500 µs"


def test_plain_lines_go_to_the_stream_when_it_is_no_terminal() -> None:
    stream = io.StringIO()
    with show_progress("saxpy", 4, stream=stream) as listener:
        assert listener is not None
        for event in EVENTS:
            listener(event)
    assert stream.getvalue() == "saxpy: tuning 4 candidates\n"


def test_plain_lines_repeat_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 1.0, 6.0, 7.0, 12.0, 13.0])
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    stream = io.StringIO()
    with show_progress("saxpy", 4, stream=stream) as listener:
        assert listener is not None
        for event in EVENTS:
            listener(event)
    assert stream.getvalue().splitlines()[1:] == [
        "saxpy: 1/4 tried, 2 launches, best 5.000 µs",
        "saxpy: 3/4 tried, 4 launches, 1 out, best 1.500 µs",
    ]


def test_quiet_listens_to_nothing() -> None:
    stream = io.StringIO()
    with show_progress("saxpy", 4, quiet=True, stream=stream) as listener:
        assert listener is None
    assert stream.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with show_progress("saxpy", 4, stream=stream) as listener:
        assert listener is not None
        for event in EVENTS:
            listener(event)
    assert "saxpy" in stream.getvalue()
    assert "best 1.500 µs" in stream.getvalue()
