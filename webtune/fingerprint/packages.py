"""Which packages are known by the names used of them, and which are read like the user's own."""

from __future__ import annotations

import os
import sys
from functools import lru_cache

__all__ = ["is_acting", "is_foreign", "kind_of", "package_of"]

_BY_NAME = frozenset({"js", "numpy", "pyodide", "pyodide_js", "webtune", "wgpu"})
"""Packages that are known by the names used of them, like the standard library: their code is of
a version, and not the kernel's."""
_ACTING = frozenset(
    {
        "argparse",
        "asyncio",
        "concurrent",
        "contextvars",
        "logging",
        "multiprocessing",
        "os",
        "queue",
        "random",
        "selectors",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
        "unittest",
        "weakref",
    }
)
"""Of the standard library, what is a state of the process and no value."""


def package_of(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""


@lru_cache(maxsize=1024)
def is_foreign(package: str) -> bool:
    """Whether a package is known by the names used of it."""
    if package not in sys.stdlib_module_names:
        return package in _BY_NAME
    # A user's module may have a name of the standard library.
    file = getattr(sys.modules.get(package), "__file__", None)
    library = os.path.dirname(os.__file__)
    return file is None or (file.startswith(library) and "-packages" not in file[len(library) :])


def is_acting(value: object) -> bool:
    """Whether an object is the standard library's and stands for the process or a device."""
    package = package_of(type(value).__module__)
    return package in _ACTING and is_foreign(package)


def kind_of(value: object) -> str:
    """A type's name, without the module where it may be moved."""
    kind = type(value)
    module = kind.__module__
    if module == "builtins" or not is_foreign(package_of(module)):
        return kind.__name__
    return f"{module}.{kind.__qualname__}"
