"""What a check's reference expects: it is called once a tune, on host arrays of the arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from webtune.errors import UsageError
from webtune.gpu.base import Device, padded_bytes
from webtune.kernel.arguments import Argument, HostArray, host_view, numpy_or_none
from webtune.measure.bench_candidate import WrittenArgument


async def expected_by(
    reference: Callable[..., Any],
    kernel_name: str,
    arguments: Sequence[tuple[str, Argument]],
    written: Sequence[WrittenArgument],
    device: Device,
) -> dict[str, Any]:
    """The expected elements of written arguments by name, each as a flat numpy array or list. Those
    for which the reference returns None are left out. Raises `UsageError` when it raises or
    returns what does not fit, and what the device raises."""
    arrays = [await _on_host(argument, device) for _, argument in arguments]
    try:
        answer = reference(*arrays)
    except Exception as error:
        shapes = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in arguments)
        raise UsageError(
            f"{kernel_name}: the reference raised {type(error).__name__}: {error}; it was "
            f"called with host arrays ({shapes})"
        ) from error
    named = _by_name(kernel_name, answer, [argument.name for argument in written])
    given = [argument for argument in written if named.get(argument.name) is not None]
    if not given:
        raise UsageError(
            f"{kernel_name}: the reference returned None for all that the candidates write, "
            "so that no answer is checked; return what at least one of them must hold"
        )
    return {argument.name: _flat(kernel_name, argument, named[argument.name]) for argument in given}


async def _on_host(argument: Argument, device: Device) -> Any:
    if isinstance(argument, HostArray):
        raw = memoryview(bytes(argument.data))
    else:
        padded = padded_bytes(argument.nbytes)
        raw = (await device.read(argument.handle, padded)).cast("B")[: argument.nbytes]
    return host_view(raw, argument.dtype, argument.shape)


def _by_name(kernel_name: str, answer: Any, names: Sequence[str]) -> Mapping[str, Any]:
    listed = ", ".join(names)
    if answer is None:
        raise UsageError(
            f"{kernel_name}: the reference returned nothing; return the expected content of "
            f"{listed}"
        )
    if isinstance(answer, Mapping):
        unknown = [str(name) for name in answer if name not in names]
        if unknown or not answer:
            raise UsageError(
                f"{kernel_name}: the reference returned {', '.join(unknown) or 'an empty dict'}; "
                f"the candidates write {listed}"
            )
        return answer
    several = isinstance(answer, tuple) or (
        isinstance(answer, list) and len(names) > 1 and len(answer) == len(names)
    )
    answers = answer if several else [answer]
    if len(answers) != len(names):
        raise UsageError(
            f"{kernel_name}: the reference returned {len(answers)} arrays, the candidates write "
            f"{len(names)} ({listed}); return a tuple in that order, or a dict by name"
        )
    return dict(zip(names, answers, strict=True))


def _flat(kernel_name: str, argument: WrittenArgument, value: Any) -> Any:
    numpy = numpy_or_none()
    if numpy is None:
        flat, shape = _flat_list(value)
    else:
        array = numpy.asarray(value)
        if array.dtype.kind not in "fiub":
            raise UsageError(
                f"{kernel_name}: the reference's {argument.name} has elements of type "
                f"{array.dtype}; return numbers"
            )
        flat, shape = array.ravel(), tuple(array.shape)
    wanted = argument.shape
    if len(flat) != math.prod(wanted) or (shape != wanted and len(shape) > 1 and len(wanted) > 1):
        raise UsageError(
            f"{kernel_name}: the reference's {argument.name} has shape {list(shape)}, the argument "
            f"has {list(wanted)}; return one expected element for each element of the argument"
        )
    return flat


def _flat_list(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """The elements of a nested sequence, and its shape."""
    if isinstance(value, int | float):
        return [value], ()
    if isinstance(value, memoryview):
        value = value.tolist()
    parts = [_flat_list(item) for item in value]
    inner = parts[0][1] if parts else ()
    return [element for flat, _ in parts for element in flat], (len(parts), *inner)
