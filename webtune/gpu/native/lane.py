"""One lane for OpenGL: while one thread is in a driver's context, every other thread waits.

Theory of operation
-------------------
An EGL context belongs to one thread at a time. wgpu has one context for each instance and a mutex
for each *adapter object* that it lists, so two devices share the context and not the mutex. When
two threads meet there, EGL answers `BadAccess`, wgpu panics inside a C function, and the process
aborts. wgpu-py makes such meetings easy: each device has a thread that polls it, and each Python
object releases its native one in `__del__`, which runs in whatever thread collects garbage.

The lane therefore sits where all of these pass: round the functions of the bundled library, as
wgpu-py's module keeps them (`libf`, and the attributes of its classes that were copied from it).

- A call takes the lock, calls, and gives the lock back.
- A release, and a `destroy`, never waits: it is queued, and whoever enters or leaves the lane next
  carries it out. So a finaliser can neither deadlock nor be late by a whole launch.
- Polling never blocks inside the lane: it asks, leaves, and sleeps for a moment outside.
- When the interpreter ends, the ending thread takes the lane and keeps it, so that a daemon thread
  cannot enter while objects are torn down.
- A launch that never comes back holds the lane for good. Waiting for it ends with `DeviceTimeout`.

Listing adapters touches OpenGL on every machine that has it, so functions of instances and
adapters are in the lane from the start. The others join when the first OpenGL device is opened or
adopted: other devices pay nothing for it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from webtune.errors import DeviceTimeout

T = TypeVar("T")
Function = Callable[..., Any]

_PATIENCE_S = 60.0
_STUCK_PATIENCE_S = 0.1
_EXIT_PATIENCE_S = 2.0
_POLL_S = 0.0002
_LISTING = ("wgpuInstance", "wgpuAdapter")


class Lane:
    """A lock for calls, and a queue for releases, which never wait for it."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._queue: deque[tuple[Function, tuple[Any, ...]]] = deque()
        self.reset()

    def reset(self) -> None:
        """Start anew, as a forked process must: threads of its parent hold nothing here."""
        self._lock = threading.RLock()
        self._depth = 0
        self._stuck = False
        self._queue.clear()

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """The value of `function(*args)`, called while no other thread is in the lane.

        Raises `DeviceTimeout` when another thread's call does not leave the lane.
        """
        if not self._lock.acquire(timeout=_STUCK_PATIENCE_S if self._stuck else self._patience_s):
            raise DeviceTimeout(
                "a call of another thread does not come back from OpenGL, which serves one thread "
                "at a time; start the process again"
            )
        try:
            self._stuck = False
            if not self._depth:
                self._release_all()
            self._depth += 1
            try:
                return function(*args)
            finally:
                self._depth -= 1
        finally:
            self._lock.release()
            if self._queue:
                self._release_queued()

    def release(self, function: Function, *args: Any) -> None:
        """Have `function(*args)` called in the lane: at once where it is free, else soon."""
        self._queue.append((function, args))
        self._release_queued()

    def give_up(self) -> None:
        """Wait no longer for the call that is in the lane now: it is known to hang."""
        self._stuck = True

    def close(self) -> None:
        """Take the lane and keep it, for the thread in which the interpreter ends."""
        if not self._lock.acquire(timeout=_STUCK_PATIENCE_S if self._stuck else _EXIT_PATIENCE_S):
            self.give_up()

    def _release_queued(self) -> None:
        # The queue is looked at again after the lock was given back: whoever queued in between
        # found the lane taken and relies on this thread.
        while self._queue and self._lock.acquire(blocking=False):
            try:
                if self._depth:  # Garbage collected inside a call: its end comes back here.
                    return
                self._release_all()
            finally:
                self._lock.release()

    def _release_all(self) -> None:
        self._depth += 1
        try:
            while self._queue:
                function, args = self._queue.popleft()
                with contextlib.suppress(Exception):  # As in `__del__`: nobody could be told.
                    function(*args)
        finally:
            self._depth -= 1


LANE = Lane()
"""The process's one lane: all wgpu instances may share one display."""

atexit.register(LANE.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LANE.reset)


def is_opengl(adapter: Any) -> bool:
    """Whether an adapter of wgpu-py's is driven through OpenGL."""
    return str(adapter.info["backend_type"]).lower().startswith("opengl")


def guard_library(thing: Any, *, wholly: bool) -> None:
    """Put the library behind `thing`, any object of wgpu-py's, into the lane.

    Its functions for listing adapters, or, `wholly`, all of them. Doing so again changes nothing.
    A package that keeps its functions elsewhere than wgpu-py does stays as it is.
    """
    module = sys.modules[type(thing).__module__]
    functions = getattr(module, "libf", None)
    moved: dict[int, Function] = {}
    for name, function in list(vars(functions).items()) if functions is not None else ():
        in_lane = wholly or name.startswith(_LISTING)
        if in_lane and name.startswith("wgpu") and not hasattr(function, "in_lane"):
            moved[id(function)] = _in_lane(name, function)
            setattr(functions, name, moved[id(function)])
    for kind in list(vars(module).values()) if moved else ():
        for name, function in list(vars(kind).items()) if isinstance(kind, type) else ():
            if id(function) in moved:
                setattr(kind, name, moved[id(function)])


def _in_lane(name: str, function: Function) -> Function:
    if name.endswith(("Release", "Destroy")):

        def wrapped(*args: Any) -> Any:
            LANE.release(function, *args)

    elif name == "wgpuDevicePoll":

        def wrapped(*args: Any) -> Any:
            device, wait, *rest = args
            done = LANE.call(function, device, False, *rest)
            if wait:
                time.sleep(_POLL_S)
            return done

    else:

        def wrapped(*args: Any) -> Any:
            return LANE.call(function, *args)

    wrapped.in_lane = True  # type: ignore[attr-defined]
    return wrapped
