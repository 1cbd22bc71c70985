"""What memory knows of each key. A key marked as being tuned is always unmarked again.

One `PickCache` serves every device of one hardware, so a pick found on one device is there for its
twin. All methods may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import TracebackType

__all__ = ["Claim", "Compiled", "Hit", "LookUp", "Miss", "Pending", "PickCache", "Picks"]


@dataclass(frozen=True, slots=True)
class Hit:
    """Memory knows the winner: its index in the set."""

    index: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A tune of this key is under way, or this device has been lost: callers run the fallback."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The key was gathered on this device: its candidates are queued, nothing is measured."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Memory knows nothing. The store was not asked."""


LookUp = Hit | Pending | Compiled | Miss


def nothing_stored() -> int | None:
    """The answer of a store that has none."""
    return None


class PickCache:
    """Picks of one set on one hardware, by key (canonical text or anything hashable).

    `generation` counts the switches of the environment: each empties memory, and marks made
    before it change nothing any more.
    """

    def __init__(self, environment: str = "default") -> None:
        # Re-entrant: the collector may end a dropped mark while this thread is inside.
        self._lock = threading.RLock()
        self._environment = environment
        self._generation = 0
        self._picks: dict[Hashable, int] = {}
        self._pending: dict[Hashable, object] = {}
        self._compiled: set[tuple[Hashable, Hashable]] = set()
        self._lost: set[Hashable] = set()

    @property
    def environment(self) -> str:
        return self._environment

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def known(self) -> int:
        """How many keys have a pick."""
        return len(self._picks)

    def switch(self, environment: str) -> bool:
        """Follow the environment; True when it was another one and memory is empty now. Lost
        devices stay lost."""
        with self._lock:
            if environment == self._environment:
                return False
            self._environment = environment
            self._generation += 1
            self._picks.clear()
            self._pending.clear()
            self._compiled.clear()
            return True

    def lookup(self, key: Hashable, device: Hashable = None) -> LookUp:
        """What memory answers to this device; the store is not asked, so a `Miss` does not
        mean that nothing is remembered."""
        with self._lock:
            if key in self._picks:
                return Hit(self._picks[key])
            if key in self._pending or device in self._lost:
                return Pending()
            return Compiled() if (key, device) in self._compiled else Miss()

    def settled(self, key: Hashable, environment: str | None = None) -> int | None:
        """The pick, reading only; None as well when memory is of another environment than the
        one given, which stays as it is."""
        with self._lock:
            if environment is not None and environment != self._environment:
                return None
            return self._picks.get(key)

    def start(
        self,
        key: Hashable,
        *,
        device: Hashable = None,
        candidates: int,
        stored: Callable[[], int | None] = nothing_stored,
    ) -> Hit | Pending | Claim:
        """The way to a tune, as one step for all threads: memory, a lost device, a set of one,
        the store (`stored` gives the index or None), else a mark for the caller to tune under.

        Exactly one caller gets the mark; it must enter it, or `release` it.
        """
        with self._lock:
            answer = self._known(key, device, candidates, stored)
            if answer is not None:
                return answer
            # A tune compiles what its own device has queued; that queue ends with it.
            self._compiled.discard((key, device))
            # The cache holds the token and never the mark, so that the mark of a task that was
            # cancelled before it began is collected and takes itself back.
            token = self._pending[key] = object()
            return Claim(self, key, token)

    def queue(
        self,
        key: Hashable,
        *,
        device: Hashable = None,
        candidates: int,
        stored: Callable[[], int | None] = nothing_stored,
    ) -> LookUp:
        """The way of a run that only compiles. `Miss` tells the caller, once a device, to queue
        the candidates; the key answers `Compiled` on that device from then on, untuned."""
        with self._lock:
            if (key, device) in self._compiled and key not in self._picks:
                return Pending() if key in self._pending else Compiled()
            answer = self._known(key, device, candidates, stored)
            if answer is not None:
                return answer
            self._compiled.add((key, device))
            return Miss()

    def _known(
        self,
        key: Hashable,
        device: Hashable,
        candidates: int,
        stored: Callable[[], int | None],
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
        """Remember a pick, whatever was there: the runner-up of one that failed at launch."""
        with self._lock:
            self._picks[key] = index

    def evict(self, key: Hashable) -> None:
        """Forget a pick; a tune under way is left alone."""
        with self._lock:
            self._picks.pop(key, None)

    def clear(self) -> None:
        """Forget all picks and what was queued; tunes under way are left alone."""
        with self._lock:
            self._picks.clear()
            self._compiled.clear()

    def lose(self, device: Hashable) -> None:
        """This device is gone: it starts nothing any more, and what it queued is forgotten."""
        with self._lock:
            self._lost.add(device)
            self._compiled = {each for each in self._compiled if each[1] != device}

    def is_lost(self, device: Hashable) -> bool:
        with self._lock:
            return device in self._lost

    def pending(self) -> frozenset[Hashable]:
        """The keys that are being tuned."""
        with self._lock:
            return frozenset(self._pending)

    def _holds(self, key: Hashable, token: object) -> bool:
        with self._lock:
            return self._pending.get(key) is token

    def _unmark(self, key: Hashable, token: object, index: int | None) -> bool:
        with self._lock:
            # After a switch the key may be marked by a newer tune: another token.
            if self._pending.get(key) is not token:
                return False
            del self._pending[key]
            if index is not None:
                self._picks[key] = index
            return True


class Claim:
    """A key is being tuned while this stands. A context manager: leaving it takes the mark back
    on success, failure and cancellation alike. Made by `PickCache.start` only.

    A mark from before a switch of the environment does nothing: `settle` then says False.
    """

    __slots__ = ("__weakref__", "_cache", "_token", "key")

    def __init__(self, cache: PickCache, key: Hashable, token: object) -> None:
        self._cache = cache
        self._token = token
        self.key = key

    @property
    def standing(self) -> bool:
        """Whether the key is still pending under this very mark."""
        return self._cache._holds(self.key, self._token)

    def settle(self, index: int) -> bool:
        """Unmark with a pick; True when memory took it. Only the first call counts."""
        return self._cache._unmark(self.key, self._token, index)

    def release(self) -> bool:
        """Unmark without a pick: the next caller tunes. True when there was a mark to take back."""
        return self._cache._unmark(self.key, self._token, None)

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    hardware: str


class Picks:
    """The caches of a process: one for each set's name and hardware identity."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._caches: dict[_Place, PickCache] = {}

    def of(self, name: str, hardware: str, environment: str = "default") -> PickCache:
        """The cache of that set on that hardware, emptied when the environment has changed."""
        with self._lock:
            cache = self._caches.setdefault(_Place(name, hardware), PickCache(environment))
        cache.switch(environment)
        return cache

    def known(self, hardware: str) -> int:
        """How many keys have a pick on that hardware, of all sets."""
        with self._lock:
            return sum(c.known for place, c in self._caches.items() if place.hardware == hardware)
