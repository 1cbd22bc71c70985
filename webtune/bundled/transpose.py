"""Transpose of an f32 matrix: strided reads or strided writes, or neither through workgroup memory.

Size: (rows, columns). Padding a tile by one column spreads its columns over the memory's banks
(Ruetsch and Micikevicius, "Optimizing Matrix Transpose in CUDA", 2009).
"""

from __future__ import annotations

from typing import Any

from webtune.bundled.base import (
    INVOCATIONS,
    STORAGE_BYTES,
    Bundled,
    Size,
    extents,
    fold,
    host_f32,
    zeros_f32,
)
from webtune.errors import ArgumentError
from webtune.kernel.kernel import Kernel
from webtune.kernel.space import Params, ceil_div, grid
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work

_NAIVE = """
override WX: u32;
override WY: u32;
override ALONG_OUTPUT: bool;
override ROWS: u32;
override COLS: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
  let tile = group.y * groups.x + group.x;
  let fast = select(COLS, ROWS, ALONG_OUTPUT);
  let across = (fast + WX - 1u) / WX;
  let i = (tile % across) * WX + local.x;
  let j = (tile / across) * WY + local.y;
  let row = select(j, i, ALONG_OUTPUT);
  let col = select(i, j, ALONG_OUTPUT);
  if (row < ROWS && col < COLS) { y[col * ROWS + row] = x[row * COLS + col]; }
}
"""

_TILED = """
override TILE: u32;
override WY: u32;
override PAD: u32;
override AREA: u32;
override ROWS: u32;
override COLS: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> tile: array<f32, AREA>;

@compute @workgroup_size(TILE, WY)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
  let number = group.y * groups.x + group.x;
  let across = (COLS + TILE - 1u) / TILE;
  let left = (number % across) * TILE;
  let top = (number / across) * TILE;
  for (var j = local.y; j < TILE; j += WY) {
    let row = top + j;
    let col = left + local.x;
    if (row < ROWS && col < COLS) { tile[j * (TILE + PAD) + local.x] = x[row * COLS + col]; }
  }
  workgroupBarrier();
  for (var j = local.y; j < TILE; j += WY) {
    let row = top + local.x;
    let col = left + j;
    if (row < ROWS && col < COLS) { y[col * ROWS + row] = tile[local.x * (TILE + PAD) + j]; }
  }
}
"""


def _naive_groups(p: Params, x: Any, y: Any) -> tuple[int, int]:
    rows, cols = x.shape
    fast, slow = (rows, cols) if p.ALONG_OUTPUT else (cols, rows)
    return fold(ceil_div(fast, p.WX) * ceil_div(slow, p.WY))


def _tiled_groups(p: Params, x: Any, y: Any) -> tuple[int, int]:
    rows, cols = x.shape
    return fold(ceil_div(rows, p.TILE) * ceil_div(cols, p.TILE))


def _shape(p: Params, x: Any, y: Any) -> dict[str, int]:
    return {"ROWS": x.shape[0], "COLS": x.shape[1]}


def _shape_and_area(p: Params, x: Any, y: Any) -> dict[str, int]:
    return {**_shape(p, x, y), "AREA": p.TILE * (p.TILE + p.PAD)}


def _key(x: Any, y: Any) -> list[int]:
    rows, cols = extents("x", x, 2)
    if extents("y", y, 2) != (cols, rows):
        raise ArgumentError(f"y has the shape {y.shape}; the transpose of x has {(cols, rows)}")
    return [rows, cols]


def _work(size: Size) -> Work:
    return Work(bytes=8 * size[0] * size[1])


KERNEL = TunableSet("transpose", key=_key, work=lambda x, y: _work(x.shape))
KERNEL.add(
    Kernel(
        "naive",
        source=_NAIVE,
        params=grid(WX=[16, 8, 32, 64], WY=[16, 8, 4], ALONG_OUTPUT=[False, True]).where(
            lambda p: 64 <= p.WX * p.WY <= INVOCATIONS
        ),
        workgroups=_naive_groups,
        constants=_shape,
    )
)
KERNEL.add(
    Kernel(
        "tiled",
        source=_TILED,
        params=grid(TILE=[16, 32, 64, 8], WY=[16, 8, 4], PAD=[0, 1]).where(
            lambda p: (
                32 <= p.TILE * p.WY <= INVOCATIONS
                and p.WY <= p.TILE
                and 4 * p.TILE * (p.TILE + p.PAD) <= STORAGE_BYTES
            )
        ),
        workgroups=_tiled_groups,
        constants=_shape_and_area,
    )
)


def _arguments(size: Size) -> list[Any]:
    return [host_f32(size), zeros_f32(size[::-1])]


def _expected(size: Size, x: Any, y: Any) -> Any:
    return x.T


BUNDLED = Bundled(
    name="transpose",
    summary="transpose of a matrix",
    kernel=KERNEL,
    sizes={
        "default": (1024, 1024),
        "large": (4096, 4096),
        "small": (64, 64),
        "odd": (1003, 517),
        "odd-small": (33, 65),
        "odd-wide": (1, 7),
        "odd-one": (1, 1),
    },
    arguments=_arguments,
    expected=_expected,
    work=_work,
    output="y",
)
