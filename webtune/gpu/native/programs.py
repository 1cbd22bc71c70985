"""Content in, pipeline out: the same WGSL, entry, constants and bindings compile once a device."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from webtune.errors import LaunchError
from webtune.gpu.base import Binding, Dispatch
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
    group_key: Hashable
    handles: tuple[Any, ...]
    workgroups: tuple[int, int, int]


class NativeProgram:
    """A compiled sequence of dispatches on one device."""

    def __init__(self, owner: object, steps: tuple[Step, ...], label: str) -> None:
        self.owner = owner
        self.steps = steps
        self.handles = tuple(handle for step in steps for handle in step.handles)
        self._label = label
        self.released = False

    @property
    def label(self) -> str:
        return self._label

    @property
    def failure(self) -> str | None:
        """Always None: here a refusal is raised by `compile`."""
        return None

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


class _Once:
    """A cache whose values are made once, outside the lock, also when several threads ask.

    It keeps the `most` that were asked for last, and finds every other that something still uses.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, Any] = {}
        self._alive: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
        self._making: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
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
        with self._lock:
            self._kept.clear()
            self._alive.clear()

    def __len__(self) -> int:
        return len(self._alive)


class Programs:
    """Caches of one device: modules by source, layouts by binding kinds, pipelines by content,
    bind groups by buffers. Bind groups are counted, so a released program frees them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.modules, self.layouts = _Once(_KEPT_MODULES), _Once(_KEPT_MODULES)
        self.pipelines = _Once(_KEPT_PIPELINES)
        self._groups: dict[Hashable, tuple[Any, int]] = {}
        self._groups_lock = threading.Lock()

    def build(self, owner: object, dispatches: Sequence[Dispatch]) -> NativeProgram:
        """Compile everything and submit it once with no workgroups, so that what the validator
        refuses only when a pass ends (sizes of bindings) is refused here. It is submitted because
        wgpu never frees what was encoded and then dropped."""
        steps: list[Step] = []
        label = dispatches[0].label if dispatches else ""
        program = NativeProgram(owner, (), label)
        try:
            for dispatch in dispatches:
                self._check_workgroups(dispatch.workgroups)
                steps.append(self._step(dispatch))
            program = NativeProgram(owner, tuple(steps), label)
            with self._link.busy:
                self._link.check_handles(program.handles)
                with self._link.guard() as raw:
                    encoder = raw.create_command_encoder()
                    compute_pass = encoder.begin_compute_pass()
                    program.rehearse(compute_pass)
                    compute_pass.end()
                self._link.submit(encoder)
        except BaseException:
            self._release_steps(steps)
            raise
        return program

    def release(self, program: NativeProgram) -> None:
        if not program.released:
            program.released = True
            self._release_steps(program.steps)

    def clear(self) -> None:
        for cache in (self.modules, self.layouts, self.pipelines):
            cache.clear()
        with self._groups_lock:
            self._groups.clear()

    @property
    def group_count(self) -> int:
        """How many bind groups are alive."""
        return len(self._groups)

    def _step(self, dispatch: Dispatch) -> Step:
        kinds = tuple((binding.index, binding.kind) for binding in dispatch.bindings)
        layout = self.layouts.get(kinds, lambda: self._layout(kinds))
        key = (dispatch.source, dispatch.entry, dispatch.constants, kinds)
        pipeline = self.pipelines.get(key, lambda: self._pipeline(dispatch, layout.pipeline))
        group, group_key = self._group(kinds, layout.bind, dispatch.bindings)
        handles = tuple(binding.handle for binding in dispatch.bindings)
        return Step(pipeline, group, group_key, handles, dispatch.workgroups)

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

    def _group(
        self, kinds: Hashable, layout: Any, bindings: Sequence[Binding]
    ) -> tuple[Any, Hashable]:
        bound = tuple((b.index, id(b.handle), _bound_bytes(b)) for b in bindings)
        key = (kinds, bound)
        with self._groups_lock:
            found = self._groups.get(key)
            if found is None:
                entries = [
                    {
                        "binding": b.index,
                        "resource": {"buffer": b.handle, "offset": 0, "size": _bound_bytes(b)},
                    }
                    for b in bindings
                ]
                with self._link.guard() as raw:
                    # The handles stay referenced, so no id is reused while its key lives.
                    made = raw.create_bind_group(layout=layout, entries=entries)
                found = (_Kept(made, tuple(b.handle for b in bindings)), 0)
            self._groups[key] = (found[0], found[1] + 1)
        return found[0].group, key

    def _release_steps(self, steps: Sequence[Step]) -> None:
        with self._groups_lock:
            for step in steps:
                found = self._groups.get(step.group_key)
                if found is None:
                    continue
                if found[1] <= 1:
                    del self._groups[step.group_key]
                else:
                    self._groups[step.group_key] = (found[0], found[1] - 1)


@dataclass(frozen=True, eq=False)
class _Layout:
    bind: Any
    pipeline: Any


@dataclass(frozen=True, slots=True)
class _Kept:
    group: Any
    handles: tuple[Any, ...]


def _bound_bytes(binding: Binding) -> int:
    # A uniform struct is padded to 16 bytes by WGSL, whatever the host array's length is.
    step = 16 if binding.kind == "uniform" else 4
    size_bytes: int = binding.handle.size
    return min(size_bytes, max(step, -(-binding.nbytes // step) * step))
