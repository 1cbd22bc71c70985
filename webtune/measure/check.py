"""A wrong answer never wins: what a candidate writes is compared before it is timed.

Outputs are poisoned first, so that neither a candidate which writes nothing nor what another one
left behind can pass. Works on plain memory; numpy is used where it is installed.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from webtune.errors import ArgumentError, Failure, FailureKind, UsageError
from webtune.gpu.base import Copy, Device, Handle, Program, can_be_read
from webtune.kernel.arguments import Argument, Buffer, HostArray, dtype_bytes, host_view

if TYPE_CHECKING:
    from webtune.measure.bench import Slot

__all__ = ["AllClose", "PreparedCheck"]

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
_POISON_BYTE = b"\xa5"


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
        self, set_name: str, arguments: Sequence[Argument], names: Sequence[str]
    ) -> PreparedCheck:
        """The check of one tune, on the tune's own arguments. Nothing is read before it is used;
        `ArgumentError` at once for a buffer that cannot be."""
        for place, argument in enumerate(arguments):
            readable = isinstance(argument, HostArray) or can_be_read(argument.handle)
            if self.reference is not None and not readable:
                raise ArgumentError(
                    f"{set_name}: the check's reference reads {names[place] if names else place}, "
                    "which was created without COPY_SRC; create your own buffers with it, or give "
                    "inputs="
                )
        return PreparedCheck(self, set_name, tuple(arguments), tuple(names))

    def tolerance(self, dtype: str, scale: float) -> tuple[float, float]:
        """(rtol, atol) for one dtype, where `scale` is the typical magnitude that is expected."""
        if dtype not in _RTOL:
            return 0.0, self.atol or 0.0
        rtol = _RTOL[dtype] if self.rtol is None else self.rtol
        atol = _ATOL_OF_SCALE[dtype] * scale or _ATOL_OF_NOTHING[dtype]
        return rtol, atol if self.atol is None else self.atol


class PreparedCheck:
    """One tune's check: the expected content is made once, by the reference or the first answer."""

    def __init__(
        self, rule: AllClose, set_name: str, arguments: tuple[Argument, ...], names: tuple[str, ...]
    ) -> None:
        self._rule = rule
        self._set_name = set_name
        self._arguments = arguments
        self._names = names
        self._expected: dict[str, Any] | None = None
        self._first: dict[str, bytes] | None = None
        self._first_name = ""
        self._scales: dict[str, float] = {}
        self._poison: dict[tuple[str, int], Handle] = {}

    async def verify(
        self, device: Device, slots: Sequence[Slot], program: Program, name: str
    ) -> Failure | None:
        """Launch `program` once and compare. Raises `UsageError` when the reference fails, and
        what the device raises."""
        if self._rule.reference is not None and self._expected is None:
            self._expected = await self._ask_reference(device, slots)
        before = [slot.restore or self._poisoning(device, slot) for slot in slots]
        device.submit(program, before)
        got: dict[str, bytes] = {}
        for slot in slots:
            got[slot.name] = bytes(await device.read(slot.handle, _padded(slot)))[: slot.nbytes]
        return self._judge(slots, got, name)

    def close(self, device: Device) -> None:
        """Free the poison."""
        for handle in self._poison.values():
            device.destroy_buffer(handle)
        self._poison.clear()

    def _poisoning(self, device: Device, slot: Slot) -> Copy:
        nbytes = _padded(slot)
        place = (slot.dtype, nbytes)
        if place not in self._poison:
            handle = device.create_buffer(nbytes, label="poison")
            self._poison[place] = handle
            device.write(handle, memoryview(_poison_bytes(slot.dtype, nbytes)))
        return Copy(self._poison[place], slot.handle, nbytes)

    # -- the expected content ----------------------------------------------------------------

    async def _ask_reference(self, device: Device, slots: Sequence[Slot]) -> dict[str, Any]:
        reference = self._rule.reference
        arrays = []
        for argument in self._arguments:
            if isinstance(argument, HostArray):
                raw = memoryview(bytes(argument.data))
            else:
                nbytes = -(-argument.nbytes // 4) * 4
                raw = (await device.read(argument.handle, nbytes)).cast("B")[: argument.nbytes]
            arrays.append(host_view(raw, argument.dtype, argument.shape))
        try:
            answer = reference(*arrays) if reference is not None else None
        except Exception as error:
            shapes = ", ".join(
                f"{name} {a.dtype}{list(a.shape)}" for name, a in self._named_arguments()
            )
            raise UsageError(
                f"{self._set_name}: the reference raised {type(error).__name__}: {error}; it was "
                f"called with host arrays ({shapes})"
            ) from error
        named = _by_name(self._set_name, answer, slots)
        if all(named.get(slot.name) is None for slot in slots):
            raise UsageError(
                f"{self._set_name}: the reference returned None for all that the candidates write, "
                "so that no answer is checked; return what at least one of them must hold"
            )
        return {
            slot.name: _flat(self._set_name, slot, named[slot.name])
            for slot in slots
            if named.get(slot.name) is not None
        }

    def _named_arguments(self) -> list[tuple[str, Buffer | HostArray]]:
        names = self._names or tuple(str(place) for place in range(len(self._arguments)))
        return list(zip(names, self._arguments, strict=False))

    # -- judging -----------------------------------------------------------------------------

    def _judge(self, slots: Sequence[Slot], got: Mapping[str, bytes], name: str) -> Failure | None:
        if self._rule.reference is None and self._first is None:
            for slot in slots:
                left = 0 if slot.restore is not None else _unwritten(slot, got[slot.name])
                if left:
                    return Failure(FailureKind.WRONG_ANSWER, _left_text(slot, left))
            self._first, self._first_name = dict(got), name
            return None
        for slot in slots:
            if self._first is not None:
                expected: Any = self._first[slot.name]
                if expected == got[slot.name]:
                    continue
                expected = _elements(expected, slot.dtype)
            elif self._expected is not None and slot.name in self._expected:
                expected = self._expected[slot.name]
            else:
                continue
            if slot.name not in self._scales:
                self._scales[slot.name] = _typical(expected) if slot.dtype in _RTOL else 0.0
            scale = self._scales[slot.name]
            found = _mismatch(self._rule, slot, got[slot.name], expected, scale)
            if found is not None:
                source = f" (from {self._first_name})" if self._first is not None else ""
                return Failure(FailureKind.WRONG_ANSWER, found.format(source=source))
        return None


_READS = "declare it with restore= if the kernel reads it before writing"


def _unwritten(slot: Slot, content: bytes) -> int:
    """How many elements still are the poison."""
    unit = _poison_bytes(slot.dtype, dtype_bytes(slot.dtype))
    size = len(unit)
    if unit not in content:
        return 0
    return sum(content[at : at + size] == unit for at in range(0, len(content), size))


def _left_text(slot: Slot, left: int) -> str:
    count = slot.nbytes // dtype_bytes(slot.dtype)
    what = "nothing" if left == count else f"{count - left} of {count} elements"
    return (
        f"it wrote {what} to {slot.name}, so it cannot stand in for a reference; give "
        f"AllClose(reference=…), or {_READS}"
    )


def _padded(slot: Slot) -> int:
    return -(-slot.nbytes // 4) * 4


def _poison_bytes(dtype: str, nbytes: int) -> bytes:
    unit = _POISON.get(dtype, _POISON_BYTE)
    return (unit * -(-nbytes // len(unit)))[:nbytes]


def _by_name(set_name: str, answer: Any, slots: Sequence[Slot]) -> dict[str, Any]:
    names = [slot.name for slot in slots]
    listed = ", ".join(names)
    if answer is None:
        raise UsageError(
            f"{set_name}: the reference returned nothing; return the expected content of {listed}"
        )
    if isinstance(answer, Mapping):
        unknown = [str(name) for name in answer if name not in names]
        if unknown or not answer:
            raise UsageError(
                f"{set_name}: the reference returned {', '.join(unknown) or 'an empty dict'}; the "
                f"candidates write {listed}"
            )
        return dict(answer)
    several = isinstance(answer, tuple) or (
        isinstance(answer, list) and len(names) > 1 and len(answer) == len(names)
    )
    if not several and len(names) == 1:
        return {names[0]: answer}
    if not several or len(answer) != len(names):
        count = len(answer) if several else 1
        raise UsageError(
            f"{set_name}: the reference returned {count} arrays, the candidates write "
            f"{len(names)} ({listed}); return a tuple in that order, or a dict by name"
        )
    return dict(zip(names, answer, strict=True))


def _flat(set_name: str, slot: Slot, value: Any) -> Any:
    """The reference's array as a flat numpy array or list, of the slot's size."""
    numpy = _numpy()
    if numpy is not None:
        array = numpy.asarray(value)
        if array.dtype.kind not in "fiub":
            raise UsageError(
                f"{set_name}: the reference's {slot.name} has elements of type {array.dtype}; "
                "return numbers"
            )
        flat, shape = array.ravel(), tuple(array.shape)
    else:
        flat, shape = _plain(value)
    size = math.prod(slot.shape)
    if len(flat) != size or (shape != slot.shape and len(shape) > 1 and len(slot.shape) > 1):
        raise UsageError(
            f"{set_name}: the reference's {slot.name} has shape {list(shape)}, the argument has "
            f"{list(slot.shape)}; return one expected element for each element of the argument"
        )
    return flat


def _plain(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    if isinstance(value, int | float):
        return [value], ()
    if isinstance(value, memoryview):
        value = value.tolist()
    parts = [_plain(item) for item in value]
    inner = parts[0][1] if parts else ()
    return [x for flat, _ in parts for x in flat], (len(parts), *inner)


def _elements(raw: bytes, dtype: str) -> Any:
    return host_view(memoryview(raw), dtype, (len(raw) // dtype_bytes(dtype),))


def _typical(expected: Any) -> float:
    """The magnitude on whose scale sums round; 0 where nothing but zeros is expected."""
    numpy = _numpy()
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


def _mismatch(rule: AllClose, slot: Slot, raw: bytes, expected: Any, scale: float) -> str | None:
    """The first element that disagrees, as a sentence with a place for {source}; None if none."""
    got = _elements(raw, slot.dtype)
    numpy = _numpy()
    if numpy is not None:
        wrong, atol = _wrong_numpy(numpy, rule, slot.dtype, got, expected, scale)
    else:
        wrong, atol = _wrong_plain(rule, slot.dtype, got, expected, scale)
    step = dtype_bytes(slot.dtype)
    poison = _poison_bytes(slot.dtype, step)

    def untouched(place: int) -> bool:
        left = raw[place * step : (place + 1) * step]
        return slot.restore is None and left == poison

    if rule.reference is not None and poison in raw:
        # Where NaN is expected, the poison itself would agree.
        silent = [p for p in range(len(got)) if expected[p] != expected[p] and untouched(p)]
        wrong = sorted({*wrong, *silent})
    if not wrong:
        return None
    first = wrong[0]
    rtol, _ = rule.tolerance(slot.dtype, 0.0)
    where = f"{slot.name}[{first}]"
    if len(slot.shape) > 1:
        where += f" (at {_indices(first, slot.shape)})"
    text = f"{where} is {_number(got[first])}, expected {_number(expected[first])}{{source}}; "
    text += f"{len(wrong)} of {len(got)} elements differ"
    if slot.dtype in _RTOL or atol:
        text += f" by more than {atol:.3g} + {rtol:.3g}·|expected|"
    if untouched(first):
        text += f"; this element was never written ({_READS})"
    return text


def _wrong_numpy(
    numpy: Any, rule: AllClose, dtype: str, got: Any, expected: Any, scale: float
) -> tuple[list[int], float]:
    if dtype not in _RTOL and not rule.atol:
        return numpy.flatnonzero(got != expected).tolist(), 0.0
    left, right = got.astype("f8"), expected.astype("f8")
    finite = numpy.isfinite(right)
    rtol, atol = rule.tolerance(dtype, scale)
    with numpy.errstate(invalid="ignore", over="ignore"):
        close = numpy.abs(left - right) <= atol + rtol * numpy.abs(right)
    # An infinite tolerance would let anything pass where infinity is expected.
    close = numpy.where(finite, close, left == right)
    close |= numpy.isnan(left) & numpy.isnan(right)
    return numpy.flatnonzero(~close).tolist(), atol


def _wrong_plain(
    rule: AllClose, dtype: str, got: Sequence[Any], expected: Sequence[Any], scale: float
) -> tuple[list[int], float]:
    rtol, atol = rule.tolerance(dtype, scale)

    def agree(left: float, right: float) -> bool:
        if left == right or (left != left and right != right):
            return True
        return math.isfinite(right) and abs(left - right) <= atol + rtol * abs(right)

    pairs = enumerate(zip(got, expected, strict=True))
    return [place for place, (left, right) in pairs if not agree(left, right)], atol


def _indices(flat: int, shape: Sequence[int]) -> list[int]:
    found = []
    for extent in reversed(shape):
        flat, index = divmod(flat, extent)
        found.append(index)
    return found[::-1]


def _number(value: Any) -> str:
    plain = value.item() if hasattr(value, "item") else value
    return f"{plain:.9g}" if isinstance(plain, float) else str(plain)


def _numpy() -> Any:
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None
