"""The lab's Python, in a worker: opens a tuner, tunes bundled kernels, says what to show.

Messages are JSON texts with a `kind`; main.js has a function for each.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import webtune
from webtune.bundled import get, names
from webtune.fingerprint.digests import canonical
from webtune.report.format import duration

_SHOW_EVERY_S = 0.12
_ROWS_WHILE_TUNING = 40
_WIDEST = 6
"""Bars end at so many times the best: one straggler would make all others look alike."""
_PLAIN = {"core-features-and-limits"}


class Lab:
    """One tuner and the kernel that is chosen."""

    def __init__(self, say: Callable[[str], None], tuner: Any) -> None:
        self._say = say
        self.tuner = tuner
        self.bundled: Any = None
        self.size = ""
        self.buffers: list[Any] = []
        self.task: asyncio.Task[None] | None = None

    def say(self, kind: str, **message: Any) -> None:
        """One message to the page."""
        self._say(json.dumps({"kind": kind, **message}))

    def choose(self, kernel: str, size: str) -> None:
        """Make this kernel's buffers and show what is remembered of it."""
        if self.task is not None:
            return
        for buffer in self.buffers:
            buffer.destroy()
        self.bundled, self.size = get(kernel), size
        extents = self.bundled.size(size)
        self.buffers = [self.tuner.upload(array) for array in self.bundled.arguments(extents)]
        report = self.tuner.explain(self.bundled.kernel, *self.buffers)
        self.say("outcome", **(_idle() if report.winner is None else self.decided(report)))
        self.remembered()

    def remembered(self) -> None:
        """Every pick of this device that the store has."""
        entries = []
        hardware = self.tuner.device.identity.digest
        for address, record in self.tuner.store.entries():
            if address.hardware != hardware or address.name not in names():
                continue
            for size in get(address.name).sizes:
                if _key(address.name, size) == address.key:
                    best = next((c for c in record.candidates if c.id == record.winner), None)
                    shown = duration(best.time_ns) if best and best.time_ns else "remembered"
                    entries.append(
                        {
                            "kernel": address.name,
                            "size": size,
                            "text": f"{address.name} {_extents(get(address.name), size)}: {shown}",
                        }
                    )
        self.say("remembered", entries=entries)

    async def tune(self) -> None:
        """Tune the chosen kernel afresh, showing how it goes."""
        live = Live(self)
        live.show()
        try:
            report = await self.tuner.tune_async(
                self.bundled.kernel, *self.buffers, progress=live.add, fresh=True
            )
            self.say("outcome", **self.decided(report))
        except webtune.WebtuneError as error:
            self.say("outcome", **{**_idle(), "verdict": "No result", "status": str(error)})
        await self.tuner.store.flush()
        self.remembered()

    def decided(self, report: Any) -> dict[str, Any]:
        """The view of a report."""
        winner, best_ns = report.winner, report.winner_ns
        kept = report.source in ("store", "memory")
        figures = [(duration(best_ns), "winner")] if best_ns else []
        work = self.bundled.work(self.bundled.size(self.size))
        if best_ns and work.flops and work.flops > 4 * (work.bytes or 0):
            figures.append((f"{work.flops / best_ns:.3g}", "GFLOP/s"))
        elif best_ns and work.bytes:
            figures.append((f"{work.bytes / best_ns:.3g}", "GB/s"))
        if best_ns and report.default_ns and report.slowest_ns:
            figures.append((f"{report.default_ns / best_ns:.2f}×", "over the first candidate"))
            figures.append((f"{report.slowest_ns / best_ns:.1f}×", "over the slowest"))
        counts = report.counts()
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        decision = report.decision
        clock = f"{decision.clock.kind} clock, quantum {duration(decision.clock.quantum_ns)}"
        cost = f"{decision.launches} launches in {decision.wall_s:.1f} s"
        return {
            "verdict": winner.name if winner else "No winner",
            "badge": "remembered" if kept else "just tuned",
            "state": "store" if kept else "done",
            "progress": 100,
            "status": f"{len(report.results)} candidates: {told}. {decision.strategy} strategy, "
            f"{cost}, {clock}.",
            "figures": figures,
            "rows": _rows(report),
            "button": "Tune again",
        }


