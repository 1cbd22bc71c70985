"""How a candidate says what to run: dispatches are collected as values, nothing touches a device.

Everything that can be known to be wrong before a device is asked is told here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from webtune.errors import ArgumentError, KernelError, Reject
from webtune.gpu.base import Binding, Dispatch
from webtune.kernel.arguments import Argument, Buffer, HostArray, as_host_array
from webtune.kernel.wgsl import BindingDecl, Interface, interface, workgroup_size

__all__ = ["Recorder", "check_argument"]

_SIZES = ("maxComputeWorkgroupsPerDimension", 65535)


_NOWHERE = frozenset({"bool", "f64", "i64", "u64"})
"""Dtypes that no WGSL storage or uniform buffer holds."""
_NUMPY = {"": "uint32", "u32": "uint32", "i32": "int32", "f32": "float32", "f16": "float16"}
_LARGEST = {"f32": 3.4028234663852886e38, "f16": 65504.0}
_WHOLE = {"u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1)}


class Recorder:
    """Handed to a candidate's function. Its dispatches run in the order recorded.

    `features` are what the device grants; `limits` its limits in WebGPU's names.
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
        """A device buffer for this candidate alone, freed with it. Its content is undefined."""
        return self._allocate((shape,) if isinstance(shape, int) else shape, dtype)

    def run(self, kernel: Any, *args: Any) -> None:
        """Record the best candidate of another tuned kernel here (a fallback while it is not yet
        tuned)."""
        if self._nested is None:
            raise KernelError("this recorder cannot run other kernels")
        recorded = self._nested(kernel, *args)
        self.inner.append(recorded)
        self._dispatches.extend(recorded.dispatches)

    def dispatch(
        self,
        source: str,
        args: Sequence[Any],
        workgroups: int | Sequence[int],
        *,
        entry: str = "main",
        constants: Mapping[str, float | int | bool] | None = None,
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
        if declared.entries and entry not in declared.entries:
            raise KernelError(
                f"{self.label}: the shader has no compute entry point {entry!r}; "
                f"it has {', '.join(declared.entries)}"
            )
        given = constants or {}
        settled = _constants(self.label, declared, given)
        _check_size(workgroup_size(source, entry, given), self.limits)
        self._dispatches.append(
            Dispatch(
                source=source,
                entry=entry,
                constants=settled,
                bindings=self._bind(declared, args),
                workgroups=_workgroups(self.label, workgroups, self.limits),
                label=self.label,
            )
        )

    def _bind(self, declared: Interface, args: Sequence[Any]) -> tuple[Binding, ...]:
        if len(args) != len(declared.bindings):
            names = ", ".join(b.name for b in declared.bindings)
            raise ArgumentError(
                f"{self.label}: {len(args)} arguments for {len(declared.bindings)} bindings "
                f"({names})"
            )
        bound = []
        for declaration, arg in zip(declared.bindings, args, strict=True):
            value = arg if isinstance(arg, Buffer | HostArray) else as_host_array(arg)
            if value is None:
                raise ArgumentError(
                    f"{self.label}: {declaration.name} is of type {type(arg).__name__}; "
                    "pass a buffer or an array"
                )
            check_argument(self.label, declaration, value, self.limits)
            if isinstance(value, HostArray):
                value = self._uniform(value, declaration.kind)
            bound.append(
                Binding(declaration.index, declaration.kind, value.handle, _bound_bytes(value))
            )
        return tuple(bound)


def _bound_bytes(buffer: Buffer) -> int:
    return -(-buffer.nbytes // 4) * 4


def check_argument(
    label: str, declared: BindingDecl, value: Argument, limits: Mapping[str, int]
) -> None:
    """Raise `ArgumentError` unless `value` can be bound there."""
    name = declared.name
    if not declared.kind:
        raise KernelError(
            f"{label}: argument {name} is declared as {declared.type}; webtune binds storage and "
            "uniform buffers only"
        )
    # Every call passes here: texts are made for what is wrong only.
    wrong = _wrong_dtype(declared, value) or _wrong_size(declared, value, limits)
    if wrong is not None:
        raise ArgumentError(f"{label}: argument {name} {wrong}")


def _wrong_dtype(declared: BindingDecl, value: Argument) -> str | None:
    dtype = value.dtype
    if declared.written and isinstance(value, HostArray):
        return (
            "is written by the kernel, so it must live on the device: "
            "pass tuner.upload(array), and read it with tuner.download(buffer)"
        )
    if dtype == declared.element:
        return None
    if dtype in _NOWHERE:
        return (
            f"holds {dtype}, which no WGSL buffer does; convert it, for example "
            f"with .astype(np.{_NUMPY.get(declared.element, 'uint32')})"
        )
    if declared.element and not _same_dtype(declared, value):
        return (
            f"holds {dtype}, the shader declares {declared.type}; convert it to {declared.element}"
        )
    return None


def _wrong_size(declared: BindingDecl, value: Argument, limits: Mapping[str, int]) -> str | None:
    nbytes, least = value.nbytes, declared.least_bytes
    if nbytes < (least or 1):
        return f"has {nbytes} bytes, {declared.type} needs at least {least or 1}"
    uniform = declared.kind == "uniform"
    # Data may come padded to the 16 bytes in which uniform structs are laid out.
    fitting = (least, -(-least // 4) * 4, -(-least // 16) * 16)
    if uniform and least and nbytes not in fitting and isinstance(value, HostArray):
        return (
            f"has {nbytes} bytes, {declared.type} takes {least}; pass one value for each "
            "member, with the padding that WGSL puts between them"
        )
    name = "maxUniformBufferBindingSize" if uniform else "maxStorageBufferBindingSize"
    if nbytes > limits.get(name, nbytes):
        return (
            f"has {nbytes} bytes, more than the device's {name} of {limits[name]}; split the work"
        )
    return None


def _same_dtype(declared: BindingDecl, value: Argument) -> bool:
    # Packed bytes may be read as words: only 4-byte kinds and f16 are told apart.
    if value.dtype in ("u8", "i8", "u16", "i16") or (
        value.dtype == "f16" and declared.element == "u32"
    ):
        return declared.element in ("u32", "i32")
    if "atomic" in declared.type and value.dtype in ("i32", "u32"):
        return True
    return value.dtype == declared.element


def _constants(
    label: str, declared: Interface, given: Mapping[str, float | int | bool]
) -> tuple[tuple[str, float | int | bool], ...]:
    known = {override.name: override for override in declared.overrides}
    unknown = [name for name in given if name not in known]
    if unknown:
        have = ", ".join(known) or "none"
        raise KernelError(
            f"{label}: the shader has no override {', '.join(unknown)}; its overrides: {have}"
        )
    unset = sorted(declared.required - set(given))
    if unset:
        raise KernelError(
            f"{label}: nobody sets the override {', '.join(unset)}; make it a parameter, return it "
            "from constants=, or give it a default in the shader"
        )
    out = []
    for name, value in given.items():
        value = getattr(value, "item", lambda value=value: value)()
        if not isinstance(value, int | float | bool):
            raise KernelError(
                f"{label}: override {name} is {value!r}; override constants are numbers or bool"
            )
        if not _holds(known[name].type, value):
            raise KernelError(
                f"{label}: override {name} is of type {known[name].type}, which cannot be {value!r}"
            )
        out.append((known[name].key, value))
    return tuple(out)


def _holds(type_name: str, value: float) -> bool:
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
    most = limits.get("maxComputeInvocationsPerWorkgroup", math.prod(size))
    if math.prod(size) > most:
        raise Reject(
            f"a workgroup of {text} = {math.prod(size)} invocations exceeds the device's "
            f"maxComputeInvocationsPerWorkgroup of {most}"
        )


def _workgroups(
    label: str, given: int | Sequence[int], limits: Mapping[str, int]
) -> tuple[int, int, int]:
    values = list(given) if isinstance(given, Sequence) else [given]
    if not 1 <= len(values) <= 3:
        raise KernelError(f"{label}: workgroups are one to three counts, not {given!r}")
    out = []
    for axis, value in zip("xyz", values, strict=False):
        count = value if isinstance(value, int) else getattr(value, "__index__", lambda: None)()
        if count is None or isinstance(value, bool):
            raise KernelError(
                f"{label}: workgroups in {axis} came out as {value!r}; it must be a whole number: "
                "use wt.ceil_div"
            )
        if count < 1:
            raise KernelError(
                f"{label}: workgroups in {axis} came out as {count}; at least 1 is needed"
            )
        most = limits.get(*_SIZES)
        if count > most:
            raise Reject(
                f"{count} workgroups in {axis} are more than the device's {_SIZES[0]} of {most}; "
                "fold them into y, or do more in each"
            )
        out.append(count)
    out += [1] * (3 - len(out))
    return out[0], out[1], out[2]
