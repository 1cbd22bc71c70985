"""Which native adapters there are, and how a device is opened on one.

wgpu is imported here, when it is first needed, and nowhere else.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from webtune.errors import HostUnavailable
from webtune.gpu.native.device import NativeDevice
from webtune.gpu.native.lane import LANE, guard_library, is_opengl

_LIBRARIES = ("wgpu", "wgpudawn")
_WANTED = ("timestamp-query", "shader-f16", "subgroups", "subgroup")
_KINDS = ("discretegpu", "integratedgpu", "virtualgpu")
_first_pid = 0


@dataclass(frozen=True, slots=True)
class AdapterSummary:
    """What is known of an adapter before a device is opened on it.

    `text` is wgpu-py's summary; any part of it selects the adapter by name. `kind` is
    "DiscreteGPU", "IntegratedGPU", "CPU" …; `features` are those offered, in WebGPU's spelling,
    that webtune would ask for.
    """

    text: str
    device: str
    driver: str
    backend: str
    kind: str
    features: tuple[str, ...]


def open_device(
    adapter: str | None = None,
    *,
    library: str | None = None,
    timestamps: bool = True,
    timeout_s: float = 30.0,
) -> NativeDevice:
    """A device of its own on the best adapter, or on the best whose summary contains `adapter`,
    upper or lower case.

    `library` names a package with wgpu-py's API; the default is the first that is installed of
    wgpu and wgpudawn. The device gets what the adapter offers of timestamp-query (unless
    `timestamps` is False), shader-f16 and subgroups, and the adapter's limits. `HostUnavailable`
    says what to install or which adapters there are.
    """
    wanted = adapter or ""
    found = _ranked(library)
    if not found:
        raise HostUnavailable(
            "no adapter was found: install a GPU driver with Vulkan, Metal or D3D12 support, or a "
            "software one (Debian and Ubuntu: apt-get install mesa-vulkan-drivers)"
        )
    for raw in found:
        if wanted.lower() in raw.summary.lower():
            return NativeDevice(_request(raw, timestamps), owned=True, timeout_s=timeout_s)
    names = "; ".join(raw.summary for raw in found)
    raise HostUnavailable(f"no adapter's summary contains {wanted!r}; there are: {names}")


def adopt_device(raw: Any, *, timeout_s: float = 30.0) -> NativeDevice:
    """A device on a caller's own `wgpu.GPUDevice`, which stays the caller's to destroy.

    Without the timestamp-query feature it is timed by the wall clock. `HostUnavailable` when
    `raw` is no device, `DeviceLost` when it is gone.
    """
    library = sys.modules.get(type(raw).__module__.partition(".")[0])
    kind = getattr(library, "GPUDevice", None)
    if kind is None or not isinstance(raw, kind):
        raise HostUnavailable(f"this is no device of wgpu-py: {type(raw).__name__}")
    if is_opengl(raw.adapter):
        guard_library(raw, wholly=True)
    return NativeDevice(raw, owned=False, timeout_s=timeout_s)


def adapters(library: str | None = None) -> list[AdapterSummary]:
    """All adapters; the first is the one that `open_device` takes. `library` is as there, and
    `HostUnavailable` tells that it is missing."""
    return [_summary(raw) for raw in _ranked(library)]


def _request(raw: Any, timestamps: bool) -> Any:
    features = [
        name
        for name in _WANTED
        if name in raw.features and (timestamps or name != "timestamp-query")
    ]
    if is_opengl(raw):
        guard_library(raw, wholly=True)
    try:
        # Without `required_limits` wgpu-py asks for the adapter's own limits, not the defaults.
        return raw.request_device_sync(required_features=features)
    except Exception as error:
        raise HostUnavailable(f"{raw.summary} gave no device: {error}") from error


def _ranked(name: str | None) -> list[Any]:
    library = _library(name)
    _refuse_forked()
    with _runtime_folder():
        try:
            guard_library(library.gpu, wholly=False)
            found = list(LANE.call(library.gpu.enumerate_adapters_sync))
        except Exception as error:
            raise HostUnavailable(f"{library.__name__} cannot list adapters: {error}") from error
    return sorted(found, key=_rank)


def _rank(raw: Any) -> tuple[bool, bool, int]:
    """Hardware before software, then other backends before OpenGL, then the mightier kind.

    wgpu does not tell what kind much hardware is of where it sees it through OpenGL.
    """
    kind = raw.info["adapter_type"].lower()
    place = _KINDS.index(kind) if kind in _KINDS else len(_KINDS)
    return kind == "cpu", is_opengl(raw), place


def _summary(raw: Any) -> AdapterSummary:
    info = raw.info
    features = {"subgroups" if name == "subgroup" else name for name in raw.features}
    return AdapterSummary(
        text=raw.summary,
        device=info["device"],
        driver=info["description"],
        backend=info["backend_type"],
        kind=info["adapter_type"],
        features=tuple(sorted(features.intersection(_WANTED))),
    )


def _refuse_forked() -> None:
    global _first_pid
    _first_pid = _first_pid or os.getpid()
    if _first_pid != os.getpid():
        raise HostUnavailable(
            "wgpu was used before this process was forked, and drivers do not survive a fork: "
            "use it after the fork only, or start the process with spawn"
        )


def _library(chosen: str | None) -> Any:
    for name in [chosen] if chosen else _LIBRARIES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise HostUnavailable(f"{name} cannot be loaded: {error}") from error
        except Exception as error:  # a name that is none, or whatever the package's code raises
            raise HostUnavailable(f"{name} cannot be loaded: {error}") from error
    raise HostUnavailable(
        f"{chosen or 'wgpu'} is not installed: pip install "
        + (chosen or "'webtune[native]' (or pip install wgpu)")
    )


@contextmanager
def _runtime_folder() -> Iterator[None]:
    """libwayland, which the OpenGL backend tries while adapters are listed, complains on stderr
    when XDG_RUNTIME_DIR is unset, as it is in services and containers."""
    if not sys.platform.startswith("linux") or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        os.environ.pop("XDG_RUNTIME_DIR", None)
