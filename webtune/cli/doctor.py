"""`webtune doctor` and `webtune adapters`: what this machine offers, and what is wrong with it.

Every finding that is wrong says what to do. Nothing is tuned and nothing stored.
"""

from __future__ import annotations

import argparse
import array
import json
import platform
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import webtune as wt
from webtune.cli.cache import PEAKS
from webtune.errors import StoreWarning, UsageError, WebtuneError
from webtune.gpu.base import Clock
from webtune.progress import peaks_shown
from webtune.report.format import counted, duration
from webtune.report.table import Table, wrapped
from webtune.strategies.drive import complete

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
    facts: tuple[tuple[str, Any], ...] = ()
    """The same as numbers and lists, for programs: parts of the document of `--json`."""


def adapters(options: argparse.Namespace) -> int:
    """List the adapters of this machine, the one that is used first."""
    from webtune.gpu.native.adapters import adapters as found
    from webtune.hosts.native import native_config

    listed = found(native_config({}).wgpu)
    if options.json:
        print(json.dumps([asdict(one) for one in listed], indent=2))
        return 0
    if not listed:
        print("no adapter was found; `webtune doctor` says what to do", file=sys.stderr)
        return 1
    rows = tuple(
        (str(place), one.device, one.kind, one.backend, one.driver, ", ".join(one.features) or "–")
        for place, one in enumerate(listed)
    )
    note = "The first is used unless --adapter names a part of another's name."
    columns = (">", "adapter", "kind", "backend", "driver", "features")
    Table(columns, rows, notes=(note,), strong=frozenset({0})).show()
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Look at everything; 1 when something is broken, else 0."""
    findings = list(_findings(options.adapter, roofline=options.roofline))
    if options.json:
        print(json.dumps(_document(findings), indent=2))
    else:
        _print(findings)
    return 1 if any(finding.broken for finding in findings) else 0


def _document(findings: list[Finding]) -> dict[str, Any]:
    """The verdict, the numbers, and the sentences: times in ns, sizes in WebGPU's units."""
    facts = {name: value for finding in findings for name, value in finding.facts}
    problems = [finding for finding in findings if finding.broken]
    return {
        "ok": not problems,
        "problems": [f"{finding.topic}: {finding.text}" for finding in problems],
        **facts,
        "findings": [
            {name: getattr(finding, name) for name in ("topic", "text", "advice", "broken")}
            for finding in findings
        ],
    }


def _print(findings: list[Finding]) -> None:
    widest = max(len(finding.topic) for finding in findings)
    indent = " " * (widest + 4)
    # A pipe has no columns: a hundred are readable wherever it ends.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    for finding in findings:
        sign = "✗" if finding.broken else "!" if finding.advice else "✓"
        lines = wrapped(f"{sign} {finding.topic:<{widest}}  {finding.text}", width, indent)
        if finding.advice:
            lines += wrapped(f"{indent}→ {finding.advice}", width, indent + "  ")
        print("\n".join(lines))
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
            yield Finding("adapter", str(error), _adapter_advice(adapter), broken=True)
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


def _adapter_advice(wanted: str | None) -> str:
    if _misnamed(wanted):
        return (
            "name a part of one of these with --adapter (or WEBTUNE_ADAPTER, or adapter in "
            "webtune.toml), or none, for the first that `webtune adapters` lists"
        )
    if not (find_spec("wgpu") or find_spec("wgpudawn")):
        return "pip install 'webtune[native]'"
    return (
        "install the driver of the GPU; without a GPU a software driver computes too "
        "(Debian and Ubuntu: apt-get install mesa-vulkan-drivers); `webtune adapters` lists all"
    )


def _misnamed(wanted: str | None) -> bool:
    """Whether there are adapters, and only none of the name that was asked for."""
    from webtune.gpu.native.adapters import adapters as found
    from webtune.hosts.native import native_config

    config = native_config({"adapter": wanted} if wanted else {})
    try:
        listed = found(config.wgpu)
    except WebtuneError:
        return False
    part = (config.adapter or "").lower()
    return bool(listed) and not any(part in one.text.lower() for one in listed)


def _device(tuner: wt.Tuner) -> Iterator[Finding]:
    device = tuner.device
    facts = dict(device.identity.facts)
    software = facts.get("adapter_type", "").lower() == "cpu"
    yield Finding(
        "adapter",
        device.identity.label,
        "this is a software adapter: its picks are right for it alone" if software else "",
        facts=(
            ("adapter", {"label": device.identity.label, "software": software, **facts}),
            ("hardware", device.identity.digest),
        ),
    )
    yield Finding("driver", facts.get("description") or "not told")
    features = sorted(device.features)
    told = ", ".join(features) or "none"
    yield Finding("features", told, facts=(("features", features),))
    limits = (f"{name} {device.limits[name]:,}" for name in _SHOWN_LIMITS if name in device.limits)
    every = dict(sorted(device.limits.items()))
    yield Finding("limits", ", ".join(limits), facts=(("limits", every),))
    yield _clock(device.clock)


def _clock(clock: Clock) -> Finding:
    numbers = {
        "kind": clock.kind,
        "quantum_ns": clock.quantum_ns,
        "period_ns": clock.period_ns,
    }
    text, advice = f"{clock.kind}, quantum {duration(clock.quantum_ns)}", ""
    if clock.kind == "timestamp":
        text += f", {clock.period_ns:g} ns a tick"
    else:
        advice = "the device has no timestamp-query: times are coarser"
    return Finding("clock", text, advice, facts=(("clock", numbers),))


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
        peaks = peaks_shown(tuner)
    except WebtuneError as error:
        return Finding("roofline", f"could not be measured: {error}", "update the GPU's driver")
    numbers = {
        "flops_per_s": peaks.flops_per_s,
        "bytes_per_s": peaks.bytes_per_s,
        "launch_ns": peaks.launch_ns,
        "ladder": [
            {"working_set_bytes": size, "bytes_per_s": reached} for size, reached in peaks.cached
        ],
    }
    return Finding("roofline", str(peaks), facts=(("roofline", numbers),))


def _store(tuner: wt.Tuner, caught: list[Any]) -> Finding:
    store, hardware = tuner.store, tuner.device.identity.digest
    complete(store.open())
    picks = [address for address, _ in store.entries() if not address.name.startswith(PEAKS)]
    here = sum(address.hardware == hardware for address in picks)
    suspects = len(store.suspects(hardware))
    facts = {
        "location": store.location,
        "writable": store.lasting,
        "picks": len(picks),
        "picks_for_this_hardware": here,
        "barred": suspects,
    }
    text = f"{store.location}: {counted(len(picks), 'pick')}, {here} for this hardware"
    advice = "; ".join(str(each.message) for each in caught)
    # Memory that was asked for is no fault.
    broken = not store.lasting and tuner.config.store not in ("memory", "none")
    if broken:
        text = store.location
        advice = "name a folder that can be written: WEBTUNE_CACHE_DIR, or cache_dir in a file"
    elif suspects:
        text += f", {counted(suspects, 'candidate')} barred"
        advice = advice or (
            "they hung or killed the device; edit them, or try again after "
            f"`webtune cache purge --hardware {hardware}`"
        )
    return Finding("store", text, advice, broken=broken, facts=(("store", facts),))
