"""Compiles dispatches: equal WGSL, entry point, constants and bindings compile once a device."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from webtune.errors import LaunchError
from webtune.gpu.base import Binding, Dispatch, padded_bytes, program_label
from webtune.gpu.native.link import COMPUTE_STAGE, Link

T = TypeVar("T")

_KEPT_MODULES = 64
_KEPT_PIPELINES = 256
_ENABLE_SUBGROUPS = re.compile(r"^[ \t]*enable\s+subgroups\s*;", re.M)


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch with everything resolved."""

    pipeline: Any
    group: Any
    workgroups: tuple[int, int, int]
    handles: tuple[Any, ...]


class NativeProgram:
    """A compiled sequence of dispatches on one device."""

    failure = None
    """A refusal is raised by `compile` here, so none becomes known later."""

    def __init__(self, owner: object, steps: Sequence[Step], label: str) -> None:
        self.owner = owner
        self.label = label
        self.steps = tuple(steps)
        self.handles = tuple(handle for step in steps for handle in step.handles)
        self.released = False

    def release(self) -> None:
        """Let go of the bind groups and buffers."""
        self.released = True
        self.steps = self.handles = ()

    def encode(self, compute_pass: Any, repeat: int = 1) -> None:
        """Record all steps `repeat` times. What is already set is not set again."""
        pipeline = group = None
        for _ in range(repeat):
            for step in self.steps:
                if step.pipeline is not pipeline:
                    pipeline = step.pipeline
                    compute_pass.set_pipeline(pipeline)
                    group = None
                if step.group is not group:
                    group = step.group
                    compute_pass.set_bind_group(0, group)
                compute_pass.dispatch_workgroups(*step.workgroups)

    def rehearse(self, compute_pass: Any) -> None:
        """Record all steps with no workgroups, which runs nothing."""
        for step in self.steps:
            compute_pass.set_pipeline(step.pipeline)
            compute_pass.set_bind_group(0, step.group)
            compute_pass.dispatch_workgroups(0, 0, 0)


class _Cache:
    """Values that are made once, outside the lock, also when several threads ask for the same.

    It keeps the `most` that were asked for last, and finds every other that something still uses.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, Any] = {}
        self._alive: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
        self._making: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of `key`, made by `make` where there is none. What `make` raises is raised."""
        while True:
            with self._lock:
                value: T | None = self._alive.get(key)
                if value is not None:
                    self._keep(key, value)
                    return value
                busy = self._making.get(key)
                if busy is None:
                    self._making[key] = threading.Event()
                    break
            busy.wait()
        try:
            made = make()
            with self._lock:
                self._keep(key, made)
            return made
        finally:
            with self._lock:
                self._making.pop(key).set()

    def _keep(self, key: Hashable, value: Any) -> None:
        self._kept.pop(key, None)
        self._kept[key] = self._alive[key] = value
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def clear(self) -> None:
        """Forget every value."""
        with self._lock:
            self._kept.clear()
            self._alive.clear()

    def __len__(self) -> int:
        return len(self._alive)


