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
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from types import CodeType
from typing import Any, NamedTuple, TypeVar

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
    functions, compiled = _parse(text)
    if code not in compiled:
        return None
    found = functions.get((code.co_name, code.co_firstlineno), [])
    if code.co_name == "<lambda>":
        # Several may stand on one line; the innermost that holds the code is its own.
        found = sorted(filter(partial(_holds, code), found), key=_start)
    return _unparse(found[-1]) if found else None


def _holds(code: CodeType, node: ast.Lambda) -> bool:
    end = (node.body.end_lineno or 0, node.body.end_col_offset or 0)
    positions = [
        (line, column)
        for line, _, column, _ in code.co_positions()
        if line is not None and column is not None
    ]
    # Column 0 is where code begins that no expression stands for.
    return bool(positions) and all(_start(node) <= at <= end for at in positions if at[1] > 0)


def _start(node: ast.Lambda) -> tuple[int, int]:
    return node.body.lineno, node.body.col_offset


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
def _parse(text: str) -> tuple[dict[tuple[str, int], list[Any]], frozenset[CodeType]]:
    """A file's functions by name and first line, and all code that compiling it gives."""
    tree = _locked(lambda: ast.parse(text))
    whole = _locked(lambda: compile(tree, "", "exec", dont_inherit=True)) if tree else None
    if tree is None or whole is None:
        return {}, frozenset()
    functions: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            functions[node.name, first].append(node)
        elif isinstance(node, ast.Lambda):
            functions["<lambda>", node.lineno].append(node)
    return dict(functions), frozenset(_with_inner(whole))


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
