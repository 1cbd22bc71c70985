"""Gather, compile, tune: an application is walked once, and each key's outcome can be awaited."""

from __future__ import annotations

import asyncio
import io
import threading
from array import array

import pytest

import webtune as wt
from webtune.progress import show_progress
from webtune.testing import Faults, ScriptedDevice

TIMES = {"a": 5_000, "b": 1_000}

ADD = """
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main() { y[0] = y[0] + 1u; }
"""


def add_one(views, dispatch):
    views[0].cast("I")[0] += 1


def with_nested(make, inner=None):
    """An outer set, one of whose candidates runs `inner` on scratch memory."""
    inner = inner or make("ab", name="inner")
    outer = wt.TunableSet("outer", outputs=["y"])

    @outer.tunable("alone")
    def alone(rec, y):
        rec.dispatch(ADD, [y], 1)

    @outer.tunable("nesting")
    def nesting(rec, y):
        rec.dispatch(ADD, [y], 1)
        rec.run(inner, rec.scratch((32,), "u32"))

    return outer, inner


def test_the_application_is_walked_and_nothing_is_measured_or_launched(make, opened):
    device = ScriptedDevice(TIMES)
    tuner = opened(device)
    y = tuner.empty(4, "u32")
    with wt.gather(tuner) as g:
        assert tuner.run(make("ab"), y) == wt.Compiled()
        assert tuner.run(make("ab"), y) == wt.Compiled()
        assert tuner.lookup(make("ab"), y) == wt.Compiled()
        tuner.run(make("ab"), tuner.empty(8, "u32"))
    assert len(g) == 2
    assert device.submits == []
    assert [entry.state for entry in g] == [wt.GatherState.COLLECTED] * 2


def test_a_tuner_a_gather_and_its_keys_are_told_in_one_line_each(make, opened):
    tuner = opened(ScriptedDevice(TIMES))
    where = tuner.device.identity.label
    assert (
        repr(tuner) == f"<Tuner on {where} (open): 0 keys known, picks in {tuner.store.location}>"
    )
    with wt.gather(tuner) as g:
        assert repr(g) == f"<Gather of 0 keys on {where}: nothing yet>"
        tuner.run(make("ab"), tuner.empty(4, "u32"))
    (entry,) = g
    assert repr(entry) == f"<Gathered {entry.name} {entry.key}: collected>"
    g.tune()
    assert repr(entry) == f"<Gathered {entry.name} {entry.key}: measured>"
    assert repr(g) == f"<Gather of 1 key on {where}: 1 measured>"
    assert "(open): 1 key known" in str(tuner)
    tuner.close()
    assert "(closed)" in repr(tuner)


def test_kernels_are_launched_where_the_caller_says_so(make, opened):
    device = ScriptedDevice(TIMES, effect=add_one)
    tuner = opened(device)
    y = tuner.upload(array("I", [0]))
    with wt.gather(tuner, launch=True) as g:
        tuner.run(make("ab"), y)
        tuner.run(make("ab"), y)
    assert list(tuner.download(y)) == [2]
    assert device.submits == ["a", "a"]
    assert device.shots == []
    assert len(g) == 1


def test_all_candidates_are_compiled_before_anything_is_timed(make, opened):
    device = ScriptedDevice(TIMES)
    tuner = opened(device)
    with wt.gather(tuner) as g:
        for size in (4, 8, 16):
            tuner.run(make("ab"), tuner.empty(size, "u32"))
    assert g.compile() == 6
    assert len(device.compiled) == 6
    assert device.submits == []
    g.tune()
    assert device.shots


def test_a_candidate_that_does_not_compile_is_told_and_the_rest_is_tuned(make, opened):
    device = ScriptedDevice(TIMES, faults=Faults(compile={"b": "no such type"}))
    tuner = opened(device)
    with wt.gather(tuner) as g:
        tuner.run(make("ab"), tuner.empty(4, "u32"))
    [entry] = g.tune()
    assert entry.compile_failures == {"b": "no such type"}
    assert entry.report.winner.name == "a"


def test_each_keys_outcome_is_listed(make, opened, tmp_path):
    faults = Faults(compile={"x": "no", "z": "no"})
    tuner = opened(ScriptedDevice(TIMES, faults=faults), store=tmp_path)
    known, broken = make("ab", name="known"), make("xz", name="broken")
    y = tuner.empty(4, "u32")
    tuner.tune(known, y)
    with wt.gather(tuner) as g:
        for ops in (known, make("a", name="single"), make("ab", name="new"), broken):
            tuner.run(ops, y)
    seen = []
    g.tune(progress=lambda done, total, entry: seen.append((done, total, entry.name)))
    states = {entry.name: entry.state for entry in g}
    assert states == {
        "known": wt.GatherState.KNOWN,
        "single": wt.GatherState.KNOWN,
        "new": wt.GatherState.PERSISTED,
        "broken": wt.GatherState.FAILED,
    }
    assert seen == [(1, 2, "new"), (2, 2, "broken")]
    errors = {entry.name: entry.error for entry in g if entry.error is not None}
    assert isinstance(errors.pop("broken"), wt.NoValidKernel)
    assert errors == {}


def test_a_pick_that_no_store_keeps_is_measured_and_not_persisted(make, opened):
    tuner = opened(ScriptedDevice(TIMES), store="none")
    with wt.gather(tuner) as g:
        tuner.run(make("ab"), tuner.empty(4, "u32"))
    [entry] = g.tune()
    assert entry.state is wt.GatherState.MEASURED


