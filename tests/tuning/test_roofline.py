"""Measured peaks make a limit, and a candidate within it ends the search, on either host."""

from __future__ import annotations

import asyncio

import pytest

import webtune as wt
from webtune.config import Config
from webtune.store.base import Selector
from webtune.strategies.bounds import achieved
from webtune.testing import ScriptedAdapter, ScriptedDevice
from webtune.tuning.peaks import Peaks
from webtune.tuning.probes import (
    ARITHMETIC,
    LAUNCH,
    MEMORY,
    arithmetic_flops,
    memory_elements,
    memory_ladder,
    most_candidates,
    walk,
)

FLOPS_PER_S = 1e12
BYTES_PER_S = 1e11
LAUNCH_NS = 2_000
TIMES = {"a": 50_000, "b": 2_000, "c": 1_900, "d": 60_000}
SMALL = {"maxStorageBufferBindingSize": 1 << 20}
WORK = wt.Work(flops=1e6, bytes=1e4)
"""1 µs at the peak; the limit is 1 µs / 0.7 and a launch: 3.43 µs."""


def times(dispatch):
    """The probes at the peaks above, candidates by name."""
    if dispatch.source == ARITHMETIC.source:
        elements = dispatch.bindings[0].nbytes // 4
        return LAUNCH_NS + round(arithmetic_flops(elements) / FLOPS_PER_S * 1e9)
    if dispatch.source == MEMORY.source:
        return LAUNCH_NS + round(2 * dispatch.bindings[0].nbytes / BYTES_PER_S * 1e9)
    return TIMES.get(dispatch.label, LAUNCH_NS)


def device(label="scripted GPU", awaiting=False):
    return ScriptedDevice(
        times, adapter=ScriptedAdapter(label=label, limits=SMALL), awaiting=awaiting
    )


def job(make, **more):
    return make("abcd", work=lambda y: WORK, **more)


def samples(report):
    return {one.name: len(one.samples_ns) for one in report.results}


def test_the_probes_find_the_peaks_of_the_device(opened):
    peaks = opened(device()).peaks()
    assert peaks.flops_per_s == pytest.approx(FLOPS_PER_S, rel=0.01)
    assert peaks.bytes_per_s == pytest.approx(BYTES_PER_S, rel=0.01)
    assert peaks.launch_ns == LAUNCH_NS


def test_peaks_are_remembered_for_the_hardware_in_every_environment(opened, tmp_path):
    first = opened(device(), store=tmp_path)
    with wt.environment("battery"):
        peaks = first.peaks()
    first.close()
    gpu = device()
    second = opened(gpu, store=tmp_path)
    with wt.environment("mains"):
        assert second.known_peaks() == peaks
        assert second.peaks() == peaks
    assert gpu.submits == []
    other = opened(device(label="another GPU"), store=tmp_path)
    assert other.known_peaks() is None


def test_fresh_peaks_are_measured_again(opened):
    gpu = device()
    tuner = opened(gpu)
    tuner.peaks()
    before = len(gpu.shots)
    tuner.peaks()
    assert len(gpu.shots) == before
    tuner.peaks(fresh=True)
    assert len(gpu.shots) > before


def test_work_becomes_a_limit_by_threshold_and_launch(opened):
    peaks = opened(device()).peaks()
    assert peaks.limit_ns(WORK, Config()) == pytest.approx(1_000 / 0.7 + LAUNCH_NS, rel=0.01)
    moved = wt.Work(flops=1, bytes=1e6)
    assert peaks.limit_ns(moved, Config()) == pytest.approx(10_000 / 0.8 + LAUNCH_NS, rel=0.01)
    assert peaks.limit_ns(wt.Work(), Config()) is None


def test_adaptive_stops_at_a_candidate_confirmed_within_the_limit(make, opened):
    gpu = device()
    decisions = []
    tuner = opened(gpu, decision_log=decisions.append)
    tuner.peaks()
    report = tuner.tune(job(make), tuner.empty(4, "u32"), strategy="adaptive")
    assert report.winner.name == "b"
    assert samples(report) == {"a": 1, "b": 2, "c": 0, "d": 0}
    skipped = {one.name: one.reason for one in report.results if one.status == "skipped"}
    assert skipped == dict.fromkeys("cd", "b is close enough to the device's peak")
    assert [event["kind"] for event in decisions[-1]["events"]][-1] == "short circuit"
    assert decisions[-1]["limit_ns"] == report.decision.limit_ns
    assert [bound["name"] for bound in decisions[-1]["bounds"]] == ["compute", "memory"]


