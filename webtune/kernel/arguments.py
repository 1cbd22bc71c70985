"""What a kernel's arguments are: device buffers with a dtype and a shape, and host arrays; and how
they are bound, with what is wrong told at the call.

Anything with the buffer protocol is host data; numpy is used where it is and never required.
"""

from __future__ import annotations

import importlib
import math
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

from webtune.errors import ArgumentError, KernelError
from webtune.gpu.base import Device, Handle
from webtune.kernel.wgsl import BindingDecl

_FORMATS = {
    "f16": "e", "f32": "f", "f64": "d", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "bool": "?",
}  # fmt: skip
"""The dtypes, with their formats in `struct` and `memoryview`."""
_KINDS = dict.fromkeys("efd", "f") | dict.fromkeys("bhilqn", "i") | dict.fromkeys("BHILQNc", "u")

_IN_NO_BUFFER = frozenset({"bool", "f64", "i64", "u64"})
"""Dtypes that no WGSL storage or uniform buffer holds."""
_NUMPY = {"u32": "uint32", "i32": "int32", "f32": "float32", "f16": "float16"}

_LONG_BYTES = 256
_MOST_SIZES_BYTES = 64


def dtype_bytes(dtype: str) -> int:
    """The size of one element in bytes. `ArgumentError` for a dtype that there is not."""
    if dtype not in _FORMATS:
        dtypes = ", ".join(_FORMATS)
        raise ArgumentError(f"dtype {dtype!r} is not known; use one of {dtypes}")
    return struct.calcsize(_FORMATS[dtype])


def _dtype_of(view: memoryview) -> str:
    code = view.format.lstrip("@=<>!")
    if view.format[:1] in (">", "!") and view.itemsize > 1:
        raise ArgumentError("big-endian data cannot be bound; convert it to little-endian first")
    if code == "?":
        return "bool"
    if code not in _KINDS:
        raise ArgumentError(
            f"an array of format {view.format!r} has no WGSL type; use f32, f16, i32 or u32"
        )
    return f"{_KINDS[code]}{8 * view.itemsize}"


class HostArray:
    """Host data as an argument: `dtype`, `shape`, `size` (elements), `nbytes`, and indexing."""

    def __init__(self, view: memoryview) -> None:
        self.dtype = _dtype_of(view)
        self.shape: tuple[int, ...] = tuple(view.shape or ())
        self.nbytes = view.nbytes
        self.size = math.prod(self.shape)
        self.data = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())

    @cached_property
    def form(self) -> tuple[Any, ...]:
        """What tells this argument's problem from another's, to look up by: of long data a digest,
        since what is looked up by is kept."""
        long = self.nbytes > _LONG_BYTES
        content = blake2b(self.data, digest_size=16).digest() if long else bytes(self.data)
        return (self.dtype, self.shape, content)

    def __getitem__(self, index: int) -> int | float | bool:
        value: int | float | bool = _cast(self.data, self.dtype)[index]
        return value

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int | float | bool]:
        return iter(_cast(self.data, self.dtype))

    def __repr__(self) -> str:
        return f"HostArray({self.dtype}, shape={self.shape})"


class Buffer:
    """A buffer on a device: `dtype`, `shape` and `size` in elements, `nbytes`.

    Buffers come from `Tuner.upload`, `Tuner.empty` or `Tuner.wrap`; `destroy` frees one that
    webtune made. `handle` is the device's own object, None after that.
    """

    __slots__ = ("_free", "dtype", "form", "handle", "nbytes", "owner", "shape", "size")

    def __init__(
        self,
        handle: Handle,
        dtype: str,
        shape: Sequence[int],
        owner: object,
        free: Any = None,
    ) -> None:
        self.handle = handle
        self.dtype = dtype
        self.shape = tuple(shape)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * dtype_bytes(dtype)
        self.owner = owner
        self._free = free
        self.form: tuple[Any, ...] = (dtype, self.shape)
        """What tells this argument's problem from another's, to look up by."""

    def destroy(self) -> None:
        """Free the device's memory, if webtune made it. Using the buffer afterwards is an error."""
        free, self._free = self._free, None
        if free is not None:
            free(self)

    def __repr__(self) -> str:
        return f"Buffer({self.dtype}, shape={self.shape})"


Argument = Buffer | HostArray


def describe(argument: Argument) -> list[Any]:
    """The part of a key that an argument is by default: its dtype and shape, and the values of a
    small integer array, since sizes make another problem; numbers with a fraction are data."""
    described: list[Any] = [argument.dtype, list(argument.shape)]
    if isinstance(argument, HostArray) and argument.dtype[0] in "iu":
        described += [list(argument)] if argument.nbytes <= _MOST_SIZES_BYTES else []
    return described


def as_host_array(data: Any) -> HostArray | None:
    """`data` as a host array, or None where it has no buffer protocol. `ArgumentError` for elements
    that no argument has."""
    try:
        view = memoryview(data)
    except TypeError:
        convert = getattr(data, "to_memoryview", None)  # a JavaScript typed array
        if convert is None:
            return None
        view = convert()
    return HostArray(view)


