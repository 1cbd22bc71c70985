"""From a candidate and a caller's arguments to a program, once; afterwards a dictionary look-up."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from webtune.buffers import Argument, Buffer, HostArray, dtype_bytes
from webtune.errors import Reject
from webtune.gpu.base import Device, Dispatch, Program
from webtune.recorder import Recorder
from webtune.tunable import Tunable

__all__ = ["Launcher", "Recorded"]

_PROGRAMS = 128
_UNIFORMS = 256


class Recorded:
    """A candidate's dispatches on certain arguments, with the scratch memory that they use."""

    __slots__ = ("_device", "dispatches", "nested", "scratch")

    def __init__(
        self,
        device: Device,
        dispatches: tuple[Dispatch, ...],
        scratch: tuple[Buffer, ...],
        nested: bool = False,
    ) -> None:
        self._device = device
        self.nested = nested
        self.dispatches = dispatches
        self.scratch = scratch

    def free(self) -> None:
        """Give the scratch memory back."""
        for buffer in self.scratch:
            self._device.destroy_buffer(buffer.handle)
        self.scratch = ()


class Launcher:
    """Records candidates and keeps the programs of those that run. Safe for threads."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._programs: OrderedDict[tuple[Any, ...], tuple[Program, Recorded, tuple[Any, ...]]] = (
            OrderedDict()
        )
        self._uniforms: OrderedDict[tuple[str, bytes], Buffer] = OrderedDict()

    def record(
        self,
        tunable: Tunable,
        args: tuple[Argument, ...],
        nested: Callable[..., Sequence[Dispatch]] | None = None,
    ) -> Recorded:
        """Run the candidate's function. Raises `Reject` when it does not serve these inputs, and
        what the function raises."""
        lacking = tunable.requires - self._device.features
        if lacking:
            raise Reject(f"the device does not grant {', '.join(sorted(lacking))}")
        scratch: list[Buffer] = []

        def allocate(shape: Sequence[int], dtype: str) -> Buffer:
            nbytes = math.prod(shape) * dtype_bytes(dtype)
            most = self._device.limits.get("maxBufferSize", nbytes)
            if nbytes > most:
                raise Reject(f"scratch of {nbytes} bytes is more than the device's {most}")
            handle = self._device.create_buffer(max(nbytes, 4), label=f"scratch {tunable.name}")
            scratch.append(Buffer(handle, dtype, shape, self._device))
            return scratch[-1]

        recorder = Recorder(
            label=tunable.name,
            features=self._device.features,
            limits=self._device.limits,
            allocate=allocate,
            uniform=self._uniform,
            nested=nested,
        )
        try:
            tunable.record(recorder, args)
            if not recorder.dispatches:
                raise Reject("it recorded no dispatch")
        except BaseException:
            for buffer in scratch:
                self._device.destroy_buffer(buffer.handle)
            raise
        return Recorded(
            self._device, recorder.dispatches, tuple(scratch), nested=recorder.ran_others
        )

    def program(
        self,
        tunable: Tunable,
        args: tuple[Argument, ...],
        nested: Callable[..., Sequence[Dispatch]] | None = None,
    ) -> Program:
        """The candidate's program on these arguments, made now if it is not kept. Raises
        `LaunchError`, `Reject`, and what the candidate's function raises."""
        place = (tunable.id, *(_identity(arg) for arg in args))
        with self._lock:
            kept = self._programs.get(place)
            if kept is not None:
                self._programs.move_to_end(place)
                return kept[0]
            recorded = self.record(tunable, args, nested)
            try:
                program = self._device.compile_now(recorded.dispatches)
            except BaseException:
                recorded.free()
                raise
            # What another kernel's pick is part of is not kept: that pick may change.
            if not recorded.nested:
                # The arguments are kept, so that their ids stay theirs.
                self._programs[place] = (program, recorded, args)
                while len(self._programs) > _PROGRAMS:
                    self._drop(next(iter(self._programs)))
            return program

    def forget(self, buffer: Buffer | None = None, tunable: Tunable | None = None) -> None:
        """Drop the programs of a buffer or a candidate; all, when neither is given."""
        with self._lock:
            for place in list(self._programs):
                if (buffer is None or id(buffer.handle) in place[1:]) and (
                    tunable is None or tunable.id == place[0]
                ):
                    self._drop(place)

    def _drop(self, place: tuple[Any, ...]) -> None:
        program, recorded, _ = self._programs.pop(place)
        self._device.release(program)
        recorded.free()

    def _uniform(self, data: HostArray, kind: str) -> Buffer:
        content = bytes(data.data)
        place = (kind, content if len(content) <= 256 else hashlib.sha256(content).digest())
        with self._lock:
            kept = self._uniforms.get(place)
            if kept is None:
                handle = self._device.create_buffer(
                    max(data.nbytes, 4), uniform=kind == "uniform", label="constants"
                )
                padded = content + bytes(-len(content) % 4)
                self._device.write(handle, memoryview(padded))
                kept = self._uniforms[place] = Buffer(handle, data.dtype, data.shape, self._device)
                while len(self._uniforms) > _UNIFORMS:
                    self._uniforms.popitem(last=False)  # programs may still hold it: no destroy
            else:
                self._uniforms.move_to_end(place)
            return kept


def _identity(arg: Argument) -> Any:
    if isinstance(arg, Buffer):
        return id(arg.handle)
    return (arg.dtype, arg.shape, bytes(arg.data))