def test_more_confirmations_are_taken_where_more_are_asked_for(make, opened):
    tuner = opened(device(), short_circuit_samples=5)
    tuner.peaks()
    report = tuner.tune(job(make), tuner.empty(4, "u32"), strategy="adaptive")
    assert samples(report)["b"] == 5


def test_fixed_stops_sampling_the_others_once_one_is_within_the_limit(make, opened):
    tuner = opened(device())
    tuner.peaks()
    full = tuner.tune(job(make, short_circuit=False), tuner.empty(4, "u32"), strategy="fixed")
    report = tuner.tune(job(make), tuner.empty(8, "u32"), strategy="fixed")
    assert report.winner.name == "c"
    assert report.decision.launches < full.decision.launches
    assert samples(report)["c"] == samples(full)["c"]
    assert samples(report)["a"] < samples(full)["a"]


@pytest.mark.parametrize("strategy", ["adaptive", "fixed"])
def test_an_awaited_tune_short_circuits_too(make, page, strategy):
    async def main():
        decisions = []
        tuner = page(device(awaiting=True), decision_log=decisions.append)
        await tuner.peaks_async()
        y = tuner.empty(4, "u32")
        report = await tuner.tune_async(job(make), y, strategy=strategy)
        assert report.winner.name == {"adaptive": "b", "fixed": "c"}[strategy]
        assert "short circuit" in [event["kind"] for event in decisions[-1]["events"]]

    asyncio.run(main())


def test_without_peaks_or_with_the_switch_off_nothing_is_cut_short(make, opened):
    tuner = opened(device())
    report = tuner.tune(job(make), tuner.empty(4, "u32"))
    assert report.decision.limit_ns is None
    assert min(samples(report).values()) >= 1
    tuner.peaks()
    off = opened(device(), short_circuit=False)
    off.peaks()
    report = off.tune(job(make), off.empty(4, "u32"))
    assert report.decision.limit_ns is None
    assert min(samples(report).values()) >= 1


def test_every_table_and_report_tells_the_fraction_of_the_roofline(make, opened):
    tuner = opened(device(), short_circuit=False)
    tuner.peaks()
    y = tuner.empty(4, "u32")
    report = tuner.tune(job(make), y)
    assert report.achieved == pytest.approx(1_000 / 1_900, rel=0.01)
    assert "53% of this device's roofline" in str(tuner.explain(job(make), y))
    assert report.to_dict()["roofline"] == pytest.approx(0.526, abs=0.01)


def test_the_memory_probe_is_larger_than_caches_or_what_the_device_allows():
    assert memory_elements({}) * 4 == 64 << 20
    assert memory_elements(SMALL) * 4 == 1 << 20


def test_the_memory_probe_climbs_from_what_caches_hold_to_what_they_do_not():
    assert memory_ladder({}) == (1 << 15, 1 << 19, 1 << 22, 1 << 24)
    assert memory_ladder(SMALL) == (1 << 15, 1 << 18)


def test_a_working_set_is_held_against_the_fastest_that_may_serve_it():
    peaks = Peaks(1e12, 1e11, 2_000, ((1 << 18, 9e11), (1 << 22, 1e12), (1 << 25, 2e11)))
    assert peaks.bandwidth(1) == 1e12
    assert peaks.bandwidth((1 << 22) - 1) == 1e12
    assert peaks.bandwidth((1 << 25) - 1) == 1e12  # it may just fit the cache of the rung below
    assert peaks.bandwidth(1 << 25) == 2e11
    assert peaks.bandwidth(1 << 40) == 2e11
    assert Peaks(1e12, 1e11, 2_000).bandwidth(1) == 1e11


