"""The measured peaks against a plain loop over wgpu-py, with kernels and a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import pytest
import wgpu

import webtune as wt
from webtune.measure.bench import Bench
from webtune.measure.bench_candidate import BenchCandidate
from webtune.strategies.drive import complete
from webtune.strategies.model import Request, Round
from webtune.tuning.probes import ARITHMETIC, LAUNCH, MEMORY, arithmetic_flops, memory_elements

LANES = 1 << 16
ROUNDS = 5

PLAIN_FMA = """
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let m = vec4<f32>(0.998); let c = vec4<f32>(f32(at.y) + 0.001);
  var p = vec4<f32>(f32(at.x)); var q = p + 0.5; var s = p + 1.5; var t = p + 2.5;
  var u = p + 3.5; var v = p + 4.5; var w = p + 5.5; var x = p + 6.5;
  for (var i = 0; i < 256; i++) {
    p = fma(p, m, c); q = fma(q, m, c); s = fma(s, m, c); t = fma(t, m, c);
    u = fma(u, m, c); v = fma(v, m, c); w = fma(w, m, c); x = fma(x, m, c);
  }
  let all = p + q + s + t + u + v + w + x;
  out[at.x] = all.x + all.y + all.z + all.w;
}
"""
PLAIN_FLOPS = LANES * 256 * 8 * 4 * 2

PLAIN_COPY = """
@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = at.x; i < arrayLength(&source); i += groups.x * 64u) { target_[i] = source[i]; }
}
"""


@dataclass
class Setting:
    """One device, with webtune on it and without."""

    raw: Any
    tuner: wt.Tuner
    buffers: list[wt.Buffer]


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    raw = adapter.request_device_sync(required_features=["timestamp-query"])
    with wt.open_tuner(device=raw, store="memory") as tuner:
        size = memory_elements(tuner.device.limits)
        yield Setting(raw, tuner, [tuner.empty(size), tuner.empty(size), tuner.empty(LANES)])


def plain_loop(
    raw: Any, source: str, buffers: list[wt.Buffer], groups: int, repeat: int
) -> Callable[[], float]:
    """Seconds of one dispatch: `repeat` of them in one pass and a wait, by the wall."""
    module = raw.create_shader_module(code=source)
    pipeline = raw.create_compute_pipeline(
        layout="auto", compute={"module": module, "entry_point": "main"}
    )
    entries = [
        {"binding": place, "resource": {"buffer": b.handle, "offset": 0, "size": b.nbytes}}
        for place, b in enumerate(buffers)
    ]
    group = raw.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    tiny = raw.create_buffer(size=4, usage=wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.STORAGE)

    def run() -> float:
        encoder = raw.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(pipeline)
        compute_pass.set_bind_group(0, group)
        for _ in range(repeat):
            compute_pass.dispatch_workgroups(groups)
        compute_pass.end()
        began = time.perf_counter()
        raw.queue.submit([encoder.finish()])
        raw.queue.read_buffer(tiny)
        return (time.perf_counter() - began) / repeat

    run()  # the first dispatch compiles
    return run


def probe_loop(tuner: wt.Tuner, probe: wt.Kernel, buffers: list[wt.Buffer]) -> Callable[[], float]:
    """Seconds of one dispatch of the probe, by webtune's own measuring; its best candidate."""
    index = tuner.settled_index(probe, *buffers)
    if index is None:
        tuner.tune(probe, *buffers)
        index = tuner.settled_index(probe, *buffers)
    assert index is not None
    candidate = probe.candidates[index]
    recording = tuner._programs.record(candidate, tuple(buffers))
    ready = BenchCandidate(candidate.id, candidate.name, recording.dispatches)
    bench = Bench(tuner.device, lambda _: ready)

    def run() -> float:
        [reading] = complete(bench.measure(Round((Request(0, 0, 1),))))
        assert reading.failure is None
        return reading.durations_ns[0] / 1e9

    run()
    return run


