"""The buffers of a scripted GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webtune.errors import ArgumentError, DeviceLost, LaunchError
from webtune.gpu.base import Copy


class ScriptedBuffer:
    """A buffer of the scripted GPU: `data` is its content."""

    def __init__(self, nbytes: int, label: str = "") -> None:
        self.data = bytearray(-(-max(nbytes, 1) // 4) * 4)
        self.label = label
        self.destroyed = False

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return len(self.data)


class ScriptedMemory:
    """The part of `ScriptedDevice` that makes, fills and frees buffers."""

    def __init__(self) -> None:
        self.lost: str | None = None
        """Why the device is gone, or None."""
        self.buffers: list[ScriptedBuffer] = []
        """Live buffers that `create_buffer` made."""

    def create_buffer(
        self, nbytes: int, *, uniform: bool = False, label: str = ""
    ) -> ScriptedBuffer:
        """A zeroed buffer."""
        self._alive()
        buffer = ScriptedBuffer(nbytes, label)
        self.buffers.append(buffer)
        return buffer

    def adopt(self, raw: Any) -> int | None:
        """The size in bytes of a `ScriptedBuffer` that the caller made, or None for other things.
        Raises `ArgumentError` for one that was destroyed."""
        if not isinstance(raw, ScriptedBuffer):
            return None
        if raw.destroyed:
            raise ArgumentError("this buffer was destroyed; pass a live one")
        return raw.size

    def write(self, handle: ScriptedBuffer, data: memoryview, offset_bytes: int = 0) -> None:
        """Put bytes into a buffer. Raises `ArgumentError` where they do not fit."""
        self._alive()
        raw = memoryview(data).cast("B")
        end = offset_bytes + raw.nbytes
        if end > handle.size:
            raise ArgumentError(
                f"{raw.nbytes} bytes at {offset_bytes} do not fit a buffer of {handle.size}"
            )
        self._ensure_holds(handle, end)
        handle.data[offset_bytes:end] = raw

    def copy(self, copies: Sequence[Copy]) -> None:
        """Make whole-buffer copies."""
        self._alive()
        for copy in copies:
            self._ensure_holds(copy.source, copy.nbytes)
            self._ensure_holds(copy.target, copy.nbytes)
            copy.target.data[: copy.nbytes] = copy.source.data[: copy.nbytes]

    def destroy_buffer(self, handle: ScriptedBuffer) -> None:
        """Free a buffer; its content is gone."""
        if handle in self.buffers:
            self.buffers.remove(handle)
        handle.destroyed = True

    def _alive(self) -> None:
        if self.lost is not None:
            raise DeviceLost(self.lost)

    def _ensure_holds(self, handle: ScriptedBuffer, nbytes: int) -> None:
        if handle.destroyed:
            raise LaunchError(f"buffer {handle.label!r} was destroyed")
        if nbytes > handle.size:
            raise LaunchError(f"{nbytes} bytes asked of a buffer of {handle.size}")
