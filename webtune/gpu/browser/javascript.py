"""Evaluates the package's JavaScript files in a page, so that Python can call what they define."""

from __future__ import annotations

import importlib
from importlib.resources import files
from typing import Any

from webtune.errors import HostUnavailable


def pyodide_module(name: str) -> Any:
    """A module that only Pyodide has, such as `js` or `pyodide.ffi`. Raises `HostUnavailable` in
    other Pythons."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise HostUnavailable(
            "webtune's browser device needs Pyodide in a web page or a worker; "
            "in other Pythons use webtune.open_tuner()"
        ) from error


def evaluate(package: str, file_name: str) -> Any:
    """The value of the last expression of a `.js` file that lies in `package`, as a proxy.

    Raises `HostUnavailable` in other Pythons than Pyodide.
    """
    run_js = pyodide_module("pyodide.code").run_js
    return run_js(files(package).joinpath(file_name).read_text(encoding="utf-8"))
