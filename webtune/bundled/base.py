"""What a bundled kernel comes with: its candidates, sizes worth trying, data and the right answer.

Data is deterministic and the same with or without numpy; a reference answer needs numpy.
"""

from __future__ import annotations

import importlib
import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from webtune.errors import ArgumentError, Reject, choices_text
from webtune.kernel.space import ceil_div
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work
from webtune.measure.check import AllClose

Size = tuple[int, ...]
"""A problem's extents in elements, in the order that the kernel's module names them."""

MOST_GROUPS = 65535
"""What every WebGPU device grants in one dimension of a dispatch (WebGPU §3.6.2)."""

STORAGE_BYTES = 16384
"""Workgroup memory that every WebGPU device grants (WebGPU §3.6.2)."""

INVOCATIONS = 256
"""Invocations of one workgroup that every WebGPU device grants (WebGPU §3.6.2)."""

_PERIOD = 1021  # prime, so that no row length of interest repeats the same values in each row


@dataclass(frozen=True)
class Bundled:
    """One bundled kernel; its module adds the candidates to `kernel`.

    - `sizes`: by name, of which "default" is what `webtune tune` uses, "large" and "small" are
      there too, and those named "odd…" are divided by nothing.
    - `size_of(*args)`: the size of a call, which is its key too. Raises `ArgumentError` for
      arguments that do not fit each other.
    - `work(size)`: the least that has to be done.
    - `arguments(size)`: one host array for each of the kernel's arguments.
    - `expected(size, *arrays)`: what the argument called `output` must hold afterwards, as a numpy
      array, near within `rtol` and `atol`.
    """

    name: str
    summary: str
    sizes: Mapping[str, Size]
    size_of: Callable[..., Size]
    work: Callable[[Size], Work]
    arguments: Callable[[Size], list[Any]]
    expected: Callable[..., Any]
    output: str
    rtol: float = 0.0
    atol: float = 0.0

    @cached_property
    def kernel(self) -> TunableSet:
        """The candidates."""
        return TunableSet(
            self.name,
            outputs=[self.output],
            key=lambda *args: list(self.size_of(*args)),
            work=lambda *args: self.work(self.size_of(*args)),
        )

    def size(self, name: str) -> Size:
        """The size of that name. Raises `ArgumentError` for another."""
        if name not in self.sizes:
            raise ArgumentError(
                f"{self.name} has no size {name!r}; {choices_text(name, self.sizes)}"
            )
        return self.sizes[name]

    def check(self, size: Size) -> AllClose:
        """A check of answers on this kernel's own arguments of that size; needs numpy."""
        return AllClose(
            lambda *arrays: self.expected(size, *arrays), rtol=self.rtol, atol=self.atol
        )

    @property
    def output_index(self) -> int:
        """Which argument holds the answer."""
        return (self.kernel.arguments or ()).index(self.output)


# -- WGSL -----------------------------------------------------------------------------------------


def wgsl_sections(file_name: str) -> dict[str, str]:
    """The sections of a `.wgsl` file beside this module, by name.

    A line `//// name` begins a section. Each holds whole declarations, so that a shader is any
    number of sections joined.
    """
    text = files(__package__).joinpath(file_name).read_text(encoding="utf-8")
    _, *parts = re.split(r"^//// (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def wgsl_constants(**values: int) -> str:
    """Declarations of u32 constants."""
    return "".join(f"const {name} = {value}u;\n" for name, value in values.items())


def written_out(shader: str, **lines: Sequence[str]) -> str:
    """A shader with every line `$name` replaced by the lines of that name, indented alike.

    Loops over values that must live in registers are written out so.
    """

    def replace(found: re.Match[str]) -> str:
        return "".join(f"{found[1]}{line}\n" for line in lines[found[2]])

    return re.sub(r"^( *)\$(\w+)\n", replace, shader, flags=re.MULTILINE)


# -- launches -------------------------------------------------------------------------------------


def fold(groups: int) -> tuple[int, int]:
    """Workgroup counts (x, y) that cover `groups`, neither above what every device grants.

    A shader finds its number as `group.y * groups.x + group.x`; the last few may be too many.
    """
    rows = ceil_div(max(groups, 1), MOST_GROUPS)
    return ceil_div(max(groups, 1), rows), rows


def vec4_count(count: int) -> int:
    """How many vec4 hold `count` elements. Raises `Reject` where that is no whole number."""
    if count % 4:
        raise Reject(f"{count} elements are no whole number of vec4")
    return count // 4


def extents(name: str, argument: Any, count: int) -> Size:
    """The argument's shape. Raises `ArgumentError` unless it has `count` dimensions."""
    shape = tuple(argument.shape)
    if len(shape) != count:
        raise ArgumentError(
            f"argument {name} has the shape {shape}; {count} dimensions are needed: "
            "give the array that shape before it is uploaded"
        )
    return shape


def equal_shapes(count: int, **arguments: Any) -> Size:
    """The shape of `count` dimensions that all have. Raises `ArgumentError` where they differ."""
    shapes = {name: extents(name, argument, count) for name, argument in arguments.items()}
    (first, shape), *others = shapes.items()
    for name, other in others:
        if other != shape:
            raise ArgumentError(
                f"{name} has the shape {other}, {first} has {shape}; they must be equal"
            )
    return shape


# -- data -----------------------------------------------------------------------------------------


def numpy() -> Any:
    """numpy. Raises `ImportError` where it is not installed."""
    return importlib.import_module("numpy")


def f32(shape: Size, salt: int = 0) -> Any:
    """f32 values in -1…1, multiples of 1/32: sums of a million of them are exact."""
    return _filled("f", shape, [(i * 389 % _PERIOD % 65 - 32) / 32 for i in _salted(salt)])


def u32(shape: Size) -> Any:
    """u32 values in 0…16."""
    return _filled("I", shape, [i * 389 % _PERIOD % 17 for i in _salted(0)])


def zeros(shape: Size, code: str = "f") -> Any:
    """Zeros: f32, or u32 with the code "I"."""
    return _filled(code, shape, [0])


def _salted(salt: int) -> range:
    return range(salt, salt + _PERIOD)


def _filled(code: str, shape: Size, period: Sequence[float]) -> Any:
    """The values of `period` over and over: a numpy array, or a memoryview without numpy."""
    count = math.prod(shape)
    values = (array(code, period) * ceil_div(count, len(period)))[:count]
    try:
        np = numpy()
    except ImportError:
        view: Any = memoryview(values).cast("B")
        return view.cast(code, list(shape))
    return np.frombuffer(values, dtype={"f": "<f4", "I": "<u4"}[code]).reshape(shape)
