"""What every test may rely on: which webtune is under test, and a cache folder of its own."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import webtune

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(webtune.__file__).resolve().parent

# No example is late: how fast a machine is says nothing about what is tested.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test the checkout where the gate asked for the built wheel. Ctrl-C interrupts, also
    where the shell that started this has it ignored, as it does for jobs in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    expected = os.environ.get("WEBTUNE_TEST_EXPECT_AT")
    if expected and PACKAGE.parent != Path(expected).resolve():
        raise pytest.UsageError(f"webtune comes from {PACKAGE}, not from {expected}")


def pytest_report_header() -> str:
    return f"webtune under test: {PACKAGE}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pages last: Playwright's blocking interface keeps an event loop running in this thread, and
    `asyncio.run` refuses to work beside one."""
    items.sort(key=lambda item: "browser" in item.path.relative_to(ROOT).parts)


@pytest.fixture
def root() -> Path:
    """The checkout, for tests that read sources."""
    return ROOT


@pytest.fixture(scope="session")
def chores() -> Any:
    """build.py as a module, with this Python's environment for its tools."""
    spec = importlib.util.spec_from_file_location("webtune_chores", ROOT / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["webtune_chores"] = module
    spec.loader.exec_module(module)
    module.VENV = Path(sys.prefix)  # type: ignore[attr-defined]
    return module


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for picks that this test alone uses, in this process and in those it starts."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("WEBTUNE_CACHE_DIR", str(folder))
    return folder


Python = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Runs `python WORDS…` in an empty folder with the same webtune; gives what it printed."""

    def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **env},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return call


class PageHost:
    """What a page is to the tuner: one thread, an event loop, calls that never wait."""

    name = "page"
    blocking = False
    strategy = "fixed"
    versions = (("python", "3"),)

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.ensure_future(work)

    async def together(
        self, works: Sequence[Callable[[], Coroutine[Any, Any, None]]], limit: int
    ) -> None:
        for start in range(0, len(works), limit):
            await asyncio.gather(*(work() for work in works[start : start + limit]))

    async def pause(self) -> None:
        await asyncio.sleep(0)


@pytest.fixture
def page_host() -> PageHost:
    """A host as a page is to the tuner."""
    return PageHost()