class Programs:
    """Makes the programs of one device, and keeps what several of them use."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.modules = _Cache(_KEPT_MODULES)
        self.layouts = _Cache(_KEPT_MODULES)
        self.pipelines = _Cache(_KEPT_PIPELINES)
        self.groups = _Cache(0)

    def build(self, owner: object, dispatches: Sequence[Dispatch]) -> NativeProgram:
        """A program that the device `owner` may run. `LaunchError` with the compiler's message.

        It is submitted once with no workgroups, so that what the validator refuses only when a
        pass ends (sizes of bindings) is refused here; wgpu never frees what was encoded and then
        dropped.
        """
        for dispatch in dispatches:
            self._check_workgroups(dispatch.workgroups)
        steps = [self._step(dispatch) for dispatch in dispatches]
        program = NativeProgram(owner, steps, program_label(dispatches))
        with self._link.busy:
            self._link.check_handles(program.handles)
            with self._link.commands() as encoder:
                compute_pass = encoder.begin_compute_pass()
                program.rehearse(compute_pass)
                compute_pass.end()
        return program

    def clear(self) -> None:
        """Forget all that was compiled."""
        for cache in (self.modules, self.layouts, self.pipelines, self.groups):
            cache.clear()

    def _step(self, dispatch: Dispatch) -> Step:
        kinds = tuple((binding.index, binding.kind) for binding in dispatch.bindings)
        bound = tuple((binding.handle.uid, _bound_bytes(binding)) for binding in dispatch.bindings)
        layout = self.layouts.get(kinds, lambda: self._layout(kinds))
        key = (dispatch.source, dispatch.entry, dispatch.constants, kinds)
        pipeline = self.pipelines.get(key, lambda: self._pipeline(dispatch, layout.pipeline))
        group = self.groups.get((kinds, bound), lambda: self._group(layout, dispatch.bindings))
        handles = tuple(binding.handle for binding in dispatch.bindings)
        return Step(pipeline, group, dispatch.workgroups, handles)

    def _check_workgroups(self, workgroups: tuple[int, int, int]) -> None:
        most = self._link.raw.limits["max-compute-workgroups-per-dimension"]
        if max(workgroups) > most:
            raise LaunchError(
                f"{workgroups} workgroups are more than the device's {most} in a dimension"
            )

    def _layout(self, kinds: tuple[tuple[int, str], ...]) -> _Layout:
        # Derived ("auto") layouts drop bindings that the shader declares and does not use.
        entries = [
            {"binding": index, "visibility": COMPUTE_STAGE, "buffer": {"type": kind}}
            for index, kind in kinds
        ]
        with self._link.guard() as raw:
            bind = raw.create_bind_group_layout(entries=entries)
            return _Layout(bind, raw.create_pipeline_layout(bind_group_layouts=[bind]))

    def _group(self, layout: _Layout, bindings: Sequence[Binding]) -> Any:
        entries = [
            {
                "binding": binding.index,
                "resource": {"buffer": binding.handle, "offset": 0, "size": _bound_bytes(binding)},
            }
            for binding in bindings
        ]
        with self._link.guard() as raw:
            return raw.create_bind_group(layout=layout.bind, entries=entries)

    def _pipeline(self, dispatch: Dispatch, layout: Any) -> Any:
        module = self.modules.get(dispatch.source, lambda: self._module(dispatch.source))
        constants = {name: float(value) for name, value in dispatch.constants}
        compute = {"module": module, "entry_point": dispatch.entry, "constants": constants}
        try:
            with self._link.guard() as raw:
                return raw.create_compute_pipeline(
                    layout=layout, compute=compute, label=dispatch.label
                )
        except LaunchError as error:
            # wgpu-native leaves the reason out when overrides make an entry point invalid.
            if not str(error).rstrip().endswith("is invalid"):
                raise
            raise LaunchError(f"{error} ({self._limits()})") from error

    def _limits(self) -> str:
        limits = self._link.raw.limits
        sizes = "×".join(str(limits[f"max-compute-workgroup-size-{axis}"]) for axis in "xyz")
        return (
            f"a workgroup here has at most {limits['max-compute-invocations-per-workgroup']} "
            f"invocations, {sizes} in size, and "
            f"{limits['max-compute-workgroup-storage-size']} bytes of storage"
        )

    def _module(self, source: str) -> Any:
        try:
            with self._link.guard() as raw:
                return raw.create_shader_module(code=source)
        except LaunchError as error:
            # naga has the subgroup built-ins without the directive, and refuses the directive
            # that WebGPU demands; blanks keep the lines and columns of later messages.
            if "enable-extension" not in str(error) or not _ENABLE_SUBGROUPS.search(source):
                raise
            plain = _ENABLE_SUBGROUPS.sub(lambda match: " " * len(match.group()), source)
            with self._link.guard() as raw:
                return raw.create_shader_module(code=plain)


@dataclass(frozen=True, eq=False)
class _Layout:
    """Layouts of a bind group and of the pipelines that take it."""

    bind: Any
    pipeline: Any


def _bound_bytes(binding: Binding) -> int:
    # A uniform struct is padded to 16 bytes by WGSL, whatever the host array's length is.
    step = 16 if binding.kind == "uniform" else 4
    size_bytes: int = binding.handle.size
    return min(size_bytes, padded_bytes(binding.nbytes, step))
