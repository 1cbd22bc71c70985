"""Tuned kernels inside the candidates of others: an inner key is settled before an outer candidate
is measured, and nobody waits in a circle.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from webtune.errors import Reject
from webtune.tuning.call import Problem

__all__ = ["recording", "waiting"]

_LOCK = threading.Lock()
_WAITS: dict[Hashable, Hashable] = {}


class _Recording(threading.local):
    """The keys whose candidates are being recorded on this thread, outermost first."""

    def __init__(self) -> None:
        self.places: list[Hashable] = []


_RECORDING = _Recording()


def _place(problem: Problem) -> Hashable:
    return id(problem.cache), problem.place


@contextmanager
def waiting(outer: Problem, inner: Problem) -> Iterator[None]:
    """The tune of `outer` waits for that of `inner` meanwhile. Raises `Reject` where `inner`, or
    what it waits for, waits for `outer` already: neither would ever end."""
    mine = _place(outer)
    with _LOCK:
        step: Hashable | None = _place(inner)
        while step is not None and step != mine:
            step = _WAITS.get(step)
        if step is not None:
            raise Reject(f"it runs {inner.kernel.name}, whose tune waits for this one")
        _WAITS[mine] = _place(inner)
    try:
        yield
    finally:
        with _LOCK:
            _WAITS.pop(mine, None)


@contextmanager
def recording(problem: Problem) -> Iterator[None]:
    """A candidate of `problem` is being recorded inside another kernel's. Raises `Reject` where it
    runs itself."""
    place = _place(problem)
    if place in _RECORDING.places:
        raise Reject(f"it runs {problem.kernel.name} inside itself")
    _RECORDING.places.append(place)
    try:
        yield
    finally:
        _RECORDING.places.pop()
