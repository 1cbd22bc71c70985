"""The device's own peaks, measured by kernels of ours that are tuned like any other.

A peak is the work of a probe over the time of its fastest candidate (the low end of its interval,
since noise only adds), so it is remembered and shared as every pick is. The model: Williams,
Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from webtune.kernel.kernel import Kernel
from webtune.kernel.space import grid
from webtune.tuning.peaks import Peaks

_STEPS = 2048
_ARITHMETIC_WGSL = """
override WG: u32;
override CHAINS: u32;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let a = vec4<f32>(0.999 + f32(id.x & 1u) * 0.0005);
  let b = vec4<f32>(0.0001 * f32(id.y + 1u));
  var s0 = vec4<f32>(f32(id.x)); var s1 = s0 + 1.0; var s2 = s0 + 2.0; var s3 = s0 + 3.0;
  var s4 = s0 + 4.0; var s5 = s0 + 5.0; var s6 = s0 + 6.0; var s7 = s0 + 7.0;
  let rounds = 2048u / CHAINS;
  for (var i = 0u; i < rounds; i++) {
    s0 = fma(s0, a, b); s1 = fma(s1, a, b);
    if (CHAINS > 2u) { s2 = fma(s2, a, b); s3 = fma(s3, a, b); }
    if (CHAINS > 4u) {
      s4 = fma(s4, a, b); s5 = fma(s5, a, b); s6 = fma(s6, a, b); s7 = fma(s7, a, b);
    }
  }
  let sum = (s0 + s1) + (s2 + s3) + ((s4 + s5) + (s6 + s7));
  if (id.x < arrayLength(&y)) { y[id.x] = sum.x + sum.y + sum.z + sum.w; }
}
"""
"""Fused multiply-adds in chains that depend on nothing else; their number hides the latency."""

_MEMORY_WGSL = """
override KIND: u32;
override WG: u32;
override STEPS: u32;
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let stride = groups.x * WG;
  let n = arrayLength(&x);
  if (KIND == 0u) {
    for (var i = id.x; i < n; i += stride) { y[i] = x[i]; }
  } else if (KIND == 1u) {
    for (var i = id.x; i < n / 3u * 2u; i += stride) { y[i] = y[i] + x[i]; }
  } else {
    var sum = vec4<f32>();
    for (var i = id.x; i < n; i += stride) { sum += x[i] + y[i]; }
    if (sum.x == 1.5) { y[0] = sum; }
  }
}
"""
"""A copy, an update and a sum, each of which moves the same bytes: writing what was not read costs
some caches a read besides, and reading alone is the fastest on others."""

_LAUNCH_WGSL = """
override WG: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(WG)
fn main() { y[0] = 1u; }
"""

ARITHMETIC = Kernel(
    "webtune.peak.arithmetic",
    source=_ARITHMETIC_WGSL,
    params=grid(WG=[64, 256], CHAINS=[2, 4, 8]),
    workgroups=lambda p, y: y.size // p.WG,
)
"""`ARITHMETIC(y: f32[n])` with n a multiple of 256: `arithmetic_flops(n)` operations."""

MEMORY = Kernel(
    "webtune.peak.memory",
    source=_MEMORY_WGSL,
    params=grid(KIND=[0, 1, 2], WG=[256, 64], STEPS=[4, 16]).where(
        lambda p: p.WG * p.STEPS == 1024
    ),
    workgroups=lambda p, x, y: max(1, min(65535, x.size // 4 // (p.WG * p.STEPS))),
)
"""`MEMORY(x: f32[n], y: f32[n])`: 8 n bytes moved."""

LAUNCH = Kernel(
    "webtune.peak.launch",
    source=_LAUNCH_WGSL,
    params=grid(WG=[1, 32]),
    workgroups=lambda p, y: 1,
)
"""`LAUNCH(y: u32[1])`: what a dispatch costs that does nothing."""


for _probe in (ARITHMETIC, MEMORY, LAUNCH):
    _probe.environment = "hardware"  # a device's peaks are the same in every environment


def arithmetic_flops(elements: int) -> int:
    """Operations of the arithmetic probe on `elements` elements (a fused multiply-add is two)."""
    return elements * _STEPS * 4 * 2


def memory_elements(limits: Mapping[str, int]) -> int:
    """How many f32 each of the memory probe's buffers holds: 64 MiB, so that caches do not serve
    it, or what the device allows."""
    most = min(
        limits.get("maxStorageBufferBindingSize", 1 << 27), limits.get("maxBufferSize", 1 << 28)
    )
    return min(1 << 24, most // 4 // 1024 * 1024)


_CACHED = (1 << 15, 1 << 19, 1 << 22)
"""f32 of each buffer of the memory probe where caches serve it: sets of 256 KiB, 4 and 32 MiB."""


def memory_ladder(limits: Mapping[str, int]) -> tuple[int, ...]:
    """How many f32 each of the memory probe's buffers holds, rung by rung, ascending."""
    most = memory_elements(limits)
    return (*(elements for elements in _CACHED if 2 * elements <= most), most)


