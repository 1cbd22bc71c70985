"""The link to a wgpu device: errors are webtune's, waits end, and lost devices get no work.

Theory of operation
-------------------
wgpu-py's objects hold pointers into the bundled library, wgpu-native, which is written in Rust. A
Rust panic cannot pass through C into Python: it aborts the process. So whatever could panic has to
be refused before it reaches the library.

- Lost devices. wgpu-native aborts when it is handed work for a lost device, and wgpu-py has no
  `lost` promise. `Link.check` refuses once the loss is known. Every error is asked whether it tells
  of a loss, by its text and by a probe that creates the smallest buffer there is.
- Destroyed and mapped buffers. Submitting one aborts. Buffers that webtune destroys are remembered,
  and of a caller's own buffers `destroy` is wrapped, since no property tells that it was called.
- Threads. Some drivers (lavapipe) do their waiting inside a submit or a request to map, where
  neither a time-out nor Ctrl-C can end it. So whatever waits runs in the `Waiter`'s thread. Its
  caller stops waiting after the time-out; the device is then lost for good and is kept referenced,
  since releasing it would wait for the work that hangs. After Ctrl-C the job stops before its next
  submit, and the caller waits for that, so that nobody frees what the job still uses.
- OpenGL. Its context belongs to one thread at a time: `lane` sees to that.
- Forks. No driver survives one: a forked process finds every device lost, and its locks new.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet, ref

from webtune.errors import DeviceLost, DeviceTimeout, LaunchError, WebtuneError
from webtune.gpu.base import COPY_DST, MAP_READ, UNIFORM
from webtune.gpu.native.lane import LANE, is_opengl

T = TypeVar("T")

COMPUTE_STAGE = 0x4

_LOST = re.compile(r"\b(?:device|\[Device\][^\n]*)\s+is\s+lost|device[^\n]*\bdestroyed", re.I)
_LINE = re.compile(r"(?:wgsl|^|\s):(\d+):(\d+)", re.M)
_PREAMBLE = re.compile(
    r"\A(?:Validation Error|Internal Error)?\s*(?:Caused by:)?\s*(?:In wgpu\w+)?\s*"
)

_CLOSED = "it was closed"
_FORKED = (
    "it was opened before this process was forked, and drivers do not survive a fork: open the "
    "first tuner after the fork, or start the process with spawn"
)

_LOOK_UP_S = 0.1
"""How often a wait looks up: a signal that comes just before it begins does not end it."""

_abandoned: list[Any] = []
"""Devices that hang: releasing one waits for its work, so they are kept until the process ends."""

_dead: WeakSet[Any] = WeakSet()
"""Buffers that were destroyed; of a caller's own only those that are in `_watched`."""

_watched: WeakSet[Any] = WeakSet()

_links: WeakSet[Link] = WeakSet()


def _forked() -> None:
    for link in list(_links):
        link.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Stopped(BaseException):
    """Ends a job whose caller was interrupted, before its next submit."""


class _TooLate(Exception):
    """A job took longer than its time-out."""


def compiler_message(error: BaseException) -> str:
    """What the compiler or validator said, led by its WGSL line where it names one."""
    text = _PREAMBLE.sub("", str(error)).strip() or type(error).__name__
    where = _LINE.search(text)
    return f"line {where.group(1)}: {text}" if where else text


