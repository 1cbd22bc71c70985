"""Decisions in the standard log, as logger "webtune". The `log` setting says how much of one.

- disabled: nothing.
- minimal: a line when a tune begins, a line when it is decided.
- full: also a line for every candidate, and the evidence behind the decision.

Everything is logged at level INFO, so that `logging.basicConfig(level="INFO")` shows it; what needs
someone's attention is a warning.
"""

from __future__ import annotations

import logging

from webtune.report.format import candidate_table, counted, headline
from webtune.report.report import TuneReport

__all__ = ["began", "decided", "failed", "logger"]

logger = logging.getLogger("webtune")
logger.addHandler(logging.NullHandler())


def began(level: str, name: str, key: str, strategy: str, candidates: int) -> None:
    """A tune begins."""
    if level != "disabled":
        told = counted(candidates, "candidate")
        logger.info("%s %s: tuning %s by %s", name, key, told, strategy)


def decided(level: str, report: TuneReport) -> None:
    """A tune ended with a decision."""
    if level == "disabled" or not logger.isEnabledFor(logging.INFO):
        return
    logger.info("%s", headline(report))
    if level == "full":
        for line in candidate_table(report).plain().splitlines()[1:]:
            logger.info("%s", line)


def failed(level: str, name: str, key: str, error: BaseException) -> None:
    """A tune ended without one."""
    if level == "disabled":
        return
    lines = str(error).splitlines() or [type(error).__name__]
    logger.warning("%s %s: %s", name, key, lines[0])
    if level == "full":
        for line in lines[1:]:
            logger.warning("%s", line)
