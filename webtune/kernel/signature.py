"""The arguments of a set by name: read from a candidate's function, and matched between sets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter

from webtune.errors import KernelError


def arguments_of(
    name: str, function: Callable[..., None], *, with_params: bool
) -> tuple[tuple[str, ...] | None, str]:
    """The arguments that a candidate's function takes after the recorder (and the parameters), and
    how they were found, for messages. None where it takes any.

    Raises `KernelError`, which names the set `name`, where the function takes no recorder.
    """
    parameters = inspect.signature(function).parameters.values()
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is Parameter.empty  # what a loop binds is no argument
    ]
    call = f"{getattr(function, '__name__', 'it')}({', '.join(positional)})"
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return None, call
    leading = ["the recorder", "the parameters"][: 1 + with_params]
    found = (
        f"{call} was decorated with{'' if with_params else 'out'} params=, so it gets "
        f"{', '.join(leading)} and then the arguments"
    )
    if len(positional) < len(leading):
        raise KernelError(f"{name}: {found}")
    return tuple(positional[len(leading) :]), found


def check_names(
    name: str, options: Mapping[str, Sequence[str]], arguments: Sequence[str], found: str
) -> None:
    """Raise `KernelError` where an option of the set `name` names something that is no argument.
    `found` says how the arguments were found, "" where the set was told them."""
    for option, names in options.items():
        unknown = [item for item in names if item not in arguments]
        if unknown:
            raise KernelError(
                f"{name}: {option}= names {', '.join(unknown)}; the arguments are "
                f"{', '.join(arguments) or 'none'}" + (f" ({found})" if found else "")
            )


def renamed(
    names: Sequence[str], theirs: Sequence[str] | None, ours: Sequence[str] | None
) -> tuple[str, ...]:
    """Names among another set's arguments as the arguments that stand there in this one."""
    here = dict(zip(theirs or (), ours or (), strict=False))
    return tuple(here.get(name, name) for name in names)
