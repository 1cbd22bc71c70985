"""What a tuner does, for people in the standard log and for tools as one JSON line a decision.

The setting `log` says how much goes to the logger "webtune":

- disabled: nothing.
- minimal: a line when a tune begins, a line when it is decided.
- full: also a line for every candidate, and the evidence behind the decision.

Everything is logged at level INFO, so that `logging.basicConfig(level="INFO")` shows it; what needs
someone's attention is a warning.
"""

from __future__ import annotations

import logging

from webtune.errors import TuneWarning, warn
from webtune.report.decision_log import DecisionSink, log_line
from webtune.report.format import counted
from webtune.report.report import TuneReport, candidate_table, headline
from webtune.store.decision import Decision
from webtune.tuning.call import Call
from webtune.tuning.context import Observer

logger = logging.getLogger("webtune")
logger.addHandler(logging.NullHandler())


class Logger(Observer):
    """Writes what it is told to the log, at one of the levels "disabled", "minimal" and "full",
    and every decision to `sink`, if there is one."""

    def __init__(self, level: str, sink: DecisionSink | None = None) -> None:
        self._level = level
        self._sink = sink

    def began(self, call: Call, strategy: str) -> None:
        """A line that a tune begins."""
        if self._level != "disabled":
            told = counted(len(call.kernel.candidates), "candidate")
            logger.info(
                "%s %s: tuning %s by %s", call.kernel.name, call.address.key, told, strategy
            )

    def decided(self, call: Call, decision: Decision, *, stored: bool) -> None:
        """A line with the winner, and the decision to the sink."""
        if self._sink is not None:
            try:
                self._sink(log_line(call.address, decision, stored=stored))
            except Exception as error:
                text = f"{call.kernel.name}: its decision could not be recorded: {error}"
                warn(TuneWarning(text))
        silent = self._level == "disabled" or not logger.isEnabledFor(logging.INFO)
        if silent or decision.winner is None:
            return
        work = call.kernel.work_of(call.args)
        bounds = decision.bounds
        report = TuneReport(call.kernel.name, call.address.key, decision, "tuned", work, bounds)
        logger.info("%s", headline(report))
        if self._level == "full":
            for line in candidate_table(report).plain().splitlines()[1:]:
                logger.info("%s", line)

    def failed(self, call: Call, error: Exception) -> None:
        """Why a tune ended without a decision."""
        self._warn(call.kernel.name, call.address.key, error)

    def launch_failed(self, call: Call, candidate: str, error: Exception) -> None:
        """Why a pick was not launched."""
        self._warn(call.kernel.name, candidate, error)

    def _warn(self, name: str, what: str, error: Exception) -> None:
        if self._level == "disabled":
            return
        lines = str(error).splitlines() or [type(error).__name__]
        logger.warning("%s %s: %s", name, what, lines[0])
        if self._level == "full":
            for line in lines[1:]:
                logger.warning("%s", line)
