"""Measured peaks make a limit, and a candidate within it ends the search, on either host."""

from __future__ import annotations

import asyncio

import pytest

import webtune as wt
from webtune.core.config import Config
from webtune.core.peaks import Peaks
from webtune.roofline import (
    ARITHMETIC,
    LAUNCH,
    MEMORY,
    arithmetic_flops,
    memory_elements,
    memory_ladder,
)
from webtune.testing import ScriptedDevice

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
        return round(arithmetic_flops(elements) / FLOPS_PER_S * 1e9)
    if dispatch.source == MEMORY.source:
        return round(2 * dispatch.bindings[0].nbytes / BYTES_PER_S * 1e9)
    return TIMES.get(dispatch.label, LAUNCH_NS)


def device(**more):
    return ScriptedDevice(times, limits=SMALL, **more)


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
    tuner = opened(gpu, record=decisions.append)
    tuner.peaks()
    report = tuner.tune(job(make), tuner.empty(4, "u32"), strategy="adaptive")
    assert report.winner.name == "b"
    assert samples(report) == {"a": 1, "b": 2, "c": 0, "d": 0}
    skipped = {one.name: one.reason for one in report.results if one.status == "skipped"}
    assert skipped == dict.fromkeys("cd", "b is close enough to the device's peak")
    assert [event["kind"] for event in decisions[-1]["events"]][-1] == "short circuit"
    assert decisions[-1]["limit_ns"] == report.limit_ns
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
    assert report.launches < full.launches
    assert samples(report)["c"] == samples(full)["c"]
    assert samples(report)["a"] < samples(full)["a"]


@pytest.mark.parametrize("strategy", ["adaptive", "fixed"])
def test_an_awaited_tune_short_circuits_too(make, page, strategy):
    async def main():
        decisions = []
        tuner = page(device(awaiting=True), record=decisions.append)
        await tuner.peaks_async()
        y = tuner.empty(4, "u32")
        report = await tuner.tune_async(job(make), y, strategy=strategy)
        assert report.winner.name == {"adaptive": "b", "fixed": "c"}[strategy]
        assert "short circuit" in [event["kind"] for event in decisions[-1]["events"]]

    asyncio.run(main())


def test_without_peaks_or_with_the_switch_off_nothing_is_cut_short(make, opened):
    tuner = opened(device())
    report = tuner.tune(job(make), tuner.empty(4, "u32"))
    assert report.limit_ns is None
    assert min(samples(report).values()) >= 1
    tuner.peaks()
    off = opened(device(), short_circuit=False)
    off.peaks()
    report = off.tune(job(make), off.empty(4, "u32"))
    assert report.limit_ns is None
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
            return 100
        nbytes = dispatch.bindings[0].nbytes
        fast = dispatch.source == MEMORY.source and 2 * nbytes <= 1 << 18
        return times(dispatch) // 10 if fast else times(dispatch)

    tuner = opened(ScriptedDevice(with_cache, limits=SMALL))
    peaks = tuner.peaks()
    assert peaks.bytes_per_s == pytest.approx(BYTES_PER_S, rel=0.01)
    assert peaks.cached == ((1 << 18, pytest.approx(10 * BYTES_PER_S, rel=0.01)),)
    # 2 µs at the peak beyond caches, 0.2 µs within: "b" takes 2 µs, and "c" 1.9 µs.
    kernel = make("abcd", work=lambda y: wt.Work(bytes=2e5))
    report = tuner.tune(kernel, tuner.empty(4, "u32"))
    assert min(samples(report).values()) >= 1
    assert report.winner.name == "c"
    assert tuner.known_peaks() == peaks


def test_a_time_beyond_the_measured_peak_is_called_so(make, opened):
    tuner = opened(device(), short_circuit=False)
    tuner.peaks()
    kernel = make("abcd", work=lambda y: wt.Work(bytes=1e6))
    report = tuner.tune(kernel, tuner.empty(4, "u32"))
    assert report.achieved == pytest.approx(10_000 / 1_900, rel=0.01)
    assert "5.26 times as fast as this device's roofline allows" in str(report)