class Waiter:
    """Runs jobs that block in one daemon thread, so that the caller can stop waiting for them.

    A caller that stops for another reason than the time-out (Ctrl-C) has the job stopped and waits
    for its end first, so that nobody frees what the job still uses.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._left_until_s: float | None = None

    def run(self, job: Callable[[], Any], timeout_s: float) -> Any:
        """`job()`'s value or exception; `_TooLate` when it takes longer than `timeout_s`.

        A job may run another one, which then shares its time.
        """
        if self._is_here():
            return job()
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._jobs,), daemon=True)
            self._thread.start()
        self.finish()
        self._left_until_s = until_s = time.monotonic() + timeout_s
        try:
            answer = self._queue(job)
            ended = _ended(answer, until_s)
        except BaseException:
            self.finish()
            raise
        if not ended:
            raise _TooLate
        self._left_until_s = None
        return answer.result()

    def finish(self) -> bool:
        """Stop the job that an interrupt left behind, if there is one, and wait for its end until
        its time is over. False when it still runs then. No further interrupt ends this wait."""
        while not self._is_here() and (until_s := self._left_until_s) is not None:
            try:
                self._stopping = True
                # Jobs end in order, and nobody can say whether the interrupt let one be queued.
                if not _ended(self._queue(lambda: None), until_s):
                    return False
                self._stopping = False
                self._left_until_s = None
            except BaseException:
                continue
        return True

    def stop_if_asked(self) -> None:
        """Raise `_Stopped` in a job whose caller no longer waits."""
        if self._stopping and self._is_here():
            raise _Stopped

    def close(self) -> None:
        """Let the thread end after its last job."""
        if self._thread is not None:
            self._jobs.put(None)

    def _is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def _queue(self, job: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        self._jobs.put((job, answer))
        return answer


def _ended(answer: Future[Any], until_s: float) -> bool:
    while True:
        left_s = max(0.0, until_s - time.monotonic())
        try:
            answer.exception(min(left_s, _LOOK_UP_S))
            return True
        except TimeoutError:
            if not left_s:
                return False


def _serve(jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    while (item := jobs.get()) is not None:
        job, answer = item
        try:
            answer.set_result(job())
        except BaseException as error:
            answer.set_exception(error)


class Link:
    """A raw wgpu device with its loss, its time-out and its translated errors."""

    def __init__(self, raw: Any, timeout_s: float) -> None:
        self.raw = raw
        self.timeout_s = timeout_s
        self.lost: str | None = None
        self._waiter = Waiter()
        self._token: Any = None
        self.busy = threading.RLock()
        """Held by whoever measures, waits or submits."""
        _links.add(self)

    def check(self) -> None:
        """Raise `DeviceLost` when the device is known to be gone."""
        if self.lost is not None:
            raise DeviceLost(f"the device is lost ({self.lost}); open another tuner to go on")

    def probe(self) -> str | None:
        """Why the device is gone, or None: asks by creating the smallest buffer there is."""
        if self.lost is None:
            try:
                self.raw.create_buffer(size=4, usage=COPY_DST)
            except Exception as error:
                if _LOST.search(str(error)):
                    self.lost = compiler_message(error)
        return self.lost

    @contextmanager
    def guard(self) -> Iterator[Any]:
        """Gives the raw device; what it raises inside becomes a webtune error."""
        self.check()
        try:
            yield self.raw
        except WebtuneError:
            raise
        except Exception as error:
            if _LOST.search(str(error)) or self.probe():
                self.lost = self.lost or compiler_message(error)
                raise DeviceLost(f"the device was lost: {self.lost}") from error
            raise LaunchError(compiler_message(error)) from error

    @contextmanager
    def commands(self) -> Iterator[Any]:
        """Gives a command encoder, and submits what was recorded into it."""
        with self.guard() as raw:
            encoder = raw.create_command_encoder()
            yield encoder
            self.submit(encoder)

    def submit(self, encoder: Any) -> None:
        """Finish and submit what was recorded, unless the job that does so was stopped."""
        self._waiter.stop_if_asked()
        with self.guard() as raw:
            raw.queue.submit([encoder.finish()])

    # ---- buffers ---------------------------------------------------------------------------

    def buffer(self, nbytes: int, usage: int, label: str = "") -> Any:
        """A new buffer of this device."""
        with self.guard() as raw:
            return raw.create_buffer(size=nbytes, usage=usage, label=label)

    def destroy_buffer(self, handle: Any) -> None:
        """Destroy a buffer once no job uses it any more; a lost device's buffers stay as is."""
        with self.busy:
            if self._is_idle():
                _dead.add(handle)
                handle.destroy()

    def watch(self, handle: Any) -> None:
        """Learn of it when a caller destroys the buffer `handle`, and let that wait until nothing
        is being measured. `LaunchError` where it is destroyed already, or another device's."""
        if handle in _watched:
            return
        kind = "uniform" if handle.usage & UNIFORM else "storage"
        entry = {"binding": 0, "visibility": COMPUTE_STAGE, "buffer": {"type": kind}}
        nbytes = min(handle.size & ~3 or handle.size, 16)
        resource = {"buffer": handle, "offset": 0, "size": nbytes}
        with self.guard() as raw:
            layout = raw.create_bind_group_layout(entries=[entry])
            raw.create_bind_group(layout=layout, entries=[{"binding": 0, "resource": resource}])
        destroy, here, busy = type(handle).destroy, ref(handle), self.busy

        def noted() -> None:
            with busy:
                if (owned := here()) is not None:
                    _dead.add(owned)
                    destroy(owned)

        handle.destroy = noted
        _watched.add(handle)

    def check_handles(self, handles: Iterable[Any]) -> None:
        """Raise `LaunchError` for a buffer that was destroyed or is mapped."""
        for handle in handles:
            if handle.map_state != "unmapped":
                raise LaunchError("a buffer of this launch is mapped; unmap it first")
            if _dead and handle in _dead:
                raise LaunchError("a buffer of this launch was destroyed")

    # ---- waiting ---------------------------------------------------------------------------

    def bounded(self, job: Callable[[], T], extra_s: float = 0.0) -> T:
        """The value of `job`, which may wait for the device for at most `timeout_s + extra_s`;
        then `DeviceTimeout`, and the device is given up."""
        self.check()
        limit_s = self.timeout_s + extra_s
        try:
            value: T = self._waiter.run(job, limit_s)
        except _TooLate as error:
            self.abandon(limit_s)
            raise DeviceTimeout(
                f"work did not come back within {limit_s:g} s; the device is given up"
            ) from error
        except BaseException:
            self._is_idle()
            raise
        return value

    def fetch(self, staging: Any, nbytes: int) -> memoryview:
        """Map `staging`, copy out `nbytes` (a multiple of 4) and unmap; all that was submitted
        before is done by then."""

        def job() -> memoryview:
            with self.guard():
                try:
                    staging.map_async("READ", 0, nbytes).sync_wait()
                    return memoryview(staging.read_mapped(0, nbytes))
                finally:
                    if staging.map_state == "mapped":
                        staging.unmap()

        return self.bounded(job)

    def unmapped(self, staging: Any) -> Any:
        """`staging`, or another like it where its mapping failed and so never ends."""
        if staging.map_state == "unmapped":
            return staging
        return self.buffer(staging.size, MAP_READ | COPY_DST, staging.label)

    def drain(self) -> None:
        """Wait until the queue is empty, by reading a buffer back: a mapping that succeeds is
        the only proof of completion that holds on every implementation."""
        if self._token is None:
            self._token = self.buffer(4, MAP_READ | COPY_DST, "webtune drain")
        self._token = self.unmapped(self._token)
        self.fetch(self._token, 4)

    def _is_idle(self) -> bool:
        """Whether the device lives and no job runs any more that an interrupt left behind; the
        device is given up where one does."""
        if self.lost is None and not self._waiter.finish():
            self.abandon(self.timeout_s)
        return self.lost is None

    # ---- the end ---------------------------------------------------------------------------

    def abandon(self, limit_s: float) -> None:
        """Give the device up for good: its thread may hang in the driver for ever."""
        self.lost = f"work did not come back within {limit_s:g} s"
        if is_opengl(self.raw.adapter):
            LANE.give_up()
        _abandoned.append((self.raw, self._waiter, self._token))

    def forked(self) -> None:
        """Give the device up in a forked process, where locks that threads of the parent held are
        never given back."""
        self.lost = _FORKED
        self.busy = threading.RLock()
        _abandoned.append((self.raw, self._waiter, self._token))

    def close(self, *, destroy: bool) -> None:
        """Free what the link made, and with `destroy` the device. A device that hangs is left."""
        if self.lost == _CLOSED:
            return
        self._is_idle()
        self._waiter.close()
        if not any(raw is self.raw for raw, *_ in _abandoned):
            if self._token is not None:
                self._token.destroy()
            if destroy:
                self.raw.destroy()
        self._token = None
        self.lost = self.lost or _CLOSED
