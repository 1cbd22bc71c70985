"""What the memory of a process knows of each key, and the one future that a pending key has.

A `PickCache` serves every device of one hardware, so that a pick found on one device is there for
its twin, on any thread and in any event loop. Whoever starts a tune holds a `Claim` on its key;
when the claim ends, in whatever way, the key is no longer pending and all who wait for its future
go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any


class PendingTune(Future[None]):
    """The end of a tune, for those who wait for it: from threads with `concurrent.futures.wait`,
    from event loops with `asyncio.wrap_future`.

    Its exception is what the tune failed with. Waiters cannot cancel it. `owner` is the thread and
    the task that tune, from when they begin.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self.owner: tuple[int, Any] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """Memory knows the winner: its index among the kernel's candidates."""

    index: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A tune of this key is under way, or this device has been lost: callers run the fallback.

    `tune` is the tune to wait for, or None where the device is lost.
    """

    tune: PendingTune | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Compiled:
    """The key was gathered on this device: its candidates are compiled, nothing is measured."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Memory knows nothing of this key. The store was not asked."""


LookUp = Hit | Pending | Compiled | Miss


def _nothing_stored() -> int | None:
    return None


class PickCache:
    """The picks of one kernel's name on one hardware, by key (anything hashable).

    A switch of the environment empties the cache, and claims made before it change nothing any
    more. All methods may be called from any thread.
    """

    def __init__(self, environment: str = "default") -> None:
        # Re-entrant: the garbage collector may end a dropped claim while this thread is inside.
        self._lock = threading.RLock()
        self.environment = environment
        self._picks: dict[Hashable, int] = {}
        self._pending: dict[Hashable, PendingTune] = {}
        self._compiled: set[tuple[Hashable, Hashable]] = set()
        self._lost: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._picks)

    def switch(self, environment: str) -> bool:
        """Follow the environment. True when it was another one and the cache is empty now; lost
        devices stay lost."""
        with self._lock:
            if environment == self.environment:
                return False
            self.environment = environment
            self._picks.clear()
            self._pending.clear()
            self._compiled.clear()
            return True

    def lookup(self, key: Hashable, device: Hashable = None) -> LookUp:
        """What memory answers to this device. The store is not asked."""
        with self._lock:
            if key in self._picks:
                return Hit(self._picks[key])
            if key in self._pending or device in self._lost:
                return Pending(self._pending.get(key))
            return Compiled() if (key, device) in self._compiled else Miss()

    def pick(self, key: Hashable, environment: str | None = None) -> int | None:
        """The pick of a key, reading only. None as well when the cache is of another environment
        than the one given, which stays as it is."""
        with self._lock:
            if environment is not None and environment != self.environment:
                return None
            return self._picks.get(key)

    def start(
        self,
        key: Hashable,
        *,
        device: Hashable = None,
        candidates: int,
        stored: Callable[[], int | None] = _nothing_stored,
    ) -> Hit | Pending | Claim:
        """The way to a tune, as one step for all threads: memory, a lost device, a kernel with one
        candidate, the store (`stored` gives the pick or None), else a claim to tune under.

        Exactly one caller gets the claim; it must enter it, or `release` it.
        """
        with self._lock:
            answer = self._answer(key, device, candidates, stored)
            if answer is not None:
                return answer
            # A tune compiles what its own device has queued; that queue ends with it.
            self._compiled.discard((key, device))
            # The cache holds the future and never the claim, so that the claim of a task that was
            # cancelled before it began is collected and ends.
            tune = self._pending[key] = PendingTune()
            return Claim(self, key, tune)

    def queue(
        self,
        key: Hashable,
        *,
        device: Hashable = None,
        candidates: int,
        stored: Callable[[], int | None] = _nothing_stored,
    ) -> LookUp:
        """The way of a run that only compiles. `Miss` tells the caller, once for each device, to
        compile the candidates; the key answers `Compiled` on that device from then on."""
        with self._lock:
            if (key, device) in self._compiled and key not in self._picks:
                tune = self._pending.get(key)
                return Compiled() if tune is None else Pending(tune)
            answer = self._answer(key, device, candidates, stored)
            if answer is not None:
                return answer
            self._compiled.add((key, device))
            return Miss()

    def _answer(
        self, key: Hashable, device: Hashable, candidates: int, stored: Callable[[], int | None]
    ) -> Hit | Pending | None:
        answer = self.lookup(key, device)
        if isinstance(answer, Hit | Pending):
            return answer
        index = 0 if candidates == 1 else stored()
        if index is None:
            return None
        self._picks[key] = index
        return Hit(index)

    def insert(self, key: Hashable, index: int) -> None:
        """Remember a pick, whatever was there, such as the runner-up of one that failed."""
        with self._lock:
            self._picks[key] = index

    def evict(self, key: Hashable) -> None:
        """Forget a pick. A tune under way is left alone."""
        with self._lock:
            self._picks.pop(key, None)

    def lose(self, device: Hashable) -> None:
        """This device is gone: it starts nothing any more, and what it compiled is forgotten."""
        with self._lock:
            self._lost.add(device)
            self._compiled = {item for item in self._compiled if item[1] != device}

    def _end(self, key: Hashable, tune: PendingTune, index: int | None) -> bool:
        """The key is not pending any more, if it still is by this very tune."""
        with self._lock:
            # After a switch the key may be pending by a newer tune.
            if self._pending.get(key) is not tune:
                return False
            del self._pending[key]
            if index is not None:
                self._picks[key] = index
            return True


class Claim:
    """The right and the duty to tune a key. Made by `PickCache.start` only.

    As a context manager it ends on success, failure and cancellation alike, and so it does when it
    is dropped. Only the first end counts. A claim from before a switch of the environment leaves
    the cache as it is: `resolve` then answers False.
    """

    __slots__ = ("__weakref__", "_cache", "key", "tune")

    def __init__(self, cache: PickCache, key: Hashable, tune: PendingTune) -> None:
        self._cache = cache
        self.key = key
        self.tune = tune

    def resolve(self, index: int) -> bool:
        """End with a pick. True when the cache took it."""
        return self._cache._end(self.key, self.tune, index)

    def release(self, error: BaseException | None = None) -> bool:
        """End, without a pick if there was none yet, and wake all who wait; `error` is what they
        get. True when the key was still pending by this claim."""
        ended = self._cache._end(self.key, self.tune, None)
        if not self.tune.done():
            if error is None:
                self.tune.set_result(None)
            else:
                self.tune.set_exception(error)
        return ended

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A waiter of a tune that was cancelled tunes itself.
        self.release(error if isinstance(error, Exception) else None)

    def __del__(self) -> None:
        self.release()


class PickCaches:
    """The pick caches of a process, one for each kernel's name and hardware."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._caches: dict[tuple[str, str], PickCache] = {}

    def of(self, name: str, hardware: str, environment: str = "default") -> PickCache:
        """The cache of that kernel on that hardware, emptied when the environment has changed."""
        with self._lock:
            cache = self._caches.setdefault((name, hardware), PickCache(environment))
        cache.switch(environment)
        return cache

    def count(self, hardware: str) -> int:
        """How many keys have a pick on that hardware, of all kernels."""
        with self._lock:
            return sum(len(c) for (_, where), c in self._caches.items() if where == hardware)
