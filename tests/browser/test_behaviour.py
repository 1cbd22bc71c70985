"""Gathering, nested kernels, environments, groups, roofline, records and bundles inside pages."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from webtune.testing_browser import PythonPage

INSIDE = (Path(__file__).parent / "inside.py").read_text()


def run(page: PythonPage, function: Callable[..., Any], **arguments: Any) -> Any:
    """Run a function inside, after the helpers of inside.py."""
    source = INSIDE + "\n\n" + textwrap.dedent(inspect.getsource(function))
    return page.run_source(source, function.__name__, timeout_s=120, **arguments)


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
        outcomes = asyncio.gather(*(entry.settled() for entry in g), return_exceptions=True)
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
    async with opened(record=decisions.append) as tuner:
        kernel = spin()
        x, y = data(tuner)
        reports = asyncio.gather(*(tuner.tune_async(kernel, x, y) for _ in range(16)))
        await asyncio.sleep(0)
        states = {type(tuner.run(kernel, x, y)).__name__ for _ in range(16)}
        winners = {report.winner.params["TURNS"] for report in await reports}
        return [sorted(states), sorted(winners), decisions]


def test_many_tasks_start_one_tune_and_its_line_has_the_published_shape(main: PythonPage) -> None:
    import jsonschema

    from webtune.sink import schema

    states, winners, decisions = run(main, many_tasks)
    assert states == ["Pending"]
    assert winners == [60]
    [line] = decisions
    jsonschema.Draft202012Validator(schema()).validate(line)
    assert {"browser", "pyodide", "python", "webtune"} <= line["versions"].keys()


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
    from webtune.core.peaks import Peaks

    found = []
    async with opened() as tuner:
        # A device so slow that whatever runs reaches it.
        tuner._remembered.peaks = Peaks(1e6, 1e6, 1_000)
        kernel = spin((60, 6_000, 7_000), work=lambda p, x, y: wt.Work(flops=1e6, bytes=1e4))
        for strategy in ("adaptive", "fixed"):
            report = await tuner.tune_async(kernel, *data(tuner), strategy=strategy, fresh=True)
            counts = {one.params["TURNS"]: len(one.samples_ns) for one in report.results}
            spared = min(counts.values()) < counts[report.winner.params["TURNS"]]
            found.append([report.winner.params["TURNS"], spared, report.achieved > 1,
                          "roofline" in str(report)])  # fmt: skip
    return found


def test_a_candidate_within_the_limit_ends_an_awaited_search(main: PythonPage) -> None:
    assert run(main, close_enough) == [[60, True, True, True]] * 2


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
