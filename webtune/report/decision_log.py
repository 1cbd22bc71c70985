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
from webtune.gpu.base import Device
from webtune.kernel.candidates import TunableSet
from webtune.store.base import Address
from webtune.store.record import Record
from webtune.strategies.model import Outcome
from webtune.strategies.plan import Plan

__all__ = ["Sink", "decision", "open_sink", "schema"]

Sink = Callable[[dict[str, Any]], None]
"""Takes a decision as plain JSON values."""


def schema() -> dict[str, Any]:
    """The JSON schema of a decision."""
    text = files("webtune.report").joinpath("decision.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def open_sink(target: Any) -> Sink | None:
    """A path (lines are appended), "stderr", a function of a decision, or None."""
    if target is None:
        return None
    if callable(target):
        given: Sink = target
        return given
    if target == "stderr":
        return lambda document: print(json.dumps(document), file=sys.stderr)
    try:
        with open(target, "a", encoding="utf-8"):
            pass
    except (OSError, TypeError) as error:
        raise UsageError(f"record={target!r} cannot be written: {reason_of(error)}") from error

    def append(document: dict[str, Any]) -> None:
        # One write a line, so that processes that share the file do not mix lines.
        with open(target, "a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")

    return append


def decision(
    kernel: TunableSet,
    address: Address,
    device: Device,
    plan: Plan,
    outcome: Outcome,
    record: Record | None,
    *,
    stored: bool,
    created_s: float,
    wall_s: float,
    bounds: tuple[Any, ...] = (),
    limit_ns: int | None = None,
    versions: tuple[tuple[str, str], ...] = (),
) -> dict[str, Any]:
    """Everything about one decision as plain JSON values. Times in ns unless the name says."""
    candidates = kernel.candidates
    clock = device.clock
    return {
        "schema": 1,
        "kernel": kernel.name,
        "key": json.loads(address.key),
        "environment": address.environment,
        "fingerprint": kernel.validity,
        "hardware": device.identity.digest,
        "device": device.identity.label,
        "clock": {
            "kind": clock.kind,
            "quantum_ns": clock.quantum_ns,
            "period_ns": clock.period_ns,
        },
        "plan": [[candidates[index].name for index in batch] for batch in plan.batches],
        "trials": [
            {
                "name": candidates[result.candidate].name,
                "id": candidates[result.candidate].id,
                "params": dict(candidates[result.candidate].params),
                "samples_ns": list(result.samples_ns),
                "time_ns": result.time_ns,
                "failure": str(result.failure.kind) if result.failure else None,
                "reason": plan.never.get(
                    result.candidate, result.failure.reason if result.failure else result.reason
                ),
                "eliminated": result.eliminated,
            }
            for result in outcome.results
        ],
        "checked": kernel.check is not None,
        "bounds": [
            {
                "name": bound.name,
                "amount": bound.amount,
                "peak_per_s": bound.peak_per_s,
                "threshold": bound.threshold,
            }
            for bound in bounds
        ],
        "limit_ns": limit_ns,
        "events": [
            {
                "kind": event.kind,
                "text": event.text,
                "candidate": None if event.candidate is None else candidates[event.candidate].name,
            }
            for event in outcome.events
        ],
        "winner": None if outcome.winner is None else candidates[outcome.winner].name,
        "interval_ns": list(record.interval_ns) if record and record.interval_ns else None,
        "ties": [candidates[index].name for index in outcome.ties],
        "confidence": outcome.confidence,
        "measured": outcome.measured,
        "stored": stored,
        "strategy": outcome.strategy,
        "launches": outcome.launches,
        "created_s": created_s,
        "wall_s": wall_s,
        "versions": dict(versions),
    }
