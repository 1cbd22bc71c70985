"""`webtune doctor`: what this machine offers, and what is wrong with it.

Every finding that is wrong says what to do. Nothing is tuned, and nothing is stored but the peaks
that `--roofline` asks for.
"""

from __future__ import annotations

import argparse
import array
import platform
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import webtune as wt
from webtune.cli.output import print_json, print_wrapped
from webtune.cli.picks import is_peak
from webtune.errors import StoreWarning, UsageError, WebtuneError
from webtune.gpu.base import Clock
from webtune.gpu.native.adapters import adapters
from webtune.hosts.native import native_config
from webtune.progress import peaks_with_progress
from webtune.report.format import counted, duration
from webtune.strategies.drive import complete

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
    """One thing that was looked at.

    `advice` says what to do where something is wrong or only half good, and `broken` that webtune
    cannot do its job until that is done. `facts` are the same as numbers and lists, for programs:
    they become parts of the document of `--json`.
    """

    topic: str
    text: str
    advice: str = ""
    broken: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


def doctor(options: argparse.Namespace) -> int:
    """Look at everything; 1 when something is broken, else 0."""
    findings = list(_findings(options.adapter, roofline=options.roofline))
    if options.json:
        print_json(_document(findings))
    else:
        _print(findings)
    return 1 if any(finding.broken for finding in findings) else 0


def _document(findings: list[Finding]) -> dict[str, Any]:
    """The verdict, the numbers, and the sentences: times in ns, sizes in WebGPU's units."""
    document: dict[str, Any] = {"ok": True, "problems": []}
    sentences = []
    for finding in findings:
        if finding.broken:
            document["ok"] = False
            document["problems"].append(f"{finding.topic}: {finding.text}")
        sentence = asdict(finding)
        document |= sentence.pop("facts")
        sentences.append(sentence)
    return {**document, "findings": sentences}


def _print(findings: list[Finding]) -> None:
    widest = max(len(finding.topic) for finding in findings)
    indent = " " * (widest + 4)
    for finding in findings:
        sign = "✗" if finding.broken else "!" if finding.advice else "✓"
        text = f"{sign} {finding.topic:<{widest}}  {finding.text}"
        # A pipe has no columns: a hundred are readable wherever it ends.
        print_wrapped(text, indent, piped_width=100)
        if finding.advice:
            print_wrapped(f"{indent}→ {finding.advice}", indent + "  ", piped_width=100)
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
    config = native_config({"adapter": wanted} if wanted else {})
    try:
        listed = adapters(config.wgpu)
    except WebtuneError:
        return False
    part = (config.adapter or "").lower()
    return bool(listed) and not any(part in adapter.text.lower() for adapter in listed)


def _device(tuner: wt.Tuner) -> Iterator[Finding]:
    device = tuner.device
    facts = dict(device.identity.facts)
    software = facts.get("adapter_type", "").lower() == "cpu"
    yield Finding(
        "adapter",
        device.identity.label,
        "this is a software adapter: its picks are right for it alone" if software else "",
        facts={
            "adapter": {"label": device.identity.label, "software": software, **facts},
            "hardware": device.identity.digest,
        },
    )
    yield Finding("driver", facts.get("description") or "not told")
    features = sorted(device.features)
    yield Finding("features", ", ".join(features) or "none", facts={"features": features})
    limits = (f"{name} {device.limits[name]:,}" for name in _SHOWN_LIMITS if name in device.limits)
    every = dict(sorted(device.limits.items()))
    yield Finding("limits", ", ".join(limits), facts={"limits": every})
    yield _clock(device.clock)


def _clock(clock: Clock) -> Finding:
    text, advice = f"{clock.kind}, quantum {duration(clock.quantum_ns)}", ""
    if clock.kind == "timestamp":
        text += f", {clock.period_ns:g} ns a tick"
    else:
        advice = "the device has no timestamp-query: times are coarser"
    return Finding("clock", text, advice, facts={"clock": asdict(clock)})


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
        peaks = peaks_with_progress(tuner)
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
    return Finding("roofline", str(peaks), facts={"roofline": numbers})


def _store(tuner: wt.Tuner, caught: list[Any]) -> Finding:
    store, hardware = tuner.store, tuner.device.identity.digest
    complete(store.open())
    picks = [address for address, _ in store.entries() if not is_peak(address)]
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
    advice = "; ".join(str(warning.message) for warning in caught)
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
    return Finding("store", text, advice, broken=broken, facts={"store": facts})
