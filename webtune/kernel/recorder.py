"""How a candidate says what to run: dispatches are collected as values, nothing touches a device.

Everything that can be known to be wrong before a device is asked is told here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from webtune.errors import ArgumentError, KernelError, Reject
from webtune.gpu.base import Binding, Dispatch
from webtune.kernel.arguments import Buffer, HostArray, as_host_array, check_argument
from webtune.kernel.wgsl import BindingDecl, Interface, interface, workgroup_size

Constant = float | int | bool

_MOST_WORKGROUPS = ("maxComputeWorkgroupsPerDimension", 65535)
_LARGEST = {"f32": 3.4028234663852886e38, "f16": 65504.0}
_WHOLE = {"u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1)}


class Recorder:
    """Handed to a candidate's function. Its dispatches run in the order recorded.

    `features` are what the device grants, `limits` its limits, both by their names in WebGPU.
    `label` is the candidate's name.
    """

    def __init__(
        self,
        *,
        label: str,
        features: frozenset[str],
        limits: Mapping[str, int],
        allocate: Callable[[Sequence[int], str], Buffer],
        uniform: Callable[[HostArray, str], Buffer],
        nested: Callable[..., Any] | None = None,
    ) -> None:
        self.label = label
        self.features = features
        self.limits = limits
        self._allocate = allocate
        self._uniform = uniform
        self._nested = nested
        self._dispatches: list[Dispatch] = []
        self.inner: list[Any] = []
        """What was recorded of other kernels, each with its scratch memory."""

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """What was recorded so far."""
        return tuple(self._dispatches)

    def scratch(self, shape: int | Sequence[int], dtype: str = "f32") -> Buffer:
        """A device buffer of `shape` elements for this candidate alone, freed with it. Its content
        is undefined. Raises `Reject` where the device has no buffer of that size."""
        return self._allocate((shape,) if isinstance(shape, int) else shape, dtype)

    def run(self, kernel: Any, *args: Any) -> None:
        """Record the best candidate of another tuned kernel here (a fallback while it is not yet
        tuned)."""
        if self._nested is None:
            raise KernelError("this recorder cannot run other kernels")
        recording = self._nested(kernel, *args)
        self.inner.append(recording)
        self._dispatches.extend(recording.dispatches)

    def dispatch(
        self,
        source: str,
        args: Sequence[Any],
        workgroups: int | Sequence[int],
        *,
        entry: str = "main",
        constants: Mapping[str, Constant] | None = None,
    ) -> None:
        """Record one dispatch of `entry` in WGSL `source`.

        `args` bind to group 0 in the order of the shader's binding numbers. `workgroups` is a
        count in x, or up to three counts. `constants` are override constants by name. Raises
        `KernelError` or `ArgumentError` when they do not fit the shader, `Reject` when the device
        lacks what it needs.
        """
        declared = interface(source)
        missing = declared.features - self.features
        if missing:
            raise Reject(f"the device does not grant {', '.join(sorted(missing))}")
        check_entry(self.label, declared, entry)
        values = constants or {}
        checked = _checked_constants(self.label, declared, values)
        _check_size(workgroup_size(source, entry, values), self.limits)
        bindings = self._bind(declared.bindings, args)
        counts = _checked_workgroups(self.label, workgroups, self.limits)
        self._dispatches.append(Dispatch(source, entry, checked, bindings, counts, self.label))

    def _bind(self, declared: Sequence[BindingDecl], args: Sequence[Any]) -> tuple[Binding, ...]:
        if len(args) != len(declared):
            names = ", ".join(binding.name for binding in declared)
            raise ArgumentError(
                f"{self.label}: {len(args)} arguments for {len(declared)} bindings ({names})"
            )
        return tuple(map(self._binding, declared, args))

    def _binding(self, declared: BindingDecl, arg: Any) -> Binding:
        value = arg if isinstance(arg, Buffer | HostArray) else as_host_array(arg)
        if value is None:
            raise ArgumentError(
                f"{self.label}: {declared.name} is of type {type(arg).__name__}; "
                "pass a buffer or an array"
            )
        check_argument(self.label, declared, value, self.limits)
        if isinstance(value, HostArray):
            value = self._uniform(value, declared.kind)
        return Binding(declared.index, declared.kind, value.handle, -(-value.nbytes // 4) * 4)


def check_entry(label: str, declared: Interface, entry: str) -> None:
    """Raise `KernelError` where the shader has entry points and `entry` is none of them."""
    if declared.entries and entry not in declared.entries:
        raise KernelError(
            f"{label}: no compute entry point {entry!r}; "
            f"the shader has {', '.join(declared.entries)}"
        )


def check_required(label: str, declared: Interface, names: Iterable[str]) -> None:
    """Raise `KernelError` where an override without a default is not among the `names` that are
    set."""
    unset = sorted(declared.required.difference(names))
    if unset:
        raise KernelError(
            f"{label}: nobody sets the override {', '.join(unset)}; add it to params=, return it "
            "from constants=, or give it a default in the shader"
        )


def _checked_constants(
    label: str, declared: Interface, values: Mapping[str, Constant]
) -> tuple[tuple[str, Constant], ...]:
    """The constants by the keys that a pipeline takes. `KernelError` where they do not fit."""
    overrides = {override.name: override for override in declared.overrides}
    unknown = [name for name in values if name not in overrides]
    if unknown:
        raise KernelError(
            f"{label}: the shader has no override {', '.join(unknown)}; its overrides: "
            f"{', '.join(overrides) or 'none'}"
        )
    check_required(label, declared, values)
    checked = []
    for name, given in values.items():
        value: Any = given.item() if hasattr(given, "item") else given  # a numpy scalar
        override = overrides[name]
        if not isinstance(value, int | float | bool):
            raise KernelError(
                f"{label}: override {name} is {value!r}; override constants are numbers or bool"
            )
        if not _fits(override.type, value):
            raise KernelError(
                f"{label}: override {name} is of type {override.type}, which cannot be {value!r}"
            )
        checked.append((override.key, value))
    return tuple(checked)


def _fits(type_name: str, value: float) -> bool:
    """Whether an override of that type can have the value as it is."""
    if type_name in _WHOLE:
        low, high = _WHOLE[type_name]
        return low <= value <= high and value == int(value)
    if type_name == "bool":
        return value in (0, 1)
    return math.isfinite(value) and abs(value) <= _LARGEST.get(type_name, math.inf)


def _check_size(size: tuple[int, ...] | None, limits: Mapping[str, int]) -> None:
    # wgpu-native does not hold sizes made of override constants to the limits.
    if size is None:
        return
    text = "×".join(map(str, size))
    if min(size) < 1:
        raise KernelError(f"the workgroup size came out as {text}; every side must be at least 1")
    for axis, side in zip("XYZ", size, strict=False):
        most = limits.get(f"maxComputeWorkgroupSize{axis}", side)
        if side > most:
            raise Reject(
                f"a workgroup of {text} exceeds the device's maxComputeWorkgroupSize{axis} of "
                f"{most}"
            )
    count = math.prod(size)
    most = limits.get("maxComputeInvocationsPerWorkgroup", count)
    if count > most:
        raise Reject(
            f"a workgroup of {text} = {count} invocations exceeds the device's "
            f"maxComputeInvocationsPerWorkgroup of {most}"
        )


def _checked_workgroups(
    label: str, workgroups: int | Sequence[int], limits: Mapping[str, int]
) -> tuple[int, int, int]:
    values = list(workgroups) if isinstance(workgroups, Sequence) else [workgroups]
    if not 1 <= len(values) <= 3:
        raise KernelError(f"{label}: workgroups are one to three counts, not {workgroups!r}")
    limit, by_default = _MOST_WORKGROUPS
    most = limits.get(limit, by_default)
    counts = [1, 1, 1]
    for index, value in enumerate(values):
        axis = "xyz"[index]
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise KernelError(
                f"{label}: workgroups in {axis} came out as {value!r}; it must be a whole number: "
                "use wt.ceil_div"
            )
        counts[index] = count = operator.index(value)
        if count < 1:
            raise KernelError(
                f"{label}: workgroups in {axis} came out as {count}; at least 1 is needed"
            )
        if count > most:
            raise Reject(
                f"{count} workgroups in {axis} are more than the device's {limit} of {most}; "
                "fold them into y, or do more in each"
            )
    return counts[0], counts[1], counts[2]
