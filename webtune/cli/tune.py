"""`webtune tune`: tunes bundled kernels on a real adapter, and prints what was decided."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import webtune as wt
from webtune import bundled as kernels
from webtune.bundled import Bundled
from webtune.bundled.base import Size
from webtune.cli.output import print_json
from webtune.errors import DeviceLost, UsageError, WebtuneError
from webtune.progress import peaks_with_progress, show_progress
from webtune.report.format import counted, duration, factor, rate, spread
from webtune.report.report import TuneReport, candidate_table
from webtune.report.table import Table
from webtune.tuning.peaks import BELIEVED


def tune(options: argparse.Namespace) -> int:
    """Tune what was asked for; 1 when a kernel had no candidate left, else 0."""
    wanted = list(_wanted(options.kernels or kernels.names(), options.size))
    # What is not given must not hide what the environment or a file says.
    given = {"adapter": options.adapter, "strategy": options.strategy}
    settings = {name: value for name, value in given.items() if value is not None}
    with wt.open_tuner(**settings) as tuner:
        if options.roofline:
            peaks_with_progress(tuner, quiet=options.quiet)
        results = [_tune_one(tuner, bundled, size, options) for bundled, size in wanted]
        entries = [entry for entry, _ in results]
        if options.json:
            print_json({"device": _device(tuner), "results": entries})
        else:
            if options.explain:
                for _, report in results:
                    if report is not None:
                        candidate_table(report).show()
                        print()
            _summary(tuner, entries).show()
            for error in filter(None, (entry.get("error") for entry in entries)):
                print(f"webtune: {error}", file=sys.stderr)
    return 1 if any("error" in entry for entry in entries) else 0


def _wanted(names: Sequence[str], sizes: Sequence[str] | None) -> Iterator[tuple[Bundled, Size]]:
    for name in names:
        bundled = kernels.get(name)
        for text in sizes or ["default"]:
            yield bundled, _size(bundled, text)


def _size(bundled: Bundled, text: str) -> Size:
    """A size by name, or spelled out: `512x512x512`."""
    if not text[:1].isdigit():
        return bundled.size(text)
    example = bundled.size("default")
    try:
        size = tuple(int(part) for part in text.lower().replace("×", "x").split("x"))
    except ValueError:
        size = ()
    if len(size) != len(example) or min(size) < 1:
        spelled = "x".join(map(str, example))
        raise UsageError(f"{text!r} is no size of {bundled.name}; write one like {spelled}")
    return size


def _tune_one(
    tuner: wt.Tuner, bundled: Bundled, size: Size, options: argparse.Namespace
) -> tuple[dict[str, Any], TuneReport | None]:
    args = [tuner.upload(array) for array in bundled.arguments(size)]
    bundled.kernel.check = None if options.no_check else bundled.check(size)
    title = f"{bundled.name} {'x'.join(map(str, size))}"
    try:
        with show_progress(title, len(bundled.kernel), quiet=options.quiet) as progress:
            report = tuner.tune(bundled.kernel, *args, fresh=options.fresh, progress=progress)
    except (DeviceLost, UsageError):
        raise
    except WebtuneError as error:
        return {"kernel": bundled.name, "size": list(size), "error": str(error)}, None
    finally:
        for buffer in args:
            buffer.destroy()
    return _entry(report, bundled, size), report


def _entry(report: TuneReport, bundled: Bundled, size: Size) -> dict[str, Any]:
    work = bundled.work(size)
    time_ns = report.winner_ns
    return {
        **report.to_dict(),
        "source": report.source,
        "size": list(size),
        "gflops": work.flops / time_ns if time_ns and work.flops else None,
        "gbs": work.bytes / time_ns if time_ns and work.bytes else None,
    }


def _device(tuner: wt.Tuner) -> dict[str, Any]:
    device = tuner.device
    return {
        "label": device.identity.label,
        "digest": device.identity.digest,
        "facts": dict(device.identity.facts),
        "features": sorted(device.features),
        "clock": asdict(device.clock),
        "store": tuner.store.location,
    }


def _summary(tuner: wt.Tuner, entries: list[dict[str, Any]]) -> Table:
    """One row a kernel and size, and a last line that says what was measured."""
    peaks = any(entry.get("roofline") for entry in entries)
    out = any(entry.get("rejected") or entry.get("failed") for entry in entries)
    columns = (
        "kernel",
        ">size",
        "winner",
        ">time",
        ">rate",
        ">vs default",
        ">vs slowest",
        ">measured",
        *([">rejected", ">failed"] if out else []),
        *([">of peak"] if peaks else []),
        "from",
    )
    device = tuner.device
    title = (
        f"{device.identity.label}; {device.clock.kind} clock in steps of "
        f"{duration(device.clock.quantum_ns)}"
    )
    rows = tuple(_row(entry, peaks=peaks, out=out) for entry in entries)
    return Table(columns, rows, title=title, notes=(_sentence(tuner, entries),))


def _row(entry: dict[str, Any], *, peaks: bool, out: bool) -> tuple[str, ...]:
    size = "×".join(map(str, entry["size"]))
    if "error" in entry:
        return (entry["kernel"], size, "no candidate left", *["–"] * (6 + peaks + 2 * out))
    time_ns = entry["winner_ns"] or 0
    return (
        entry["kernel"],
        size,
        str(entry["winner_name"]),
        spread(entry["winner_ns"], entry["interval_ns"]),
        rate((entry["gflops"] or 0) * time_ns, (entry["gbs"] or 0) * time_ns, time_ns),
        factor(entry["default_ns"], time_ns),
        factor(entry["slowest_ns"], time_ns),
        str(entry["measured"]),
        *([str(entry["rejected"]), str(entry["failed"])] if out else []),
        *([f"{100 * entry['roofline']:.0f} %" if entry["roofline"] else "–"] if peaks else []),
        f"tuned in {entry['wall_s']:.1f} s" if entry["source"] == "tuned" else entry["source"],
    )


def _sentence(tuner: wt.Tuner, entries: list[dict[str, Any]]) -> str:
    out = sum(entry.get("rejected", 0) + entry.get("failed", 0) for entry in entries)
    tuned = [entry for entry in entries if entry.get("source") == "tuned"]
    failed = sum("error" in entry for entry in entries)
    kept = len(entries) - len(tuned) - failed
    parts = []
    if tuned:
        wall_s = sum(entry["wall_s"] for entry in tuned)
        launches = sum(entry["launches"] for entry in tuned)
        parts.append(f"{len(tuned)} tuned in {wall_s:.1f} s with {counted(launches, 'launch')}")
    if kept:
        parts.append(f"{kept} answered from the store, nothing measured")
    if failed:
        parts.append(f"{failed} failed")
    beyond = [entry["kernel"] for entry in entries if (entry.get("roofline") or 0) > BELIEVED]
    if beyond:
        names = ", ".join(dict.fromkeys(beyond))
        parts.append(f"faster than the measured peak, whose limit is not used: {names}")
    if not out and not failed:
        parts.append("no candidate was rejected or failed")
    return f"{'; '.join(parts)}. Store: {tuner.store.location}"
