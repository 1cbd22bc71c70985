"""The arguments of one tune: candidates run on clones, so that a tune changes nothing of the
caller's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from webtune.errors import ArgumentError, LaunchError, UsageError
from webtune.gpu.base import Copy, Device, can_be_read
from webtune.kernel.arguments import Argument, Buffer
from webtune.kernel.options import call_option
from webtune.measure.bench_candidate import WrittenArgument
from webtune.tuning.call import Call
from webtune.tuning.programs import Recording
from webtune.tuning.transfer import padded


class Clones:
    """The arguments of `call` (or those of its kernel's `inputs=`), with clones in place of the
    buffers that candidates write, or of all buffers where `everything`, so that the caller may go
    on using its own meanwhile. `written` describes the clones that are written.

    Raises `ArgumentError` and `UsageError` for what cannot be cloned. Call `free` at the end, also
    when this raised.
    """

    def __init__(self, device: Device, call: Call, *, everything: bool) -> None:
        self._device = device
        self._kernel = call.kernel
        self._given = call.args
        self._handles: list[Any] = []
        self._copies: list[Copy] = []
        self._everything = everything
        self.args: tuple[Argument, ...] = ()
        self.written: list[WrittenArgument] = []

    def make(self) -> None:
        """Create and fill the clones."""
        given = self._inputs()
        written = set(self._kernel.written(given))
        args: list[Argument] = list(given)
        cloned = [
            (index, arg)
            for index, arg in enumerate(given)
            if isinstance(arg, Buffer) and (index in written or self._everything)
        ]
        self._refuse_unreadable(cloned)
        for index, arg in cloned:
            args[index] = self._clone(index, arg, index in written)
        self._fill()
        self.args = tuple(args)

    def _inputs(self) -> tuple[Argument, ...]:
        kernel = self._kernel
        if kernel.inputs is None:
            return self._given
        made = call_option(kernel.name, "inputs", kernel.inputs, *self._given)
        if not isinstance(made, list | tuple):
            raise UsageError(
                f"{kernel.name}: inputs= returned {made!r}; return a list with one argument "
                "for each of the kernel's"
            )
        try:
            return kernel.bind(made, self._device)
        except ArgumentError as error:
            reason = str(error).removeprefix(f"{kernel.name}: ")
            raise ArgumentError(
                f"{kernel.name}: inputs= returned what does not fit: {reason}"
            ) from error

    def _clone(self, index: int, arg: Buffer, written: bool) -> Buffer:
        name = self._kernel.argument_name(index)
        if arg.handle is None:
            raise ArgumentError(f"{self._kernel.name}: {name} was destroyed before the tune began")
        nbytes = padded(arg.nbytes)
        work = self._buffer(nbytes, f"tune {name}")
        self._copies.append(Copy(arg.handle, work, nbytes))
        if written:
            restore = None
            if name in self._kernel.restore:
                pristine = self._buffer(nbytes, f"pristine {name}")
                self._copies.append(Copy(arg.handle, pristine, nbytes))
                restore = Copy(pristine, work, nbytes)
            self.written.append(
                WrittenArgument(name, index, work, arg.nbytes, arg.dtype, arg.shape, restore)
            )
        return Buffer(work, arg.dtype, arg.shape, self._device)

    def _buffer(self, nbytes: int, label: str) -> Any:
        handle = self._device.create_buffer(nbytes, label=label)
        self._handles.append(handle)
        return handle

    def _fill(self) -> None:
        try:
            if self._copies:
                self._device.copy(self._copies)
        except LaunchError as error:
            names = ", ".join(argument.name for argument in self.written) or "its arguments"
            raise ArgumentError(f"{self._not_copied(names)} ({error})") from error

    def _refuse_unreadable(self, cloned: Sequence[tuple[int, Buffer]]) -> None:
        closed = [
            self._kernel.argument_name(index)
            for index, arg in cloned
            if arg.handle is not None and not can_be_read(arg.handle)
        ]
        if closed:
            raise ArgumentError(self._not_copied(", ".join(closed)))

    def _not_copied(self, names: str) -> str:
        return (
            f"{self._kernel.name}: a tune runs on copies, and {names} could not be copied: create "
            "your own buffers with COPY_SRC, or give inputs="
        )

    def strays(self, recording: Recording) -> Iterator[Any]:
        """The buffers that a recording writes which are neither clones nor its own scratch."""
        free = recording.handles | {id(handle) for handle in self._handles}
        for dispatch in recording.dispatches:
            for binding in dispatch.bindings:
                if binding.kind == "storage" and id(binding.handle) not in free:
                    yield binding.handle

    def name_of(self, handle: Any) -> str | None:
        """The name of the caller's argument that lies in a buffer, or None."""
        for args in (self._given, self.args):
            for index, arg in enumerate(args):
                if isinstance(arg, Buffer) and arg.handle is handle:
                    return self._kernel.argument_name(index)
        return None

    def free(self) -> None:
        """Destroy the clones."""
        for handle in self._handles:
            self._device.destroy_buffer(handle)
        self._handles.clear()
