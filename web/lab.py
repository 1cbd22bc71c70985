"""The lab's Python, in a worker: opens a tuner, tunes bundled kernels, says what to show.

Messages are JSON texts with a `kind`; main.js has a function for each. worker.js calls `start`, and
then the methods of the `Lab` that it gives.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import webtune
from webtune.bundled import Bundled, get, names
from webtune.fingerprint.digests import canonical
from webtune.report.format import between, duration, factor, rate

_SHOW_EVERY_S = 0.12
_ROWS_WHILE_TUNING = 40
_WIDEST = 6
"""Bars end at so many times the best: one straggler would make all others look alike."""
_PLAIN = {"core-features-and-limits"}

Say = Callable[[str], None]
View = dict[str, Any]


async def start(say: Say, times: str) -> Lab | None:
    """Open the tuner and offer the kernels. What is wrong is said to the page, not raised; there is
    no lab then. `times` is how many ms Pyodide and the packages took to load, as a JSON list."""
    began_s = time.monotonic()
    say(json.dumps({"kind": "loading", "text": "Opening the device…"}))
    try:
        tuner = await webtune.open_tuner_async()
    except webtune.WebtuneError as error:
        say(json.dumps({"kind": "trouble", "text": str(error)}))
        return None
    lab = Lab(say, tuner)
    pyodide_ms, webtune_ms = json.loads(times)
    lab.introduce(pyodide_ms / 1000, webtune_ms / 1000, time.monotonic() - began_s)
    return lab


class Lab:
    """One tuner and the kernel that is chosen."""

    def __init__(self, say: Say, tuner: Any) -> None:
        self._say = say
        self.tuner = tuner
        self.bundled: Any = None
        self.size = ""
        self._buffers: list[Any] = []
        self._task: asyncio.Task[None] | None = None

    # -- called by the page -----------------------------------------------------------------------

    def choose(self, kernel: str, size: str) -> None:
        """Take another kernel or size: make its buffers and show what is remembered of it."""
        if self._task is not None:
            return
        for buffer in self._buffers:
            buffer.destroy()
        self.bundled, self.size = get(kernel), size
        extents = self.bundled.size(size)
        self._buffers = [self.tuner.upload(array) for array in self.bundled.arguments(extents)]
        report = self.tuner.explain(self.bundled.kernel, *self._buffers)
        self.show_outcome({} if report.winner is None else self._decided(report))
        self._show_remembered()

    def tune(self) -> None:
        """Tune now, if nothing is being tuned."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._tune())

    def hide(self, hidden: bool) -> None:
        """Take in whether the page is hidden."""
        self.tuner.device.hide(hidden)

    # -- what the page is shown -------------------------------------------------------------------

    def introduce(self, pyodide_s: float, webtune_s: float, opened_s: float) -> None:
        """Say what the device is, how long loading took, and which kernels there are."""
        device = self.tuner.device
        facts = dict(device.identity.facts)
        subgroups = filter(None, (facts.get("subgroupMinSize"), facts.get("subgroupMaxSize")))
        shown = {
            "Features": ", ".join(sorted(device.features - _PLAIN)) or "none",
            "Subgroups": " to ".join(dict.fromkeys(subgroups)) or "unknown",
            "Workgroup memory": f"{device.limits['maxComputeWorkgroupStorageSize'] // 1024} KiB",
            "Clock": f"{device.clock.kind}, quantum {duration(device.clock.quantum_ns)}",
            "Picks": self.tuner.store.location,
            "Adapter": "software fallback" if facts.get("fallback") == "true" else "hardware",
        }
        footer = (
            f"webtune {webtune.__version__}. Ready in {pyodide_s + webtune_s + opened_s:.1f} s: "
            f"Pyodide {pyodide_s:.1f} s, webtune {webtune_s:.1f} s, device and picks "
            f"{opened_s:.2f} s. Python does the tuning, in a worker of this page."
        )
        self.say("device", label=device.identity.label, facts=list(shown.items()), footer=footer)
        kernels = [
            {
                "name": bundled.name,
                "summary": bundled.summary,
                "sizes": [[size, f"{_extents(bundled, size)} ({size})"] for size in bundled.sizes],
            }
            for bundled in map(get, names())
        ]
        self.say("kernels", entries=kernels, kernel="saxpy", size="default")

    def say(self, kind: str, **message: Any) -> None:
        """Send one message to the page."""
        self._say(json.dumps({"kind": kind, **message}))

    def show_outcome(self, view: View) -> None:
        """Show a view of a tune; by default nothing but an offer to tune."""
        idle = {"verdict": "", "badge": "", "state": "idle", "progress": 0, "status": ""}
        self.say("outcome", **idle | {"figures": [], "rows": [], "button": "Tune"} | view)

    def _show_remembered(self) -> None:
        """Show every pick of this device that the store has of the sizes on offer."""
        hardware = self.tuner.device.identity.digest
        remembered = {
            (address.name, address.key): decision.winner
            for address, decision in self.tuner.store.entries()
            if address.hardware == hardware
        }
        entries = []
        for bundled in map(get, names()):
            for size, extents in bundled.sizes.items():
                winner = remembered.get((bundled.name, canonical(list(extents))))
                if winner is not None:
                    took = duration(winner.time_ns) if winner.time_ns else "remembered"
                    text = f"{bundled.name} {_extents(bundled, size)}: {took}"
                    entries.append({"kernel": bundled.name, "size": size, "text": text})
        self.say("remembered", entries=entries)

    # -- tuning -----------------------------------------------------------------------------------

    async def _tune(self) -> None:
        """Tune the chosen kernel afresh, showing how it goes."""
        live = LiveView(self)
        live.show()
        try:
            report = await self.tuner.tune_async(
                self.bundled.kernel, *self._buffers, progress=live.add, fresh=True
            )
            self.show_outcome(self._decided(report))
            await self.tuner.store.flush()
            self._show_remembered()
        except Exception as error:
            self.show_outcome({"verdict": "No result", "status": str(error)})
        finally:
            self._task = None

    def _decided(self, report: Any) -> View:
        """The view of a report."""
        best_ns, decision = report.winner_ns, report.decision
        kept = report.source in ("store", "memory")
        counts = ", ".join(f"{count} {what}" for what, count in report.counts().items() if count)
        clock = f"{decision.clock.kind} clock, quantum {duration(decision.clock.quantum_ns)}"
        figures: list[Any] = []
        if best_ns:
            work = self.bundled.work(self.bundled.size(self.size))
            figures += [(duration(best_ns), "winner")]
            figures += [rate(work.flops, work.bytes, best_ns).split()]
            figures += [(factor(report.default_ns, best_ns), "over the first candidate")]
            figures += [(factor(report.slowest_ns, best_ns), "over the slowest")]
        return {
            "verdict": report.winner.name if report.winner else "No winner",
            "badge": "remembered" if kept else "just tuned",
            "state": "store" if kept else "done",
            "progress": 100,
            "status": f"{len(report.results)} candidates: {counts}. {decision.strategy} strategy, "
            f"{decision.launches} launches in {decision.wall_s:.1f} s, {clock}.",
            "figures": figures,
            "rows": _rows(report),
            "button": "Tune again",
        }


