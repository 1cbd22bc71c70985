"""What a bundled kernel comes with: its candidates, sizes worth trying, data and the right answer.

Data is deterministic and the same with or without numpy; a reference answer needs numpy.
"""

from __future__ import annotations

import importlib
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webtune.errors import ArgumentError
from webtune.kernel.space import ceil_div
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work
from webtune.measure.check import AllClose

__all__ = [
    "Bundled",
    "Size",
    "extents",
    "fold",
    "host_f32",
    "host_u32",
    "numpy",
    "zeros_f32",
    "zeros_u32",
]

Size = tuple[int, ...]
"""A problem's extents in elements, in the order that the kernel's module names them."""

MOST_GROUPS = 65535
"""What every WebGPU device grants in one dimension of a dispatch (WebGPU §3.6.2)."""

STORAGE_BYTES = 16384
"""Workgroup memory that every WebGPU device grants (WebGPU §3.6.2)."""

INVOCATIONS = 256
"""Invocations of one workgroup that every WebGPU device grants (WebGPU §3.6.2)."""

_PERIOD = 1021  # prime, so that no row length of interest repeats the same values in each row


@dataclass(frozen=True, slots=True)
class Bundled:
    """One bundled kernel.

    `sizes` has "default" (what `webtune tune` uses), "large", "small" and some that divide
    nothing, named "odd…". `arguments(size)` gives one host array for each of the kernel's
    arguments; `expected(size, *arrays)` the right content of the argument called `output` as a
    numpy array, near within `rtol` and `atol`; `work(size)` the least that has to be done.
    """

    name: str
    summary: str
    kernel: TunableSet
    sizes: Mapping[str, Size]
    arguments: Callable[[Size], list[Any]]
    expected: Callable[..., Any]
    work: Callable[[Size], Work]
    output: str
    rtol: float = 0.0
    atol: float = 0.0

    def size(self, name: str) -> Size:
        """The size of that name. `ArgumentError` for another."""
        try:
            return self.sizes[name]
        except KeyError:
            known = ", ".join(self.sizes)
            raise ArgumentError(f"{self.name} has no size {name!r}; it has {known}") from None

    def check(self, size: Size) -> AllClose:
        """A check of answers on this kernel's own arguments of that size; needs numpy."""
        return AllClose(
            lambda *arrays: self.expected(size, *arrays), rtol=self.rtol, atol=self.atol
        )

    @property
    def output_place(self) -> int:
        """Which argument holds the answer."""
        return (self.kernel.arguments or ()).index(self.output)


def fold(groups: int) -> tuple[int, int]:
    """Workgroup counts (x, y) that cover `groups`, neither above what every device grants.

    A shader finds its number as `group.y * groups.x + group.x`; the last few may be too many.
    """
    rows = ceil_div(max(groups, 1), MOST_GROUPS)
    return ceil_div(max(groups, 1), rows), rows


def extents(name: str, arg: Any, count: int) -> tuple[int, ...]:
    """The argument's shape. `ArgumentError` unless it has `count` dimensions."""
    shape = tuple(arg.shape)
    if len(shape) != count:
        raise ArgumentError(
            f"argument {name} has the shape {shape}; {count} dimensions are needed: "
            "give the array that shape before it is uploaded"
        )
    return shape


def numpy() -> Any:
    """numpy. `ImportError` where it is not installed."""
    return importlib.import_module("numpy")


def host_f32(shape: Sequence[int], salt: int = 0) -> Any:
    """f32 values in -1…1, multiples of 1/32: sums of a million of them are exact."""
    block = array("f", ((((i + salt) * 389) % _PERIOD % 65 - 32) / 32 for i in range(_PERIOD)))
    return _shaped(_repeated(block, shape), "f", shape)


def host_u32(shape: Sequence[int], salt: int = 0) -> Any:
    """u32 values in 0…16."""
    block = array("I", (((i + salt) * 389) % _PERIOD % 17 for i in range(_PERIOD)))
    return _shaped(_repeated(block, shape), "I", shape)


def zeros_f32(shape: Sequence[int]) -> Any:
    """f32 zeros."""
    return _shaped(array("f", [0.0]) * math.prod(shape), "f", shape)


def zeros_u32(shape: Sequence[int]) -> Any:
    """u32 zeros."""
    return _shaped(array("I", [0]) * math.prod(shape), "I", shape)


def _repeated(block: array[Any], shape: Sequence[int]) -> array[Any]:
    count = math.prod(shape)
    return (block * ceil_div(count, len(block)))[:count]


def _shaped(values: array[Any], code: str, shape: Sequence[int]) -> Any:
    try:
        np = numpy()
    except ImportError:
        view: Any = memoryview(values).cast("B")
        return view.cast(code, list(shape))
    return np.frombuffer(values, dtype={"f": "<f4", "I": "<u4"}[code]).reshape(tuple(shape))