class Live:
    """What is known while a tune goes on."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._best_ns: dict[str, int] = {}
        self._failed: dict[str, str] = {}
        self._met: set[int] = set()
        self._launches = 0
        self._total = len(lab.bundled.kernel.candidates)
        self._compiled: set[int] = set()
        self._samples = 0
        self._shown_s = 0.0
        self._began_s = time.monotonic()

    def add(self, event: Any) -> None:
        """Take an event of the tune in, and show it when the last view is old enough."""
        self._launches = max(self._launches, event.launches)
        if event.kind == "compiled":
            self._compiled.add(event.candidate)
        else:
            self._met.add(event.candidate)
        if event.failure is not None:
            self._failed[event.name] = str(event.failure)
        if event.duration_ns is not None:
            self._samples += 1
            best = self._best_ns.get(event.name, event.duration_ns)
            self._best_ns[event.name] = min(best, event.duration_ns)
        now_s = time.monotonic()
        if now_s - self._shown_s >= _SHOW_EVERY_S:
            self._shown_s = now_s
            self.show()

    def show(self) -> None:
        """The view of now: the fastest first."""
        ranked = sorted(self._best_ns.items(), key=lambda entry: entry[1])
        slowest, best = (ranked[-1][1], ranked[0][1]) if ranked else (1, 1)
        told = ["best so far"] + [""] * len(ranked)
        rows = [
            _row(str(place + 1), name, told[place], time_ns, slowest, best)
            for place, (name, time_ns) in enumerate(ranked[:_ROWS_WHILE_TUNING])
        ]
        parts = [f"{len(self._compiled)} of {self._total} compiled", f"{len(self._met)} tried"]
        parts.append(f"{self._samples} samples")
        if self._failed:
            parts.append(f"{len(self._failed)} out")
        elapsed_s = time.monotonic() - self._began_s
        most = self._lab.tuner.config.usable_max_samples
        done = 20 * len(self._compiled) + 30 * len(self._met) + 50 * self._samples / most
        bundled = self._lab.bundled
        self._lab.say(
            "outcome",
            verdict=f"Tuning {bundled.name} {_extents(bundled, self._lab.size)}",
            badge=f"{elapsed_s:.1f} s",
            state="tuning",
            progress=min(99, round(done / max(1, self._total))),
            status=", ".join(parts),
            figures=[(duration(ranked[0][1]), "best so far")] if ranked else [],
            rows=rows,
            button="Tuning…",
        )


def _idle() -> dict[str, Any]:
    return {
        "verdict": "", "badge": "", "state": "idle", "progress": 0, "status": "",
        "figures": [], "rows": [], "button": "Tune",
    }  # fmt: skip


def _row(
    place: str,
    name: str,
    verdict: str,
    time_ns: int | None,
    slowest_ns: int,
    best_ns: int,
    kind: str = "",
    interval: tuple[int, int] | None = None,
) -> dict[str, Any]:
    widest_ns = min(slowest_ns, _WIDEST * best_ns)
    return {
        "place": place,
        "name": name,
        "time": duration(time_ns) if time_ns else "",
        "interval": f"{duration(interval[0])} … {duration(interval[1])}" if interval else "",
        "ratio": f"{time_ns / best_ns:.2f}×" if time_ns else "",
        "bar": round(min(100, 100 * time_ns / widest_ns), 1) if time_ns else 0,
        "verdict": verdict,
        "kind": kind,
    }


def _rows(report: Any) -> list[dict[str, Any]]:
    order = {"winner": 0, "tie": 1}
    timed = [one for one in report.results if one.time_ns]
    timed.sort(key=lambda one: (order.get(one.status, 2), one.time_ns))
    slowest_ns = max((one.time_ns for one in timed), default=1)
    best_ns = report.winner_ns or 1
    rows = []
    for place, one in enumerate(timed, 1):
        told = {"winner": "winner", "tie": "tie", "slower": "slower"}.get(one.status, one.reason)
        rows.append(
            _row(
                str(place), one.name, told or one.status, one.time_ns, slowest_ns, best_ns,
                one.status, one.interval_ns,
            )
        )  # fmt: skip
    for one in report.results:
        if not one.time_ns:
            told = f"{one.status}: {one.reason}" if one.reason else one.status
            rows.append(_row("", one.name, told, None, slowest_ns, best_ns, "out"))
    return rows


def _extents(bundled: Any, size: str) -> str:
    return " × ".join(f"{extent:,}".replace(",", " ") for extent in bundled.size(size))


class _Shape:
    """Stands in for a buffer where only its shape is asked."""

    def __init__(self, array: Any) -> None:
        view = memoryview(array)
        self.shape = tuple(view.shape or ())
        self.size = view.nbytes // view.itemsize


@lru_cache
def _key(kernel: str, size: str) -> str:
    bundled = get(kernel)
    arrays = [_Shape(array) for array in bundled.arguments(bundled.size(size))]
    return canonical(bundled.kernel.key_of(tuple(arrays)))


LAB: Lab | None = None


async def start(say: Any, times: str) -> None:
    """Open the tuner and offer the kernels. What is wrong is told, not raised."""
    global LAB
    began_s = time.monotonic()
    say(json.dumps({"kind": "loading", "text": "Opening the device…"}))
    try:
        tuner = await webtune.open_tuner_async()
    except webtune.WebtuneError as error:
        say(json.dumps({"kind": "trouble", "text": str(error)}))
        return
    lab = LAB = Lab(say, tuner)
    device, spent = tuner.device, json.loads(times)
    opened_ms = 1000 * (time.monotonic() - began_s)
    facts = dict(device.identity.facts)
    sizes = facts.get("subgroupMinSize", ""), facts.get("subgroupMaxSize", "")
    lab.say(
        "device",
        label=device.identity.label,
        facts=[
            [
                "Features",
                ", ".join(sorted(device.features - _PLAIN)) or "none",
            ],
            ["Subgroups", " to ".join(dict.fromkeys(filter(None, sizes))) or "unknown"],
            ["Workgroup memory", f"{device.limits['maxComputeWorkgroupStorageSize'] // 1024} KiB"],
            ["Clock", f"{device.clock.kind}, quantum {duration(device.clock.quantum_ns)}"],
            ["Picks", tuner.store.location],
            ["Adapter", "software fallback" if facts.get("fallback") == "true" else "hardware"],
        ],
        footer=f"webtune {webtune.__version__}. Ready in "
        f"{(spent['pyodide_ms'] + spent['packages_ms'] + opened_ms) / 1000:.1f} s: Pyodide "
        f"{spent['pyodide_ms'] / 1000:.1f} s, webtune {spent['packages_ms'] / 1000:.1f} s, device "
        f"and picks {opened_ms / 1000:.2f} s. Python does the tuning, in a worker of this page.",
    )
    entries = [
        {
            "name": name,
            "summary": get(name).summary,
            "sizes": [[size, f"{_extents(get(name), size)} ({size})"] for size in get(name).sizes],
        }
        for name in names()
    ]
    lab.say("kernels", entries=entries, kernel="saxpy", size="default")


def choose(kernel: str, size: str) -> None:
    """From the page: another kernel or size."""
    if LAB is not None:
        LAB.choose(kernel, size)


def tune() -> None:
    """From the page: tune now, if nothing is being tuned."""
    if LAB is not None and LAB.task is None:
        LAB.task = asyncio.ensure_future(LAB.tune())
        LAB.task.add_done_callback(_tuned)


def _tuned(task: asyncio.Task[None]) -> None:
    if LAB is not None:
        LAB.task = None
        if not task.cancelled() and task.exception() is not None:
            told = {"verdict": "No result", "status": str(task.exception())}
            LAB.say("outcome", **{**_idle(), **told})


def hide(hidden: bool) -> None:
    """From the page: whether it is hidden."""
    if LAB is not None:
        LAB.tuner.device.hide(hidden)
