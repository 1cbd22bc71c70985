"""Data in and out of a device, with what can be wrong told at the call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from webtune.errors import ArgumentError, TunerClosed, UsageError
from webtune.gpu.base import can_be_read
from webtune.kernel.arguments import Buffer, as_host_array, dtype_bytes, host_view
from webtune.strategies.drive import complete
from webtune.tuning.context import Context
from webtune.tuning.programs import ProgramCache


def padded(nbytes: int) -> int:
    """Bytes rounded up to the 4 that WebGPU copies in."""
    return -(-nbytes // 4) * 4


def _sides(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class BufferOwner:
    """The part of a tuner that makes buffers and moves data."""

    def __init__(self, context: Context, programs: ProgramCache) -> None:
        self._context = context
        self._programs = programs
        self._closed = False

    def upload(self, data: Any) -> Buffer:
        """A device buffer with a copy of `data`, which is anything with the buffer protocol, such
        as a numpy array or `array.array`. It has the dtype and the shape of the data.

        Raises `ArgumentError` for other things, and for an empty array.
        """
        self._ensure_open()
        array = as_host_array(data)
        if array is None:
            raise ArgumentError(
                "upload takes anything with the buffer protocol, such as a numpy array or "
                f"array.array; a {type(data).__name__} has none"
            )
        if array.nbytes == 0:
            raise ArgumentError(
                "upload was given an empty array; a buffer needs at least one element"
            )
        buffer = self.empty(array.shape or (1,), array.dtype)
        short = padded(array.nbytes) - array.nbytes
        content = memoryview(bytes(array.data) + bytes(short)) if short else array.data
        self._context.device.write(buffer.handle, content)
        return buffer

    def empty(self, shape: int | Sequence[int], dtype: str = "f32") -> Buffer:
        """A zeroed device buffer of `shape` elements of `dtype`. Raises `ArgumentError` for a shape
        without elements, or of more bytes than the device allows."""
        self._ensure_open()
        sides = _sides(shape)
        nbytes = dtype_bytes(dtype) * math.prod(sides)
        if nbytes <= 0 or min(sides, default=1) <= 0:
            raise ArgumentError(f"a buffer of shape {sides} holds nothing; sides must be positive")
        device = self._context.device
        most = device.limits.get("maxBufferSize")
        if most is not None and nbytes > most:
            raise ArgumentError(
                f"{nbytes} bytes are more than the device's maxBufferSize of {most}; split the data"
            )
        handle = device.create_buffer(padded(nbytes), label="webtune data")
        return Buffer(handle, dtype, sides, device, self._free)

    def wrap(self, raw: Any, dtype: str, shape: int | Sequence[int] | None = None) -> Buffer:
        """Your own GPU buffer as an argument with a dtype and a shape (default: all of it). It
        stays yours to destroy. Raises `ArgumentError` where it is no buffer of this device, or
        smaller than the shape."""
        self._ensure_open()
        nbytes = self._context.device.adopt(raw)
        if nbytes is None:
            raise ArgumentError(f"a {type(raw).__name__} is no buffer of this device")
        sides = (nbytes // dtype_bytes(dtype),) if shape is None else _sides(shape)
        if min(sides, default=1) <= 0:
            raise ArgumentError(f"a view of shape {sides} holds nothing; sides must be positive")
        buffer = Buffer(raw, dtype, sides, self._context.device)
        if buffer.nbytes > nbytes:
            raise ArgumentError(
                f"{dtype} of shape {buffer.shape} needs {buffer.nbytes} bytes, the buffer has "
                f"{nbytes}"
            )
        return buffer

    def download(self, buffer: Buffer) -> Any:
        """A buffer's content: a numpy array of its shape where numpy is installed, else a
        memoryview of its elements. Raises `ArgumentError` for what cannot be read, and `UsageError`
        on a host that must not wait."""
        self._must_block("download")
        return complete(self.download_async(buffer))

    async def download_async(self, buffer: Buffer) -> Any:
        """The same, awaiting."""
        self._ensure_open()
        device = self._context.device
        if not isinstance(buffer, Buffer) or buffer.handle is None:
            raise ArgumentError("download takes a buffer of this tuner that was not destroyed")
        if buffer.owner is not device:
            raise ArgumentError("this buffer lives on another device; ask the tuner that made it")
        if not can_be_read(buffer.handle):
            raise ArgumentError(
                "this buffer cannot be read: it was created without COPY_SRC, which your own "
                "buffers need to be downloaded"
            )
        raw = await device.read(buffer.handle, padded(buffer.nbytes))
        return host_view(raw[: buffer.nbytes], buffer.dtype, buffer.shape)

    def _free(self, buffer: Buffer) -> None:
        self._programs.forget(buffer=buffer)
        handle, buffer.handle = buffer.handle, None
        self._context.device.destroy_buffer(handle)

    def _ensure_open(self) -> None:
        if self._closed:
            raise TunerClosed("this tuner is closed; open another with open_tuner()")

    def _must_block(self, what: str) -> None:
        self._ensure_open()
        if not self._context.host.blocking:
            raise UsageError(f"{what}() would hold the page; use `await tuner.{what}_async(…)`")
