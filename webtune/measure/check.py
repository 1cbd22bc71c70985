"""A wrong answer never wins: what a candidate writes is compared before it is timed.

Outputs are poisoned first, so that neither a candidate which writes nothing nor what another one
left behind can pass. Works on plain memory; numpy is used where it is installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from webtune.errors import ArgumentError, Failure, FailureKind, UsageError
from webtune.gpu.base import Copy, Device, Handle, Program, can_be_read, padded_bytes
from webtune.kernel.arguments import Argument, HostArray, dtype_bytes, host_view, numpy_or_none
from webtune.measure.bench_candidate import WrittenArgument
from webtune.measure.reference import expected_by

_RTOL = {"f16": 1e-2, "f32": 1e-4, "f64": 1e-7}
_ATOL_OF_SCALE = {"f16": 1e-2, "f32": 1e-5, "f64": 1e-8}
_ATOL_OF_NOTHING = {"f16": 1e-4, "f32": 1e-7, "f64": 1e-12}
_SPREAD = 8
"""Median over tenth of magnitudes: 5.4 for normal values, 5 for even ones, far more across a mask
that adds."""
_POISON = {
    "f16": b"\xa5\x7e",
    "f32": b"\xa5\xa5\xe5\x7f",
    "f64": b"\xa5\xa5\xa5\xa5\xa5\xa5\xfd\x7f",
}
"""A NaN of each floating dtype; elements of others are filled with `_POISON_BYTE`."""
_POISON_BYTE = b"\xa5"
_READS = "declare it with restore= if the kernel reads it before writing"


class AllClose:
    """Answers agree when |got − expected| ≤ atol + rtol · |expected|, element by element.

    `reference(*arguments)` gets every argument of the tune as a host array (numpy where it is
    installed, else a memoryview of the dtype) with the content that candidates start from, and
    returns what the written arguments must hold: an array, or a tuple in their order (None skips
    one), or a dict by name. Without a reference, the first candidate that runs is taken for it.

    `rtol` (floats only) and `atol` (all dtypes) default by dtype: f32 1e-4, f16 1e-2, f64 1e-7,
    and an `atol` of 1e-5 (f16: 1e-2, f64: 1e-8) of the typical magnitude expected, so that sums
    which cancel to nearly zero may round; integers must be equal. NaN agrees with NaN.

    Typical is the median of the different magnitudes expected, zeros aside, and at most 8 times
    the magnitude that a tenth of them are below. Neither a mask, however much it covers, nor an
    outlier makes it large. A magnitude that is alone beside zeros counts as 1 at most.
    """

    def __init__(
        self,
        reference: Callable[..., Any] | None = None,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> None:
        for name, value in (("rtol", rtol), ("atol", atol)):
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"{name}={value!r}: a tolerance is a finite number of at least 0")
        if reference is not None and not callable(reference):
            raise UsageError(
                "reference= must be a function of the kernel's arguments that returns the expected "
                f"output, not a {type(reference).__name__}"
            )
        self.reference = reference
        self.rtol = rtol
        self.atol = atol

    def prepare(
        self, kernel_name: str, arguments: Sequence[Argument], names: Sequence[str]
    ) -> PreparedCheck:
        """The check of one tune, on the tune's own arguments. Nothing is read before it is used;
        `ArgumentError` at once for a buffer that cannot be."""
        named = tuple(zip(names or map(str, range(len(arguments))), arguments, strict=True))
        for name, argument in named:
            readable = isinstance(argument, HostArray) or can_be_read(argument.handle)
            if self.reference is not None and not readable:
                raise ArgumentError(
                    f"{kernel_name}: the check's reference reads {name}, which was created without "
                    "COPY_SRC; create your own buffers with it, or give inputs="
                )
        return PreparedCheck(self, kernel_name, named)

    def tolerance(self, dtype: str, scale: float) -> tuple[float, float]:
        """(rtol, atol) for one dtype, where `scale` is the typical magnitude that is expected."""
        if dtype not in _RTOL:
            return 0.0, self.atol or 0.0
        rtol = _RTOL[dtype] if self.rtol is None else self.rtol
        atol = _ATOL_OF_SCALE[dtype] * scale or _ATOL_OF_NOTHING[dtype]
        return rtol, atol if self.atol is None else self.atol


@dataclass
class _Expected:
    """What one argument must hold, as flat elements; `raw` where they are a candidate's answer."""

    elements: Any
    dtype: str
    raw: bytes | None = None

    @cached_property
    def scale(self) -> float:
        return _typical(self.elements) if self.dtype in _RTOL else 0.0


