"""The one way to a wgpu device: every failure leaves here as a webtune error, no wait is endless.

wgpu-native aborts the process when it is handed work for a lost device, so nothing is submitted
before `finish` has had the chance to refuse it.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet, ref

from webtune.errors import DeviceLost, DeviceTimeout, LaunchError, WebtuneError

T = TypeVar("T")

MAP_READ, COPY_SRC, COPY_DST = 0x1, 0x4, 0x8
UNIFORM, STORAGE, QUERY_RESOLVE = 0x40, 0x80, 0x200
COMPUTE_STAGE = 0x4

_LOST = re.compile(r"\b(?:device|\[Device\][^\n]*)\s+is\s+lost|device[^\n]*\bdestroyed", re.I)
_LINE = re.compile(r"(?:wgsl|^|\s):(\d+):(\d+)", re.M)
_PREAMBLE = re.compile(
    r"\A(?:Validation Error|Internal Error)?\s*(?:Caused by:)?\s*(?:In wgpu\w+)?\s*"
)

_FORKED = (
    "it was opened before this process was forked, and drivers do not survive a fork: open the "
    "first tuner after the fork, or start the process with spawn"
)

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


def compiler_message(error: BaseException) -> str:
    """What the compiler or validator said, led by its WGSL line where it names one."""
    text = _PREAMBLE.sub("", str(error)).strip() or type(error).__name__
    where = _LINE.search(text)
    return f"line {where.group(1)}: {text}" if where else text


class Waiter:
    """Runs blocking waits in one daemon thread, so that the caller can stop waiting.

    Whoever stops waiting for another reason than the time-out (Ctrl-C) has the job stopped and
    waits for its end first, so that nobody frees what the job still uses.
    """

    def __init__(self) -> None:
        self.stopping = False
        self._left_until_s: float | None = None
        self._jobs: SimpleQueue[tuple[Callable[[], Any], list[Any], threading.Event] | None]
        self._jobs = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, job: Callable[[], Any], timeout_s: float) -> Any:
        """`job()`'s value or exception; TimeoutError when it takes longer than `timeout_s`.

        A job may run another one, which then shares its time.
        """
        if threading.current_thread() is self._thread:
            return job()
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._jobs,), daemon=True)
            self._thread.start()
        self.settle()
        answer: list[Any] = []
        done = threading.Event()
        self._left_until_s = time.monotonic() + timeout_s
        try:
            self._jobs.put((job, answer, done))
            ended = done.wait(timeout_s)
        except BaseException:
            self.settle()
            raise
        if not ended:
            raise TimeoutError
        self._left_until_s = None
        value, error = answer
        if error is not None:
            raise error
        return value

    def settle(self) -> bool:
        """Stop the job that an interrupt left behind, if there is one, and wait for its end until
        its time is over. False when it still runs then. No further interrupt ends this wait."""
        if threading.current_thread() is self._thread:
            return True
        while (until_s := self._left_until_s) is not None:
            try:
                self.stopping = True
                # Jobs end in order, and nobody can say whether the interrupt let one be queued.
                fence = threading.Event()
                self._jobs.put((_nothing, [], fence))
                if not fence.wait(max(0.0, until_s - time.monotonic())):
                    return False
                self.stopping = False
                self._left_until_s = None
            except BaseException:
                continue
        return True

    def is_stopped(self) -> bool:
        """Whether this is the waiting thread and its job is to end."""
        return self.stopping and threading.current_thread() is self._thread

    def stop(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)


def _nothing() -> None:
    pass


def _serve(jobs: SimpleQueue[tuple[Callable[[], Any], list[Any], threading.Event] | None]) -> None:
    while (item := jobs.get()) is not None:
        job, answer, done = item
        try:
            answer.extend((job(), None))
        except BaseException as error:
            answer.extend((None, error))
        done.set()


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
        """Raises `DeviceLost` when the device is known to be gone."""
        if self.lost is not None:
            raise DeviceLost(f"the device is lost ({self.lost}); open another tuner to go on")

    def destroy_buffer(self, handle: Any) -> None:
        with self.busy:
            if self._settled():
                _dead.add(handle)
                handle.destroy()

    def watch(self, handle: Any) -> None:
        """Learn of it when the owner of `handle` destroys it, and let that wait until nothing is
        being measured: no property of wgpu-py's buffers tells of it, and submitting a destroyed
        one aborts the process. `LaunchError` where it is destroyed already."""
        if handle in _watched:
            return
        entry = {"binding": 0, "visibility": COMPUTE_STAGE, "buffer": {"type": "storage"}}
        if handle.usage & UNIFORM:
            entry["buffer"] = {"type": "uniform"}
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
        """Raises `LaunchError` for a buffer that was destroyed or is mapped: submitting one would
        abort the process."""
        for handle in handles:
            if handle.map_state != "unmapped":
                raise LaunchError("a buffer of this launch is mapped; unmap it first")
            if _dead and handle in _dead:
                raise LaunchError("a buffer of this launch was destroyed")

    def forked(self) -> None:
        """In a forked process: nothing of the driver may be touched, and locks that other threads
        held are never given back."""
        self.lost = _FORKED
        self.busy = threading.RLock()
        _abandoned.append((self.raw, self._waiter, self._token))

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

    def submit(self, encoder: Any) -> None:
        if self._waiter.is_stopped():
            raise _Stopped
        with self.guard() as raw:
            raw.queue.submit([encoder.finish()])

    def buffer(self, nbytes: int, usage: int, label: str = "") -> Any:
        with self.guard() as raw:
            return raw.create_buffer(size=nbytes, usage=usage, label=label)

    def bounded(self, job: Callable[[], T], extra_s: float = 0.0) -> T:
        """Run `job`, which may wait for the device, for at most `timeout_s + extra_s`; then
        `DeviceTimeout`, and the device is given up.

        The whole job runs in the waiting thread, because some drivers (lavapipe) do their waiting
        inside a later submit or inside the request to map.
        """
        self.check()
        limit_s = self.timeout_s + extra_s
        try:
            value: T = self._waiter.run(job, limit_s)
        except TimeoutError as error:
            if isinstance(error, WebtuneError):
                raise
            self.abandon(limit_s)
            raise DeviceTimeout(
                f"work did not come back within {limit_s:g} s; the device is given up"
            ) from error
        except BaseException:
            self._settled()
            raise
        return value

    def _settled(self) -> bool:
        """Whether no job runs any more that an interrupt left behind; the device is given up
        where one does."""
        if self.lost is None and not self._waiter.settle():
            self.abandon(self.timeout_s)
        return self.lost is None

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

    def abandon(self, limit_s: float) -> None:
        """Give the device up for good: its thread may hang in the driver for ever."""
        self.lost = f"work did not come back within {limit_s:g} s"
        _abandoned.append((self.raw, self._waiter, self._token))

    def close(self, *, destroy: bool) -> None:
        self._settled()
        hung = any(raw is self.raw for raw, *_ in _abandoned)
        self._waiter.stop()
        if not hung:
            if self._token is not None:
                self._token.destroy()
            if destroy:
                self.raw.destroy()
        self._token = None
        self.lost = self.lost or "it was closed"
