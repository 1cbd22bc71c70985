"""How much a kernel has to do for one key: what the roofline and the tables count with."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """The least that any candidate must do: `flops` arithmetic operations and `bytes` moved
    between memory and the cores (each input read once, each output written once)."""

    flops: float = 0.0
    bytes: float = 0.0
