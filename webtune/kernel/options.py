"""Options that users give to sets and kernels: unknown ones are refused, functions are called so
that a failure says whose it was."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from typing import Any

from webtune.errors import ArgumentError, KernelError, Reject, UsageError, WebtuneError

_REFUSALS = (UsageError, ArgumentError, KernelError)


def check_options(name: str, options: Iterable[str], known: Collection[str]) -> None:
    """Raise `KernelError` for an option of the kernel `name` that there is not, with the one that
    was probably meant."""
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            meant = f"did you mean {near[0]}=?" if near else f"there are {', '.join(sorted(known))}"
            raise KernelError(f"{name}: there is no option {option}=; {meant}")


def call_option(name: str, option: str, function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns that the kernel `name` was given as `option`.

    An exception becomes a `UsageError` that names both; a `UsageError`, `ArgumentError` or
    `KernelError` that the function raises on purpose keeps its class, and a failure of the device
    stays as it is. With an empty `name` the call is part of a candidate: every error of webtune's
    own stays as it is, since it is the candidate's reason.
    """
    try:
        return function(*args)
    except Exception as error:
        whose = f"{name}: {option}=" if name else f"{option}="
        if name and type(error) in _REFUSALS:
            raise type(error)(f"{whose} refused: {error}") from error
        if isinstance(error, WebtuneError) and not (name and isinstance(error, Reject)):
            raise
        raise UsageError(f"{whose} raised {type(error).__name__}: {error}") from error
