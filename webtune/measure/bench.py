"""The bench: it answers the rounds of a strategy with readings of a device.

A candidate's failure is part of its reading; only the loss of the device is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from webtune.config import Config
from webtune.errors import Failure, FailureKind
from webtune.gpu.base import Device
from webtune.measure.bench_candidate import BenchCandidate, Conditions
from webtune.measure.bench_context import BenchContext, CandidateState, PendingReading
from webtune.measure.crash_guard import CrashGuard
from webtune.measure.first_contact import compile_all, meet
from webtune.measure.progress_events import ProgressEvent
from webtune.measure.sampling import take_samples
from webtune.strategies.model import Reading, Round

_SUSPECT = (
    "earlier runs on this hardware began it and never came back from it; it is left alone "
    "until its source changes, or until `webtune cache purge` forgets it"
)


class Bench:
    """Measures the candidates of one tune on one device. Not to be shared between tasks.

    `record(index)` records a candidate (a failure says why it cannot run). `crash_guard` notes
    first contacts, and has the suspects that are not touched. `on_progress` hears what happens.
    `pause` is awaited between chunks of work, on a host that awaits: there, several candidates
    compile at the same time.
    """

    def __init__(
        self,
        device: Device,
        record: Callable[[int], BenchCandidate | Failure],
        conditions: Conditions | None = None,
        config: Config | None = None,
        crash_guard: CrashGuard | None = None,
        on_progress: Callable[[ProgressEvent], None] | None = None,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        config = config or Config()
        conditions, crash_guard = conditions or Conditions(), crash_guard or CrashGuard()
        # Several compile at once where the host awaits: it is the one that needs pauses.
        self._parallel = 1 if pause is None else config.usable_parallelism
        self._record = record
        self._context = BenchContext(device, conditions, config, crash_guard, on_progress, pause)
        self._states: dict[int, CandidateState] = {}

    async def measure(self, wanted: Round) -> list[Reading]:
        """Answer a round, a reading for each request in order. Raises `DeviceLost`, and
        `UsageError` when the caller's evictor or reference for checks cannot be used."""
        context = self._context
        await context.compile_evictor()
        readings = [PendingReading(r, self._state(r.candidate)) for r in wanted.requests]
        if self._parallel > 1:
            states = [pending.state for pending in readings]
            await compile_all(context, states, self._parallel)
        for pending in readings:
            if not pending.state.met:
                await meet(context, pending)
                await context.pause()
        await take_samples(context, readings)
        return [pending.reading() for pending in readings]

    def _state(self, index: int) -> CandidateState:
        state = self._states.get(index)
        if state is not None:
            return state
        recorded = self._record(index)
        if isinstance(recorded, Failure):
            state = CandidateState(index, str(index), failure=recorded)
        else:
            state = CandidateState(index, recorded.name, recorded)
            suspect = recorded.id in self._context.crash_guard.suspects
            state.failure = Failure(FailureKind.TIMED_OUT, _SUSPECT) if suspect else None
        if state.failure is not None:
            state.met = True
            self._context.fail(state, state.failure)
        self._states[index] = state
        return state

    def close(self) -> None:
        """Forget all programs and what the checks made. Never fails."""
        for state in self._states.values():
            if state.program is not None:
                self._context.device.release(state.program)
        self._states.clear()
        self._context.close()
