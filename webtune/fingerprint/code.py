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

__all__ = ["Names", "code_text", "names_of", "nested"]

_PARSING = threading.Lock()
_TRIES = 5
_LONGEST = 2_000_000
"""Characters of a file that is still parsed; a longer one was made by a program."""

_FORMATTED = re.compile(r"(?<=[\w\]]\.)[A-Za-z_]\w*(?=[\w.\[\]!:]*\})")
"""Attributes that a format string names: `{0.width}`."""

T = TypeVar("T")


class Names(NamedTuple):
    """The globals that code reads, sorted; attributes; and the modules that it imports when it
    runs, sorted, relative ones with their dots."""

    reads: tuple[str, ...]
    attributes: frozenset[str]
    imports: tuple[str, ...]


@lru_cache(maxsize=4096)
def code_text(code: CodeType) -> str:
    """What the code does. Never raises."""
    return _from_source(code) or _from_bytecode(code)


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """What code names, and code inside it."""
    reads: set[str] = set()
    attributes: set[str] = set()
    imports: set[str] = set()
    for each in nested(code):
        before: list[Any] = [None, None]
        for step in dis.get_instructions(each):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                reads.add(str(step.argval))
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                attributes.add(str(step.argval))
            elif step.opname == "IMPORT_NAME":
                level = before[-2]
                imports.add("." * (level if isinstance(level, int) else 0) + str(step.argval))
            before = [before[-1], step.argval]
        if "format" in attributes:
            texts = [value for value in each.co_consts if isinstance(value, str)]
            attributes.update(*(_FORMATTED.findall(text) for text in texts))
    return Names(tuple(sorted(reads)), frozenset(attributes), tuple(sorted(imports)))


def nested(code: CodeType) -> Iterator[CodeType]:
    """The code and all code inside it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from nested(value)


# -- from source ---------------------------------------------------------------------------------


def _from_source(code: CodeType) -> str | None:
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename))
    if not text or len(text) > _LONGEST:
        return None
    tree, compiled = _parse(text)
    if tree is None or code not in compiled:
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
def _parse(text: str) -> tuple[ast.Module | None, frozenset[CodeType]]:
    """A file's tree, and all code that compiling it gives."""
    tree = _locked(lambda: ast.parse(text))
    whole = _locked(lambda: compile(tree, "", "exec", dont_inherit=True)) if tree else None
    return tree, frozenset(nested(whole) if whole is not None else ())


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
