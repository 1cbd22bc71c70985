"""Data in and out of a device, with what can be wrong told at the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from webtune.errors import ArgumentError
from webtune.gpu.base import Device, can_be_read
from webtune.kernel.arguments import Buffer, as_host_array, dtype_bytes, host_view

__all__ = ["download", "empty", "padded", "upload", "wrap"]

Free = Callable[[Buffer], None]


def padded(nbytes: int) -> int:
    """Bytes rounded up to the 4 that WebGPU copies in."""
    return -(-nbytes // 4) * 4


def upload(device: Device, data: Any, free: Free) -> Buffer:
    """A new buffer with a copy of `data`."""
    array = as_host_array(data)
    if array is None:
        raise ArgumentError(
            "upload takes anything with the buffer protocol, such as a numpy array or "
            f"array.array; a {type(data).__name__} has none"
        )
    if array.nbytes == 0:
        raise ArgumentError("upload was given an empty array; a buffer needs at least one element")
    buffer = empty(device, array.shape or (1,), array.dtype, free)
    short = padded(array.nbytes) - array.nbytes
    device.write(
        buffer.handle, memoryview(bytes(array.data) + bytes(short)) if short else array.data
    )
    return buffer


def empty(device: Device, shape: int | Sequence[int], dtype: str, free: Free) -> Buffer:
    """A new zeroed buffer."""
    sides = (shape,) if isinstance(shape, int) else tuple(shape)
    nbytes = dtype_bytes(dtype) * math.prod(sides)
    if nbytes <= 0 or min(sides, default=1) <= 0:
        raise ArgumentError(f"a buffer of shape {sides} holds nothing; sides must be positive")
    most = device.limits.get("maxBufferSize")
    if most is not None and nbytes > most:
        raise ArgumentError(
            f"{nbytes} bytes are more than the device's maxBufferSize of {most}; split the data"
        )
    handle = device.create_buffer(padded(nbytes), label="webtune data")
    return Buffer(handle, dtype, sides, device, free)


def wrap(device: Device, raw: Any, dtype: str, shape: int | Sequence[int] | None) -> Buffer:
    """A caller's own buffer with a dtype and a shape."""
    nbytes = device.adopt(raw)
    if nbytes is None:
        raise ArgumentError(f"a {type(raw).__name__} is no buffer of this device")
    if shape is None:
        shape = (nbytes // dtype_bytes(dtype),)
    sides = (shape,) if isinstance(shape, int) else tuple(shape)
    if min(sides, default=1) <= 0:
        raise ArgumentError(f"a view of shape {sides} holds nothing; sides must be positive")
    buffer = Buffer(raw, dtype, sides, device)
    if buffer.nbytes > nbytes:
        raise ArgumentError(
            f"{dtype} of shape {buffer.shape} needs {buffer.nbytes} bytes, the buffer has {nbytes}"
        )
    return buffer


async def download(device: Device, buffer: Any) -> Any:
    """A buffer's content as `host_view` gives it. `ArgumentError` for what cannot be read."""
    if not isinstance(buffer, Buffer) or buffer.handle is None:
        raise ArgumentError("download takes a buffer of this tuner that was not destroyed")
    if buffer.owner is not device:
        raise ArgumentError("this buffer lives on another device; ask the tuner that made it")
    if not can_be_read(buffer.handle):
        raise ArgumentError(
            "this buffer cannot be read: it was created without COPY_SRC, which your own buffers "
            "need to be downloaded"
        )
    raw = await device.read(buffer.handle, padded(buffer.nbytes))
    return host_view(raw[: buffer.nbytes], buffer.dtype, buffer.shape)
