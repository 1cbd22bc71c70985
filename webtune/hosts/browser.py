"""The browser's composition root: which adapter a page offers, its device, its event loop, OPFS.

Nothing of JavaScript is imported before it is needed: elsewhere this module loads, and its
functions fail with a sentence.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from webtune import strategies
from webtune.config import Config, resolve
from webtune.gpu.base import is_device
from webtune.gpu.browser.adapters import adopt_device, browser_version, open_device
from webtune.gpu.browser.javascript import pyodide_module
from webtune.hosts.shared import Stores, own_version, prepare
from webtune.store.opfs import OpfsStore
from webtune.tuner import Tuner

log = logging.getLogger("webtune")

_OPENING = ("features", "limits", "timestamps", "power")


class BrowserHost:
    """A page or a worker: one thread, which must never be held."""

    name = "browser"
    blocking = False
    strategy = "fixed"

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        agent = str(pyodide_module("js").navigator.userAgent)
        pyodide = str(pyodide_module("pyodide").__version__)
        self.versions: tuple[tuple[str, str], ...] = (
            ("browser", browser_version(agent)),
            ("pyodide", pyodide),
            ("python", platform.python_version()),
            own_version(),
        )

    def now_s(self) -> float:
        """Unix time."""
        return time.time()

    def monotonic_s(self) -> float:
        """A clock for wall times of whole tunes."""
        return time.monotonic()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work on the event loop, keep it referenced, and log what it fails with: by itself
        the event loop of a page forgets the one and only prints the other."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed", exc_info=task.exception())

    async def together(
        self, works: Sequence[Callable[[], Coroutine[Any, Any, None]]], limit: int
    ) -> None:
        """Run all as tasks, at most `limit` at a time, and wait."""
        waiting = iter(works)

        async def turn() -> None:
            for work in waiting:
                await work()

        turns = [turn() for _ in range(max(1, min(limit, len(works))))]
        for ended in await asyncio.gather(*turns, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def pause(self) -> None:
        """Give the page a turn: input, timers, and an animation frame when one is due."""
        await asyncio.sleep(0)


STORES = Stores(
    lambda name: OpfsStore(os.fspath(name)),
    lambda config: OpfsStore(),
    "the name of a set of picks",
)
"""OPFS, with one document for each name."""


async def open_browser(
    device: Any = None, *, store: Any = None, bundle: Any = None, **settings: Any
) -> Tuner:
    """`webtune.open_tuner_async` where a page or a worker runs Pyodide.

    `features=`, `limits=`, `timestamps=` and `power=` go to `open_device`, the rest are settings.
    """
    how = {name: settings.pop(name) for name in _OPENING if name in settings}
    opening = prepare(STORES, browser_config, store, bundle, settings)
    timeout_s = opening.config.usable_timeout_s
    if device is None:
        device = await open_device(timeout_s=timeout_s, **how)
    elif not is_device(device):
        device = await adopt_device(device, timeout_s=timeout_s)
    try:
        await opening.store.open()
        return opening.tuner(device, BrowserHost())
    except BaseException:
        device.close()
        raise


def browser_config(settings: dict[str, Any]) -> Config:
    """Settings from arguments alone: a page has no files and no environment."""
    return resolve(arguments=settings, strategies=strategies.names())
