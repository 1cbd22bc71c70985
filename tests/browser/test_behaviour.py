"""Gathering, nested kernels, environments, groups, roofline, records and bundles inside pages."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webtune.testing.browser import PythonPage

INSIDE = (Path(__file__).parent / "inside.py").read_text()


def run(
    page: PythonPage,
    function: Callable[..., Any],
    *helpers: Callable[..., Any],
    **arguments: Any,
) -> Any:
    """Run a function inside, after the helpers of inside.py and those given."""
    texts = [textwrap.dedent(inspect.getsource(each)) for each in (*helpers, function)]
    source = "\n\n".join([INSIDE, *texts])
    return page.run_source(source, function.__name__, timeout_s=120, **arguments)


@pytest.fixture(params=["314 main", "0.27 worker"])
def corner(request: pytest.FixtureRequest, shared: Callable[[str], PythonPage]) -> PythonPage:
    """Each version of Pyodide and each kind of thread, once."""
    return shared(request.param)


# ruff: noqa: F821 (names of inside.py)


async def gathered() -> Any:
    async with opened() as tuner:
        good, bad = spin(), spin(name="bad")
        bad = wt.Kernel(
            "bad",
            source=SPIN.replace("1664525u", "no_such_name"),
            params=wt.grid(TURNS=[1, 2]),
            workgroups=1,
        )
        with wt.gather(tuner) as g:
            for count in (1024, 2048):
                tuner.run(good, *data(tuner, count))
            tuner.run(bad, *data(tuner))
        compiled = await g.compile_async()
        outcomes = asyncio.gather(*(entry.finished() for entry in g), return_exceptions=True)
        keys, heard = [], []
        await g.tune_async(
            lambda done, total, entry: keys.append([done, total, entry.state.value]),
            listen=lambda event: heard.append(event.candidate),
        )
        ended = [type(each).__name__ for each in await outcomes]
        refused = ["no_such_name" in text for e in g for text in e.compile_failures.values()]
        return [compiled, keys, ended, sorted(set(heard)), refused]


def test_an_application_is_gathered_compiled_and_tuned_in_a_page(place: PythonPage) -> None:
    compiled, keys, ended, heard, refused = run(place, gathered)
    assert compiled == 6
    assert keys == [[1, 3, "measured"], [2, 3, "measured"], [3, 3, "failed"]]
    assert ended == ["TuneReport", "TuneReport", "NoValidKernel"]
    assert heard == list(range(6))
    assert refused == [True, True]


async def nested() -> Any:
    async with opened() as tuner:
        inner = spin()
        outer = wt.TunableSet("outer", outputs=["y"])

        @outer.tunable("by hand")
        def by_hand(rec, x, y):
            rec.dispatch(SPIN, [x, y], wt.ceil_div(x.size, 32), constants={"TURNS": 9_000})

        @outer.tunable("nesting")
        def nesting(rec, x, y):
            middle = rec.scratch(x.shape, "f32")
            rec.run(inner, x, middle)
            rec.run(inner, x, y)

        x, y = data(tuner)
        first = type(tuner.run(outer, x, y)).__name__
        served = await doubled(tuner, y)
        await tuner.settled()
        report = tuner.explain(outer, x, y)
        hit = type(tuner.run(outer, x, y)).__name__
        right = await doubled(tuner, y)
        known = type(tuner.lookup(inner, x, y)).__name__
        why = [one.reason for one in report.results if one.status == "rejected"]
        return [first, served, report.winner.name, hit, right, known, why, len(tuner.failures)]


def test_an_outer_tune_waits_for_the_inner_one_and_meanwhile_fallbacks_run(
    place: PythonPage,
) -> None:
    found = run(place, nested)
    assert found == ["Pending", True, "nesting", "Hit", True, "Hit", [], 0]


async def many_tasks() -> Any:
    decisions = []
    async with opened(decision_log=decisions.append) as tuner:
        kernel = spin()
        x, y = data(tuner)
        reports = asyncio.gather(*(tuner.tune_async(kernel, x, y) for _ in range(16)))
        await asyncio.sleep(0)
        states = {type(tuner.run(kernel, x, y)).__name__ for _ in range(16)}
        winners = {report.winner.params["TURNS"] for report in await reports}
        return [sorted(states), sorted(winners), decisions]


def test_many_tasks_start_one_tune_and_its_line_has_the_published_shape(main: PythonPage) -> None:
    import jsonschema

    from webtune.report.decision_log import schema

    states, winners, decisions = run(main, many_tasks)
    assert states == ["Pending"]
    assert winners == [60]
    [line] = decisions
    jsonschema.Draft202012Validator(schema()).validate(line)
    assert {"browser", "pyodide", "python", "webtune"} <= dict(line["versions"]).keys()


async def environments() -> Any:
    async with opened() as tuner:
        kernel = spin()
        x, y = data(tuner)
        tuner.run(kernel, x, y)
        with wt.environment("battery"):
            other = type(tuner.lookup(kernel, x, y)).__name__
            await tuner.settled()
            still = type(tuner.lookup(kernel, x, y)).__name__
        back = type(tuner.run(kernel, x, y)).__name__
        places = [address.environment for address, _ in tuner.store.entries()]
        return [other, still, back, places]


def test_a_tune_under_way_settles_in_the_environment_it_began_in(main: PythonPage) -> None:
    assert run(main, environments) == ["Miss", "Miss", "Hit", ["default"]]


async def close_enough() -> Any:
    from webtune.tuning.peaks import Peaks

    found = []
    async with opened(compute_threshold=0.02) as tuner:
        kernel = spin((60, 6_000, 7_000), work=lambda p, x, y: wt.Work(flops=1e6, bytes=1e4))
        first = await tuner.tune_async(kernel, *data(tuner))
        # A peak ten times what was reached, of which a fiftieth is enough.
        tuner._scheduler.limits.peaks = Peaks(1e16 / first.winner_ns, 1e15, 1_000)
        for strategy in ("adaptive", "fixed"):
            report = await tuner.tune_async(kernel, *data(tuner), strategy=strategy, fresh=True)
            counts = {one.params["TURNS"]: len(one.samples_ns) for one in report.results}
            spared = min(counts.values()) < counts[report.winner.params["TURNS"]]
            found.append([report.winner.params["TURNS"], spared, 0.01 < report.achieved < 1,
                          "roofline" in str(report)])  # fmt: skip
    return found


def test_a_candidate_within_the_limit_ends_an_awaited_search(main: PythonPage) -> None:
    assert run(main, close_enough) == [[60, True, True, True]] * 2


def probing() -> Any:
    """Opens tuners whose peaks take seconds on a processor: webtune's own probes on small buffers,
    on a device that counts what is timed."""
    import contextlib

    from webtune.hosts.browser import open_device

    class Counting:
        launches = 0

        def __init__(self, device):
            self._device = device
            self.limits = {**device.limits, "maxStorageBufferBindingSize": 1 << 22}

        def __getattr__(self, name):
            return getattr(self._device, name)

        async def time(self, shots):
            self.launches += len(shots)
            return await self._device.time(shots)

    @contextlib.asynccontextmanager
    async def counted(**settings):
        async with opened(device=Counting(await open_device()), **settings) as tuner:
            yield tuner

    return counted


async def probe_twice() -> Any:
    from webtune.tuning.probes import ARITHMETIC, LAUNCH, MEMORY

    async with probing()(store="peaks") as tuner:
        unknown = tuner.known_peaks()
        peaks = await tuner.peaks_async()
        probed = tuner.device.launches
        again = await tuner.peaks_async()
        repeated = tuner.device.launches - probed
        await tuner.store.flush()
    forget()
    async with probing()(store="peaks") as tuner:
        with wt.environment("battery"):
            known = tuner.known_peaks()
            remembered = await tuner.peaks_async()
        names = sorted({address.name for address, _ in tuner.store.entries()})
        fresh = tuner.device.launches
        own = sorted(probe.name for probe in (ARITHMETIC, LAUNCH, MEMORY))
    return {
        "unknown": unknown,
        "same": again == peaks and known == peaks and remembered == peaks,
        "launches": [probed, repeated, fresh],
        "own": names == own,
        "flops_per_s": peaks.flops_per_s,
        "bytes_per_s": peaks.bytes_per_s,
        "launch_ns": peaks.launch_ns,
    }


def test_peaks_are_probed_in_a_page_and_its_next_tuner_remembers_them(corner: PythonPage) -> None:
    found = run(corner, probe_twice, probing)
    assert found["unknown"] is None
    assert found["launches"][0] >= 17
    assert found["launches"][1:] == [0, 0]
    assert found["same"]
    assert found["own"]
    # Any processor lies well within these.
    assert 1e7 < found["flops_per_s"] < 1e14
    assert 1e7 < found["bytes_per_s"] < 1e13
    assert 0 < found["launch_ns"] < 1_000_000_000


async def watch_probes() -> Any:
    import json
    import time

    from pyodide.code import run_js

    watch = run_js("""() => {
      const tasks = []; let frames = 0, on = true;
      const seen = new PerformanceObserver(list => {
        for (const one of list.getEntries()) tasks.push(one.duration); });
      seen.observe({ type: "longtask" });
      const frame = () => { frames++; if (on) requestAnimationFrame(frame); };
      requestAnimationFrame(frame);
      return () => { on = false; seen.disconnect(); return JSON.stringify([tasks, frames]); };
    }""")
    async with probing()() as tuner:
        await asyncio.sleep(0.2)
        seen = watch()
        began = time.monotonic()
        await tuner.peaks_async()
        took_s = time.monotonic() - began
        await asyncio.sleep(0.1)
        return [*json.loads(seen()), took_s]


def test_the_page_stays_alive_while_its_peaks_are_probed(main: PythonPage) -> None:
    tasks_ms, frames, took_s = run(main, watch_probes, probing)
    # Sixty frames a second and no task of 50 ms, and ten times worse on a busy machine.
    assert frames >= 6 * took_s
    assert max(tasks_ms, default=0.0) <= 500


async def reach_the_peak(strategy: str) -> Any:
    decisions = []
    settings = {"compute_threshold": 0.05, "decision_log": decisions.append}
    async with probing()(store="roofline", **settings) as tuner:
        peaks = await tuner.peaks_async()
        await tuner.store.flush()
        # Two operations a turn, and a thousand turns would do.
        work = wt.Work(flops=2.0 * 1_000 * 1024)
        kernel = spin((200_000, 1_000, 180_000), name=strategy, work=lambda p, x, y: work)
        x, y = data(tuner)
        report = await tuner.tune_async(kernel, x, y, strategy=strategy)
        told = tuner.explain(kernel, x, y)
        events = [event["text"] for event in decisions[-1]["events"]
                  if event["kind"] == "short circuit"]  # fmt: skip
        return {
            "winner": report.winner.params["TURNS"],
            "samples": {one.params["TURNS"]: len(one.samples_ns) for one in report.results},
            "why": {one.params["TURNS"]: one.reason for one in told.results},
            "limit": report.decision.limit_ns
            == peaks.limit_ns(work, tuner.config)
            == told.decision.limit_ns,
            "achieved": report.achieved,
            "same": told.achieved == report.achieved,
            "table": str(told),
            "recorded": decisions[-1]["limit_ns"] == report.decision.limit_ns,
            "events": events,
        }


@pytest.mark.parametrize("strategy", ["adaptive", "fixed"])
def test_a_candidate_close_to_the_pages_measured_peak_ends_the_search(
    corner: PythonPage, strategy: str
) -> None:
    found = run(corner, reach_the_peak, probing, strategy=strategy)
    assert found["winner"] == 1_000
    if strategy == "adaptive":
        assert found["samples"] == {"200000": 1, "1000": 2, "180000": 0}
        assert found["why"]["180000"] == "TURNS=1000 is close enough to the device's peak"
    else:
        assert found["samples"] == {"200000": 6, "1000": 12, "180000": 6}
    assert found["limit"]
    assert found["recorded"]
    [event] = found["events"]
    assert "TURNS=1000 is within the limit" in event
    assert 0.01 < found["achieved"] < 100
    assert found["same"]
    assert f"It reaches {found['achieved']:.0%} of this device's roofline; at" in found["table"]


async def groups() -> Any:
    async with opened() as tuner:
        first = wt.Group("first", priority=2)
        never = wt.Group("never", priority=lambda key: -1)
        ops = wt.TunableSet("grouped")
        ops.add(spin((6_000,), name="a"), groups={first: 0})
        ops.add(spin((60,), name="b"), groups={wt.Group("second", priority=1): 0})
        ops.add(spin((50,), name="c"), groups={never: 0})
        report = await tuner.tune_async(ops, *data(tuner))
        return {one.name.partition(":")[0]: [one.status, one.reason] for one in report.results}


def test_groups_order_the_search_and_reasons_are_told(main: PythonPage) -> None:
    found = run(main, groups)
    assert found["a"][0] == "winner"
    assert "never reached" in found["b"][1]
    assert "group 'never' has priority -1" in found["c"][1]


async def patience() -> Any:
    async with opened() as tuner:
        stubborn = wt.Group("stubborn", patience=2)
        ops = wt.TunableSet("patient")
        ops.add(spin((30_000,), name="first"))
        # A miss, a new best, and from there two misses in a row.
        ops.add(spin((90_000, 60, 60_000, 50_000, 40, 30), name="tried"), groups={stubborn: 0})
        ops.add(spin((40_000,), name="last"))
        x, y = data(tuner)
        heard = set()
        await tuner.tune_async(
            ops, x, y, strategy="adaptive", progress=lambda event: heard.add(event.name)
        )
        told = tuner.explain(ops, x, y)
        states = {one.name: [one.status, one.reason] for one in told.results}
        return [told.decision.strategy, told.winner.name, sorted(heard), states, str(told)]


def test_patience_ends_a_group_that_stops_improving_and_no_other(place: PythonPage) -> None:
    strategy, winner, heard, states, table = run(place, patience)
    assert strategy == "adaptive"
    assert winner == "tried: TURNS=60"
    reason = "2 in a row of group 'stubborn' did not improve on the best"
    skipped = {name: why for name, (status, why) in states.items() if status == "skipped"}
    assert skipped == {"tried: TURNS=40": reason, "tried: TURNS=30": reason}
    assert set(heard) == set(states) - set(skipped)
    assert reason in table


async def priorities() -> Any:
    found = []
    async with opened() as tuner:

        def by_size(large, small):
            return lambda key: large if key[0][1][0] >= 2048 else small

        first = wt.Group("first", priority=3)
        wide = wt.Group("wide", priority=by_size(2, 1))
        narrow = wt.Group("narrow", priority=by_size(1, 2))
        huge = wt.Group("huge", priority=by_size(4, -1))
        broken = wt.Kernel("broken", source=SPIN.replace("1664525u", "no_such_name"),
                           params=wt.grid(TURNS=[1]), workgroups=1)  # fmt: skip
        rejected = wt.TunableSet("rejected", outputs=["y"])

        @rejected.tunable("declines")
        def declines(rec, x, y):
            raise wt.Reject("not today")

        ops = wt.TunableSet("by size")
        ops.add(spin((50,), name="wide"), groups={wide: 0})
        ops.add(spin((60_000, 60), name="narrow"), groups={narrow: 0})
        ops.add(spin((40,), name="narrow, later"), groups={narrow: -1})
        ops.add(broken, groups={first: 0})
        ops.add(rejected, groups={huge: 0})
        for count in (1024, 2048):
            x, y = data(tuner, count)
            await tuner.tune_async(ops, x, y, strategy="adaptive")
            told = tuner.explain(ops, x, y)
            states = {one.name: [one.status, one.reason] for one in told.results}
            found.append([told.winner.name, states, str(told)])
    return found


def test_the_key_orders_groups_and_explain_tells_who_never_ran_and_why(place: PythonPage) -> None:
    small, large = run(place, priorities)
    never = "never reached: a batch before it had an answer"

    winner, states, table = small
    assert winner == "narrow: TURNS=60"
    assert states["narrow: TURNS=60000"][0] in ("slower", "eliminated")
    assert states["wide: TURNS=50"] == ["skipped", never]
    # Nothing of the batch before could run, so the next had its turn.
    assert "no_such_name" in states["broken: TURNS=1"][1]
    negative = "group 'huge' has priority -1 for this key (negative: skipped)"
    assert states["rejected: declines"] == ["skipped", negative]
    inside = "its priority in group 'narrow' is -1 (negative: skipped)"
    assert states["narrow, later: TURNS=40"] == ["skipped", inside]
    assert all(reason in table for reason in (never, negative, inside))

    winner, states, table = large
    assert winner == "wide: TURNS=50"
    assert states["narrow: TURNS=60"] == states["narrow: TURNS=60000"] == ["skipped", never]
    assert states["rejected: declines"] == ["rejected", "not today"]
    assert never in table


async def bundles(namespace: str) -> Any:
    from webtune.store.bundle import Bundle

    async with opened(store=namespace) as tuner:
        await tuner.tune_async(spin(), *data(tuner))
        text = Bundle.of(tuner.store).dumps()
        await tuner.store.flush()
    merged = Bundle.loads(text).merge(Bundle.loads(text)).dumps() == text
    forget()
    async with opened(store=namespace + "-user", bundle=text) as tuner:
        shipped = type(tuner.run(spin(), *data(tuner))).__name__
        await tuner.settled()
        written = [name for name, _ in tuner.store._user.entries()]
    async with opened(store=namespace + "-import") as tuner:
        changed = Bundle.loads(text).import_into(tuner.store)
        await tuner.store.flush()
        imported = type(tuner.run(spin(), *data(tuner))).__name__
    return [merged, shipped, written, changed, imported]


def test_picks_travel_as_bundles_and_a_shipped_one_lies_beneath(place: PythonPage) -> None:
    assert run(place, bundles, namespace="bundled") == [True, "Hit", [], 1, "Hit"]


async def partial() -> Any:
    async with opened() as tuner:
        x, y = data(tuner)
        turns = (60, 3_000, 6_000, 24_000, 48_000)
        await tuner.tune_async(spin(turns), x, y)
        heard = set()
        report = await tuner.tune_async(
            spin((*turns, 5_000)), x, y, progress=lambda event: heard.add(event.name)
        )
        spared = [one.params["TURNS"] for one in report.results if "earlier tune" in one.reason]
        return [report.winner.params["TURNS"], sorted(heard), spared]


def test_a_new_candidate_is_timed_with_the_leaders_only(main: PythonPage) -> None:
    winner, heard, spared = run(main, partial)
    assert winner == 60
    assert {"TURNS=60", "TURNS=5000"} <= set(heard)
    assert 48_000 in spared
    assert "TURNS=48000" not in heard
    assert len(heard) + len(spared) == 6