def test_a_kernel_that_a_cache_serves_does_not_stop_at_the_peak_beyond_caches(make, opened):
    def with_cache(dispatch):
        if dispatch.source == LAUNCH.source:
            return 20
        if dispatch.source != MEMORY.source:
            return times(dispatch)
        nbytes = 2 * dispatch.bindings[0].nbytes
        return 20 + round(nbytes / BYTES_PER_S * (1e8 if nbytes <= 1 << 18 else 1e9))

    tuner = opened(ScriptedDevice(with_cache, adapter=ScriptedAdapter(limits=SMALL)))
    peaks = tuner.peaks()
    assert peaks.bytes_per_s == pytest.approx(BYTES_PER_S, rel=0.01)
    assert peaks.cached == ((1 << 18, pytest.approx(10 * BYTES_PER_S, rel=0.01)),)
    # 2 µs at the peak beyond caches, 0.2 µs within: "b" takes 2 µs, and "c" 1.9 µs.
    kernel = make("abcd", work=lambda y: wt.Work(bytes=2e5))
    report = tuner.tune(kernel, tuner.empty(4, "u32"))
    assert min(samples(report).values()) >= 1
    assert report.winner.name == "c"
    assert tuner.known_peaks() == peaks


def test_what_is_moved_more_than_once_is_held_against_the_bandwidth_of_its_buffers():
    peaks = Peaks(1e12, 1e11, 2_000, ((1 << 18, 1e12), (1 << 20, 2e11)))
    often = wt.Work(bytes=1 << 20)
    assert peaks.bounds(often, Config())[1].peak_per_s == 2e11
    assert peaks.bounds(often, Config(), 1 << 19)[1].peak_per_s == 1e12
    assert peaks.bounds(often, Config(), 1 << 30)[1].peak_per_s == 2e11
    assert peaks.limit_ns(often, Config(), 1 << 19) < peaks.limit_ns(often, Config())
    cached, beyond = (peaks.bounds(often, Config(), size) for size in (1 << 19, None))
    assert achieved(cached, 5_000) < achieved(beyond, 5_000)


def test_a_buffer_that_is_passed_twice_is_one_working_set(opened):
    tuner = opened(device())
    both = wt.TunableSet("both", outputs=[])
    both.tunable("sum")(lambda rec, x, y: None)
    x, y = tuner.empty(256), tuner.empty(256)
    assert tuner._read(both, (x, y)).data_bytes == 2048
    assert tuner._read(both, (x, x)).data_bytes == 1024


@pytest.mark.parametrize("strategy", ["adaptive", "fixed", "seed-adaptive", "seed-fixed"])
def test_a_limit_that_a_time_disproves_is_given_up_within_the_same_tune(make, opened, strategy):
    decisions = []
    tuner = opened(device(), decision_log=decisions.append)
    tuner.peaks()
    # 10 µs at the peak, and "b" takes 2: it is within the limit, and shows that it is wrong.
    kernel = make("abcd", work=lambda y: wt.Work(bytes=1e6))
    report = tuner.tune(kernel, tuner.empty(4, "u32"), strategy=strategy)
    assert report.winner.name == "c"
    assert min(samples(report).values()) >= 1
    assert report.decision.limit_ns is None
    assert decisions[-1]["limit_ns"] is None
    assert decisions[-1]["launches"] == report.decision.launches
    first = decisions[-1]["events"][0]
    assert first["kind"] == "limit disproved"
    assert "faster than the device's measured peak; the limit is not used" in first["text"]
    assert "the limit is not used" in str(report)


def test_a_pick_that_beats_the_peak_keeps_the_next_tune_from_stopping_early(make, opened):
    quick = {"a": 50_000, "b": 2_000, "c": 1_000, "d": 60_000}
    adapter = ScriptedAdapter(limits=SMALL)
    tuner = opened(ScriptedDevice(lambda d: quick.get(d.label) or times(d), adapter=adapter))
    # 2 µs at the peak: "b" is all that could be hoped for, and "c" takes half of it.
    kernel = make("abcd", work=lambda y: wt.Work(bytes=2e5))
    y = tuner.empty(4, "u32")
    assert tuner.tune(kernel, y, strategy="adaptive").winner.name == "c"
    tuner.peaks()
    report = tuner.tune(kernel, y, strategy="adaptive", fresh=True)
    assert report.winner.name == "c"
    assert report.decision.limit_ns is None
    assert min(samples(report).values()) >= 1


