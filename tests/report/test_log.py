"""How much of a decision is logged at each level."""

from __future__ import annotations

import logging

import pytest

import webtune as wt
from webtune.config import Config
from webtune.report import log
from webtune.report.log import Logger
from webtune.report.report import TuneReport
from webtune.store.decision import CandidateResult, Decision
from webtune.store.memory import MemoryStore
from webtune.testing import ScriptedDevice
from webtune.tuning.call import Call, CallReader

KERNEL = wt.TunableSet("saxpy", key=lambda: [16], arguments=[])
for _name in "ab":
    KERNEL.tunable(_name)(lambda recorder: None)
NOTHING = wt.Params({})
WINNER = CandidateResult("1", "a", NOTHING, "winner", 1_000, (990, 1_010), (990, 1_000, 1_010))
OTHER = CandidateResult("2", "b", NOTHING, "launch", reason="no such function")
DECISION = Decision("f", (WINNER, OTHER), strategy="fixed")


def call() -> Call:
    return CallReader(ScriptedDevice(), MemoryStore(), Config()).read(KERNEL, ())


def logged(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    caplog.clear()
    logger = Logger(level)
    with caplog.at_level(logging.INFO, "webtune"):
        logger.began(call(), "fixed")
        logger.decided(call(), DECISION, stored=True)
        logger.failed(call(), ValueError("every candidate failed:\n  a\n  b"))
        logger.launch_failed(call(), "b", ValueError("no such limit"))
    return caplog.messages


def test_disabled_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, "disabled") == []


def test_minimal_logs_one_line_for_each_thing_that_happened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert logged(caplog, "minimal") == [
        "saxpy [16]: tuning 2 candidates by fixed",
        "saxpy [16]: a in 1.000 µs ± 1.0 %",
        "saxpy [16]: every candidate failed:",
        "saxpy b: no such limit",
    ]
    levels = [entry.levelname for entry in caplog.records]
    assert levels == ["INFO", "INFO", "WARNING", "WARNING"]


def test_full_logs_every_candidate_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, "full")
    assert any(line.startswith("a ") and "winner" in line for line in lines)
    assert any(line.startswith("b ") and "no such function" in line for line in lines)
    assert lines[-3:-1] == ["  a", "  b"]


def test_what_nobody_listens_to_is_not_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(report: TuneReport) -> str:
        raise AssertionError("the text was made for nobody")

    monkeypatch.setattr(log, "headline", refuse)
    with caplog.at_level(logging.ERROR, "webtune"):
        Logger("full").decided(call(), DECISION, stored=True)
    with caplog.at_level(logging.INFO, "webtune"), pytest.raises(AssertionError):
        Logger("full").decided(call(), DECISION, stored=True)
