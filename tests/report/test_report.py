"""What is told of a decision: order, verdicts, notes."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.kernel.work import Work
from webtune.report.report import TuneReport, candidate_table
from webtune.store.decision import CandidateResult, Decision


def candidate(name: str, status: str, **rest: Any) -> CandidateResult:
    return CandidateResult(f"id of {name}", name, Params(rest.pop("params", {})), status, **rest)


QUICK = candidate(
    "WG=64", "winner", params={"WG": 64}, time_ns=1_000, interval_ns=(990, 1_010),
    samples_ns=(990, 1_000, 1_010),
)  # fmt: skip
DECISION = Decision(
    "fingerprint",
    (
        candidate("slow", "slower", params={"WG": 32}, time_ns=4_000, samples_ns=(4_000,)),
        candidate("broken", "launch", reason="\nerror: no such\nmore lines"),
        QUICK,
        candidate("near", "tie", time_ns=990, interval_ns=(980, 1_020), samples_ns=(990, 991)),
    ),
    strategy="adaptive",
    confidence=0.6,
    tie_rule="least digest",
    launches=12,
    wall_s=0.25,
    clock=Clock("timestamp", 65_536),
    device="a card",
)
REPORT = TuneReport("saxpy", "[16]", DECISION, "tuned", Work(flops=2_000.0))


def report_of(source: str, *results: CandidateResult) -> TuneReport:
    return TuneReport("k", "[]", Decision("f", results), source)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_winner_stands_first_even_where_a_tie_has_a_smaller_estimate() -> None:
    table = candidate_table(REPORT)
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
    nobody = replace(DECISION, candidates=DECISION.candidates[:2])
    assert "no candidate could be taken" in str(replace(REPORT, decision=nobody))
    assert "none could be timed" in str(replace(REPORT, decision=replace(DECISION, measured=False)))
    assert "nothing was measured" in str(replace(REPORT, source="single"))


def test_reasons_are_cut_to_one_line() -> None:
    row = candidate_table(REPORT).rows[-1]
    assert row[1:] == ("–", "–", "–", "–", "launch", "error: no such")


def test_colour_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    piped, terminal = io.StringIO(), Terminal()
    table = candidate_table(REPORT)
    table.show(piped)
    table.show(terminal)
    assert piped.getvalue() == table.plain() + "\n"
    assert "\x1b[" in terminal.getvalue()
    assert "WG=64" in terminal.getvalue()


def test_a_set_that_was_never_tuned_is_not_said_to_be_skipped() -> None:
    untried = [candidate(f"c{n}", "skipped", reason="not tuned yet") for n in range(4)]
    text = str(report_of("miss", *untried))
    assert text.startswith("k []: not tuned yet\n")
    assert "4 candidates: 4 not tuned yet." in text
    assert "skipped" not in text


def test_one_launch_is_singular() -> None:
    assert "with 1 launch," in str(replace(REPORT, decision=replace(DECISION, launches=1)))


def test_many_candidates_with_one_reason_share_a_row() -> None:
    skipped = [candidate(f"c{n}", "skipped", reason="it was enough") for n in range(5)]
    won = candidate("best", "winner", time_ns=1000, interval_ns=(990, 1010), samples_ns=(1000,))
    table = str(report_of("tuned", won, *skipped))
    assert "c0 and 4 more" in table
    assert "c3" not in table
    assert "5 skipped" in table


def test_a_report_is_one_line_among_other_values_and_a_table_in_print() -> None:
    line = "<TuneReport saxpy [16]: WG=64 in 1.000 µs ± 1.0 %, 2.00 GFLOP/s; 4 candidates, tuned>"
    assert f"{[REPORT]}" == f"[{line}]"
    assert repr(QUICK) == "<CandidateResult WG=64: winner, 1000 ns>"
    assert len(str(REPORT).splitlines()) > 6
