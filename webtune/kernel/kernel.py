"""A kernel: one WGSL source and a space of parameters make a set of candidates.

The source is read when the kernel is made, so a mistake shows where it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack, cast

from webtune.errors import ArgumentError, KernelError
from webtune.fingerprint.content import content_of
from webtune.fingerprint.digests import candidate_id, digest
from webtune.gpu.base import Device
from webtune.kernel.arguments import Argument, Buffer, check_argument
from webtune.kernel.candidates import (
    Candidate,
    Group,
    Priority,
    Record,
    feature_names,
    memberships,
)
from webtune.kernel.options import call_option, check_options
from webtune.kernel.recorder import Constant, Recorder, check_entry, check_required
from webtune.kernel.space import Params, Space, grid
from webtune.kernel.tunable_set import SetOptions, TunableSet
from webtune.kernel.wgsl import Interface, interface
from webtune.kernel.work import Work, checked_work

Workgroups = Callable[..., int | Sequence[int]] | int | Sequence[int]


class KernelOptions(SetOptions, total=False):
    """What a kernel takes by keyword; `Kernel` describes it."""

    entry: str
    constants: Callable[..., Mapping[str, Constant]] | None
    launch_params: Sequence[str]
    requires: Iterable[str] | Callable[[Params], Iterable[str]]
    groups: Mapping[Group, Priority] | None
    repeat: bool


class Kernel(TunableSet):
    """WGSL and its parameters: one candidate for every point of a space.

    - `source`: WGSL, or a function of the parameters that gives it (for what override constants
      cannot express: types, unrolling, `enable`).
    - `workgroups(params, *args)`: one to three counts, or a function that gives them.
    - `params`: a space from `grid`. Each parameter is an override constant of the same name;
      those that only `workgroups` or a source function reads are named in `launch_params`.
    - `constants(params, *args)`: further override constants, for what the arguments decide.
    - `entry`: the compute entry point ("main").
    - `requires`: names of device features, or a function of the parameters that gives them.
    - `groups`: the groups of all its candidates, with their priority inside each.
    - `repeat=False`: a sample must not run the kernel more than once in a row.
    - `work(params, *args)`: a `Work`. It is asked for every point of the space, and the least of
      the answers counts, as what any candidate must do; None for a point is not known.

    `restore`, `key`, `check`, `inputs`, `evict` and `short_circuit` are those of `TunableSet`;
    their functions get the arguments without parameters. Raises `KernelError` or `SpaceError` at
    once for what does not fit.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str | Callable[[Params], str],
        workgroups: Workgroups,
        params: Space | None = None,
        **options: Unpack[KernelOptions],
    ) -> None:
        own = ("source", "workgroups", "params")
        check_options(name, options, {*own, *KernelOptions.__optional_keys__})
        self.name = name  # errors below begin with it
        self.params = params if params is not None else grid()
        if not isinstance(self.params, Space):
            raise KernelError(f"{name}: params= takes wt.grid(…), not {type(params).__name__}")
        self.source = source
        self.workgroups = workgroups
        self.entry = options.get("entry", "main")
        self.constants = options.get("constants")
        self.launch_params = frozenset(options.get("launch_params", ()))
        self.repeat = options.get("repeat", True)
        self._requires = options.get("requires", ())
        self._groups = memberships(name, options.get("groups"))
        shader = self._read()
        self._bindings = shader.bindings
        self._raw_dtypes = [binding.element or "u32" for binding in shader.bindings]
        of_sets = SetOptions.__optional_keys__
        shared = {option: value for option, value in options.items() if option in of_sets}
        super().__init__(
            name,
            arguments=[binding.name for binding in shader.bindings],
            outputs=[binding.name for binding in shader.bindings if binding.written],
            **cast(SetOptions, shared),
        )
        unwritten = [item for item in self.restore if item not in (self.outputs or ())]
        if unwritten:
            raise KernelError(
                f"{name}: restore= names {', '.join(unwritten)}, which the shader only reads"
            )
        self._append(self._build)

    # -- the shader -------------------------------------------------------------------------

    def _read(self) -> Interface:
        """The shader of the first point. `KernelError` where it does not fit the options."""
        first = next(iter(self.params), None)
        if first is None:
            raise KernelError(f"{self.name}: the parameter space is empty")
        shader = interface(self._text(first))
        if not shader.entries:
            raise KernelError(f"{self.name}: the source has no @compute function")
        check_entry(self.name, shader, self.entry)
        params, overrides = self.params.names, {override.name for override in shader.overrides}
        stray = [name for name in params if name not in overrides | self.launch_params]
        if stray and not callable(self.source):
            raise KernelError(
                f"{self.name}: the shader has no override for the parameter {', '.join(stray)}; "
                f"declare `override {stray[0]}: u32;`, or name it in launch_params= if only "
                "workgroups= reads it"
            )
        if self.constants is None:
            check_required(self.name, shader, params)
        return shader

    def _text(self, params: Params) -> str:
        text: Any = self.source
        if callable(text):
            text = call_option(self.name, "source", text, params)
        if not isinstance(text, str) or not text.strip():
            raise KernelError(f"{self.name}: the source for ({params}) is not WGSL text: {text!r}")
        return text

    # -- calls ------------------------------------------------------------------------------

    def bind(self, args: Sequence[Any], device: Device) -> tuple[Argument, ...]:
        """The caller's arguments, checked against the shader's declarations. Raises
        `ArgumentError`."""
        bound = super().bind(args, device)
        written: dict[int, str] = {}
        for declared, argument in zip(self._bindings, bound, strict=True):
            check_argument(self.name, declared, argument, device.limits)
            if declared.written and isinstance(argument, Buffer):
                written[id(argument.handle)] = declared.name
        for declared, argument in zip(self._bindings, bound, strict=True):
            other = written.get(id(argument.handle)) if isinstance(argument, Buffer) else None
            if other not in (None, declared.name):
                raise ArgumentError(
                    f"{self.name}: {declared.name} and {other} are the same buffer, which "
                    "WebGPU does not allow where one is written; pass two"
                )
        return bound

    def work_of(self, args: Sequence[Argument]) -> Work | None:
        """The least work over all points, or None when one is not told. `UsageError` when `work=`
        raises or returns something else."""
        if self.work is None:
            return None
        each: list[Work] = []
        for candidate in self.candidates:
            returned = call_option(self.name, "work", self.work, candidate.params, *args)
            work = checked_work(self.name, returned)
            if work is None:
                return None
            each.append(work)
        return Work(min(work.flops for work in each), min(work.bytes for work in each))

    # -- candidates -------------------------------------------------------------------------

    def _build(self) -> Iterator[Candidate]:
        counts = self.workgroups
        # Long texts are digested once, and not once a candidate.
        launch = digest(
            [
                content_of(counts) if callable(counts) else repr(counts),
                content_of(self.constants),
                self.repeat,
            ]
        )
        texts: dict[str, str] = {}
        for params in self.params:
            requires: Any = self._requires
            if callable(requires):
                requires = call_option(self.name, "requires", requires, params)
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
                requires=feature_names(self.name, requires),
                repeat=self.repeat,
            )

    def _recording(self, params: Params) -> Record:
        def record(recorder: Recorder, args: tuple[Argument, ...]) -> None:
            source = self._text(params)
            constants = self._constants(params, source, args)
            counts: Any = self.workgroups
            if callable(counts):
                counts = call_option("", "workgroups", counts, params, *args)
            recorder.dispatch(source, args, counts, entry=self.entry, constants=constants)

        return record

    def _constants(
        self, params: Params, source: str, args: tuple[Argument, ...]
    ) -> dict[str, Constant]:
        """The override constants of one candidate on these arguments."""
        overrides = {override.name for override in interface(source).overrides}
        values: dict[str, Any] = {name: params[name] for name in params if name in overrides}
        if self.constants is None:
            return values
        more: Any = call_option("", "constants", self.constants, params, *args)
        if not isinstance(more, Mapping):
            raise KernelError(f"constants= returned {more!r}; return a dict of values by override")
        twice = [name for name in more if values.get(name, more[name]) != more[name]]
        if twice:
            raise KernelError(f"constants= sets {', '.join(twice)}, which params= has already")
        return {**values, **more}
