"""One tune: clones, candidates, strategy, outcome. It changes nothing of the caller's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from webtune.config import Config
from webtune.errors import (
    ArgumentError,
    DeviceLost,
    Failure,
    FailureKind,
    KernelError,
    LaunchError,
    Reject,
    UsageError,
    WebtuneError,
)
from webtune.gpu.base import Copy, Device, can_be_read
from webtune.kernel.arguments import Argument, Buffer
from webtune.kernel.candidates import Group, TunableSet, called, priority_of
from webtune.measure.bench import Bench, BenchCandidate, BenchSettings, ProgressEvent, Slot
from webtune.store.base import Store
from webtune.strategies import get as get_strategy
from webtune.strategies.drive import awaiting
from webtune.strategies.model import Event, Outcome, Problem, Reading, Round
from webtune.strategies.plan import Plan, plan
from webtune.tuning.call import Place
from webtune.tuning.call import Problem as Keyed
from webtune.tuning.programs import ProgramCache, Recording

__all__ = ["Session", "Settled"]

Measure = Callable[[Round], Awaitable[Sequence[Reading]]]
_DISPROVED = "limit disproved"


@dataclass(frozen=True, slots=True)
class Settled:
    """What a tune found: the outcome, the plan it followed, and the limit that was used, ns."""

    outcome: Outcome
    plan: Plan
    limit_ns: int | None = None


class Session:
    """Everything that one tune owns. `run` once; what it made on the device goes with it."""

    def __init__(
        self,
        candidates: TunableSet,
        args: tuple[Argument, ...],
        key: Any,
        *,
        device: Device,
        launcher: ProgramCache,
        store: Store,
        config: Config,
        strategy: str,
        clone_all: bool,
        pause: Callable[[], Awaitable[None]] | None,
        progress: Callable[[ProgressEvent], None] | None,
        known_ns: Mapping[int, tuple[int, ...]] | None = None,
        limit_ns: int | None = None,
        disproof_ns: int = 0,
        inner: Callable[..., tuple[Keyed, Recording, bool]] | None = None,
        settle: Callable[[Keyed], Awaitable[None]] | None = None,
    ) -> None:
        self._set = candidates
        self._caller_args = args
        self._key = key
        self._device = device
        self._launcher = launcher
        self._store = store
        self._config = config
        self._strategy = strategy
        self._clone_all = clone_all
        self._pause = pause
        self._progress = progress
        self._known_ns = dict(known_ns or {})
        self._limit_ns = limit_ns
        self._disproof_ns = disproof_ns
        self._inner = inner
        self._settle = settle
        self._unsettled: dict[Place, Keyed] = {}
        self._broken: dict[Place, WebtuneError] = {}
        self._entrants: dict[int, BenchCandidate | Failure] = {}
        self._made: list[Any] = []
        self._recorded: dict[int, Recording] = {}

    async def run(self) -> Settled:
        """Measure and decide. Raises `DeviceLost`, `UsageError`; failures of candidates are in the
        outcome."""
        bench: Bench | None = None
        try:
            args, slots = self._clone()
            hardware = self._device.identity.digest
            eviction = self._eviction(args)
            bench = Bench(
                self._device,
                lambda index: self._entrants.pop(index, None) or self._enter(index, args),
                slots=slots,
                evict=eviction.dispatches if eviction else (),
                checker=self._checker(args),
                settings=BenchSettings.of(
                    self._config,
                    parallel=1 if self._pause is None else self._config.usable_parallelism,
                ),
                journal=(self._store, hardware),
                suspects=self._suspects(hardware),
                on_progress=self._progress,
                pause=self._pause,
            )
            problem, found = self._problem()
            outcome = await self._decide(problem, partial(self._measure, bench, args))
            disproved = any(event.kind == _DISPROVED for event in outcome.events)
            return Settled(outcome, found, None if disproved else self._limit_ns)
        finally:
            if bench is not None:
                bench.close()
            self._free()

    async def _decide(self, problem: Problem, measure: Measure) -> Outcome:
        """The strategy's outcome. A time that beats the peak shows that the limit is too loose:
        what stopped there goes on without one."""
        strategy = get_strategy(self._strategy)
        outcome = await awaiting(strategy(problem, self._config), measure)
        times = {r.time_ns: r.candidate for r in outcome.results if r.time_ns is not None}
        best_ns = min(times, default=self._disproof_ns)
        if problem.limit_ns is None or best_ns >= self._disproof_ns:
            return outcome
        spent = 0
        if any(event.kind == "short circuit" for event in outcome.events):
            spent = outcome.launches
            unlimited = replace(problem, limit_ns=None)
            outcome = await awaiting(strategy(unlimited, self._config), measure)
        name = problem.names[times[best_ns]]
        text = f"{name} is faster than the device's measured peak; the limit is not used"
        events = (Event(_DISPROVED, text, times[best_ns]), *outcome.events)
        return replace(outcome, events=events, launches=outcome.launches + spent)

    def _suspects(self, hardware: str) -> frozenset[str]:
        """Candidates to leave alone. Where that would be all of them, none: a process that was
        killed in the middle of tunes must not end in having no kernel at all."""
        found = self._store.suspects(hardware)
        return found if any(one.id not in found for one in self._set.candidates) else frozenset()

    def _problem(self) -> tuple[Problem, Plan]:
        candidates = self._set.candidates
        groups: dict[str, int] = {}
        memberships: list[list[tuple[str, int]]] = []
        patience: dict[int, tuple[tuple[str, int], ...]] = {}
        for index, one in enumerate(candidates):
            mine = []
            for group, inside in one.groups:
                groups[group.name] = self._priority(group, group.priority)
                mine.append((group.name, self._priority(group, inside)))
            memberships.append(mine)
            limits = tuple((g.name, g.patience) for g, _ in one.groups if g.patience is not None)
            if limits:
                patience[index] = limits
        found = plan(groups, memberships)
        return (
            Problem(
                batches=found.batches,
                count=len(candidates),
                limit_ns=self._limit_ns if self._set.short_circuit else None,
                patience=patience,
                known_ns=self._known_ns,
                tie_order=tuple(one.id for one in candidates),
                names=tuple(one.name for one in candidates),
                never=found.never,
            ),
            found,
        )

    def _priority(self, group: Group, priority: Any) -> int:
        """The priority of a group or inside it, for this key."""
        name = f"{self._set.name}: group {group.name!r}"
        return priority_of(name, priority, self._key)

    # -- arguments --------------------------------------------------------------------------

    def _clone(self) -> tuple[tuple[Argument, ...], list[Slot]]:
        given = self._caller_args
        if self._set.inputs is not None:
            made = called(self._set.name, "inputs", self._set.inputs, *given)
            if not isinstance(made, list | tuple):
                raise UsageError(
                    f"{self._set.name}: inputs= returned {made!r}; return a list with one argument "
                    "for each of the kernel's"
                )
            try:
                given = self._set.bind(made, self._device)
            except ArgumentError as error:
                reason = str(error).removeprefix(f"{self._set.name}: ")
                raise ArgumentError(
                    f"{self._set.name}: inputs= returned what does not fit: {reason}"
                ) from error
        written = set(self._set.written(given))
        args: list[Argument] = list(given)
        slots: list[Slot] = []
        copies: list[Copy] = []
        cloned = [
            (place, arg)
            for place, arg in enumerate(given)
            if isinstance(arg, Buffer) and (place in written or self._clone_all)
        ]
        self._refuse_unreadable(cloned)
        for place, arg in cloned:
            if arg.handle is None:
                raise ArgumentError(
                    f"{self._set.name}: {self._set.argument_name(place)} was destroyed before the "
                    "tune began"
                )
            nbytes = -(-arg.nbytes // 4) * 4
            work = self._buffer(nbytes, f"tune {self._set.argument_name(place)}")
            copies.append(Copy(arg.handle, work, nbytes))
            args[place] = Buffer(work, arg.dtype, arg.shape, self._device)
            if place not in written:
                continue
            name = self._set.argument_name(place)
            restore = None
            if name in self._set.restore:
                pristine = self._buffer(nbytes, f"pristine {name}")
                copies.append(Copy(arg.handle, pristine, nbytes))
                restore = Copy(pristine, work, nbytes)
            slots.append(Slot(name, place, work, arg.nbytes, arg.dtype, arg.shape, restore))
        try:
            if copies:
                self._device.copy(copies)
        except LaunchError as error:
            names = ", ".join(slot.name for slot in slots) or "its arguments"
            raise ArgumentError(f"{self._uncopied(names)} ({error})") from error
        return tuple(args), slots

    def _refuse_unreadable(self, cloned: Sequence[tuple[int, Buffer]]) -> None:
        closed = [
            self._set.argument_name(place)
            for place, arg in cloned
            if arg.handle is not None and not can_be_read(arg.handle)
        ]
        if closed:
            raise ArgumentError(self._uncopied(", ".join(closed)))

    def _uncopied(self, names: str) -> str:
        return (
            f"{self._set.name}: a tune runs on copies, and {names} could not be copied: create "
            "your own buffers with COPY_SRC, or give inputs="
        )

    def _buffer(self, nbytes: int, label: str) -> Any:
        handle = self._device.create_buffer(nbytes, label=label)
        self._made.append(handle)
        return handle

    def _checker(self, args: tuple[Argument, ...]) -> Any:
        check = self._set.check
        if check is None:
            return None
        if self._set.outputs is None:
            raise KernelError(
                f"{self._set.name}: check= needs outputs=, the names of the arguments that "
                "candidates write"
            )
        return check.prepare(self._set.name, args, self._set.arguments or ())

    def _eviction(self, args: tuple[Argument, ...]) -> Recording | None:
        if self._set.evict is None:
            return None
        evict = self._set.evict

        def record(recorder: Any, given: tuple[Argument, ...]) -> None:
            called("", "evict", evict, recorder, *given)

        from webtune.kernel.candidates import Candidate
        from webtune.kernel.space import Params

        try:
            recorded = self._launcher.record(Candidate("evict", Params({}), "evict", record), args)
        except Reject as error:
            reason = str(error)
            if not reason.startswith("evict="):
                reason = f"evict= cannot be recorded: {reason}"
            raise UsageError(f"{self._set.name}: {reason}") from (error.__cause__ or error)
        self._recorded[-1] = recorded
        for handle in self._strays(recorded):
            for place, arg in enumerate(args):
                if isinstance(arg, Buffer) and arg.handle is handle:
                    raise UsageError(
                        f"{self._set.name}: evict= writes {self._set.argument_name(place)}, which "
                        "is the caller's and not a copy; give it a buffer of its own to write"
                    )
        return recorded

    # -- candidates -------------------------------------------------------------------------

    async def _measure(
        self, bench: Bench, args: tuple[Argument, ...], wanted: Round
    ) -> Sequence[Reading]:
        for request in wanted.requests:
            if request.candidate not in self._recorded:
                await self._prepare(request.candidate, args)
        return await bench.measure(wanted)

    async def _prepare(self, index: int, args: tuple[Argument, ...]) -> None:
        """Record a candidate. Tuned kernels that it runs are decided first, and then it is
        recorded again with their picks; scratch memory that they are tuned on lives until then."""
        while True:
            entered = self._enter(index, args)
            if not self._unsettled or self._settle is None or isinstance(entered, Failure):
                self._entrants[index] = entered
                return
            waiting, self._unsettled = self._unsettled, {}
            try:
                for place, inner in waiting.items():
                    try:
                        await self._settle(inner)
                    except DeviceLost:
                        raise
                    except WebtuneError as error:
                        self._broken[place] = error
            finally:
                self._recorded.pop(index).free()

    def _nested(self, kernel: TunableSet, *args: Any) -> Recording:
        if self._inner is None:
            raise KernelError("this tune cannot run other kernels")
        problem, recorded, settled = self._inner(kernel, *args)
        if problem.place in self._broken:
            recorded.free()
            raise self._broken[problem.place]
        if not settled:
            self._unsettled[problem.place] = problem
        return recorded

    def _enter(self, index: int, args: tuple[Argument, ...]) -> BenchCandidate | Failure:
        one = self._set.candidates[index]
        self._unsettled.clear()
        try:
            recorded = self._launcher.record(one, args, self._nested)
        except Reject as error:
            return Failure(FailureKind.REJECTED, str(error))
        except LaunchError as error:
            return Failure(FailureKind.LAUNCH, str(error))
        stray = next(self._strays(recorded), None)
        if stray is not None:
            recorded.free()
            return Failure(FailureKind.REJECTED, self._stray_text(stray))
        self._recorded[index] = recorded
        return BenchCandidate(one.id, one.name, recorded.dispatches, one.repeat)

    def _strays(self, recorded: Recording) -> Iterator[Any]:
        """What is written that is neither a clone of this tune nor its own scratch: a tune changes
        nothing of the caller's."""
        free = recorded.handles | {id(handle) for handle in self._made}
        for dispatch in recorded.dispatches:
            for binding in dispatch.bindings:
                if binding.kind == "storage" and id(binding.handle) not in free:
                    yield binding.handle

    def _stray_text(self, handle: Any) -> str:
        for place, arg in enumerate(self._caller_args):
            if isinstance(arg, Buffer) and arg.handle is handle:
                name = self._set.argument_name(place)
                return f"it writes {name}, which outputs= does not name; name it there"
        return "it writes a buffer that is not among its arguments; pass it as one"

    def _free(self) -> None:
        for recorded in self._recorded.values():
            recorded.free()
        self._recorded.clear()
        for handle in self._made:
            self._device.destroy_buffer(handle)
        self._made.clear()