class PreparedCheck:
    """One tune's check. What is expected is found once: by the reference, or else it is the first
    answer."""

    def __init__(
        self, rule: AllClose, kernel_name: str, arguments: Sequence[tuple[str, Argument]]
    ) -> None:
        self._rule = rule
        self._kernel_name = kernel_name
        self._arguments = arguments
        self._expected: dict[str, _Expected] | None = None
        self._source = ""
        self._poison: dict[tuple[str, int], Handle] = {}

    async def verify(
        self, device: Device, written: Sequence[WrittenArgument], program: Program, name: str
    ) -> Failure | None:
        """Launch `program` once and compare what it wrote. Raises `UsageError` when the reference
        fails, and what the device raises."""
        reference = self._rule.reference
        if reference is not None and self._expected is None:
            found = await expected_by(
                reference, self._kernel_name, self._arguments, written, device
            )
            dtypes = {argument.name: argument.dtype for argument in written}
            self._expected = {n: _Expected(elements, dtypes[n]) for n, elements in found.items()}
        device.submit(program, [w.restore or self._poisoning(device, w) for w in written])
        answers = [
            (w, bytes(await device.read(w.handle, padded_bytes(w.nbytes)))[: w.nbytes])
            for w in written
        ]
        if self._expected is None:
            return self._expect(answers, name)
        reasons = (self._difference(argument, raw) for argument, raw in answers)
        reason = next(filter(None, reasons), None)
        return Failure(FailureKind.WRONG_ANSWER, reason) if reason else None

    def close(self, device: Device) -> None:
        """Free the buffers that hold the poison."""
        for handle in self._poison.values():
            device.destroy_buffer(handle)
        self._poison.clear()

    def _poisoning(self, device: Device, argument: WrittenArgument) -> Copy:
        nbytes = padded_bytes(argument.nbytes)
        key = (argument.dtype, nbytes)
        if key not in self._poison:
            self._poison[key] = device.create_buffer(nbytes, label="poison")
            device.write(self._poison[key], memoryview(_poison_bytes(argument.dtype, nbytes)))
        return Copy(self._poison[key], argument.handle, nbytes)

    def _expect(
        self, answers: Sequence[tuple[WrittenArgument, bytes]], name: str
    ) -> Failure | None:
        """Take the first answer for the reference, where it is complete."""
        for argument, raw in answers:
            left = 0 if argument.restore is not None else _unwritten(argument, raw)
            if left:
                count = argument.nbytes // dtype_bytes(argument.dtype)
                wrote = "nothing" if left == count else f"{count - left} of {count} elements"
                return Failure(
                    FailureKind.WRONG_ANSWER,
                    f"it wrote {wrote} to {argument.name}, so it cannot stand in for a reference; "
                    f"give AllClose(reference=…), or {_READS}",
                )
        self._source = f" (from {name})"
        self._expected = {a.name: _Expected(_elements(raw, a), a.dtype, raw) for a, raw in answers}
        return None

    def _difference(self, argument: WrittenArgument, raw: bytes) -> str | None:
        """The first element that is not as expected, as a sentence; None if there is none."""
        expected = self._expected.get(argument.name) if self._expected else None
        if expected is None or raw == expected.raw:
            return None
        got, wanted = _elements(raw, argument), expected.elements
        rtol, atol = self._rule.tolerance(argument.dtype, expected.scale)
        wrong = _differing(got, wanted, rtol, atol)
        poison = _poison_bytes(argument.dtype, dtype_bytes(argument.dtype))

        def untouched(index: int) -> bool:
            here = raw[index * len(poison) : (index + 1) * len(poison)]
            return argument.restore is None and here == poison

        if self._rule.reference is not None and poison in raw:
            # Where NaN is expected, the poison itself would agree.
            silent = [i for i in range(len(got)) if wanted[i] != wanted[i] and untouched(i)]
            wrong = sorted({*wrong, *silent})
        if not wrong:
            return None
        first = wrong[0]
        shape = argument.shape
        at = f" (at {_indices(first, shape)})" if len(shape) > 1 else ""
        text = f"{argument.name}[{first}]{at} is {_number(got[first])}, expected "
        text += (
            f"{_number(wanted[first])}{self._source}; {len(wrong)} of {len(got)} elements differ"
        )
        if argument.dtype in _RTOL or atol:
            text += f" by more than {atol:.3g} + {rtol:.3g}·|expected|"
        if untouched(first):
            text += f"; this element was never written ({_READS})"
        return text


