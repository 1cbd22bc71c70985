"""A kernel: one WGSL source and a space of parameters make a set of candidates.

The source is read when the kernel is made, so a mistake shows where it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from webtune.errors import ArgumentError, KernelError
from webtune.fingerprint.content import content_of
from webtune.fingerprint.digests import candidate_id, digest
from webtune.gpu.base import Device
from webtune.kernel.arguments import Argument, Buffer
from webtune.kernel.candidates import (
    Candidate,
    Group,
    Priority,
    TunableSet,
    attached_groups,
    called,
    feature_names,
)
from webtune.kernel.recorder import Recorder, check_argument
from webtune.kernel.space import Params, Space, grid
from webtune.kernel.wgsl import Interface, interface
from webtune.kernel.work import Work

__all__ = ["Kernel"]


class Kernel(TunableSet):
    """WGSL and its parameters.

    - `source`: WGSL, or a function of the parameters that gives it (for what override constants
      cannot express: types, unrolling, `enable`).
    - `params`: a space from `grid`. Each parameter is an override constant of the same name;
      those that only `workgroups` or a source function reads are named in `launch_params`.
    - `workgroups(params, *args)`: one to three counts. `constants(params, *args)`: further override
      constants, for what the arguments decide.
    - `entry`: the compute entry point. `requires`: features, or a function of the parameters.
    - `repeat=False`: a sample must not run the kernel more than once in a row.
    - `work(params, *args)`: a `Work`. It is asked for every point of the space, and the least of
      the answers counts, as what any candidate must do; None for a point is not known.
    The rest is `TunableSet`'s, whose functions (`key`, `inputs`, `evict`, the check's reference)
    get the arguments without parameters. Raises `KernelError` or `SpaceError` at once for what
    does not fit.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str | Callable[[Params], str],
        workgroups: Callable[..., int | Sequence[int]] | int | Sequence[int],
        params: Space | None = None,
        entry: str = "main",
        constants: Callable[..., Mapping[str, float | int | bool]] | None = None,
        launch_params: Sequence[str] = (),
        requires: Iterable[str] | Callable[[Params], Iterable[str]] = (),
        groups: Mapping[Group, Priority] | None = None,
        repeat: bool = True,
        restore: Sequence[str] = (),
        key: Callable[..., Any] | None = None,
        check: Any = None,
        work: Callable[..., Work | None] | None = None,
        inputs: Callable[..., Sequence[Any]] | None = None,
        evict: Callable[..., None] | None = None,
        short_circuit: bool = True,
    ) -> None:
        self.name = name  # errors below begin with it
        self.params = params if params is not None else grid()
        if not isinstance(self.params, Space):
            raise KernelError(f"{name}: params= takes wt.grid(…), not {type(params).__name__}")
        first = next(iter(self.params), None)
        if first is None:
            raise KernelError(f"{name}: the parameter space is empty")
        self.source = source
        self.entry = entry
        self._workgroups = workgroups
        self._constants = constants
        self._launch_params = frozenset(launch_params)
        self._requires = requires
        self._repeat = repeat
        self._groups = attached_groups(name, groups)
        shader = interface(self._text(first))
        self._check_shader(name, shader)
        self._bindings = shader.bindings
        super().__init__(
            name,
            arguments=[binding.name for binding in shader.bindings],
            outputs=[binding.name for binding in shader.bindings if binding.written],
            restore=restore,
            key=key,
            check=check,
            work=work,
            inputs=inputs,
            evict=evict,
            short_circuit=short_circuit,
        )
        unwritten = [item for item in self.restore if item not in (self.outputs or ())]
        if unwritten:
            raise KernelError(
                f"{name}: restore= names {', '.join(unwritten)}, which the shader only reads"
            )
        self._append(self._build)

    def _text(self, params: Params) -> str:
        given: Any = self.source
        if callable(given):
            given = called(self.name, "source", given, params)
        if not isinstance(given, str) or not given.strip():
            raise KernelError(f"{self.name}: the source for ({params}) is not WGSL text: {given!r}")
        return given

    def _check_shader(self, name: str, shader: Interface) -> None:
        if not shader.entries:
            raise KernelError(f"{name}: the source has no @compute function")
        if self.entry not in shader.entries:
            raise KernelError(
                f"{name}: no compute entry point {self.entry!r}; "
                f"the shader has {', '.join(shader.entries)}"
            )
        overrides = {override.name for override in shader.overrides}
        if not callable(self.source):
            stray = [
                axis
                for axis in self.params.names
                if axis not in overrides and axis not in self._launch_params
            ]
            if stray:
                raise KernelError(
                    f"{name}: the shader has no override for the parameter {', '.join(stray)}; "
                    f"declare `override {stray[0]}: u32;`, or name it in launch_params= if only "
                    "workgroups= reads it"
                )
        if self._constants is None:
            unset = sorted(shader.required - set(self.params.names))
            if unset:
                raise KernelError(
                    f"{name}: nobody sets the override {', '.join(unset)}; add it to params=, "
                    "return it from constants=, or give it a default in the shader"
                )

    def dtype_hint(self, place: int) -> str:
        """The element type that the shader declares."""
        return self._bindings[place].element or "u32"

    def bind(self, args: Sequence[Any], device: Device) -> tuple[Argument, ...]:
        """The caller's arguments, checked against the shader's declarations. `ArgumentError`."""
        bound = super().bind(args, device)
        written: dict[int, str] = {}
        for declaration, value in zip(self._bindings, bound, strict=True):
            check_argument(self.name, declaration, value, device.limits)
            if declaration.written and isinstance(value, Buffer):
                written[id(value.handle)] = declaration.name
        for declaration, value in zip(self._bindings, bound, strict=True):
            other = written.get(id(value.handle)) if isinstance(value, Buffer) else None
            if other not in (None, declaration.name):
                raise ArgumentError(
                    f"{self.name}: {declaration.name} and {other} are the same buffer, which "
                    "WebGPU does not allow where one is written; pass two"
                )
        return bound

    def work_of(self, args: Sequence[Argument]) -> Work | None:
        """The least work over all points, or None when one is not told. `UsageError` when `work=`
        raises or returns something else."""
        work = self._work
        if work is None:
            return None
        flops, moved_bytes = [], []
        for one in self.candidates:
            told = self._told(called(self.name, "work", work, one.params, *args))
            if told is None:
                return None
            flops.append(told.flops)
            moved_bytes.append(told.bytes)
        return Work(flops=min(flops), bytes=min(moved_bytes))

    def _build(self) -> Iterator[Candidate]:
        workgroups = self._workgroups
        # Long texts are digested once, and not once a candidate.
        launch = digest(
            [
                content_of(workgroups) if callable(workgroups) else repr(workgroups),
                content_of(self._constants),
                self._repeat,
            ]
        )
        texts: dict[str, str] = {}
        for params in self.params:
            needs: Any = self._requires
            if callable(needs):
                needs = called(self.name, "requires", needs, params)
            text = self._text(params)
            if text not in texts:
                texts[text] = digest(text)
            yield Candidate(
                name=str(params) or self.name,
                params=params,
                id=candidate_id(
                    self.name,
                    wgsl=[texts[text]],
                    params=dict(params),
                    entries=[self.entry],
                    extra=launch,
                ),
                record=self._recording(params),
                groups=self._groups,
                requires=feature_names(self.name, needs),
                repeat=self._repeat,
            )

    def _recording(self, params: Params) -> Callable[[Recorder, tuple[Argument, ...]], None]:
        def record(recorder: Recorder, args: tuple[Argument, ...]) -> None:
            source = self._text(params)
            overrides = {override.name for override in interface(source).overrides}
            constants = {name: value for name, value in params.items() if name in overrides}
            if self._constants is not None:
                more: Any = called("", "constants", self._constants, params, *args)
                if not isinstance(more, Mapping):
                    raise KernelError(
                        f"constants= returned {more!r}; return a dict of values by override"
                    )
                twice = [name for name in more if constants.get(name, more[name]) != more[name]]
                if twice:
                    raise KernelError(
                        f"constants= sets {', '.join(twice)}, which params= has already"
                    )
                constants |= more
            workgroups = self._workgroups
            counts = workgroups
            if callable(workgroups):
                counts = called("", "workgroups", workgroups, params, *args)
            recorder.dispatch(
                source,
                args,
                counts,  # type: ignore[arg-type]
                entry=self.entry,
                constants=constants,  # type: ignore[arg-type]
            )

        return record
