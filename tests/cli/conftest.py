"""The command as people run it: in a process of its own, on a real adapter, with its own cache."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def webtune(python: Any, cache_dir: Path) -> Run:
    """Runs `python -m webtune WORDS…` with a cache of this test alone."""

    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = python("-m", "webtune", *words, **env)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def document() -> Callable[[Any], Any]:
    """The one JSON document that a run printed."""

    def read(done: subprocess.CompletedProcess[str]) -> Any:
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return read


@pytest.fixture
def one_line() -> Callable[[str], str]:
    """A text that must be one line."""

    def read(text: str) -> str:
        assert text.count("\n") == 1, text
        return text

    return read


@pytest.fixture
def small() -> tuple[str, ...]:
    """The words of a tune that takes a moment."""
    return ("tune", "saxpy", "--size", "4096")
