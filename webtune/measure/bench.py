"""From a round to readings: what is asked for is measured, interleaved, and nothing false passes.

A candidate's failure is a reading; only the loss of the device is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from webtune.errors import DeviceLost, DeviceTimeout, Failure, FailureKind, LaunchError, UsageError
from webtune.gpu.base import Device, Dispatch, Program, Shot, Span
from webtune.gpu.clock import span_fault, swallowed_by_noise, wall_bound
from webtune.measure.bench_candidate import (
    BenchCandidate,
    Checker,
    Entry,
    Joined,
    ProgressEvent,
    Slot,
    Tally,
    Turn,
    turns_of,
)
from webtune.measure.calibration import BenchSettings, Goal
from webtune.store.base import Store
from webtune.strategies.model import Reading, Round

__all__ = ["Bench", "BenchCandidate", "BenchSettings", "Checker", "Joined", "ProgressEvent", "Slot"]

_MOST_SHOTS = 64
_MOST_CALIBRATIONS = 10
_MOST_FAULTS = 3
_WALL_RETAKES = 3


class Bench:
    """Measures the candidates of one tune on one device. Not to be shared between tasks.

    `enter(index)` records a candidate (a failure says why it cannot run); `slots` are what
    candidates write, `evict` runs before every sample outside its span. `journal` is a store with
    the hardware's digest: first contacts are noted there, and candidates in `suspects` are not
    touched. `pause` is awaited between chunks of work, where the host needs to breathe.
    """

    def __init__(
        self,
        device: Device,
        enter: Callable[[int], BenchCandidate | Failure],
        *,
        slots: Sequence[Slot] = (),
        evict: Sequence[Dispatch] = (),
        checker: Checker | None = None,
        settings: BenchSettings | None = None,
        journal: tuple[Store, str] | None = None,
        suspects: frozenset[str] = frozenset(),
        on_progress: Callable[[ProgressEvent], None] | None = None,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._device = device
        self._enter = enter
        self._slots = tuple(slots)
        self._restores = tuple(slot.restore for slot in slots if slot.restore is not None)
        self._evict_dispatches = tuple(evict)
        self._evict: Program | None = None
        self._checker = checker
        self._settings = settings or BenchSettings()
        self._wall = device.clock.kind == "wall"
        self._goal = Goal.of(device.clock, self._settings)
        self._journal = journal
        self._suspects = suspects
        self._on_progress = on_progress
        self._pause = pause
        self._entries: dict[int, Entry] = {}
        self.launches = 0
        """Launches spent so far, warm-ups, checks and retakes included."""

    @property
    def programs(self) -> Mapping[int, Program]:
        """Compiled programs by candidate."""
        return {i: e.program for i, e in self._entries.items() if e.program is not None}

    # -- the round ----------------------------------------------------------------------------

    async def measure(self, wanted: Round) -> list[Reading]:
        """Answer a round, a reading for each request in order. Raises `DeviceLost`, and
        `UsageError` when the caller's evictor or reference for checks cannot be used."""
        await self._ready_evictor()
        if self._settings.parallel > 1:
            await self.compile([request.candidate for request in wanted.requests])
        tallies = [Tally(r, self._entry(r.candidate)) for r in wanted.requests]
        for tally in tallies:
            if not tally.entry.met:
                await self._first_contact(tally)
                await self._breathe()
        await self._sweep(tallies)
        return [tally.reading() for tally in tallies]

    async def _sweep(self, tallies: Sequence[Tally]) -> None:
        turns = turns_of(tallies)
        chunk: list[Turn] = []
        cost_ns = 0
        for turn in turns:
            chunk.append(turn)
            cost_ns += turn.tally.entry.cost_ns
            if cost_ns >= self._settings.chunk_ns or len(chunk) >= _MOST_SHOTS:
                await self._take(chunk)
                await self._breathe()
                chunk, cost_ns = [], 0
        if chunk:
            await self._take(chunk)

    async def _take(self, chunk: Sequence[Turn]) -> None:
        """Take the turns in order, and again those whose span cannot be believed: once, and up
        to three times by wall clock, where a bad difference is noise and not a fault. What noise
        swallows even then counts as its upper bound, and costs no candidate its place."""
        doubtful = chunk
        for left in range(_WALL_RETAKES if self._wall else 1, -1, -1):
            if not doubtful or not await self._shoot(doubtful):
                return
            doubtful = [turn for turn in doubtful if not self._accept(turn, last=left == 0)]

    async def _shoot(self, turns: Sequence[Turn]) -> bool:
        """Launch the turns of candidates that have not failed, and note their spans; False when
        they ended otherwise."""
        turns = [turn for turn in turns if turn.tally.live]
        try:
            spans = await self._device.time([self._shot(turn.tally.entry) for turn in turns])
        except (DeviceTimeout, LaunchError) as error:
            await self._blame(turns, error)
            return False
        for turn, span in zip(turns, spans, strict=True):
            turn.span = span
            self._count(turn.tally)
        return True

    async def _blame(self, turns: Sequence[Turn], error: DeviceTimeout | LaunchError) -> None:
        entries = {id(turn.tally.entry): turn.tally.entry for turn in turns}
        alone = len(entries) == 1
        for turn in turns:
            self._count(turn.tally)
        if alone:
            culprit = turns[0].tally.entry
            self._fail(culprit, _failure_of(error))
            if isinstance(error, DeviceTimeout) and culprit.entrant is not None:
                self._accuse(culprit.entrant)
        if isinstance(error, DeviceTimeout):
            await self._recover(error)
        if not alone:  # one of several is at fault: each once more, by itself
            for turn in turns:
                if turn.tally.live:
                    await self._take([turn])

    def _accept(self, turn: Turn, *, last: bool) -> bool:
        """Use a turn's span, or say that it must be taken again. `last` settles it."""
        span, entry = turn.span, turn.tally.entry
        if span is None or not turn.tally.live or not turn.counts:
            return True
        if last and swallowed_by_noise(span, self._device.clock):
            span = wall_bound(span)
        fault = span_fault(span, self._device.clock)
        if fault is not None:
            if last:
                self._fail(entry, _not_believed(span, fault))
            elif self._wall and entry.repeatable:
                entry.repeat = self._goal.louder_repeat(span)
            return last
        if span.elapsed_ns < self._goal.floor_ns and entry.repeatable:
            raised = self._goal.next_repeat(span)
            # Too few quanta: its digits are the clock's, not the candidate's.
            blurred = span.elapsed_ns < self._goal.precise_ns and raised > span.repeat
            entry.repeat = max(entry.repeat, raised)
            if blurred and not last:
                return False
        self._sample(turn.tally, span)
        return True

    # -- first contact ------------------------------------------------------------------------

    async def compile(self, candidates: Sequence[int]) -> dict[int, Failure]:
        """Record and compile candidates, several at a time where the host awaits; what failed.

        Raises `DeviceLost`. Programs that are there already cost nothing.
        """
        todo = [self._entry(index) for index in dict.fromkeys(candidates)]
        waiting = iter([e for e in todo if e.program is None and e.failure is None])

        async def work() -> None:
            for entry in waiting:
                try:
                    await self._compile(entry)
                except DeviceTimeout as error:
                    self._fail(entry, _failure_of(error))

        if self._settings.parallel > 1:
            workers = [work() for _ in range(min(self._settings.parallel, len(todo)))]
            for error in await asyncio.gather(*workers, return_exceptions=True):
                if isinstance(error, BaseException):
                    raise error
        else:
            await work()
        return {entry.index: entry.failure for entry in todo if entry.failure is not None}

    async def _compile(self, entry: Entry) -> None:
        if entry.entrant is None or entry.program is not None:
            return
        try:
            entry.program = await self._device.compile(entry.entrant.dispatches)
        except LaunchError as error:
            self._fail(entry, Failure(FailureKind.LAUNCH, str(error)))
        else:
            self._tell("compiled", entry)

    def _entry(self, index: int) -> Entry:
        entry = self._entries.get(index)
        if entry is None:
            entered = self._enter(index)
            if isinstance(entered, Failure):
                entry = Entry(index, str(index), met=True)
                self._fail(entry, entered)
            else:
                entry = Entry(index, entered.name, entered)
                if entered.id in self._suspects:
                    entry.met = True
                    self._fail(entry, Failure(FailureKind.TIMED_OUT, _SUSPECT))
            self._entries[index] = entry
        return entry

    async def _first_contact(self, tally: Tally) -> None:
        """Compile, check the answer, launch once untimed, and find the repetitions."""
        entry = tally.entry
        entry.met = True
        if entry.entrant is None or entry.failure is not None:
            return
        self._alive()
        came_back, noted = True, False
        try:
            await self._compile(entry)
            if entry.program is not None:
                # Not before: compiling takes long, and who ends a process then blames nobody.
                noted = True
                self._note_start(entry.entrant)
                await self._try_out(tally, entry, entry.program)
        except LaunchError as error:
            self._fail(entry, Failure(FailureKind.LAUNCH, str(error)))
        except DeviceTimeout as error:
            came_back = False
            self._count(tally)
            self._fail(entry, _failure_of(error))
            await self._recover(error)
        except DeviceLost:
            # A device that its owner destroyed or closed says nothing about the candidate.
            lost = (self._device.lost or "").lower()
            came_back = "destroy" in lost or "closed" in lost
            raise
        finally:
            if noted:
                self._note_return(entry.entrant, came_back)
            elif not came_back:
                self._accuse(entry.entrant)
        self._tell("ran", entry)

    async def _try_out(self, tally: Tally, entry: Entry, program: Program) -> None:
        if self._checker is not None:
            failure = await self._checker.verify(self._device, self._slots, program, entry.name)
            self._count(tally)
            if failure is not None:
                self._fail(entry, failure)
                return
        await self._calibrate(tally, entry)

    async def _calibrate(self, tally: Tally, entry: Entry) -> None:
        """Launch until a span is long enough. The launch that is counts as a sample when one is
        asked for and the warm-ups are spent; the first dispatch never does."""
        faults = 0
        for _ in range(_MOST_CALIBRATIONS):
            first = tally.launches == 0
            warm = tally.launches >= tally.request.warmups
            [span] = await self._device.time([self._shot(entry)])
            self._count(tally)
            fault = span_fault(span, self._device.clock)
            faults += fault is not None and not first
            repeat = self._goal.next_repeat(span) if entry.repeatable else 1
            if fault is None and not first:
                enough = span.elapsed_ns >= self._goal.floor_ns
                if enough or repeat <= span.repeat:
                    if entry.repeatable:
                        entry.repeat = self._goal.settled_repeat(span)
                    entry.cost_ns = span.wall_ns * entry.repeat // span.repeat
                    if warm and tally.samples_left:
                        self._sample(tally, span)
                    return
            elif (
                fault is not None
                and faults >= _MOST_FAULTS
                and (span.elapsed_ns > 0 or repeat <= span.repeat)
            ):
                break
            # An overlong span says nothing about how short the kernel is.
            entry.repeat = repeat if fault is None or span.elapsed_ns <= 0 else span.repeat
        if swallowed_by_noise(span, self._device.clock):
            entry.repeat, entry.cost_ns = span.repeat, span.wall_ns
            return
        self._fail(entry, _not_believed(span, fault or "its spans stay too short"))

    # -- small parts ----------------------------------------------------------------------------

    async def _ready_evictor(self) -> None:
        if self._evict_dispatches and self._evict is None:
            try:
                self._evict = await self._device.compile(self._evict_dispatches)
            except LaunchError as error:
                raise UsageError(f"evict= cannot be compiled: {error}") from error

    def _shot(self, entry: Entry) -> Shot:
        if entry.program is None:
            raise RuntimeError(f"{entry.name} is not compiled")
        return Shot(entry.program, entry.repeat, self._restores, self._evict)

    def _sample(self, tally: Tally, span: Span) -> None:
        duration_ns = max(1, round(span.elapsed_ns / span.repeat))
        tally.durations_ns.append(duration_ns)
        self._tell("sampled", tally.entry, duration_ns)

    def _count(self, tally: Tally) -> None:
        tally.launches += 1
        self.launches += 1

    def _fail(self, entry: Entry, failure: Failure) -> None:
        entry.failure = failure
        self._tell("failed", entry)

    def _tell(self, kind: str, entry: Entry, duration_ns: int | None = None) -> None:
        if self._on_progress is not None and (kind != "ran" or entry.failure is None):
            self._on_progress(
                ProgressEvent(
                    kind, entry.index, entry.name, self.launches, duration_ns, entry.failure
                )
            )

    def _alive(self) -> None:
        if self._device.lost is not None:
            raise DeviceLost(f"the device was lost during the tune: {self._device.lost}")

    async def _recover(self, error: DeviceTimeout) -> None:
        """After a time-out: go on only where the device answers again. A device that is marked
        as lost raises at its next use, and a finished round is still worth its readings."""
        if self._device.lost is None:
            try:
                await self._device.drain()
            except DeviceTimeout:
                raise DeviceLost("the device did not come back after a time-out") from error

    def _note_start(self, entrant: BenchCandidate) -> None:
        if self._journal is not None:
            store, hardware = self._journal
            store.begin(hardware, entrant.id)

    def _note_return(self, entrant: BenchCandidate, came_back: bool) -> None:
        """Without a return, whatever is under way on this hardware is suspect from now on."""
        if self._journal is not None:
            store, hardware = self._journal
            if came_back:
                store.end(hardware, entrant.id)
            else:
                store.abandon(hardware)

    def _accuse(self, entrant: BenchCandidate) -> None:
        """Note a candidate that did not come back, whose start was not noted."""
        self._note_start(entrant)
        self._note_return(entrant, came_back=False)

    async def _breathe(self) -> None:
        if self._pause is not None:
            await self._pause()

    def release(self, candidate: int) -> None:
        """Forget a candidate's program; it is compiled again when it is asked for again."""
        entry = self._entries.get(candidate)
        if entry is not None and entry.program is not None:
            self._device.release(entry.program)
            entry.program = None
            if entry.failure is None:
                del self._entries[candidate]

    def close(self) -> None:
        """Forget all programs and what the checks made. Never fails."""
        for candidate in list(self._entries):
            self.release(candidate)
        if self._evict is not None:
            self._device.release(self._evict)
            self._evict = None
        if self._checker is not None:
            self._checker.close(self._device)


_SUSPECT = (
    "earlier runs on this hardware began it and never came back from it; it is left alone "
    "until its source changes, or until `webtune cache purge` forgets it"
)


def _failure_of(error: DeviceTimeout | LaunchError) -> Failure:
    kind = FailureKind.TIMED_OUT if isinstance(error, DeviceTimeout) else FailureKind.LAUNCH
    return Failure(kind, str(error))


def _not_believed(span: Span, fault: str) -> Failure:
    times = f"{span.repeat} executions" if span.repeat > 1 else "one execution"
    if span.elapsed_ns == 0:
        return Failure(FailureKind.NOT_MEASURED, f"over {times}, {fault}")
    return Failure(FailureKind.INVALID_SAMPLES, f"over {times}, {fault}")