def test_a_key_inside_another_keys_candidate_is_collected_once_and_tuned_first(make, opened):
    outer, inner = with_nested(make)
    device = ScriptedDevice(TIMES)
    tuner = opened(device)
    with wt.gather(tuner) as g:
        tuner.run(outer, tuner.empty(4, "u32"))
        tuner.run(outer, tuner.empty(8, "u32"))
        tuner.run(inner, tuner.empty(32, "u32"))
    assert [(entry.name, entry.nested) for entry in g] == [
        ("inner", True),
        ("outer", False),
        ("outer", False),
    ]
    g.tune()
    assert {entry.state for entry in g} <= {wt.GatherState.MEASURED, wt.GatherState.PERSISTED}
    labels = [shot.program.label for shot in device.shots]
    assert labels.index("b") < labels.index("nesting")
    assert all(not entry.report.results[0].reason.startswith("it raised") for entry in g)


def test_gathering_gives_back_all_memory_it_took(make, opened):
    outer, _ = with_nested(make)
    device = ScriptedDevice(TIMES)
    tuner = opened(device)
    with wt.gather(tuner) as g:
        tuner.run(outer, tuner.empty(4, "u32"))
    assert len(device.buffers) > 1
    g.compile()
    g.tune()
    scratch = [buffer for buffer in device.buffers if "nesting" in buffer.label]
    assert scratch == []


def test_after_the_block_the_tuner_tunes_again(make, opened):
    tuner = opened(ScriptedDevice(TIMES))
    y = tuner.empty(4, "u32")
    with wt.gather(tuner):
        assert tuner.run(make("ab"), y) == wt.Compiled()
    assert tuner.run(make("ab"), y) == wt.Hit(1)


def test_one_block_at_a_time_and_no_tuning_inside_it(make, opened):
    tuner = opened(ScriptedDevice(TIMES))
    with wt.gather(tuner) as g:
        with pytest.raises(wt.UsageError, match="gathering already"), wt.gather(tuner):
            pass
        with pytest.raises(wt.UsageError, match="leave the gather block"):
            g.tune()


def test_a_key_is_tuned_in_the_environment_it_was_met_in(make, opened):
    tuner = opened(ScriptedDevice(TIMES))
    with wt.environment("battery"), wt.gather(tuner) as g:
        tuner.run(make("ab"), tuner.empty(4, "u32"))
    g.tune()
    assert [address.environment for address, _ in tuner.store.entries()] == ["battery"]


def test_each_keys_outcome_can_be_awaited_on_a_page(make, page):
    async def main():
        faults = Faults(compile={"x": "no", "z": "no"})
        tuner = page(ScriptedDevice(TIMES, awaiting=True, faults=faults))
        y = tuner.empty(4, "u32")
        with wt.gather(tuner) as g:
            tuner.run(make("ab", name="good"), y)
            tuner.run(make("xz", name="bad"), y)
        good, bad = g
        waiting = asyncio.gather(good.finished(), bad.finished(), return_exceptions=True)
        await asyncio.sleep(0)
        await g.tune_async()
        report, error = await asyncio.wait_for(waiting, 5)
        assert report.winner.name == "b"
        assert isinstance(error, wt.NoValidKernel)

    asyncio.run(main())


def test_an_outcome_can_be_awaited_while_another_thread_tunes(make, opened):
    tuner = opened(ScriptedDevice(TIMES))
    with wt.gather(tuner) as g:
        tuner.run(make("ab"), tuner.empty(4, "u32"))
    [entry] = g

    async def main():
        thread = threading.Timer(0.05, g.tune)
        thread.start()
        report = await asyncio.wait_for(entry.finished(), 10)
        thread.join()
        return report

    assert asyncio.run(main()).winner.name == "b"


def test_at_most_so_many_pipelines_compile_at_the_same_time(make, page):
    class Counting(ScriptedDevice):
        now, most = 0, 0

        async def compile(self, dispatches):
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(3):
                await asyncio.sleep(0)
            self.now -= 1
            return self.compile_now(dispatches)

    async def main():
        device = Counting(TIMES, awaiting=True)
        tuner = page(device, compile_parallelism=4)
        with wt.gather(tuner) as g:
            for size in range(4, 14):
                tuner.run(make("ab"), tuner.empty(size, "u32"))
        assert await g.compile_async() == 20
        return device.most

    assert asyncio.run(main()) == 4


def test_one_bar_shows_the_tunes_of_all_keys(make, opened):
    tuner = opened(ScriptedDevice(TIMES))
    with wt.gather(tuner) as g:
        for size in (4, 8, 16):
            tuner.run(make("ab"), tuner.empty(size, "u32"))
    events = []
    stream = io.StringIO()
    assert g.candidates == 6
    with show_progress("application", g.candidates, stream=stream) as line:

        def listen(event):
            events.append(event)
            line(event)

        g.tune(listen=listen)
    assert stream.getvalue() == "application: tuning 6 candidates\n"
    assert {event.candidate for event in events} == set(range(6))
    launches = [event.launches for event in events]
    assert launches == sorted(launches)
    assert launches[-1] == sum(entry.report.decision.launches for entry in g)
    assert g.candidates == 0
