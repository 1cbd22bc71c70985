"""Softmax of every row of an f32 matrix, one row to a team of invocations.

Size: (rows, columns). Three passes read a row for its maximum, its sum and its result; the online
form finds maximum and sum together (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018).
"""

from __future__ import annotations

from typing import Any

from webtune.bundled.base import (
    INVOCATIONS,
    Bundled,
    Size,
    extents,
    fold,
    host_f32,
    numpy,
    zeros_f32,
)
from webtune.errors import ArgumentError, Reject
from webtune.kernel.kernel import Kernel
from webtune.kernel.space import Params, ceil_div, grid
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work

_HEAD = """
override WX: u32;
override WY: u32;
override ROWS: u32;
override COLS: u32;
override LANES: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> most: array<f32, LANES>;
var<workgroup> sums: array<f32, LANES>;
const LOWEST = -3.4028234e38;
"""

# A row past the last is worked on as the last and not written: barriers need every invocation.
_MAIN = """
@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
  let row = (group.y * groups.x + group.x) * WY + local.y;
  let start = min(row, ROWS - 1u) * COLS;
  let team = local.y * WX;
  let lane = team + local.x;
"""

_WRITE = """
  if (row < ROWS) {
    for (var i = local.x; i < COLS; i += WX) {
      y[start + i] = exp(x[start + i] - largest) / total;
    }
  }
}
"""

THREE_PASS = f"""{_HEAD}{_MAIN}
  var mine = LOWEST;
  for (var i = local.x; i < COLS; i += WX) {{ mine = max(mine, x[start + i]); }}
  most[lane] = mine;
  workgroupBarrier();
  for (var half = WX / 2u; half > 0u; half /= 2u) {{
    if (local.x < half) {{ most[lane] = max(most[lane], most[lane + half]); }}
    workgroupBarrier();
  }}
  let largest = most[team];
  var sum = 0.0;
  for (var i = local.x; i < COLS; i += WX) {{ sum += exp(x[start + i] - largest); }}
  sums[lane] = sum;
  workgroupBarrier();
  for (var half = WX / 2u; half > 0u; half /= 2u) {{
    if (local.x < half) {{ sums[lane] += sums[lane + half]; }}
    workgroupBarrier();
  }}
  let total = sums[team];
{_WRITE}"""

_MERGE = """
fn merge(to: u32, other: u32) {
  let larger = max(most[to], most[other]);
  sums[to] = sums[to] * exp(most[to] - larger) + sums[other] * exp(most[other] - larger);
  most[to] = larger;
}
"""

_MERGE_TEAM = """
  most[lane] = mine;
  sums[lane] = sum;
  workgroupBarrier();
  for (var half = WX / 2u; half > 0u; half /= 2u) {
    if (local.x < half) { merge(lane, lane + half); }
    workgroupBarrier();
  }
  let largest = most[team];
  let total = sums[team];
"""

ONLINE = f"""{_HEAD}{_MERGE}{_MAIN}
  var mine = LOWEST;
  var sum = 0.0;
  for (var i = local.x; i < COLS; i += WX) {{
    let value = x[start + i];
    let larger = max(mine, value);
    sum = sum * exp(mine - larger) + exp(value - larger);
    mine = larger;
  }}
{_MERGE_TEAM}{_WRITE}"""

VEC4 = f"""{_HEAD.replace("array<f32>;", "array<vec4<f32>>;")}{_MERGE}{_MAIN}
  var mine = LOWEST;
  var sum = 0.0;
  for (var i = local.x; i < COLS; i += WX) {{
    let value = x[start + i];
    let larger = max(mine, max(max(value.x, value.y), max(value.z, value.w)));
    sum = sum * exp(mine - larger) + dot(exp(value - larger), vec4<f32>(1.0));
    mine = larger;
  }}
{_MERGE_TEAM}{_WRITE}"""


def _groups(p: Params, x: Any, y: Any) -> tuple[int, int]:
    return fold(ceil_div(x.shape[0], p.WY))


def _vec4_groups(p: Params, x: Any, y: Any) -> tuple[int, int]:
    if x.shape[1] % 4:
        raise Reject(f"rows of {x.shape[1]} elements are no whole number of vec4")
    return _groups(p, x, y)


def _shape(p: Params, x: Any, y: Any) -> dict[str, int]:
    return {"ROWS": x.shape[0], "COLS": x.shape[1], "LANES": p.WX * p.WY}


def _vec4_shape(p: Params, x: Any, y: Any) -> dict[str, int]:
    return {"ROWS": x.shape[0], "COLS": x.shape[1] // 4, "LANES": p.WX * p.WY}


def _key(x: Any, y: Any) -> list[int]:
    shape = extents("x", x, 2)
    if extents("y", y, 2) != shape:
        raise ArgumentError(f"y has the shape {y.shape}, x has {x.shape}; they must be equal")
    return list(shape)


def _work(size: Size) -> Work:
    rows, cols = size
    # A comparison, a difference, an exponential, an addition and a division for each element.
    return Work(flops=5 * rows * cols, bytes=8 * rows * cols)


KERNEL = TunableSet("softmax", key=_key, work=lambda x, y: _work(x.shape))
_TEAMS = grid(WX=[64, 32, 16, 128, 256], WY=[1, 4, 8]).where(
    lambda p: 32 <= p.WX * p.WY <= INVOCATIONS
)
KERNEL.add(
    Kernel("three-pass", source=THREE_PASS, params=_TEAMS, workgroups=_groups, constants=_shape)
)
KERNEL.add(Kernel("online", source=ONLINE, params=_TEAMS, workgroups=_groups, constants=_shape))
KERNEL.add(
    Kernel(
        "online vec4",
        source=VEC4,
        params=_TEAMS,
        workgroups=_vec4_groups,
        constants=_vec4_shape,
    )
)


def _arguments(size: Size) -> list[Any]:
    return [host_f32(size), zeros_f32(size)]


def _expected(size: Size, x: Any, y: Any) -> Any:
    np = numpy()
    wide = x.astype("f8")
    raised = np.exp(wide - wide.max(axis=1, keepdims=True))
    return (raised / raised.sum(axis=1, keepdims=True)).astype("f4")


BUNDLED = Bundled(
    name="softmax",
    summary="softmax of every row",
    kernel=KERNEL,
    sizes={
        "default": (512, 1024),
        "large": (4096, 4096),
        "small": (16, 64),
        "odd": (333, 1023),
        "odd-small": (5, 7),
        "odd-quads": (7, 1004),
        "odd-tall": (4099, 3),
        "odd-one": (1, 1),
    },
    arguments=_arguments,
    expected=_expected,
    work=_work,
    output="y",
    rtol=1e-4,
    atol=1e-7,
)
