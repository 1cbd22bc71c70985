"""One JSON line a decision, for tools: what was tried, measured, decided and why.

The line's shape is `decision.schema.json` beside this module.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from webtune.errors import UsageError, reason_of
from webtune.store.base import Address
from webtune.store.decision import SCHEMA, Decision

DecisionSink = Callable[[dict[str, Any]], None]
"""Takes a decision as plain JSON values."""


def schema() -> dict[str, Any]:
    """The JSON schema of a line."""
    text = files("webtune.report").joinpath("decision.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def open_sink(target: Any) -> DecisionSink | None:
    """Where decisions go: a path (lines are appended), "stderr", a function of a decision, or None.
    Raises `UsageError` for a path that cannot be written."""
    if target is None:
        return None
    if callable(target):
        sink: DecisionSink = target
        return sink
    if target == "stderr":
        return lambda line: print(json.dumps(line), file=sys.stderr)
    try:
        with open(target, "a", encoding="utf-8"):
            pass
    except (OSError, TypeError) as error:
        raise UsageError(
            f"decision_log={target!r} cannot be written: {reason_of(error)}"
        ) from error

    def append(line: dict[str, Any]) -> None:
        # One write a line, so that processes that share the file do not mix lines.
        with open(target, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    return append


def log_line(address: Address, decision: Decision, *, stored: bool) -> dict[str, Any]:
    """The decision at an address as plain JSON values. Times in ns unless the name says otherwise;
    candidates in `batches` and `events` are indices into `candidates`."""
    winner = decision.winner
    return {
        "schema": SCHEMA,
        "kernel": address.name,
        "key": json.loads(address.key),
        "environment": address.environment,
        "hardware": address.hardware,
        "stored": stored,
        "winner": winner.name if winner is not None else None,
        **decision.to_dict(),
    }
