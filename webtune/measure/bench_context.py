"""What first contact and sampling share: how far candidates and requests are, and the device, on
which launches are prepared, counted and told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from webtune.config import Config
from webtune.errors import (
    DeviceLost,
    DeviceTimeout,
    Failure,
    FailureKind,
    LaunchError,
    UsageError,
)
from webtune.gpu.base import Device, Program, Shot, Span
from webtune.measure.bench_candidate import BenchCandidate, Conditions
from webtune.measure.calibration import SpanTarget
from webtune.measure.crash_guard import CrashGuard
from webtune.measure.progress_events import ProgressEvent
from webtune.strategies.model import Reading, Request

_LAUNCH_OVERHEAD_NS = 300_000


@dataclass
class CandidateState:
    """What the bench knows of one candidate. `met` says that the first contact has begun, `repeat`
    how many executions a sample has, `cost_ns` the wall time of a launch."""

    index: int
    name: str
    candidate: BenchCandidate | None = None
    program: Program | None = None
    failure: Failure | None = None
    met: bool = False
    repeat: int = 1
    cost_ns: int = _LAUNCH_OVERHEAD_NS

    @property
    def repeatable(self) -> bool:
        return self.candidate is not None and self.candidate.repeatable


@dataclass
class PendingReading:
    """One request of a round, being answered."""

    request: Request
    state: CandidateState
    durations_ns: list[int] = field(default_factory=list)
    launches: int = 0

    @property
    def live(self) -> bool:
        return self.state.failure is None

    @property
    def warmups_left(self) -> int:
        return max(0, self.request.warmups - self.launches)

    @property
    def samples_left(self) -> int:
        return max(0, self.request.samples - len(self.durations_ns))

    def reading(self) -> Reading:
        return Reading(
            self.request.candidate, tuple(self.durations_ns), self.state.failure, self.launches
        )


class BenchContext:
    """One tune on one device: its conditions, what spans are to be, the count of its launches."""

    def __init__(
        self,
        device: Device,
        conditions: Conditions,
        config: Config,
        crash_guard: CrashGuard,
        on_progress: Callable[[ProgressEvent], None] | None,
        pause: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self.device = device
        self.conditions = conditions
        self.crash_guard = crash_guard
        self.target = SpanTarget.of(device.clock, config)
        self.launches = 0
        self.by_wall = device.clock.kind == "wall"
        self._on_progress = on_progress
        self._pause = pause
        self._restores = tuple(w.restore for w in conditions.written if w.restore is not None)
        self._evictor: Program | None = None

    async def compile_evictor(self) -> None:
        """Raises `UsageError` when the caller's evictor cannot be compiled."""
        if self.conditions.evict and self._evictor is None:
            try:
                self._evictor = await self.device.compile(self.conditions.evict)
            except LaunchError as error:
                raise UsageError(f"evict= cannot be compiled: {error}") from error

    async def time(self, readings: Sequence[PendingReading]) -> Sequence[Span]:
        """Launch the candidates of these requests once each, in order, and count the launches."""
        spans = await self.device.time([self._shot(pending.state) for pending in readings])
        self.count(readings)
        return spans

    def _shot(self, state: CandidateState) -> Shot:
        if state.program is None:
            raise RuntimeError(f"{state.name} is not compiled")
        return Shot(state.program, state.repeat, self._restores, self._evictor)

    def count(self, readings: Sequence[PendingReading]) -> None:
        """Count one launch for each of these requests."""
        for pending in readings:
            pending.launches += 1
            self.launches += 1

    def sample(self, pending: PendingReading, span: Span) -> None:
        """Answer a request with the time of one execution."""
        duration_ns = max(1, round(span.elapsed_ns / span.repeat))
        pending.durations_ns.append(duration_ns)
        self.tell("sampled", pending.state, duration_ns)

    def fail(self, state: CandidateState, failure: Failure) -> None:
        """Note that a candidate is out."""
        state.failure = failure
        self.tell("failed", state)

    def tell(self, kind: str, state: CandidateState, duration_ns: int | None = None) -> None:
        """Tell the listener what happened."""
        if self._on_progress is not None:
            self._on_progress(
                ProgressEvent(
                    kind, state.index, state.name, self.launches, duration_ns, state.failure
                )
            )

    async def pause(self) -> None:
        """Let the host breathe between chunks of work."""
        if self._pause is not None:
            await self._pause()

    async def recover(self, error: DeviceTimeout) -> None:
        """After a time-out: go on only where the device answers again. A device that is marked
        as lost raises at its next use, and a finished round is still worth its readings."""
        if self.device.lost is None:
            try:
                await self.device.drain()
            except DeviceTimeout:
                raise DeviceLost("the device did not come back after a time-out") from error

    def close(self) -> None:
        """Forget the evictor and what the checks made. Never fails."""
        if self._evictor is not None:
            self.device.release(self._evictor)
            self._evictor = None
        if self.conditions.checker is not None:
            self.conditions.checker.close(self.device)


def failure_of(error: DeviceTimeout | LaunchError) -> Failure:
    """What an error of the device says of the candidate that it ran."""
    kind = FailureKind.TIMED_OUT if isinstance(error, DeviceTimeout) else FailureKind.LAUNCH
    return Failure(kind, str(error))


def not_believed(span: Span, fault: str) -> Failure:
    """The failure of a candidate whose span is no measurement."""
    times = f"{span.repeat} executions" if span.repeat > 1 else "one execution"
    kind = FailureKind.NOT_MEASURED if span.elapsed_ns == 0 else FailureKind.INVALID_SAMPLES
    return Failure(kind, f"over {times}, {fault}")
