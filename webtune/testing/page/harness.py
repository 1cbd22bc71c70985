"""Run by Pyodide in a test page: calls a function of a text. Answers and failures are JSON."""

from __future__ import annotations

import inspect
import itertools
import json
import linecache
import traceback
from typing import Any

_numbers = itertools.count(1)


async def call(source: str, name: str, arguments: str) -> str:
    """What the function `name` of `source` returns, awaited if it is a coroutine."""
    try:
        value = _load(source, name)(**json.loads(arguments))
        return json.dumps({"value": await value if inspect.isawaitable(value) else value})
    except BaseException as error:
        return _failed(error)


def call_blocking(source: str, name: str, arguments: str) -> str:
    """The same for a function that is no coroutine, but may wait with `pyodide.ffi.run_sync`."""
    try:
        return json.dumps({"value": _load(source, name)(**json.loads(arguments))})
    except BaseException as error:
        return _failed(error)


def _load(source: str, name: str) -> Any:
    filename = f"<test {next(_numbers)}>"
    # Python must find the source again: what a kernel's functions say is part of its identity.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    space: dict[str, Any] = {"__name__": "inside"}
    exec(compile(source, filename, "exec"), space)
    return space[name]


def _failed(error: BaseException) -> str:
    kind, told = type(error).__name__, traceback.format_exc()
    return json.dumps({"kind": kind, "message": str(error), "traceback": told})
