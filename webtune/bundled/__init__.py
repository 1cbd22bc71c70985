"""The bundled kernels by name. One is imported when it is first asked for."""

from __future__ import annotations

import importlib

from webtune.bundled.base import Bundled
from webtune.errors import UsageError, choices_text

__all__ = ["Bundled", "get", "names"]

_NAMES = ("matmul", "reduction", "softmax", "transpose", "conv2d", "scan", "saxpy")
"""The modules, in the order in which tables show their kernels; each defines `BUNDLED`."""


def names() -> tuple[str, ...]:
    """Every bundled kernel, in the order in which tables show them."""
    return _NAMES


def get(name: str) -> Bundled:
    """The bundled kernel of that name. Raises `UsageError` for another."""
    if name not in _NAMES:
        raise UsageError(f"no bundled kernel {name!r}; {choices_text(name, _NAMES)}")
    bundled: Bundled = importlib.import_module(f"webtune.bundled.{name}").BUNDLED
    return bundled
