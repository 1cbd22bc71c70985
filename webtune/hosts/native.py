"""The native composition root: a wgpu-py device, a SQLite store and a host where calls may wait."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from webtune import strategies
from webtune.config import Config, resolve
from webtune.errors import ConfigError, UsageError
from webtune.gpu.base import is_device
from webtune.gpu.native.adapters import adopt_device, open_device
from webtune.hosts.shared import Stores, own_version, prepare
from webtune.store.base import Store
from webtune.store.sqlite import SqliteStore
from webtune.strategies.drive import complete
from webtune.tuner import Tuner


class NativeHost:
    """A process of its own: calls wait, and the adaptive strategy may take its rounds."""

    name = "native"
    blocking = True
    strategy = "adaptive"

    @property
    def versions(self) -> tuple[tuple[str, str], ...]:
        """Python, webtune and wgpu-py."""
        found = [("python", platform.python_version()), own_version()]
        for package in ("wgpu", "wgpudawn"):
            try:
                found.append((package, importlib.metadata.version(package)))
            except importlib.metadata.PackageNotFoundError:
                continue
        return tuple(found)

    def now_s(self) -> float:
        """Unix time."""
        return time.time()

    def monotonic_s(self) -> float:
        """`time.perf_counter`."""
        return time.perf_counter()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A native host waits instead."""
        work.close()
        raise UsageError("a native host spawns nothing: call tune()")

    async def together(
        self, works: Sequence[Callable[[], Coroutine[Any, Any, None]]], limit: int
    ) -> None:
        """Run all in threads, at most `limit` at a time, and wait."""
        with ThreadPoolExecutor(max_workers=max(1, limit)) as pool:
            running = [pool.submit(_run, work) for work in works]
        for one in running:
            one.result()

    async def pause(self) -> None:
        """Nothing to give way to."""


def native_config(arguments: dict[str, Any], folder: Path | None = None) -> Config:
    """Settings from pyproject.toml and webtune.toml in `folder` (default: where the process runs),
    the environment, and arguments, by rising strength."""
    here = folder if folder is not None else Path.cwd()
    return resolve(
        pyproject=_text(here / "pyproject.toml"),
        webtune_toml=_text(here / "webtune.toml"),
        environ=os.environ,
        arguments=arguments,
        strategies=strategies.names(),
    )


def _named_store(name: str | os.PathLike[str]) -> Store:
    if name in ("sqlite", "opfs"):
        raise UsageError(
            f"store={name!r} is no choice; None takes the default, 'memory' and 'none' keep "
            "nothing, and a path names a folder"
        )
    return SqliteStore(folder=name)


STORES = Stores(_named_store, lambda config: SqliteStore(folder=config.cache_dir), "a folder")
"""SQLite in the user's cache folder, or in a folder by name."""


def open_native(
    device: Any = None, *, store: Any = None, bundle: Any = None, **settings: Any
) -> Tuner:
    """`webtune.open_tuner` where a process runs natively."""
    opening = prepare(STORES, native_config, store, bundle, settings)
    config, timeout_s = opening.config, opening.config.usable_timeout_s
    if device is None:
        device = open_device(config.adapter, library=config.wgpu, timeout_s=timeout_s)
    elif not is_device(device):
        device = adopt_device(device, timeout_s=timeout_s)
    try:
        complete(opening.store.open())
        return opening.tuner(device, NativeHost())
    except BaseException:
        device.close()
        raise


async def open_native_async(device: Any = None, **settings: Any) -> Tuner:
    """`open_native` in a thread: drivers take up to seconds to load, and an event loop goes on
    meanwhile. Cancelled, it closes what it opens."""
    loop = asyncio.get_running_loop()
    opening = loop.run_in_executor(None, partial(open_native, device, **settings))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_unwanted)
        raise


def _close_unwanted(opened: asyncio.Future[Tuner]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    complete(work())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