def agreement(probe: Callable[[], float], plain: Callable[[], float]) -> float:
    """The ratio of their medians, interleaved so that both see the same load."""
    pairs = [(probe(), plain()) for _ in range(ROUNDS)]
    return median(a for a, _ in pairs) / median(b for _, b in pairs)


def least_ns(report: wt.TuneReport) -> int | None:
    return None if report.winner is None else report.winner.least_ns


def test_the_memory_peak_is_what_a_plain_copy_loop_reaches(setting: Setting) -> None:
    buffers = setting.buffers[:2]
    plain = plain_loop(setting.raw, PLAIN_COPY, buffers, buffers[0].size // 4 // 64 // 4, 2)
    assert 0.1 <= agreement(probe_loop(setting.tuner, MEMORY, buffers), plain) <= 10


def test_the_arithmetic_peak_is_what_a_plain_fma_loop_reaches(setting: Setting) -> None:
    buffers = setting.buffers[2:]
    probe = probe_loop(setting.tuner, ARITHMETIC, buffers)
    plain = plain_loop(setting.raw, PLAIN_FMA, buffers, LANES // 256, 2)
    scale = arithmetic_flops(LANES) / PLAIN_FLOPS
    assert 0.1 <= agreement(lambda: probe() / scale, plain) <= 10


def test_peaks_are_made_of_the_probes_times_and_remembered(setting: Setting) -> None:
    tuner = setting.tuner
    peaks = tuner.peaks()
    assert peaks == tuner.known_peaks()
    launch_ns = least_ns(tuner.explain(LAUNCH, tuner.empty(1, "u32")))
    memory_ns = least_ns(tuner.explain(MEMORY, *setting.buffers[:2]))
    assert launch_ns is not None
    assert memory_ns is not None
    assert peaks.launch_ns == launch_ns
    moved = 2 * setting.buffers[0].nbytes
    assert peaks.bytes_per_s == pytest.approx(moved / (memory_ns - launch_ns) * 1e9)
    measured = [
        arithmetic_flops(elements) / (time_ns - launch_ns) * 1e9
        for elements in (1 << 11, 1 << 14, 1 << 17)
        if (time_ns := least_ns(tuner.explain(ARITHMETIC, tuner.empty(elements)))) is not None
    ]
    assert peaks.flops_per_s == pytest.approx(measured[-1])
    assert [size for size, _ in peaks.cached] == [1 << 18, 1 << 22, 1 << 25]
    assert all(rate > 0 for _, rate in peaks.cached)


SAXPY = """
override WG: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&x)) { y[id.x] = 2.0 * x[id.x]; }
}
"""


def easy(name: str, times_declared: float = 1.0) -> wt.Kernel:
    """Kernels that all do the same, with work declared so many times larger than it is."""
    return wt.Kernel(
        name,
        source=SAXPY,
        params=wt.grid(WG=[16, 32, 64, 128, 256]),
        workgroups=lambda p, x, y: wt.ceil_div(x.size, p.WG),
        work=lambda p, x, y: wt.Work(bytes=8 * times_declared * x.size),
    )


def test_work_that_is_easily_done_ends_the_search_at_once(setting: Setting) -> None:
    setting.tuner.peaks()
    # A thousandth of the peak is enough: whatever runs is close enough.
    with wt.open_tuner(device=setting.raw, store="memory", memory_threshold=0.001) as tuner:
        tuner._scheduler.limits.peaks = setting.tuner.known_peaks()
        report = tuner.tune(easy("easy"), tuner.empty(4096), tuner.empty(4096))
    assert report.decision.limit_ns is not None
    assert report.achieved is not None
    assert sum(one.status == "skipped" for one in report.results) == 4
    assert "of this device's roofline" in str(report)


def test_work_that_is_declared_too_large_stops_no_search(setting: Setting) -> None:
    tuner = setting.tuner
    tuner.peaks()
    report = tuner.tune(easy("boasting", 1e4), tuner.empty(4096), tuner.empty(4096))
    assert report.decision.limit_ns is None
    assert report.achieved is not None
    assert report.achieved > 1.1
    assert all(one.samples_ns for one in report.results)
    assert "times as fast as this device's roofline allows" in str(report)
