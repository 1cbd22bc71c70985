"""`webtune doctor` and `webtune adapters`: what this machine offers, and what is wrong with it.

Every finding that is wrong says what to do. Nothing is tuned and nothing stored.
"""

from __future__ import annotations

import argparse
import array
import json
import platform
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import webtune as wt
from webtune.drive import complete
from webtune.errors import StoreWarning, UsageError, WebtuneError
from webtune.report import Table, duration, rate

__all__ = ["Finding", "adapters", "doctor"]

_PROBE = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&x)) { y[id.x] = x[id.x] * 3u + 1u; }
}
"""
_SHOWN_LIMITS = (
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupStorageSize",
    "maxStorageBufferBindingSize",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `advice` says what to do where something is wrong or only half good;
    `broken` that webtune cannot do its job until that is done."""

    topic: str
    text: str
    advice: str = ""
    broken: bool = False


def adapters(options: argparse.Namespace) -> int:
    """List the adapters of this machine, the one that is used first."""
    from webtune.hosts.native import adapters as found
    from webtune.hosts.native_tuner import native_config

    listed = found(native_config({}).wgpu)
    if options.json:
        print(json.dumps([asdict(one) for one in listed], indent=2))
        return 0
    rows = tuple(
        (str(place), one.device, one.kind, one.backend, one.driver, ", ".join(one.features) or "–")
        for place, one in enumerate(listed)
    )
    note = "The first is used unless --adapter names a part of another's name."
    columns = (">", "adapter", "kind", "backend", "driver", "features")
    Table(columns, rows, notes=(note,), strong=frozenset({0})).show()
    return 0 if rows else 1


def doctor(options: argparse.Namespace) -> int:
    """Look at everything; 1 when something is broken, else 0."""
    findings = list(_findings(options.adapter, roofline=options.roofline))
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    return 1 if any(finding.broken for finding in findings) else 0


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.topic) for finding in findings)
    for finding in findings:
        sign = "✗" if finding.broken else "!" if finding.advice else "✓"
        print(f"{sign} {finding.topic:<{width}}  {finding.text}")
        if finding.advice:
            print(f"  {'':<{width}}  → {finding.advice}")
    broken = sum(finding.broken for finding in findings)
    print(f"{broken} broken" if broken else "nothing is broken")


def _findings(adapter: str | None, *, roofline: bool) -> Iterator[Finding]:
    yield _python()
    yield from _packages()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StoreWarning)
        try:
            tuner = wt.open_tuner(**({"adapter": adapter} if adapter else {}))
        except UsageError as error:
            advice = "settings lie in the environment, webtune.toml and pyproject.toml"
            yield Finding("settings", str(error), advice, broken=True)
            return
        except (WebtuneError, OSError) as error:
            yield Finding("adapter", str(error), _adapter_advice(), broken=True)
            return
        with tuner:
            yield from _device(tuner)
            yield _computes(tuner)
            if roofline:
                yield _roofline(tuner)
            yield _store(tuner, caught)


def _python() -> Finding:
    version = f"{platform.python_version()} at {sys.executable}"
    return Finding("python", f"{version}; webtune {wt.__version__}")


def _packages() -> Iterator[Finding]:
    wanted = (
        ("wgpu", "pip install 'webtune[native]'"),
        ("numpy", "optional: pip install numpy, to pass and get arrays"),
        ("rich", "optional: pip install 'webtune[cli]', for bars and colours"),
    )
    for name, advice in wanted:
        try:
            yield Finding(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, "not installed", advice)


def _adapter_advice() -> str:
    if not (find_spec("wgpu") or find_spec("wgpudawn")):
        return "pip install 'webtune[native]'"
    return (
        "install the driver of the GPU; without a GPU a software driver computes too "
        "(Debian and Ubuntu: apt-get install mesa-vulkan-drivers); `webtune adapters` lists all"
    )


def _device(tuner: wt.Tuner) -> Iterator[Finding]:
    device = tuner.device
    facts = dict(device.identity.facts)
    software = facts.get("adapter_type", "").lower() == "cpu"
    yield Finding(
        "adapter",
        device.identity.label,
        "this is a software adapter: its picks are right for it alone" if software else "",
    )
    yield Finding("driver", facts.get("description") or "not told")
    features = ", ".join(sorted(device.features)) or "none"
    yield Finding("features", features)
    limits = (f"{name} {device.limits[name]:,}" for name in _SHOWN_LIMITS if name in device.limits)
    yield Finding("limits", ", ".join(limits))
    clock = device.clock
    text = f"{clock.kind}, quantum {duration(clock.quantum_ns)}"
    if clock.kind == "timestamp":
        yield Finding("clock", f"{text}, {clock.period_ns:g} ns a tick")
    else:
        yield Finding("clock", text, "the device has no timestamp-query: times are coarser")


def _computes(tuner: wt.Tuner) -> Finding:
    """Whether a kernel's answer comes back right."""
    probe = wt.Kernel("doctor", source=_PROBE, workgroups=lambda p, x, y: wt.ceil_div(x.size, 64))
    given = array.array("I", range(1000))
    try:
        x, y = tuner.upload(given), tuner.empty(1000, "u32")
        tuner.run(probe, x, y)
        got = [int(value) for value in tuner.download(y)]
    except WebtuneError as error:
        return Finding("computes", f"no: {error}", "update the GPU's driver", broken=True)
    wrong = next((i for i, value in enumerate(got) if value != given[i] * 3 + 1), None)
    if wrong is None:
        return Finding("computes", "1000 of 1000 answers are right")
    text = f"answer {wrong} is {got[wrong]} instead of {given[wrong] * 3 + 1}"
    return Finding("computes", text, "update the GPU's driver, or use another adapter", broken=True)


def _roofline(tuner: wt.Tuner) -> Finding:
    try:
        peaks = tuner.peaks()
    except WebtuneError as error:
        return Finding("roofline", f"could not be measured: {error}", "update the GPU's driver")
    return Finding(
        "roofline",
        f"{rate(peaks.flops_per_s, None, 1_000_000_000)}, "
        f"{rate(None, peaks.bytes_per_s, 1_000_000_000)}, "
        f"an empty dispatch takes {duration(peaks.launch_ns)}",
    )


def _store(tuner: wt.Tuner, caught: list[Any]) -> Finding:
    complete(tuner.store.open())
    entries = list(tuner.store.entries())
    here = sum(address.hardware == tuner.device.identity.digest for address, _ in entries)
    suspects = len(tuner.store.suspects(tuner.device.identity.digest))
    text = f"{tuner.store.location}: {len(entries)} picks, {here} for this hardware"
    if caught:
        return Finding(
            "store",
            str(caught[0].message),
            "name a folder that can be written with WEBTUNE_CACHE_DIR",
            broken=True,
        )
    if suspects:
        advice = "they hung or killed the device; edit them, or `webtune cache purge` to try again"
        return Finding("store", f"{text}, {suspects} candidates barred", advice)
    return Finding("store", text)
