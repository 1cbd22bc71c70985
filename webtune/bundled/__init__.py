"""The bundled kernels by name. One is imported when it is first asked for."""

from __future__ import annotations

import importlib

from webtune.bundled.base import Bundled
from webtune.errors import UsageError

__all__ = ["Bundled", "get", "names"]

_MODULES = {
    "matmul": "matmul",
    "reduction": "reduction",
    "softmax": "softmax",
    "transpose": "transpose",
    "conv2d": "conv2d",
    "scan": "scan",
    "saxpy": "saxpy",
}


def names() -> tuple[str, ...]:
    """Every bundled kernel, in the order in which tables show them."""
    return tuple(_MODULES)


def get(name: str) -> Bundled:
    """The bundled kernel of that name. `UsageError` for another."""
    if name not in _MODULES:
        raise UsageError(f"no bundled kernel {name!r}; there are {', '.join(_MODULES)}")
    bundled: Bundled = importlib.import_module(f"webtune.bundled.{_MODULES[name]}").BUNDLED
    return bundled