def most_candidates(limits: Mapping[str, int]) -> int:
    """How many candidates the probes have together, where none is left out."""
    arithmetic = len(_ARITHMETIC_SIZES) * len(ARITHMETIC)
    return len(LAUNCH) + arithmetic + len(memory_ladder(limits)) * len(MEMORY)


_ARITHMETIC_SIZES = (1 << 11, 1 << 14, 1 << 17, 1 << 20)
_LONG_ENOUGH_NS = 1_000_000
"""A wide device is not filled by a small size, and a slow one takes seconds for a large one."""
_NO_CACHE_NS = 20_000_000
"""No memory is so slow that 32 MiB take this long: what takes longer is bound by something else,
and a larger set would tell nothing new."""
_MOSTLY_LAUNCH = 4

Probe = tuple[Kernel, tuple[tuple[str, int], ...]]
"""A probe with the dtype and the elements of each of its buffers."""


def walk(limits: Mapping[str, int]) -> Generator[Probe, int, Peaks]:
    """Probe after probe, each answered by its time in ns: what is asked next depends on it."""
    launch_ns = yield LAUNCH, (("u32", 1),)

    def per_second(amount: float, time_ns: int) -> float:
        # A limit adds the launch, so a peak is what is reached without it. What is mostly launch
        # cannot be told from it, and no more than this of it is taken away.
        return amount / max(time_ns - launch_ns, time_ns / _MOSTLY_LAUNCH) * 1e9

    flops_per_s = 0.0
    for elements in _ARITHMETIC_SIZES:
        time_ns = yield ARITHMETIC, (("f32", elements),)
        flops_per_s = per_second(arithmetic_flops(elements), time_ns)
        if time_ns >= _LONG_ENOUGH_NS:
            break
    rungs = []
    for elements in memory_ladder(limits):
        time_ns = yield MEMORY, (("f32", elements), ("f32", elements))
        rungs.append((8 * elements, per_second(8 * elements, time_ns)))
        if time_ns >= _NO_CACHE_NS:
            break
    return Peaks(flops_per_s, rungs[-1][1], launch_ns, tuple(rungs[:-1]))


def remembered_peaks(
    limits: Mapping[str, int], recall: Callable[[Kernel, Any], int | None]
) -> Peaks | None:
    """The peaks out of memory or the store, or None where a probe is missing. `recall(probe, key)`
    gives the least time of its winner in ns, or None; `limits` are the device's."""
    steps = walk(limits)
    probe, shapes = next(steps)
    while (time_ns := recall(probe, [[dtype, [size]] for dtype, size in shapes])) is not None:
        try:
            probe, shapes = steps.send(time_ns)
        except StopIteration as end:
            peaks: Peaks = end.value
            return peaks
    return None