def _unwritten(argument: WrittenArgument, content: bytes) -> int:
    """How many elements still are the poison."""
    size = dtype_bytes(argument.dtype)
    unit = _poison_bytes(argument.dtype, size)
    if unit not in content:
        return 0
    return sum(content[at : at + size] == unit for at in range(0, len(content), size))


def _poison_bytes(dtype: str, nbytes: int) -> bytes:
    unit = _POISON.get(dtype, _POISON_BYTE)
    return (unit * -(-nbytes // len(unit)))[:nbytes]


def _elements(raw: bytes, argument: WrittenArgument) -> Any:
    count = len(raw) // dtype_bytes(argument.dtype)
    return host_view(memoryview(raw), argument.dtype, (count,))


def _typical(expected: Any) -> float:
    """The magnitude on whose scale sums round; 0 where nothing but zeros is expected."""
    numpy = numpy_or_none()
    if numpy is not None:
        sizes = numpy.abs(numpy.asarray(expected).astype("f8"))
        ordered = numpy.unique(sizes[numpy.isfinite(sizes) & (sizes > 0)])
    else:
        ordered = sorted({abs(value) for value in expected if math.isfinite(value) and value})
    last = len(ordered) - 1
    if last < 0:
        return 0.0
    if not last:  # beside zeros it may be a mask, and tells nothing of how they were summed
        return float(min(ordered[0], 1.0))
    # Different magnitudes: a mask is one value in many places. The tenth, for masks that add.
    return float(min(ordered[last // 2], _SPREAD * ordered[-(-last // 10)]))


def _differing(got: Any, expected: Any, rtol: float, atol: float) -> list[int]:
    """The indices of elements that disagree."""
    numpy = numpy_or_none()
    if numpy is None:
        pairs = enumerate(zip(got, expected, strict=True))
        return [index for index, (a, b) in pairs if not _agree(a, b, rtol, atol)]
    agree = (got == expected) | ((got != got) & (expected != expected))
    if rtol or atol:
        left, right = got.astype("f8"), expected.astype("f8")
        with numpy.errstate(invalid="ignore", over="ignore"):
            near = numpy.abs(left - right) <= atol + rtol * numpy.abs(right)
        agree |= near & numpy.isfinite(right)
    indices: list[int] = numpy.flatnonzero(~agree).tolist()
    return indices


def _agree(got: float, expected: float, rtol: float, atol: float) -> bool:
    if got == expected or (got != got and expected != expected):
        return True
    # An infinite tolerance would let anything pass where infinity is expected.
    return math.isfinite(expected) and abs(got - expected) <= atol + rtol * abs(expected)


def _indices(flat: int, shape: Sequence[int]) -> list[int]:
    found = []
    for extent in reversed(shape):
        flat, index = divmod(flat, extent)
        found.append(index)
    return found[::-1]


def _number(value: Any) -> str:
    plain = value.item() if hasattr(value, "item") else value
    return f"{plain:.9g}" if isinstance(plain, float) else str(plain)