def host_view(raw: memoryview, dtype: str, shape: Sequence[int]) -> Any:
    """Bytes from a device as a numpy array of `shape` where numpy is installed, else as a
    memoryview of `dtype` elements (f16: as an array of floats)."""
    shape = tuple(shape)
    numpy = numpy_or_none()
    if numpy is not None:
        return numpy.frombuffer(raw, dtype=_FORMATS[dtype]).reshape(shape).copy()
    flat = raw.cast("B") if raw.format != "B" else raw
    flat = memoryview(bytearray(flat)) if flat.readonly else flat
    return _cast(flat, dtype, shape)


def _cast(flat: memoryview, dtype: str, shape: Sequence[int] = ()) -> Any:
    view: Any = flat
    if dtype == "f16":  # a memoryview reads no half floats before Python 3.12
        return array("f", (value for (value,) in struct.iter_unpack("<e", flat)))
    if len(shape) > 1 and 0 not in shape:
        return view.cast(_FORMATS[dtype], shape=list(shape))
    return view.cast(_FORMATS[dtype])


def numpy_or_none() -> Any:
    """The module numpy where it is installed, else None."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


# -- binding -------------------------------------------------------------------------------------


def bind_argument(kernel: str, name: str, value: Any, device: Device, raw_dtype: str) -> Argument:
    """What was passed as the argument `name` of `kernel`, as a buffer or a host array. A raw buffer
    of the device is taken to hold `raw_dtype`. Raises `ArgumentError`."""
    if isinstance(value, HostArray):
        return value
    if isinstance(value, Buffer):
        if value.owner is not device:
            raise ArgumentError(
                f"{kernel}: argument {name} lives on another device; upload it with this tuner"
            )
        if value.handle is None:
            raise ArgumentError(f"{kernel}: argument {name} was destroyed")
        return value
    nbytes = device.adopt(value)
    if nbytes is not None:
        return Buffer(value, raw_dtype, (nbytes // dtype_bytes(raw_dtype),), device)
    host = as_host_array(value)
    if host is None:
        raise ArgumentError(
            f"{kernel}: argument {name} is of type {type(value).__name__}; pass a webtune buffer, "
            "this device's own buffer, or anything with the buffer protocol (a number goes into an "
            "override constant or a small array)"
        )
    return host


def check_argument(
    kernel: str, declared: BindingDecl, value: Argument, limits: Mapping[str, int]
) -> None:
    """Raise `ArgumentError` unless the shader's binding takes `value` on a device with `limits`;
    `KernelError` where no buffer can be bound there."""
    if not declared.kind:
        raise KernelError(
            f"{kernel}: argument {declared.name} is declared as {declared.type}; webtune binds "
            "storage and uniform buffers only"
        )
    # Every call passes here: texts are made for what is wrong only.
    wrong = _wrong_dtype(declared, value) or _wrong_size(declared, value, limits)
    if wrong is not None:
        raise ArgumentError(f"{kernel}: argument {declared.name} {wrong}")


def _wrong_dtype(declared: BindingDecl, value: Argument) -> str | None:
    dtype = value.dtype
    if declared.written and isinstance(value, HostArray):
        return (
            "is written by the kernel, so it must live on the device: "
            "pass tuner.upload(array), and read it with tuner.download(buffer)"
        )
    if dtype == declared.element:
        return None
    if dtype in _IN_NO_BUFFER:
        return (
            f"holds {dtype}, which no WGSL buffer does; convert it, for example "
            f"with .astype(np.{_NUMPY.get(declared.element, 'uint32')})"
        )
    if declared.element and not _is_readable_as(declared, dtype):
        return (
            f"holds {dtype}, the shader declares {declared.type}; convert it to {declared.element}"
        )
    return None


def _is_readable_as(declared: BindingDecl, dtype: str) -> bool:
    # Packed bytes may be read as words: only 4-byte kinds and f16 are told apart.
    if dtype in ("u8", "i8", "u16", "i16"):
        return declared.element in ("u32", "i32")
    if dtype == "f16":
        return declared.element == "u32"
    return "atomic" in declared.type and dtype in ("i32", "u32")


def _wrong_size(declared: BindingDecl, value: Argument, limits: Mapping[str, int]) -> str | None:
    nbytes, least = value.nbytes, declared.least_bytes
    if nbytes < (least or 1):
        return f"has {nbytes} bytes, {declared.type} needs at least {least or 1}"
    uniform = declared.kind == "uniform"
    # Data may come padded to the 16 bytes in which uniform structs are laid out.
    fitting = (least, -(-least // 4) * 4, -(-least // 16) * 16)
    if uniform and least and nbytes not in fitting and isinstance(value, HostArray):
        return (
            f"has {nbytes} bytes, {declared.type} takes {least}; pass one value for each "
            "member, with the padding that WGSL puts between them"
        )
    limit = "maxUniformBufferBindingSize" if uniform else "maxStorageBufferBindingSize"
    if nbytes > limits.get(limit, nbytes):
        return (
            f"has {nbytes} bytes, more than the device's {limit} of {limits[limit]}; split the work"
        )
    return None
