"""The tuner: what callers see. What it decides, keeps and launches is done by its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from webtune.config import Config
from webtune.gpu.base import Device, Program
from webtune.kernel.tunable_set import TunableSet
from webtune.report.format import counted
from webtune.report.report import TuneReport
from webtune.store.base import Store
from webtune.strategies.drive import complete
from webtune.tuning.call import Call, CallReader
from webtune.tuning.closing import Closing
from webtune.tuning.context import Context, ProgressListener, TuneOptions
from webtune.tuning.gather import Gather
from webtune.tuning.peaks import Peaks
from webtune.tuning.pick_cache import LookUp
from webtune.tuning.programs import ProgramCache
from webtune.tuning.repository import Explained
from webtune.tuning.roofline import find_peaks
from webtune.tuning.runner import Runner
from webtune.tuning.scheduler import Scheduler
from webtune.tuning.transfer import BufferOwner


class Tuner(BufferOwner, Closing):
    """Tunes kernels on one device, remembers the winners and runs them.

    Made by `open_tuner` and `open_tuner_async`. Use it as a context manager, or call `close`.
    Methods that end in `_async` have a blocking twin on hosts where a call may wait.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, ProgramCache(context.device))
        self.device: Device = context.device
        self.store: Store = context.store
        self.config: Config = context.config
        self._reader = CallReader(context.device, context.store, context.config)
        self._scheduler = Scheduler(context, self._reader, self._programs)
        self._runner = Runner(self._scheduler)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self.device.lost is not None else "open"
        return (
            f"<Tuner on {self.device.identity.label} ({state}): "
            f"{counted(self._reader.picks, 'key')} known, picks in {self.store.location}>"
        )

    # -- asking -----------------------------------------------------------------------------

    def lookup(self, kernel: TunableSet, *args: Any) -> LookUp:
        """What memory knows: `Hit`, `Pending`, `Compiled` or `Miss`. Starts nothing and never asks
        the store, so a `Miss` does not mean that nothing is remembered."""
        return self._scheduler.lookup(self._read(kernel, args))

    def settled_index(self, kernel: TunableSet, *args: Any) -> int | None:
        """The index of the pick in memory, or None. Reads only."""
        return self._read(kernel, args).pick()

    def explain(self, kernel: TunableSet, *args: Any) -> TuneReport:
        """What is known of this key; as text a table of the candidates with their times, the
        winner, what ties with it, and why each other lost. Starts nothing."""
        call = self._read(kernel, args)
        return self._report(call, self._scheduler.explain(call))

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
        call = self._read(kernel, args)
        state = self._scheduler.answer(call)
        gathering = self._scheduler.gathering
        if gathering is not None and not gathering.launch:
            return state
        return self._runner.launch(call, state, launch)

    def tune(
        self,
        kernel: TunableSet,
        *args: Any,
        progress: ProgressListener | None = None,
        strategy: str | None = None,
        fresh: bool = False,
    ) -> TuneReport:
        """Decide now and tell how; out of memory or the store unless `fresh`. `progress` gets a
        `ProgressEvent` for what happens, `strategy` is the name of a strategy. Raises `UsageError`
        on a host that must not wait, `NoValidKernel`, `DeviceLost`."""
        self._must_block("tune")
        call = self._read(kernel, args)
        return complete(self._tune(call, TuneOptions(progress, strategy, fresh)))

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
        call = self._read(kernel, args)
        if not self._context.host.blocking:
            await kernel.enumerate(self._context.host.pause)
        return await self._tune(call, TuneOptions(progress, strategy, fresh, awaiting=True))

    async def _tune(self, call: Call, options: TuneOptions) -> TuneReport:
        return self._report(call, await self._scheduler.decide(call, options))

    # -- the device's peaks -----------------------------------------------------------------

    def peaks(self, *, fresh: bool = False, progress: ProgressListener | None = None) -> Peaks:
        """The device's measured peaks: arithmetic, memory in and beyond caches, launch. Remembered
        like picks; once known, kernels with `work=` stop early when they come close, and tables
        show how close. Measuring takes some seconds; `progress` gets the events of all its tunes as
        those of one. Raises what `tune` does."""
        self._must_block("peaks")
        return complete(find_peaks(self._scheduler, self.empty, TuneOptions(progress, None, fresh)))

    async def peaks_async(
        self, *, fresh: bool = False, progress: ProgressListener | None = None
    ) -> Peaks:
        """The same, awaiting."""
        options = TuneOptions(progress, None, fresh, awaiting=True)
        return await find_peaks(self._scheduler, self.empty, options)

    def known_peaks(self) -> Peaks | None:
        """The peaks out of memory or the store; None where they were never measured."""
        return self._scheduler.limits.known_peaks()

    # -- the background ---------------------------------------------------------------------

    async def settled(self) -> None:
        """Wait until no tune that was started in the background runs. What failed is in the log
        and in `failures`."""
        await self._scheduler.settled()

    @property
    def failures(self) -> tuple[Exception, ...]:
        """Background tunes that failed since the tuner was opened and were told nowhere else."""
        return tuple(self._scheduler.failures.values())

    def close(self) -> None:
        """End what is pending and free what webtune made. Uploaded buffers are gone with it."""
        if self._closed:
            return
        self._closed = True
        self._scheduler.cancel()
        self._programs.forget()
        self.store.close()
        self.device.close()

    async def close_async(self) -> None:
        """The same, after what was stored has reached its place."""
        self._scheduler.cancel()
        await self.store.flush()
        self.close()

    # -- inside -----------------------------------------------------------------------------

    def _read(self, kernel: TunableSet, args: Sequence[Any]) -> Call:
        self._ensure_open()
        return self._reader.read(kernel, args)

    def _report(self, call: Call, explained: Explained) -> TuneReport:
        work = call.kernel.work_of(call.args)
        bounds = self._scheduler.limits.of(call).bounds if work is not None else ()
        return TuneReport(call.kernel.name, call.address.key, *explained, work, bounds)


def gather(tuner: Tuner, *, launch: bool = False) -> Gather:
    """Collect every key that the block reaches, without measuring:

        with webtune.gather(tuner) as g:
            application()
        g.tune()

    With `launch` the kernels run too, each with the pick that is known or the first candidate
    that serves; without it, `run` and `record` only look.
    """
    return Gather(tuner._scheduler, tuner._report, launch=launch)
