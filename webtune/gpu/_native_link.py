"""The one way to a wgpu device: every failure leaves here as a webtune error, no wait is endless.

wgpu-native aborts the process when it is handed work for a lost device, so nothing is submitted
before `finish` has had the chance to refuse it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet

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

_abandoned: list[Any] = []
"""Devices that hang: releasing one waits for its work, so they are kept until the process ends."""


def compiler_message(error: BaseException) -> str:
    """What the compiler or validator said, led by its WGSL line where it names one."""
    text = _PREAMBLE.sub("", str(error)).strip() or type(error).__name__
    where = _LINE.search(text)
    return f"line {where.group(1)}: {text}" if where else text


class Waiter:
    """Runs blocking waits in one daemon thread, so that the caller can stop waiting."""

    def __init__(self) -> None:
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
        answer: list[Any] = []
        done = threading.Event()
        self._jobs.put((job, answer, done))
        if not done.wait(timeout_s):
            raise TimeoutError
        value, error = answer
        if error is not None:
            raise error
        return value

    def stop(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)


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
        self._dead: WeakSet[Any] = WeakSet()

    def check(self) -> None:
        """Raises `DeviceLost` when the device is known to be gone."""
        if self.lost is not None:
            raise DeviceLost(f"the device is lost ({self.lost}); open another tuner to go on")

    def destroy_buffer(self, handle: Any) -> None:
        self._dead.add(handle)
        handle.destroy()

    def check_handles(self, handles: Iterable[Any]) -> None:
        """Raises `LaunchError` for a buffer that webtune destroyed: submitting one would abort
        the process."""
        if self._dead and any(handle in self._dead for handle in handles):
            raise LaunchError("a buffer of this launch was destroyed")

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
        return value

    def fetch(self, staging: Any, nbytes: int) -> memoryview:
        """Map `staging`, copy out `nbytes` (a multiple of 4) and unmap; all that was submitted
        before is done by then."""

        def job() -> memoryview:
            with self.guard():
                staging.map_async("READ", 0, nbytes).sync_wait()
                data = memoryview(staging.read_mapped(0, nbytes))
                staging.unmap()
                return data

        return self.bounded(job)

    def drain(self) -> None:
        """Wait until the queue is empty, by reading a buffer back: a mapping that succeeds is
        the only proof of completion that holds on every implementation."""
        if self._token is None:
            self._token = self.buffer(4, MAP_READ | COPY_DST, "webtune drain")
        self.fetch(self._token, 4)

    def abandon(self, limit_s: float) -> None:
        """Give the device up for good: its thread may hang in the driver for ever."""
        self.lost = f"work did not come back within {limit_s:g} s"
        _abandoned.append((self.raw, self._waiter, self._token))

    def close(self, *, destroy: bool) -> None:
        hung = any(raw is self.raw for raw, *_ in _abandoned)
        self._waiter.stop()
        if not hung:
            if self._token is not None:
                self._token.destroy()
            if destroy:
                self.raw.destroy()
        self._token = None
        self.lost = self.lost or "it was closed"
