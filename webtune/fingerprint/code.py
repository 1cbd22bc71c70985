"""Code as text that survives a move: from its source where that is what was compiled, else from
its bytecode.

A source file can be newer than the function in memory, and a cache of its lines older: the text
counts only where compiling it gives the very code in hand.
"""

from __future__ import annotations

import ast
import dis
import linecache
import re
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple, TypeVar

__all__ = ["Names", "code_text", "names_of"]

_PARSING = threading.Lock()
_TRIES = 5
_LONGEST = 2_000_000
"""Characters of a file that is still parsed; a longer one was made by a program."""

_FORMATTED = re.compile(r"(?<=[\w\]]\.)[A-Za-z_]\w*(?=[\w.\[\]!:]*\})")
"""Attributes that a format string names: `{0.width}`."""

T = TypeVar("T")


class Names(NamedTuple):
    """What code names: the globals that it reads, sorted; attributes; and the modules that it
    imports when it runs, sorted, relative ones with their dots."""

    reads: tuple[str, ...]
    attributes: frozenset[str]
    imports: tuple[str, ...]


@lru_cache(maxsize=4096)
def code_text(code: CodeType) -> str:
    """What the code does: its source without docstring and decorators, or its bytecode. Never
    raises."""
    return _from_source(code) or _from_bytecode(code)


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """What the code names, and the code of functions inside it."""
    reads: set[str] = set()
    attributes: set[str] = set()
    imports: set[str] = set()
    for part in _with_inner(code):
        before: list[Any] = [None, None]
        for step in dis.get_instructions(part):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                reads.add(str(step.argval))
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                attributes.add(str(step.argval))
            elif step.opname == "IMPORT_NAME":
                level = before[-2]
                imports.add("." * (level if isinstance(level, int) else 0) + str(step.argval))
            before = [before[-1], step.argval]
        if "format" in attributes:
            texts = [value for value in part.co_consts if isinstance(value, str)]
            attributes.update(*map(_FORMATTED.findall, texts))
    return Names(tuple(sorted(reads)), frozenset(attributes), tuple(sorted(imports)))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _with_inner(value)


# -- from source ---------------------------------------------------------------------------------


def _from_source(code: CodeType) -> str | None:
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename))
    if not text or len(text) > _LONGEST:
        return None
    tree, compiled = _parse(text)
    if tree is None or code not in compiled:
        return None
    is_lambda = code.co_name == "<lambda>"
    found: Any = None
    for node in _nodes_at(tree, code.co_firstlineno):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            if code.co_firstlineno in (_first_line(node), node.lineno):
                found = node
        elif isinstance(node, ast.Lambda) and is_lambda and _holds(node, code):
            start = (node.body.lineno, node.body.col_offset)
            if found is None or start >= (found.body.lineno, found.body.col_offset):
                found = node
    return None if found is None else _unparse(found)


def _holds(node: ast.Lambda, code: CodeType) -> bool:
    """Whether the code lies in the body of that lambda: several may stand on one line."""
    start = (node.body.lineno, node.body.col_offset)
    end = (node.body.end_lineno or 0, node.body.end_col_offset or 0)
    positions = [
        (line, column)
        for line, _, column, _ in code.co_positions()
        if line is not None and column is not None
    ]
    # Column 0 is where code begins that no expression stands for.
    return bool(positions) and all(start <= at <= end for at in positions if at[1] > 0)


def _nodes_at(tree: ast.Module, line: int) -> Iterator[ast.AST]:
    """Statements and expressions that cover a line, outer before inner. A walk over all of a
    file takes as long as a frame in a page, for every function."""
    level: list[Any] = [tree]
    while level:
        yield from level
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if not hasattr(child, "lineno") or _first_line(child) <= line <= child.end_lineno
        ]


def _first_line(node: Any) -> int:
    lines = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
    return int(min([node.lineno, *lines]))


def _unparse(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef):
        whole = node
        node = ast.FunctionDef(**{field: getattr(whole, field) for field in whole._fields})
        node.decorator_list = []
        if ast.get_docstring(node) is not None and len(node.body) > 1:
            node.body = node.body[1:]
        ast.copy_location(node, whole)
    return ast.unparse(node)


@lru_cache(maxsize=64)
def _parse(text: str) -> tuple[ast.Module | None, frozenset[CodeType]]:
    """A file's tree, and all code that compiling it gives."""
    tree = _locked(lambda: ast.parse(text))
    whole = _locked(lambda: compile(tree, "", "exec", dont_inherit=True)) if tree else None
    return tree, frozenset(_with_inner(whole) if whole is not None else ())


def _locked(make: Callable[[], T]) -> T | None:
    for _ in range(_TRIES):
        try:
            with _PARSING:
                return make()
        except (SyntaxError, ValueError, RecursionError):
            return None
        except SystemError:
            # CPython before 3.13 shares the parser's depth between threads (gh-106905).
            continue
    return None


# -- from bytecode -------------------------------------------------------------------------------


def _from_bytecode(code: CodeType) -> str:
    constants = [_constant(value) for value in code.co_consts]
    return f"{code.co_code.hex()}|{constants}|{code.co_names}|{code.co_varnames}|{code.co_freevars}"


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _from_bytecode(value)
    if isinstance(value, frozenset):  # in an order that changes from process to process
        return f"{{{sorted(map(_constant, value))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    return repr(value)