def test_probes_that_are_missing_are_measured_and_the_others_are_not(opened, tmp_path):
    first = opened(device(), store=tmp_path)
    peaks = first.peaks()
    [rung] = {a.key for a, _ in first.store.entries() if a.name == MEMORY.name and "32768" in a.key}
    first.store.purge(Selector(name=MEMORY.name, key=rung))
    first.close()
    gpu = device()
    second = opened(gpu, store=tmp_path)
    assert second.known_peaks() is None
    heard = []
    assert second.peaks(progress=heard.append) == peaks
    assert len({event.candidate for event in heard}) == len(MEMORY)


def test_probes_of_another_make_are_never_read_as_peaks(opened, tmp_path):
    older = wt.Kernel(
        MEMORY.name, source=MEMORY.source, params=MEMORY.params, workgroups=lambda p, x, y: 1
    )
    older.environment = "hardware"
    first = opened(device(), store=tmp_path)
    first.peaks()
    for elements in memory_ladder(SMALL):
        first.tune(older, first.empty(elements), first.empty(elements), fresh=True)
    first.close()
    assert opened(device(), store=tmp_path).known_peaks() is None


def probed(flops_per_s, bytes_per_s):
    """The sizes that each probe is asked for on such a device, and its peaks."""
    asked = {}
    steps = walk({})
    probe, shapes = next(steps)
    while True:
        elements = shapes[0][1]
        asked.setdefault(probe.name.rpartition(".")[2], []).append(elements)
        busy_s = {
            ARITHMETIC: arithmetic_flops(elements) / flops_per_s,
            MEMORY: 8 * elements / bytes_per_s,
            LAUNCH: 0,
        }[probe]
        try:
            probe, shapes = steps.send(LAUNCH_NS + round(busy_s * 1e9))
        except StopIteration as end:
            return asked, end.value


@pytest.mark.parametrize(
    ("flops_per_s", "bytes_per_s", "arithmetic", "memory"),
    [
        (5e9, 1e9, [1 << 11], [1 << 15, 1 << 19, 1 << 22]),
        (5e13, 3e12, [1 << 11, 1 << 14, 1 << 17, 1 << 20], [1 << 15, 1 << 19, 1 << 22, 1 << 24]),
    ],
)
def test_slow_devices_are_probed_with_little_work_and_wide_ones_are_filled(
    flops_per_s, bytes_per_s, arithmetic, memory
):
    asked, peaks = probed(flops_per_s, bytes_per_s)
    assert asked == {"launch": [1], "arithmetic": arithmetic, "memory": memory}
    assert peaks.flops_per_s == pytest.approx(flops_per_s, rel=0.01)
    assert peaks.bytes_per_s == pytest.approx(bytes_per_s, rel=0.01)
    assert [size for size, _ in peaks.cached] == [8 * each for each in memory[:-1]]


def test_who_waits_for_peaks_hears_of_every_probe_as_of_one_tune(opened):
    tuner = opened(device())
    heard = []
    tuner.peaks(progress=heard.append)
    met = {event.candidate for event in heard}
    assert len(LAUNCH) + len(ARITHMETIC) + len(MEMORY) < len(met) <= most_candidates(SMALL)
    assert met == set(range(len(met)))
    assert [event.launches for event in heard] == sorted(event.launches for event in heard)
    heard.clear()
    tuner.peaks(progress=heard.append)
    assert heard == []


def test_peaks_are_a_sentence_with_units_that_tells_each_bandwidth_once():
    peaks = Peaks(6.54e10, 5.4e9, 84_680, ((1 << 18, 2e9), (1 << 22, 9.2e9), (1 << 25, 8e9)))
    assert str(peaks) == (
        "65.4 GFLOP/s, 5.4 GB/s, 9.2 GB/s within 4 MiB, 8 GB/s within 32 MiB, an empty dispatch "
        "takes 84.68 µs"
    )
    assert str(Peaks(1e12, 1e11, 2_000)) == "1000 GFLOP/s, 100 GB/s, an empty dispatch takes 2 µs"


def test_a_time_beyond_the_measured_peak_is_called_so(make, opened):
    tuner = opened(device(), short_circuit=False)
    tuner.peaks()
    kernel = make("abcd", work=lambda y: wt.Work(bytes=1e6))
    report = tuner.tune(kernel, tuner.empty(4, "u32"))
    assert report.achieved == pytest.approx(10_000 / 1_900, rel=0.01)
    assert "5.26 times as fast as this device's roofline allows" in str(report)
