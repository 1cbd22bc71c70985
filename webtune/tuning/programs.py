"""From a candidate and a caller's arguments to a program, once; afterwards a dictionary look-up."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from webtune.errors import DeviceLost, LaunchError, Reject, TunerClosed, WebtuneError
from webtune.gpu.base import Device, Dispatch, Program
from webtune.kernel.arguments import Argument, Buffer, HostArray, dtype_bytes
from webtune.kernel.candidates import Candidate
from webtune.kernel.recorder import Recorder

_MOST_PROGRAMS = 128
_MOST_UNIFORMS = 256
_MOST_HOST_BYTES = 64 << 20
"""Kept of host data at most, on the device and beside programs: a caller may pass other data in
every call."""
_AS_THEY_ARE = (Reject, LaunchError, DeviceLost, TunerClosed)

Nested = Callable[..., "Recording"]
"""Records the candidate of another kernel: `nested(kernel, *args)`."""


class Recording:
    """A candidate's dispatches on certain arguments, with the scratch memory that they use.

    `inner` are the recorded picks of other kernels that it runs; each is `valid` as long as it is
    what would be run today.
    """

    __slots__ = ("_device", "_unchanged", "dispatches", "inner", "scratch")

    def __init__(
        self,
        device: Device,
        dispatches: tuple[Dispatch, ...],
        scratch: tuple[Buffer, ...],
        inner: tuple[Recording, ...] = (),
    ) -> None:
        self._device = device
        self._unchanged: Callable[[], bool] | None = None
        self.dispatches = dispatches
        self.scratch = scratch
        self.inner = inner

    @property
    def nested(self) -> bool:
        """Whether it runs other kernels."""
        return bool(self.inner)

    @property
    def handles(self) -> set[int]:
        """The ids of the handles of all its scratch memory."""
        own = {id(buffer.handle) for buffer in self.scratch}
        return own.union(*(recording.handles for recording in self.inner))

    def valid_while(self, unchanged: Callable[[], bool]) -> Recording:
        """The same, valid for as long as `unchanged()`."""
        self._unchanged = unchanged
        return self

    @property
    def valid(self) -> bool:
        """Whether every pick in it is still the one to run."""
        own = self._unchanged is None or self._unchanged()
        return own and all(recording.valid for recording in self.inner)

    def free(self) -> None:
        """Give the scratch memory back."""
        for buffer in self.scratch:
            self._device.destroy_buffer(buffer.handle)
        self.scratch = ()
        for recording in self.inner:
            recording.free()


class _Kept(NamedTuple):
    """A program with what it lives on. The arguments are kept, so that their ids stay theirs."""

    program: Program
    recording: Recording
    args: tuple[Argument, ...]


class ProgramCache:
    """Records candidates and keeps the programs of those that run. Safe for threads."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._programs: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
        self._uniforms: OrderedDict[tuple[Any, ...], Buffer] = OrderedDict()
        self._program_bytes = self._uniform_bytes = 0

    def record(
        self, candidate: Candidate, args: tuple[Argument, ...], nested: Nested | None = None
    ) -> Recording:
        """Run the candidate's function. Raises `Reject` when it does not serve these inputs or its
        function raises, `LaunchError` and `DeviceLost` as they are."""
        lacking = candidate.requires - self._device.features
        if lacking:
            raise Reject(f"the device does not grant {', '.join(sorted(lacking))}")
        scratch: list[Buffer] = []

        def allocate(shape: Sequence[int], dtype: str) -> Buffer:
            scratch.append(self._scratch(candidate.name, shape, dtype))
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
            raise _rejection(candidate, error) from error
        return Recording(self._device, recorder.dispatches, tuple(scratch), tuple(recorder.inner))

    def _scratch(self, name: str, shape: Sequence[int], dtype: str) -> Buffer:
        nbytes = math.prod(shape) * dtype_bytes(dtype)
        most = self._device.limits.get("maxBufferSize", nbytes)
        if nbytes > most:
            raise Reject(f"scratch of {nbytes} bytes is more than the device's {most}")
        handle = self._device.create_buffer(max(nbytes, 4), label=f"scratch {name}")
        return Buffer(handle, dtype, shape, self._device)

    def program(
        self, candidate: Candidate, args: tuple[Argument, ...], nested: Nested | None = None
    ) -> Program:
        """The candidate's program on these arguments, made now if it is not kept. Raises
        `LaunchError`, `Reject`, `DeviceLost`."""
        # By the object and not by its id: equal ids are for the store, where nothing else is.
        key = (candidate, *map(_identity, args))
        with self._lock:
            kept = self._programs.get(key)
            if kept is not None:
                if kept.recording.valid:
                    self._programs.move_to_end(key)
                    return kept.program
                self._drop(key)
        # Outside the lock: a candidate that runs other kernels may have them tuned.
        recording = self.record(candidate, args, nested)
        try:
            program = self._device.compile_now(recording.dispatches)
        except BaseException:
            recording.free()
            raise
        with self._lock:
            if key in self._programs:  # another thread was faster
                self._device.release(program)
                recording.free()
                return self._programs[key].program
            self._programs[key] = _Kept(program, recording, args)
            self._program_bytes += _host_bytes(args)
            while _too_much(len(self._programs), _MOST_PROGRAMS, self._program_bytes):
                self._drop(next(iter(self._programs)))
        return program

    def forget(self, buffer: Buffer | None = None, candidate: Candidate | None = None) -> None:
        """Drop the programs of a buffer or a candidate; all, when neither is given."""
        with self._lock:
            for key in list(self._programs):
                handles = {part[0] for part in key[1:]}
                if (buffer is None or id(buffer.handle) in handles) and (
                    candidate is None or candidate is key[0]
                ):
                    self._drop(key)

    def _drop(self, key: tuple[Any, ...]) -> None:
        dropped = self._programs.pop(key)
        self._program_bytes -= _host_bytes(dropped.args)
        self._device.release(dropped.program)
        dropped.recording.free()

    def _uniform(self, data: HostArray, kind: str) -> Buffer:
        key = (kind, *data.form)
        with self._lock:
            kept = self._uniforms.get(key)
            if kept is not None:
                self._uniforms.move_to_end(key)
                return kept
            handle = self._device.create_buffer(
                max(data.nbytes, 4), uniform=kind == "uniform", label="constants"
            )
            content = bytes(data.data) + bytes(-data.nbytes % 4)
            self._device.write(handle, memoryview(content))
            kept = self._uniforms[key] = Buffer(handle, data.dtype, data.shape, self._device)
            self._uniform_bytes += data.nbytes
            while _too_much(len(self._uniforms), _MOST_UNIFORMS, self._uniform_bytes):
                _, dropped = self._uniforms.popitem(last=False)
                self._uniform_bytes -= dropped.nbytes  # programs may hold it: no destroy
            return kept


def _rejection(candidate: Candidate, error: Exception) -> Reject:
    text = str(error).removeprefix(f"{candidate.name}: ")
    ours = isinstance(error, WebtuneError)
    return Reject(text if ours else f"it raised {type(error).__name__}: {text}")


def _too_much(count: int, most: int, nbytes: int) -> bool:
    """Whether the oldest of what is kept must go. The newest stays, however large it is."""
    return count > 1 and (count > most or nbytes > _MOST_HOST_BYTES)


def _host_bytes(args: tuple[Argument, ...]) -> int:
    return sum(arg.nbytes for arg in args if isinstance(arg, HostArray))


def _identity(arg: Argument) -> Any:
    # Two views of one buffer are two arguments: workgroups and bound sizes follow the view.
    return (id(arg.handle) if isinstance(arg, Buffer) else None, arg.form)
