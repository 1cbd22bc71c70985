"""How much of a decision is logged at each level."""

from __future__ import annotations

import logging

import pytest

from webtune.kernel.space import Params
from webtune.report import log
from webtune.report.report import CandidateReport, TuneReport

WINNER = CandidateReport("a", Params({}), "1", "winner", 1_000, (990, 1_010), (990, 1_000, 1_010))
OTHER = CandidateReport("b", Params({}), "2", "launch", reason="no such function")
REPORT = TuneReport("saxpy", "[16]", WINNER, (WINNER, OTHER), "tuned", strategy="fixed")


def logged(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO, "webtune"):
        log.began(level, "saxpy", "[16]", "fixed", 2)
        log.decided(level, REPORT)
        log.failed(level, "scan", "[8]", ValueError("every candidate failed:\n  a\n  b"))
    return caplog.messages


def test_disabled_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, "disabled") == []


def test_minimal_logs_one_line_for_each_thing_that_happened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert logged(caplog, "minimal") == [
        "saxpy [16]: tuning 2 candidates by fixed",
        "saxpy [16]: a in 1.000 µs ± 1.0 %",
        "scan [8]: every candidate failed:",
    ]
    assert [entry.levelname for entry in caplog.records] == ["INFO", "INFO", "WARNING"]


def test_full_logs_every_candidate_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, "full")
    assert any(line.startswith("a ") and "winner" in line for line in lines)
    assert any(line.startswith("b ") and "no such function" in line for line in lines)
    assert lines[-2:] == ["  a", "  b"]


def test_what_nobody_listens_to_is_not_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(report: TuneReport) -> str:
        raise AssertionError("the text was made for nobody")

    monkeypatch.setattr(log, "headline", refuse)
    with caplog.at_level(logging.ERROR, "webtune"):
        log.decided("full", REPORT)
    with caplog.at_level(logging.INFO, "webtune"), pytest.raises(AssertionError):
        log.decided("full", REPORT)
