"""The device's own peaks, measured by kernels of ours that are tuned like any other.

A peak is the work of a probe over the time of its fastest candidate, so it is remembered and
shared as every pick is. The model: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from webtune.buffers import Buffer
from webtune.core.peaks import Peaks
from webtune.errors import NoValidKernel
from webtune.kernel import Kernel
from webtune.results import TuneReport
from webtune.space import grid

__all__ = [
    "ARITHMETIC",
    "LAUNCH",
    "MEMORY",
    "arithmetic_flops",
    "measure_peaks",
    "memory_elements",
    "memory_ladder",
    "remembered_peaks",
]

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
override WG: u32;
override STEPS: u32;
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let stride = groups.x * WG;
  let n = arrayLength(&x);
  for (var i = id.x; i < n; i += stride) { y[i] = x[i]; }
}
"""
"""A copy that reads and writes every byte once."""

_LAUNCH_WGSL = """
override WG: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(WG)
fn main() { y[0] = 1u; }
"""

ARITHMETIC = Kernel(
    "webtune.peak.arithmetic",
    source=_ARITHMETIC_WGSL,
    params=grid(WG=[64, 128, 256], CHAINS=[2, 4, 8]),
    workgroups=lambda p, y: y.size // p.WG,
)
"""`ARITHMETIC(y: f32[n])` with n a multiple of 256: `arithmetic_flops(n)` operations."""

MEMORY = Kernel(
    "webtune.peak.memory",
    source=_MEMORY_WGSL,
    params=grid(WG=[64, 256], STEPS=[1, 4, 16]),
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


Tune = Callable[[Kernel, Sequence[Buffer]], Awaitable[TuneReport]]
"""Decides a probe on buffers, or tells what is remembered of it."""

Empty = Callable[[int, str], Buffer]
"""A zeroed buffer of so many elements of a dtype."""

_ARITHMETIC_SIZES = ((1 << 12, 1_000_000), (1 << 16, 200_000), (1 << 20, 0))
"""Elements of the arithmetic probe, and the ns from which on no larger one is needed: a wide device
is not filled by a small size, and a slow one takes seconds for a large one."""


async def measure_peaks(limits: Mapping[str, int], empty: Empty, tune: Tune) -> Peaks:
    """The peaks of the device with these limits, by `tune`. Raises what that raises."""

    async def time_ns_of(probe: Kernel, *shapes: tuple[str, int]) -> int:
        args = [empty(elements, dtype) for dtype, elements in shapes]
        try:
            report = await tune(probe, args)
            if report.winner_ns is None:
                raise NoValidKernel(f"{probe.name} could not be timed on this device", {})
            return report.winner_ns
        finally:
            for buffer in args:
                buffer.destroy()

    flops_per_s = 0.0
    for elements, enough_ns in _ARITHMETIC_SIZES:
        time_ns = await time_ns_of(ARITHMETIC, ("f32", elements))
        flops_per_s = max(flops_per_s, arithmetic_flops(elements) / time_ns * 1e9)
        if time_ns >= enough_ns:
            break
    rungs = {
        elements: await time_ns_of(MEMORY, ("f32", elements), ("f32", elements))
        for elements in memory_ladder(limits)
    }
    return _peaks(flops_per_s, rungs, await time_ns_of(LAUNCH, ("u32", 1)))


def remembered_peaks(
    limits: Mapping[str, int], recall: Callable[[Kernel, Any], int | None]
) -> Peaks | None:
    """The peaks out of memory or the store, or None. `recall(probe, key)` gives the winner's time
    in ns, or None; `limits` are the device's."""
    best = 0.0
    for elements, _ in _ARITHMETIC_SIZES:
        time_ns = recall(ARITHMETIC, [["f32", [elements]]])
        if time_ns is not None:
            best = max(best, arithmetic_flops(elements) / time_ns * 1e9)
    rungs: dict[int, int] = {}
    for elements in memory_ladder(limits):
        time_ns = recall(MEMORY, [["f32", [elements]]] * 2)
        if time_ns is None:
            return None
        rungs[elements] = time_ns
    launch_ns = recall(LAUNCH, [["u32", [1]]])
    return None if not best or launch_ns is None else _peaks(best, rungs, launch_ns)


def _peaks(flops_per_s: float, rungs: Mapping[int, int], launch_ns: int) -> Peaks:
    """Of times in ns by rung of the memory probe; the last rung is the one that no cache holds."""
    *cached, beyond = [(8 * each, 8 * each / time_ns * 1e9) for each, time_ns in rungs.items()]
    return Peaks(flops_per_s, beyond[1], launch_ns, tuple(cached))
