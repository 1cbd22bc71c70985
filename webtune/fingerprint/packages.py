"""Which packages are known by the names used of them, and which are read like the user's own."""

from __future__ import annotations

import os
import sys
from functools import cache

_LIBRARIES = frozenset({"js", "numpy", "pyodide", "pyodide_js", "webtune", "wgpu"})
"""Libraries beside the standard one: their code is of a version, and not the kernel's."""

_PROCESS_STATE = frozenset({
    "argparse", "asyncio", "concurrent", "contextvars", "logging", "multiprocessing", "os", "queue",
    "random", "selectors", "socket", "subprocess", "tempfile", "threading", "unittest", "weakref",
})  # fmt: skip
"""Packages of the standard library whose objects are a state of the process and no value."""


def package_of(module: object) -> str:
    """The top-level package in a `__module__`; "" where that is no text."""
    return module.partition(".")[0] if isinstance(module, str) else ""


@cache
def is_library(package: str) -> bool:
    """Whether a package is known by the names used of it, so that its code is not read."""
    if package not in sys.stdlib_module_names:
        return package in _LIBRARIES
    # A user's module may have a name of the standard library.
    file = getattr(sys.modules.get(package), "__file__", None)
    library = os.path.dirname(os.__file__)
    return file is None or (file.startswith(library) and "-packages" not in file[len(library) :])


def is_process_state(value: object) -> bool:
    """Whether an object of the standard library stands for the process or a device of it."""
    package = package_of(type(value).__module__)
    return package in _PROCESS_STATE and is_library(package)


def type_name(value: object) -> str:
    """The name of a value's type, without the module where the user may move it."""
    kind = type(value)
    if kind.__module__ == "builtins" or not is_library(package_of(kind.__module__)):
        return kind.__name__
    return f"{kind.__module__}.{kind.__qualname__}"
