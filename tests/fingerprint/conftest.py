"""Modules that are written, loaded and edited, and what their functions' content must do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from webtune.fingerprint.content import content_of

Load = Callable[..., ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """`load(text)`: a module of that text, from a file of that `name` in that `folder`."""

    def load_module(
        text: str, name: str = "module_under_test", folder: Path = tmp_path
    ) -> ModuleType:
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load_module


@pytest.fixture
def holding() -> Callable[[Any], Callable[[Any], Any]]:
    """`holding(value)`: a function whose closure holds a value, and that names nothing of it."""
    return lambda value: lambda p: value


@pytest.fixture
def assert_told_apart() -> Callable[[Callable[[int], Any]], None]:
    """`assert_told_apart(make)`: the functions `make(2)` and `make(3)` differ, equal ones do
    not."""

    def check(make: Callable[[int], Any]) -> None:
        assert content_of(make(2)) != content_of(make(3))
        assert content_of(make(2)) == content_of(make(2))
        assert "0x" not in content_of(make(2))

    return check


@pytest.fixture
def assert_edit_counts(load: Load) -> Callable[[str], None]:
    """`assert_edit_counts(text)`: `f` of a module gives 32, and another content once that is
    64."""

    def check(text: str) -> None:
        module = load(text)
        content = content_of(module.f)
        assert module.f() == 32
        assert content_of(load(text).f) == content
        edited = load(text.replace("32", "64"))
        assert edited.f() == 64
        assert content_of(edited.f) != content

    return check
