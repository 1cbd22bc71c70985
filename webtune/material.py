"""What a Python function is made of, as text: part of a candidate's fingerprint.

Editing the function, or a constant that it names, changes the text; moving it, renaming its file
or changing the Python version does not, where the source can be read.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

__all__ = ["material"]

_PARSING = threading.Lock()
_TRIES = 5


def material(function: Callable[..., Any] | None) -> str:
    """The function's code and the plain values (text, numbers) it reads from outside itself."""
    if function is None:
        return ""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if code is None:  # a class instance or a builtin
        called = getattr(getattr(type(inner), "__call__", None), "__code__", None)  # noqa: B004
        kind = f"{type(inner).__module__}.{type(inner).__qualname__}"
        return kind + (_code_text(called) if called is not None else repr(inner))
    parts = [_code_text(code)]
    closure = inspect.getclosurevars(inner) if inspect.isfunction(inner) else None
    if closure is not None:
        for name, value in sorted({**closure.globals, **closure.nonlocals}.items()):
            if isinstance(value, str | int | float | bool):
                parts.append(f"{name}={value!r}")
            elif inspect.isfunction(value) and value is not inner:
                parts.append(f"{name}={_code_text(value.__code__)}")
    for default in getattr(inner, "__defaults__", None) or ():
        parts.append(repr(default) if isinstance(default, str | int | float | bool) else "…")
    return "\n".join(parts)


@lru_cache(maxsize=1024)
def _code_text(code: CodeType) -> str:
    return _from_source(code) or _from_bytecode(code)


def _from_source(code: CodeType) -> str | None:
    lines = linecache.getlines(code.co_filename)
    if not lines:
        return None
    tree = _parse("".join(lines))
    if tree is None:
        return None
    columns = [
        (line, column)
        for line, _, column, _ in code.co_positions()
        if line is not None and column is not None
    ]
    best: ast.AST | None = None
    for node in _nodes_at(tree, code.co_firstlineno):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if code.co_firstlineno in (first, node.lineno):
                best = node
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
            start = (node.body.lineno, node.body.col_offset)
            end = (node.body.end_lineno or 0, node.body.end_col_offset or 0)
            if columns and all(start <= place <= end for place in columns if place[1] > 0):
                inner = best is None or start >= (best.body.lineno, best.body.col_offset)  # type: ignore[attr-defined]
                best = node if inner else best
    return None if best is None else _unparse(best)


def _nodes_at(tree: ast.Module, line: int) -> Iterator[ast.AST]:
    """Statements and expressions that cover a line, outer before inner. A walk over all of a
    file takes as long as a frame in a page, for every function."""
    level: list[ast.AST] = [tree]
    while level:
        yield from level
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if not hasattr(child, "lineno") or _covers(child, line)
        ]


def _covers(node: Any, line: int) -> bool:
    decorators = getattr(node, "decorator_list", ())
    first = min([node.lineno, *(each.lineno for each in decorators)])
    return bool(first <= line <= node.end_lineno)


def _unparse(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef):
        bare = ast.FunctionDef(**{f: getattr(node, f) for f in node._fields})
        bare.decorator_list = []
        if ast.get_docstring(bare) is not None and len(bare.body) > 1:
            bare.body = bare.body[1:]
        ast.copy_location(bare, node)
        return ast.unparse(bare)
    return ast.unparse(node)


@lru_cache(maxsize=64)
def _parse(text: str) -> ast.Module | None:
    for _ in range(_TRIES):
        try:
            with _PARSING:
                return ast.parse(text)
        except SyntaxError:
            return None
        except SystemError:
            # CPython before 3.13 shares the parser's depth between threads (gh-106905).
            continue
    return None


def _from_bytecode(code: CodeType) -> str:
    constants = [
        _from_bytecode(value) if isinstance(value, CodeType) else repr(value)
        for value in code.co_consts
    ]
    return f"{code.co_code.hex()}|{constants}|{code.co_names}|{code.co_varnames}"
