"""Sent into pages before a test's own function: kernels and small helpers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from array import array
from typing import Any

import webtune as wt

SPIN = """
override TURNS: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var state = u32(x[id.x]);
  for (var i = 0u; i < TURNS; i++) { state = state * 1664525u + 1013904223u; }
  if (id.x < arrayLength(&x)) { y[id.x] = select(x[id.x] * 2.0, -1.0, state == 4294967295u); }
}
"""
numbers = itertools.count()


def spin(turns=(6_000, 60), name="spin", **more):
    """A kernel that doubles x into y; fewer turns are more than ten times as fast."""
    return wt.Kernel(
        name,
        source=SPIN,
        params=wt.grid(TURNS=list(turns)),
        workgroups=lambda p, x, y: wt.ceil_div(x.size, 32),
        **more,
    )


def data(tuner, count=1024):
    """x = 0, 1, 2 …, and y of zeros."""
    return tuner.upload(array("f", range(count))), tuner.empty(count)


def short(**more):
    """Settings that keep a tune short."""
    return {"max_samples": 3, "min_span_us": 20.0, "log": "disabled", **more}


@contextlib.asynccontextmanager
async def opened(**settings):
    """A tuner that keeps its picks in memory unless told otherwise."""
    settings.setdefault("store", "memory")
    tuner = await wt.open_tuner_async(**short(**settings))
    try:
        yield tuner
    finally:
        tuner.close()


def forget():
    """Empty memory, as a reload of the page would."""
    import webtune.tuning.call

    webtune.tuning.call._CACHES.clear()


async def doubled(tuner, y):
    """Whether y holds 2·x."""
    return list(await tuner.download_async(y)) == [2.0 * i for i in range(y.size)]


__all__ = ["Any", "asyncio", "data", "doubled", "forget", "opened", "short", "spin", "wt"]
