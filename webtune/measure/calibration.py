"""How often a sample repeats its candidate, so that the clock's step and the launch's overhead do
not decide."""

from __future__ import annotations

import math
from dataclasses import dataclass

from webtune.config import Config
from webtune.gpu.base import Clock, Span

_PROBE_NS = 20_000_000
_STEEPEST = 512
"""The most by which repetitions are multiplied from one launch to the next."""
_QUANTA_MARGIN = 2.2
_SPAN_MARGIN = 1.5


@dataclass(frozen=True, slots=True)
class SpanTarget:
    """What a sample's span is to be, in ns: at least `precise_ns` to be believed to a few per
    cent, at least `floor_ns` to outweigh its overhead too, `aim_ns` when repetitions are chosen;
    a submit is never longer than `submit_ns`."""

    precise_ns: int
    floor_ns: int
    aim_ns: int
    submit_ns: int
    quantum_ns: int

    @classmethod
    def of(cls, clock: Clock, config: Config) -> SpanTarget:
        """The target on one clock. Twice the least number of quanta is aimed at: at the least one,
        a gap of 5 % is a single quantum, and medians of two candidates tie."""
        # A span by the wall is a launch of N and one of 2N executions.
        longest_ns = config.max_submit_ns // (3 if clock.kind == "wall" else 1)
        precise_ns = min(config.usable_min_quanta * clock.quantum_ns, longest_ns // 2)
        aim_ns = max(_QUANTA_MARGIN * precise_ns, _SPAN_MARGIN * config.min_span_ns)
        return cls(
            precise_ns,
            floor_ns=min(max(precise_ns, config.min_span_ns), longest_ns // 2),
            aim_ns=min(round(aim_ns), longest_ns),
            submit_ns=config.max_submit_ns,
            quantum_ns=clock.quantum_ns,
        )

    def safe_repeat(self, span: Span) -> int:
        """The most repetitions whose launch stays within its limit. Wall time bounds the true
        time from above, so a clock that lies cannot stretch a launch."""
        return max(1, self.submit_ns * span.repeat // max(span.wall_ns, 1))

    def next_repeat(self, span: Span) -> int:
        """The repetitions to try after `span`, which may be nonsense. A span below the clock's
        resolution grows toward a probe of 20 ms."""
        if span.elapsed_ns >= 2 * self.quantum_ns:
            wanted = math.ceil(self.aim_ns * span.repeat / span.elapsed_ns)
        else:
            at_most_ns = (max(span.elapsed_ns, 0) + self.quantum_ns) / span.repeat
            wanted = math.ceil(max(_PROBE_NS, self.aim_ns) / at_most_ns)
        return max(1, min(wanted, self.safe_repeat(span), _STEEPEST * span.repeat))

    def louder_repeat(self, span: Span) -> int:
        """The repetitions after a difference of wall times that noise has swallowed."""
        return max(span.repeat, min(4 * span.repeat, self.safe_repeat(span)))

    def settled_repeat(self, span: Span) -> int:
        """The repetitions of the samples to come, out of a span that may be believed."""
        wanted = math.ceil(self.aim_ns * span.repeat / span.elapsed_ns)
        return max(1, min(wanted, self.safe_repeat(span)))