class LiveView:
    """What is known while a tune goes on."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._total = len(lab.bundled.kernel)
        self._best_ns: dict[str, int] = {}
        self._compiled: set[int] = set()
        self._tried: set[int] = set()
        self._failed: set[int] = set()
        self._samples = 0
        self._shown_s = 0.0
        self._began_s = time.monotonic()

    def add(self, event: Any) -> None:
        """Take an event of the tune in, and show it when the last view is old enough."""
        (self._compiled if event.kind == "compiled" else self._tried).add(event.candidate)
        if event.failure is not None:
            self._failed.add(event.candidate)
        if event.duration_ns is not None:
            self._samples += 1
            best_ns = self._best_ns.get(event.name, event.duration_ns)
            self._best_ns[event.name] = min(best_ns, event.duration_ns)
        now_s = time.monotonic()
        if now_s - self._shown_s >= _SHOW_EVERY_S:
            self._shown_s = now_s
            self.show()

    def show(self) -> None:
        """Show the view of now: the fastest first."""
        lab, compiled, tried = self._lab, len(self._compiled), len(self._tried)
        ranked = sorted(self._best_ns.items(), key=lambda item: item[1])
        scale_ns = (ranked[0][1], ranked[-1][1]) if ranked else (1, 1)
        rows = [
            _row(name, "" if rank else "best so far", time_ns, scale_ns, place=str(rank + 1))
            for rank, (name, time_ns) in enumerate(ranked[:_ROWS_WHILE_TUNING])
        ]
        status = f"{compiled} of {self._total} compiled, {tried} tried, {self._samples} samples"
        failed = f", {len(self._failed)} out" if self._failed else ""
        done = 20 * compiled + 30 * tried + 50 * self._samples / lab.tuner.config.usable_max_samples
        lab.show_outcome(
            {
                "verdict": f"Tuning {lab.bundled.name} {_extents(lab.bundled, lab.size)}",
                "badge": f"{time.monotonic() - self._began_s:.1f} s",
                "state": "tuning",
                "progress": min(99, round(done / max(1, self._total))),
                "status": status + failed,
                "figures": [(duration(ranked[0][1]), "best so far")] if ranked else [],
                "rows": rows,
                "button": "Tuning…",
            }
        )


def _rows(report: Any) -> list[View]:
    """The table: the winner and its ties, the others by time, then those without one."""
    order = {"winner": 0, "tie": 1}
    timed = [result for result in report.results if result.time_ns]
    timed.sort(key=lambda result: (order.get(result.status, 2), result.time_ns))
    scale_ns = report.winner_ns or 1, max((result.time_ns for result in timed), default=1)
    rows = []
    for place, result in enumerate(timed, 1):
        plain = result.status in ("winner", "tie", "slower")
        row = _row(
            result.name,
            result.status if plain else result.reason or result.status,
            result.time_ns,
            scale_ns,
            place=str(place),
            kind=result.status,
        )
        rows.append(row | {"interval": between(result.interval_ns) if result.interval_ns else ""})
    for result in report.results:
        if not result.time_ns:
            verdict = f"{result.status}: {result.reason}" if result.reason else result.status
            rows.append(_row(result.name, verdict, None, scale_ns, kind="out"))
    return rows


def _row(
    name: str, verdict: str, time_ns: int | None, scale_ns: tuple[int, int], **more: str
) -> View:
    """One row of the table; its bar is drawn between the best and the slowest of `scale_ns`."""
    row = {"place": "", "name": name, "time": "", "interval": "", "ratio": "", "bar": 0, "kind": ""}
    if time_ns:
        best_ns, slowest_ns = scale_ns
        row |= {"time": duration(time_ns), "ratio": factor(time_ns, best_ns)}
        row["bar"] = round(min(100, 100 * time_ns / min(slowest_ns, _WIDEST * best_ns)), 1)
    return row | {"verdict": verdict} | more


def _extents(bundled: Bundled, size: str) -> str:
    return " × ".join(f"{extent:,}".replace(",", " ") for extent in bundled.size(size))
