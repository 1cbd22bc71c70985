"""From what a caller passes to an argument that a shader's binding takes, with what is wrong told
at the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webtune.errors import ArgumentError, KernelError
from webtune.gpu.base import Device
from webtune.kernel.arguments import Argument, Buffer, HostArray, as_host_array, dtype_bytes
from webtune.kernel.wgsl import BindingDecl

__all__ = ["bind_argument", "check_argument"]

_IN_NO_BUFFER = frozenset({"bool", "f64", "i64", "u64"})
"""Dtypes that no WGSL storage or uniform buffer holds."""
_NUMPY = {"u32": "uint32", "i32": "int32", "f32": "float32", "f16": "float16"}


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
