"""Which adapter a page offers, and how its device is opened.

Nothing of JavaScript is imported before it is needed: elsewhere this module loads, and its
functions fail with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from webtune.errors import DeviceLost, FeatureUnavailable, HostUnavailable
from webtune.gpu.base import Identity
from webtune.gpu.browser import device
from webtune.gpu.browser.device import BrowserDevice
from webtune.gpu.browser.javascript import pyodide_module

_WANTED = ("timestamp-query", "shader-f16", "subgroups")
_RAISED_LIMITS = (
    "maxBufferSize",
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupSizeX",
    "maxComputeWorkgroupSizeY",
    "maxComputeWorkgroupSizeZ",
    "maxComputeWorkgroupStorageSize",
    "maxStorageBufferBindingSize",
    "maxStorageBuffersPerShaderStage",
)
"""What candidates may need more of than a default device grants: asked for up to the adapter's."""


async def open_device(
    *,
    features: Iterable[str] = (),
    limits: Mapping[str, int] | None = None,
    timestamps: bool = True,
    power: str = "high-performance",
    timeout_s: float = 30.0,
) -> BrowserDevice:
    """A device of its own on the page's best adapter.

    The device gets what the adapter offers of timestamp-query (unless `timestamps` is False),
    shader-f16 and subgroups, the adapter's compute limits, and `features` and `limits`, without
    which it fails with `FeatureUnavailable`. `power` is WebGPU's power preference.
    `HostUnavailable` where there is no WebGPU or no adapter.
    """
    adapter = await _adapter(power)
    descriptor = _descriptor(adapter, set(features), limits or {}, timestamps)
    try:
        js_device = await adapter.requestDevice(_to_js(descriptor))
    except pyodide_module("pyodide.ffi").JsException as error:
        raise HostUnavailable(f"the adapter gave no device: {error}") from error
    identity = _identity(js_device, _info(adapter, js_device))
    return await device.open_device(js_device, identity, owned=True, timeout_s=timeout_s)


async def adopt_device(js_device: Any, *, timeout_s: float = 30.0) -> BrowserDevice:
    """A device on a page's own `GPUDevice`, which stays the page's to destroy.

    Without the timestamp-query feature it is timed by the wall clock. `HostUnavailable` when it is
    no device, `DeviceLost` when it is gone.
    """
    proxy = pyodide_module("pyodide.ffi").JsProxy
    if not isinstance(js_device, proxy) or js_device.constructor.name != "GPUDevice":
        raise HostUnavailable(f"this is no GPUDevice of the page: {type(js_device).__name__}")
    identity = _identity(js_device, _info(None, js_device))
    try:
        return await device.open_device(js_device, identity, owned=False, timeout_s=timeout_s)
    except pyodide_module("pyodide.ffi").JsException as error:
        raise DeviceLost(f"the device cannot be used: {error}") from error


async def _adapter(power: str) -> Any:
    navigator = pyodide_module("js").navigator
    gpu: Any = getattr(navigator, "gpu", None)
    if _absent(gpu):
        raise HostUnavailable(
            "this browser or page has no WebGPU (navigator.gpu is missing): it needs a browser "
            "with WebGPU, and a page served over https or from localhost"
        )
    adapter = await gpu.requestAdapter(_to_js({"powerPreference": power}))
    if _absent(adapter):
        raise HostUnavailable(
            "WebGPU is there, but it offers no adapter: the browser may block this GPU, or its "
            "driver is missing; chrome://gpu says why"
        )
    return adapter


def _descriptor(
    adapter: Any, features: set[str], limits: Mapping[str, int], timestamps: bool
) -> dict[str, Any]:
    offered = {str(name) for name in adapter.features}
    missing = [name for name in sorted(features) if name not in offered]
    if missing:
        raise FeatureUnavailable(
            f"the adapter does not offer {', '.join(missing)}; it offers {_list(offered)}"
        )
    asked = {name: int(getattr(adapter.limits, name, 0) or 0) for name in _RAISED_LIMITS}
    for name, value in limits.items():
        most = int(getattr(adapter.limits, name, 0) or 0)
        if value > most:
            raise FeatureUnavailable(f"the adapter grants {name} up to {most}, not {value}")
        asked[name] = max(value, asked.get(name, 0))
    wanted = {name for name in _WANTED if timestamps or name != "timestamp-query"}
    return {
        "label": "webtune",
        "requiredFeatures": sorted(offered & wanted | features),
        "requiredLimits": {name: value for name, value in asked.items() if value},
    }


def _to_js(value: Any) -> Any:
    """A JavaScript object: a plain conversion would give a Map, which WebGPU reads as empty."""
    to_js = pyodide_module("pyodide.ffi").to_js
    return to_js(value, dict_converter=pyodide_module("js").Object.fromEntries)


def _info(adapter: Any, js_device: Any) -> dict[str, str]:
    info = getattr(adapter, "info", None)
    if _absent(info):
        info = getattr(js_device, "adapterInfo", None)
    facts = {
        name: _text(getattr(info, name, ""))
        for name in ("vendor", "architecture", "device", "description")
    }
    for name in ("subgroupMinSize", "subgroupMaxSize"):
        facts[name] = _text(getattr(info, name, ""))
    fallback = getattr(info, "isFallbackAdapter", None)
    if _absent(fallback):
        fallback = getattr(adapter, "isFallbackAdapter", False)
    facts["fallback"] = str(bool(fallback)).lower()
    return facts


def _identity(js_device: Any, info: dict[str, str]) -> Identity:
    agent = str(pyodide_module("js").navigator.userAgent)
    facts = {**info, "backend": "browser", "browser": browser_version(agent)}
    facts["features"] = " ".join(sorted(str(name) for name in js_device.features))
    for name in _RAISED_LIMITS:
        facts[name] = _text(getattr(js_device.limits, name, ""))
    parts = [info["vendor"], info["architecture"], info["description"] or info["device"]]
    seen = " ".join(dict.fromkeys(part for part in parts if part)) or "unnamed adapter"
    return Identity(f"{seen} in {facts['browser']}", tuple(sorted(facts.items())))


def browser_version(agent: str) -> str:
    """Name and major version from a user agent: "Chromium 156", "Firefox 153", "Safari 26"."""
    for name, pattern in (
        ("Firefox", r"Firefox/(\d+)"),
        ("Chromium", r"Chrom(?:e|ium)/(\d+)"),
        ("Safari", r"Version/(\d+)[\d.]* .*Safari/"),
    ):
        found = re.search(pattern, agent)
        if found:
            return f"{name} {found[1]}"
    return "unknown browser"


def _absent(value: Any) -> bool:
    """Whether it is undefined or null; null is a value of its own from Pyodide 0.28 on."""
    return value is None or type(value).__name__ == "JsNull"


def _text(value: Any) -> str:
    return "" if _absent(value) else str(value)


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
