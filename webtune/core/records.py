"""What is stored of a decision: one JSON document a key, with a schema version and a checksum."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = 1
"""Raised when the meaning of a record changes; another schema is a miss."""


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """What was measured of one candidate. `id` is its fingerprint (WGSL, params, entry points)."""

    id: str
    name: str
    samples_ns: tuple[int, ...] = ()
    time_ns: int | None = None
    failure: str = ""
    reason: str = ""
    eliminated: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A decision that can be taken again without measuring.

    `fingerprint` is the set's; `winner` is a candidate's id. `created_s` is Unix time. `clock` is
    (kind, quantum_ns, period_ns). `versions` has webtune, python and the WebGPU implementation.
    """

    fingerprint: str
    winner: str
    candidates: tuple[CandidateRecord, ...]
    interval_ns: tuple[int, int] | None
    ties: tuple[str, ...]
    confidence: float
    strategy: str
    clock: tuple[str, int, float]
    hardware_label: str
    created_s: float
    versions: tuple[tuple[str, str], ...] = ()
    limit_ns: int | None = None
    launches: int = 0
    wall_s: float = 0.0
