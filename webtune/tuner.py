"""The tuner: one class for every host. What it decides, keeps and launches is done by its parts.

Nothing here knows whether it runs in a browser: the host says whether a call may wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from webtune.config import Config
from webtune.errors import TunerClosed, UsageError
from webtune.gpu.base import Device, Program
from webtune.kernel.arguments import Argument, Buffer
from webtune.kernel.candidates import Candidate, TunableSet
from webtune.measure.bench import Joined
from webtune.report.decision_log import Sink
from webtune.report.format import counted
from webtune.report.report import TuneReport
from webtune.store.base import Store
from webtune.strategies.drive import complete
from webtune.tuning import transfer
from webtune.tuning.call import Gathering, Problem, Problems
from webtune.tuning.host import Host
from webtune.tuning.peaks import Peaks
from webtune.tuning.pick_cache import Hit, LookUp
from webtune.tuning.probes import measure_peaks
from webtune.tuning.programs import ProgramCache, Recording
from webtune.tuning.repository import Repository
from webtune.tuning.runner import Runner
from webtune.tuning.scheduler import ProgressListener, Scheduler

__all__ = ["Tuner"]


class Tuner:
    """Tunes kernels on one device, remembers the winners and runs them.

    Made by `open_tuner` and `open_tuner_async`. Use it as a context manager, or call `close`.
    Methods that end in `_async` have a blocking twin on hosts where a call may wait.
    """

    def __init__(
        self, device: Device, store: Store, host: Host, config: Config, sink: Sink | None = None
    ) -> None:
        self.device = device
        self.store = store
        self.host = host
        self.config = config
        self._closed = False
        self._launcher = ProgramCache(device)
        self._problems = Problems(device, store, config)
        self._remembered = Repository(device, store, host, config, self._problems, sink)
        self._decider = Scheduler(
            device,
            store,
            host,
            config,
            launcher=self._launcher,
            problems=self._problems,
            remembered=self._remembered,
        )
        self._launching = Runner(
            store,
            host,
            config,
            launcher=self._launcher,
            decider=self._decider,
            remembered=self._remembered,
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self.device.lost is not None else "open"
        return (
            f"<Tuner on {self.device.identity.label} ({state}): "
            f"{counted(self._problems.known, 'key')} known, picks in {self.store.location}>"
        )

    # -- data -------------------------------------------------------------------------------

    def upload(self, data: Any) -> Buffer:
        """A device buffer with a copy of `data` (anything with the buffer protocol). Raises
        `ArgumentError` for other things, and for an empty array."""
        self._ensure_open()
        return transfer.upload(self.device, data, self._free)

    def empty(self, shape: int | Sequence[int], dtype: str = "f32") -> Buffer:
        """A zeroed device buffer of `shape` elements."""
        self._ensure_open()
        return transfer.empty(self.device, shape, dtype, self._free)

    def wrap(self, raw: Any, dtype: str, shape: int | Sequence[int] | None = None) -> Buffer:
        """Your own GPU buffer as an argument with a dtype and a shape (default: all of it)."""
        self._ensure_open()
        return transfer.wrap(self.device, raw, dtype, shape)

    def download(self, buffer: Buffer) -> Any:
        """A buffer's content: a numpy array of its shape where numpy is installed, else a
        memoryview. Raises `UsageError` on a host that must not wait."""
        self._must_block("download")
        return complete(self.download_async(buffer))

    async def download_async(self, buffer: Buffer) -> Any:
        """The same, awaiting."""
        self._ensure_open()
        return await transfer.download(self.device, buffer)

    def _free(self, buffer: Buffer) -> None:
        self._launcher.forget(buffer=buffer)
        handle, buffer.handle = buffer.handle, None
        self.device.destroy_buffer(handle)

    # -- asking -----------------------------------------------------------------------------

    def lookup(self, kernel: TunableSet, *args: Any) -> LookUp:
        """What memory knows: `Hit`, `Pending`, `Compiled` or `Miss`. Starts nothing and never asks
        the store, so a `Miss` does not mean that nothing is remembered."""
        return self._decider.known(self._understand(kernel, args))

    def settled_index(self, kernel: TunableSet, *args: Any) -> int | None:
        """The index of the pick in memory, or None. Reads only."""
        problem = self._understand(kernel, args)
        return problem.cache.settled(problem.place, problem.address.environment)

    def explain(self, kernel: TunableSet, *args: Any) -> TuneReport:
        """What is known of this problem; as text a table: candidates, times, the winner, what
        ties with it and why each other lost. Starts nothing."""
        return self._decider.explain(self._understand(kernel, args))

    # -- running ----------------------------------------------------------------------------

    def run(self, kernel: TunableSet, *args: Any) -> LookUp:
        """Run the best candidate for these arguments on them, once.

        The first call for a key reads the store, and tunes when that has no answer: where a call
        may wait, it waits and then runs the winner; elsewhere it starts the tune on the event
        loop, runs the first candidate that serves, and answers `Pending`. A pick that fails to
        launch is given up, and the next best runs. Raises `ArgumentError` and other usage errors,
        `NoValidKernel` when every candidate failed, `DeviceLost`.
        """
        return self._perform(kernel, args, self.device.submit)

    def record(self, compute_pass: Any, kernel: TunableSet, *args: Any) -> LookUp:
        """The same, into your own compute pass instead of a submit of its own."""
        return self._perform(kernel, args, partial(self.device.encode, compute_pass))

    def _perform(
        self, kernel: TunableSet, args: Sequence[Any], launch: Callable[[Program], None]
    ) -> LookUp:
        problem = self._understand(kernel, args)
        state = self._decider.answer(problem)
        if self.gathering is not None and not self.gathering.launch:
            return state
        return self._launching.launch(problem, state, launch)

    def tune(
        self,
        kernel: TunableSet,
        *args: Any,
        progress: ProgressListener | None = None,
        strategy: str | None = None,
        fresh: bool = False,
    ) -> TuneReport:
        """Decide now and tell how; answers from memory or the store unless `fresh`. Raises
        `UsageError` on a host that must not wait."""
        self._must_block("tune")
        problem = self._understand(kernel, args)
        return complete(self.decide(problem, progress=progress, strategy=strategy, fresh=fresh))

    async def tune_async(
        self,
        kernel: TunableSet,
        *args: Any,
        progress: ProgressListener | None = None,
        strategy: str | None = None,
        fresh: bool = False,
    ) -> TuneReport:
        """The same, awaiting. A tune of the same key that is under way is waited for, and its
        answer or its failure is this call's. The event loop gets a turn between launches, also
        natively; cancelling the task ends the tune."""
        problem = self._understand(kernel, args)
        if not self.host.blocking:
            await kernel.enumerate(self.host.pause)
        return await self.decide(
            problem, progress=progress, strategy=strategy, fresh=fresh, gives_way=True
        )

    def peaks(self, *, fresh: bool = False, progress: ProgressListener | None = None) -> Peaks:
        """The device's measured peaks: arithmetic, memory in and beyond caches, launch. Repository
        like picks; once known, kernels with `work=` stop early when they come close, and tables
        show how close. It takes some seconds; `progress` gets the events of all its tunes as those
        of one."""
        self._must_block("peaks")
        return complete(self._find_peaks(fresh=fresh, progress=progress))

    async def peaks_async(
        self, *, fresh: bool = False, progress: ProgressListener | None = None
    ) -> Peaks:
        """The same, awaiting."""
        return await self._find_peaks(fresh=fresh, progress=progress, gives_way=True)

    async def _find_peaks(
        self, *, fresh: bool, progress: ProgressListener | None, gives_way: bool = False
    ) -> Peaks:
        joined = None if progress is None else Joined(progress)

        async def tune(probe: TunableSet, args: Sequence[Buffer]) -> TuneReport:
            problem = self._understand(probe, args)
            options: dict[str, Any] = {"progress": joined, "gives_way": gives_way}
            report = await self.decide(problem, fresh=fresh, **options)
            if report.winner_ns is None and not fresh:  # a pick whose record is gone
                report = await self.decide(problem, fresh=True, **options)
            if joined is not None:
                joined.next(len(probe.candidates))
            return report

        known = None if fresh else self.known_peaks()
        found = known or await measure_peaks(self.device.limits, self.empty, tune)
        self._remembered.peaks = found
        return found

    def known_peaks(self) -> Peaks | None:
        """The peaks out of memory or the store; None where they were never measured."""
        return self._remembered.known_peaks()

    async def settled(self) -> None:
        """Wait until no tune that was started in the background runs. What failed is in the log
        and in `failures`."""
        await self._decider.settled()

    @property
    def failures(self) -> tuple[Exception, ...]:
        """Background tunes that failed since the tuner was opened and were told nowhere else."""
        return tuple(self._decider.failures.values())

    # -- ending -----------------------------------------------------------------------------

    def close(self) -> None:
        """End what is pending, free what webtune made. Uploaded buffers are gone with it."""
        if self._closed:
            return
        self._closed = True
        self._decider.cancel()
        self._launcher.forget()
        self.store.close()
        self.device.close()

    async def close_async(self) -> None:
        """The same, after what was stored has reached its place."""
        self._decider.cancel()
        await self.store.flush()
        self.close()

    def __enter__(self) -> Tuner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Tuner:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()

    # -- gathering (for `webtune.gather`) -----------------------------------------------------

    @property
    def gathering(self) -> Gathering | None:
        """What collects problems now instead of having them tuned."""
        return self._decider.gathering

    @property
    def device_token(self) -> object:
        """What memory knows this tuner's device by."""
        return self._decider.device_token

    def begin_gathering(self, gather: Gathering) -> None:
        """Collect instead of tuning from now on. `UsageError` inside another gather block."""
        self._ensure_open()
        if self.gathering is not None:
            raise UsageError("this tuner is gathering already; leave that block first")
        self._decider.gathering = gather

    def end_gathering(self, gather: Gathering) -> None:
        """Tune again from now on."""
        if self.gathering is gather:
            self._decider.gathering = None

    async def decide(self, problem: Problem, **options: Any) -> TuneReport:
        """`tune_async` for a problem that is understood, in the environment it was met in."""
        return await self._decider.decide(problem, **options)

    def record_candidate(self, one: Candidate, args: tuple[Argument, ...]) -> Recording:
        """A candidate's dispatches on these arguments, not run. Raises what recording raises."""
        return self._decider.record_candidate(one, args)

    def stored_index(self, problem: Problem) -> int | None:
        """The pick that the store has for this very set, as an index."""
        return self._remembered.stored_index(problem)

    def is_pending(self, problem: Problem) -> bool:
        """Whether memory has no pick yet."""
        return not isinstance(self._decider.known(problem), Hit)

    def is_persisted(self, problem: Problem) -> bool:
        """Whether the store, and not memory alone, has the pick."""
        return self._remembered.is_persisted(problem)

    # -- inside -----------------------------------------------------------------------------

    def _ensure_open(self) -> None:
        if self._closed:
            raise TunerClosed("this tuner is closed; open another with open_tuner()")

    def _must_block(self, what: str) -> None:
        self._ensure_open()
        if not self.host.blocking:
            raise UsageError(f"{what}() would hold the page; use `await tuner.{what}_async(…)`")

    def _understand(self, kernel: TunableSet, args: Sequence[Any]) -> Problem:
        self._ensure_open()
        return self._problems.understand(kernel, args)
