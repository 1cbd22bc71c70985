"""From a candidate and a caller's arguments to a program, once; afterwards a dictionary look-up."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from webtune.errors import DeviceLost, LaunchError, Reject, TunerClosed, WebtuneError
from webtune.gpu.base import Device, Dispatch, Program
from webtune.kernel.arguments import Argument, Buffer, HostArray, dtype_bytes
from webtune.kernel.candidates import Candidate
from webtune.kernel.recorder import Recorder

__all__ = ["ProgramCache", "Recording"]

_PROGRAMS = 128
_UNIFORMS = 256
_HOST_BYTES = 64 << 20
"""Kept of host data at most, on the device and beside programs: a caller may pass other data in
every call."""
_AS_THEY_ARE = (Reject, LaunchError, DeviceLost, TunerClosed)

Nested = Callable[..., "Recording"]
"""Records the candidate of another kernel: `nested(kernel, *args)`."""


class Recording:
    """A candidate's dispatches on certain arguments, with the scratch memory that they use.

    `inner` are the candidates of other kernels that it runs; each of them `still` says whether
    it is what would be run today.
    """

    __slots__ = ("_device", "_still", "dispatches", "inner", "scratch")

    def __init__(
        self,
        device: Device,
        dispatches: tuple[Dispatch, ...],
        scratch: tuple[Buffer, ...],
        inner: tuple[Recording, ...] = (),
    ) -> None:
        self._device = device
        self._still: Callable[[], bool] | None = None
        self.dispatches = dispatches
        self.scratch = scratch
        self.inner = inner

    @property
    def nested(self) -> bool:
        """Whether it runs other kernels."""
        return bool(self.inner)

    @property
    def handles(self) -> set[int]:
        """Ids of the handles of all its scratch memory."""
        own = {id(buffer.handle) for buffer in self.scratch}
        return own.union(*(each.handles for each in self.inner))

    def valid_while(self, still: Callable[[], bool]) -> Recording:
        """The same, good for as long as `still()`."""
        self._still = still
        return self

    @property
    def valid(self) -> bool:
        """Whether every pick in it is still the one to run."""
        own = self._still is None or self._still()
        return own and all(each.valid for each in self.inner)

    def free(self) -> None:
        """Give the scratch memory back."""
        for buffer in self.scratch:
            self._device.destroy_buffer(buffer.handle)
        self.scratch = ()
        for each in self.inner:
            each.free()


class ProgramCache:
    """Records candidates and keeps the programs of those that run. Safe for threads."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._programs: OrderedDict[tuple[Any, ...], tuple[Program, Recording, tuple[Any, ...]]] = (
            OrderedDict()
        )
        self._uniforms: OrderedDict[tuple[Any, ...], Buffer] = OrderedDict()
        self._program_bytes = self._uniform_bytes = 0

    def record(
        self,
        candidate: Candidate,
        args: tuple[Argument, ...],
        nested: Nested | None = None,
    ) -> Recording:
        """Run the candidate's function. Raises `Reject` when it does not serve these inputs or its
        function raises, `LaunchError` and `DeviceLost` as they are."""
        lacking = candidate.requires - self._device.features
        if lacking:
            raise Reject(f"the device does not grant {', '.join(sorted(lacking))}")
        scratch: list[Buffer] = []

        def allocate(shape: Sequence[int], dtype: str) -> Buffer:
            nbytes = math.prod(shape) * dtype_bytes(dtype)
            most = self._device.limits.get("maxBufferSize", nbytes)
            if nbytes > most:
                raise Reject(f"scratch of {nbytes} bytes is more than the device's {most}")
            handle = self._device.create_buffer(max(nbytes, 4), label=f"scratch {candidate.name}")
            scratch.append(Buffer(handle, dtype, shape, self._device))
            return scratch[-1]

        recorder = Recorder(
            label=candidate.name,
            features=self._device.features,
            limits=self._device.limits,
            allocate=allocate,
            uniform=self._uniform,
            nested=nested,
        )
        try:
            candidate.record(recorder, args)
            if not recorder.dispatches:
                raise Reject("it recorded no dispatch")
        except BaseException as error:
            Recording(self._device, (), tuple(scratch), tuple(recorder.inner)).free()
            if isinstance(error, _AS_THEY_ARE) or not isinstance(error, Exception):
                raise
            text = str(error).removeprefix(f"{candidate.name}: ")
            known = isinstance(error, WebtuneError)
            raise Reject(text if known else f"it raised {type(error).__name__}: {text}") from error
        return Recording(self._device, recorder.dispatches, tuple(scratch), tuple(recorder.inner))

    def program(
        self,
        candidate: Candidate,
        args: tuple[Argument, ...],
        nested: Nested | None = None,
    ) -> Program:
        """The candidate's program on these arguments, made now if it is not kept. Raises
        `LaunchError`, `Reject`, `DeviceLost`."""
        # By the object and not by its id: equal ids are for the store, where nothing else is.
        place = (candidate, *(_identity(arg) for arg in args))
        with self._lock:
            kept = self._programs.get(place)
            if kept is not None:
                if kept[1].valid:
                    self._programs.move_to_end(place)
                    return kept[0]
                self._drop(place)
        # Outside the lock: a candidate that runs other kernels may have them tuned.
        recorded = self.record(candidate, args, nested)
        try:
            program = self._device.compile_now(recorded.dispatches)
        except BaseException:
            recorded.free()
            raise
        with self._lock:
            if place in self._programs:  # another thread was faster
                self._device.release(program)
                recorded.free()
                return self._programs[place][0]
            # The arguments are kept, so that their ids stay theirs.
            self._programs[place] = (program, recorded, args)
            self._program_bytes += _host_bytes(args)
            while _too_much(len(self._programs), _PROGRAMS, self._program_bytes):
                self._drop(next(iter(self._programs)))
        return program

    def forget(self, buffer: Buffer | None = None, candidate: Candidate | None = None) -> None:
        """Drop the programs of a buffer or a candidate; all, when neither is given."""
        with self._lock:
            for place in list(self._programs):
                held = {part[0] for part in place[1:]}
                if (buffer is None or id(buffer.handle) in held) and (
                    candidate is None or candidate is place[0]
                ):
                    self._drop(place)

    def _drop(self, place: tuple[Any, ...]) -> None:
        program, recorded, args = self._programs.pop(place)
        self._program_bytes -= _host_bytes(args)
        self._device.release(program)
        recorded.free()

    def _uniform(self, data: HostArray, kind: str) -> Buffer:
        place = (kind, *data.form)
        with self._lock:
            kept = self._uniforms.get(place)
            if kept is None:
                handle = self._device.create_buffer(
                    max(data.nbytes, 4), uniform=kind == "uniform", label="constants"
                )
                padded = bytes(data.data) + bytes(-data.nbytes % 4)
                self._device.write(handle, memoryview(padded))
                kept = self._uniforms[place] = Buffer(handle, data.dtype, data.shape, self._device)
                self._uniform_bytes += data.nbytes
                while _too_much(len(self._uniforms), _UNIFORMS, self._uniform_bytes):
                    _, dropped = self._uniforms.popitem(last=False)
                    self._uniform_bytes -= dropped.nbytes  # programs may hold it: no destroy
            else:
                self._uniforms.move_to_end(place)
            return kept


def _too_much(count: int, most: int, nbytes: int) -> bool:
    """Whether the oldest of what is kept must go. The newest stays, however large it is."""
    return count > 1 and (count > most or nbytes > _HOST_BYTES)


def _host_bytes(args: tuple[Argument, ...]) -> int:
    return sum(arg.nbytes for arg in args if isinstance(arg, HostArray))


def _identity(arg: Argument) -> Any:
    # Two views of one buffer are two arguments: workgroups and bound sizes follow the view.
    return (id(arg.handle) if isinstance(arg, Buffer) else None, arg.form)
