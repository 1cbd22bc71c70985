"""How much a kernel has to do for one key: what the roofline and the tables count with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from webtune.errors import KernelError


@dataclass(frozen=True, slots=True)
class Work:
    """The least that any candidate must do: `flops` arithmetic operations and `bytes` moved
    between memory and the cores (each input read once, each output written once)."""

    flops: float = 0.0
    bytes: float = 0.0


def checked_work(name: str, work: Any) -> Work | None:
    """What the `work=` function of the kernel `name` returned, as plain floats; None where it is
    not known. `KernelError` for anything that is no amount of work."""
    if work is None:
        return None
    if not isinstance(work, Work):
        raise KernelError(f"{name}: work= returned {work!r}; return wt.Work(flops=…, bytes=…)")
    try:
        flops, nbytes = float(work.flops), float(work.bytes)
    except (TypeError, ValueError, OverflowError):
        flops = nbytes = -1.0
    if not (0 <= flops < math.inf and 0 <= nbytes < math.inf):
        raise KernelError(f"{name}: work= returned {work!r}; both are finite numbers of at least 0")
    return Work(flops, nbytes)
