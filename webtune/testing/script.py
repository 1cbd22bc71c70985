"""What a test scripts of a GPU: its adapter, its times, its clock and what goes wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webtune.gpu.base import Clock, Dispatch

Duration = int | Sequence[int] | Callable[[int, int], int]
"""The time of one execution in ns: always the same, or a list that is taken in order and starts
again, or a function of (launch number of this program, virtual time in ns)."""

Effect = Callable[[Sequence[memoryview], Dispatch], None]
"""What a dispatch does to its buffers, given as writable bytes in the order of their bindings."""

LIMITS: Mapping[str, int] = {
    "maxBufferSize": 1 << 28,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxStorageBufferBindingSize": 1 << 27,
    "maxUniformBufferBindingSize": 65536,
}


@dataclass(frozen=True, kw_only=True)
class ScriptedAdapter:
    """What a scripted GPU says of itself. `limits` are those that differ from the usual ones."""

    label: str = "scripted GPU"
    features: frozenset[str] = frozenset({"timestamp-query", "shader-f16", "subgroups"})
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast a scripted GPU is, in ns of virtual time.

    - `default_ns`: the time of programs whose duration is not given.
    - `cold_ns`: what the first launch of a program takes longer.
    - `launch_ns`: what every launch takes before it runs; `latency_ns`: what every answer takes.
    - `noise`: the relative spread of times, drawn with `seed`.
    - `speed`: a function of virtual time that every duration is multiplied by, for a GPU that
      heats up.
    """

    default_ns: int = 100_000
    cold_ns: int = 0
    launch_ns: int = 20_000
    latency_ns: int = 200_000
    noise: float = 0.0
    seed: int = 0
    speed: Callable[[int], float] = lambda now_ns: 1.0


def _every(step: int, count: int) -> bool:
    return step > 0 and count % step == 0


@dataclass(frozen=True, kw_only=True)
class ScriptedClock:
    """A clock and its faults. Everything in ns of virtual time.

    - `kind`: "timestamp", or "wall" (N against 2N, with `jitter_ns` on every launch).
    - `quantum_ns`: readings are cut to multiples of it. `claimed_quantum_ns`: what the device
      says it is, when that differs.
    - `period_error`: what a span is multiplied by because ticks of another period are reported.
    - `zero_every`, `backward_every`: each so-many-th span reads zero, or runs backward.
    - `jumps`: (at_ns, by_ns) pairs: the clock is set forward or back at a moment.
    - `rate`: a function of virtual time that the clock runs too fast by, such as 1.05.
    """

    kind: str = "timestamp"
    quantum_ns: int = 1
    claimed_quantum_ns: int | None = None
    period_error: float = 1.0
    zero_every: int = 0
    backward_every: int = 0
    jumps: tuple[tuple[int, int], ...] = ()
    rate: Callable[[int], float] | None = None
    jitter_ns: int = 0

    @property
    def clock(self) -> Clock:
        """What the device says of it."""
        claimed = self.claimed_quantum_ns
        if claimed is None:
            claimed = max(1, round(self.quantum_ns * self.period_error), self.jitter_ns)
        return Clock(self.kind, claimed, 1.0)

    def stamp_ns(self, now_ns: int) -> int:
        """The reading at a moment."""
        shown = now_ns + sum(by_ns for at_ns, by_ns in self.jumps if now_ns >= at_ns)
        return shown // self.quantum_ns * self.quantum_ns

    def span_ns(self, begin_ns: int, end_ns: int, count: int) -> int:
        """The `count`-th span (from 1) between two moments, as it is reported."""
        if _every(self.zero_every, count):
            return 0
        read_ns = self.stamp_ns(end_ns) - self.stamp_ns(begin_ns)
        if self.rate is not None:
            read_ns = round(read_ns * self.rate(begin_ns))
        if _every(self.backward_every, count):
            read_ns = -read_ns
        return round(read_ns * self.period_error)


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What goes wrong, by label of the program (a whole label, or a part of it).

    `compile` and `launch` map to the message; `hang` never comes back (`recovers`: the device
    answers again afterwards); `kill` loses the device; `wrong` gives a wrong answer. `lose_at` is
    the number of the launch (from 1, submits and shots) at which the device is lost.
    """

    compile: Mapping[str, str] = field(default_factory=dict)
    launch: Mapping[str, str] = field(default_factory=dict)
    hang: Collection[str] = ()
    recovers: bool = False
    kill: Collection[str] = ()
    wrong: Collection[str] = ()
    lose_at: int | None = None


def matching(table: Mapping[str, Any], label: str) -> Any:
    """The value of a label: its own, else that of the longest part of it in whole words, else
    None."""
    if label in table:
        return table[label]
    return table.get(max(filter(_part_of(label), table), key=len, default=""))


def named(labels: Collection[str], label: str) -> bool:
    """Whether the label, or a part of it in whole words, is one of the labels."""
    return any(map(_part_of(label), labels))


def _part_of(label: str) -> Callable[[str], bool]:
    # WG=3 is no part of WG=32.
    return lambda part: re.search(rf"(?<!\w){re.escape(part)}(?!\w)", label) is not None


def duration_ns(given: Any, launch: int, now_ns: int) -> int:
    """The time that a `Duration` gives for a program's launch of that number, from 0."""
    if callable(given):
        return int(given(launch, now_ns))
    return int(given if isinstance(given, int) else given[launch % len(given)])
