"""What is too large to be read at once: constructors, functions, classes and modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "webtune"
SOURCES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}

MOST_ARGUMENTS = 7
MOST_FUNCTION_LINES = 40
MOST_METHODS = 20
MOST_MODULE_LINES = 400
TABLES = set[str]()
"""Modules that may be longer, for they are one table of data."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def arguments(function: Function) -> int:
    """How many arguments a method takes beside its object."""
    taken = function.args
    return len(taken.posonlyargs) + len(taken.args) + len(taken.kwonlyargs) - 1


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_is_read_in_one_sitting(name: str) -> None:
    text = SOURCES[name].read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= MOST_MODULE_LINES or name in TABLES
    long = {
        function.name: lines
        for function in functions(tree)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MOST_FUNCTION_LINES
    }
    assert long == {}
    wide = {
        each.name: methods
        for each in classes(tree)
        if (methods := sum(isinstance(node, Function) for node in each.body)) > MOST_METHODS
    }
    assert wide == {}
    greedy = {
        each.name: taken
        for each in classes(tree)
        for method in each.body
        if isinstance(method, Function) and method.name == "__init__"
        if (taken := arguments(method)) > MOST_ARGUMENTS
    }
    assert greedy == {}


def test_the_tables_are_there() -> None:
    assert set(SOURCES) >= TABLES
