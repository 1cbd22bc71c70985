"""A kernel that copies, to change one thing of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import webtune as wt

SOURCE = """
override WG: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&x)) { y[id.x] = x[id.x]; }
}
"""


@pytest.fixture
def wgsl() -> str:
    """The source of that kernel."""
    return SOURCE


@pytest.fixture
def make() -> Callable[..., wt.Kernel]:
    """`make(source, params, **options)`: the kernel "copy" of `x` into `y`, with some of it
    replaced."""

    def make_kernel(source: Any = SOURCE, params: Any = None, **options: Any) -> wt.Kernel:
        options.setdefault("workgroups", lambda p, x, y: wt.ceil_div(x.size, p.WG))
        return wt.Kernel("copy", source=source, params=params or wt.grid(WG=[32, 64]), **options)

    return make_kernel
