"""WGSL of the matrix product. Sums of a thread are written out, so that they live in registers.

A workgroup finds its tile of c from a number, since neither extent of c is bounded by what a
dispatch may have in one dimension.
"""

from __future__ import annotations

from webtune.kernel.space import Params

__all__ = ["NAIVE", "TILED", "blocked", "vec4_direct", "vec4_tiled"]

_HEAD = """
override WX: u32;
override WY: u32;
override M: u32;
override N: u32;
override K: u32;
@group(0) @binding(0) var<storage, read> a: array<ELEMENT>;
@group(0) @binding(1) var<storage, read> b: array<ELEMENT>;
@group(0) @binding(2) var<storage, read_write> c: array<ELEMENT>;
"""

_MAIN = """
@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
  let tile = group.y * groups.x + group.x;
"""

_SCALAR_HEAD = _HEAD.replace("ELEMENT", "f32")
_VEC4_HEAD = _HEAD.replace("ELEMENT", "vec4<f32>")

NAIVE = f"""{_SCALAR_HEAD}{_MAIN}
  let across = (N + WX - 1u) / WX;
  let col = (tile % across) * WX + local.x;
  let row = (tile / across) * WY + local.y;
  if (row >= M || col >= N) {{ return; }}
  var sum = 0.0;
  for (var k = 0u; k < K; k++) {{
    sum += a[row * K + k] * b[k * N + col];
  }}
  c[row * N + col] = sum;
}}
"""

TILED = f"""{_SCALAR_HEAD}
override DEPTH: u32;
override A_AREA: u32;
override B_AREA: u32;
var<workgroup> tile_a: array<f32, A_AREA>;
var<workgroup> tile_b: array<f32, B_AREA>;
{_MAIN}
  let across = (N + WX - 1u) / WX;
  let left = (tile % across) * WX;
  let top = (tile / across) * WY;
  let lane = local.y * WX + local.x;
  var sum = 0.0;
  for (var k0 = 0u; k0 < K; k0 += DEPTH) {{
    for (var i = lane; i < A_AREA; i += WX * WY) {{
      let row = top + i / DEPTH;
      let k = k0 + i % DEPTH;
      var value = 0.0;
      if (row < M && k < K) {{ value = a[row * K + k]; }}
      tile_a[i] = value;
    }}
    for (var i = lane; i < B_AREA; i += WX * WY) {{
      let k = k0 + i / WX;
      let col = left + i % WX;
      var value = 0.0;
      if (k < K && col < N) {{ value = b[k * N + col]; }}
      tile_b[i] = value;
    }}
    workgroupBarrier();
    for (var k = 0u; k < DEPTH; k++) {{
      sum += tile_a[local.y * DEPTH + k] * tile_b[k * WX + local.x];
    }}
    workgroupBarrier();
  }}
  let row = top + local.y;
  let col = left + local.x;
  if (row < M && col < N) {{ c[row * N + col] = sum; }}
}}
"""


def _lines(indent: int, lines: list[str]) -> str:
    return "\n".join(" " * indent + line for line in lines)


def blocked(p: Params) -> str:
    """`TM` × `TN` sums a thread, its rows and columns a workgroup apart; tiles `DEPTH` deep."""
    rows, cols = range(p.TM), range(p.TN)
    sums = [f"var s{i}_{j} = 0.0;" for i in rows for j in cols]
    loads = [f"let a{i} = tile_a[(local.y + {i}u * WY) * DEPTH + k];" for i in rows]
    loads += [f"let b{j} = tile_b[k * COLS + local.x + {j}u * WX];" for j in cols]
    steps = [f"s{i}_{j} += a{i} * b{j};" for i in rows for j in cols]
    stores = [
        f"put(top + local.y + {i}u * WY, left + local.x + {j}u * WX, s{i}_{j});"
        for i in rows
        for j in cols
    ]
    return f"""{_SCALAR_HEAD}
const DEPTH = {p.DEPTH}u;
const ROWS = {p.TM * p.WY}u;
const COLS = {p.TN * p.WX}u;
var<workgroup> tile_a: array<f32, ROWS * DEPTH>;
var<workgroup> tile_b: array<f32, DEPTH * COLS>;

fn put(row: u32, col: u32, value: f32) {{
  if (row < M && col < N) {{ c[row * N + col] = value; }}
}}
{_MAIN}
  let across = (N + COLS - 1u) / COLS;
  let left = (tile % across) * COLS;
  let top = (tile / across) * ROWS;
  let lane = local.y * WX + local.x;
{_lines(2, sums)}
  for (var k0 = 0u; k0 < K; k0 += DEPTH) {{
    for (var i = lane; i < ROWS * DEPTH; i += WX * WY) {{
      let row = top + i / DEPTH;
      let k = k0 + i % DEPTH;
      var value = 0.0;
      if (row < M && k < K) {{ value = a[row * K + k]; }}
      tile_a[i] = value;
    }}
    for (var i = lane; i < DEPTH * COLS; i += WX * WY) {{
      let k = k0 + i / COLS;
      let col = left + i % COLS;
      var value = 0.0;
      if (k < K && col < N) {{ value = b[k * N + col]; }}
      tile_b[i] = value;
    }}
    workgroupBarrier();
    for (var k = 0u; k < DEPTH; k++) {{
{_lines(6, loads)}
{_lines(6, steps)}
    }}
    workgroupBarrier();
  }}
{_lines(2, stores)}
}}
"""


def _vec4_steps(rows: range, a: str, b: str) -> list[str]:
    steps = []
    for part, axis in enumerate("xyzw"):
        steps.append(f"let b{part} = {b.format(part=part)};")
        steps += [f"s{i} += {a.format(i=i)}.{axis} * b{part};" for i in rows]
    return steps


def vec4_direct(p: Params) -> str:
    """`TM` rows of four sums a thread, straight from memory. N and K are multiples of 4."""
    rows = range(p.TM)
    sums = [f"var s{i} = vec4<f32>();" for i in rows]
    # Rows below the last are read as the last, which costs less than a branch in the loop.
    starts = [f"let r{i} = min(top + {i}u, M - 1u) * (K / 4u);" for i in rows]
    loads = [f"let a{i} = a[r{i} + k];" for i in rows]
    steps = _vec4_steps(rows, "a{i}", "b[(k * 4u + {part}u) * (N / 4u) + col]")
    stores = [f"if (top + {i}u < M) {{ c[(top + {i}u) * (N / 4u) + col] = s{i}; }}" for i in rows]
    return f"""{_VEC4_HEAD}{_MAIN}
  let across = (N / 4u + WX - 1u) / WX;
  let col = (tile % across) * WX + local.x;
  let top = ((tile / across) * WY + local.y) * {p.TM}u;
  if (top >= M || col >= N / 4u) {{ return; }}
{_lines(2, sums)}
{_lines(2, starts)}
  for (var k = 0u; k < K / 4u; k++) {{
{_lines(4, loads)}
{_lines(4, steps)}
  }}
{_lines(2, stores)}
}}
"""


def vec4_tiled(p: Params) -> str:
    """`TM` rows of four sums a thread, from tiles of vec4. N and K are multiples of 4."""
    rows = range(p.TM)
    sums = [f"var s{i} = vec4<f32>();" for i in rows]
    loads = [f"let a{i} = tile_a[(local.y + {i}u * WY) * DEPTH + k];" for i in rows]
    steps = _vec4_steps(rows, "a{i}", "tile_b[(k * 4u + {part}u) * WX + local.x]")
    stores = [f"put(top + local.y + {i}u * WY, left + local.x, s{i});" for i in rows]
    return f"""{_VEC4_HEAD}
const DEPTH = {p.DEPTH // 4}u;
const A_AREA = {p.TM * p.WY * p.DEPTH // 4}u;
const B_AREA = {p.DEPTH * p.WX}u;
var<workgroup> tile_a: array<vec4<f32>, A_AREA>;
var<workgroup> tile_b: array<vec4<f32>, B_AREA>;

fn put(row: u32, col: u32, value: vec4<f32>) {{
  if (row < M && col < N / 4u) {{ c[row * (N / 4u) + col] = value; }}
}}
{_MAIN}
  let across = (N / 4u + WX - 1u) / WX;
  let left = (tile % across) * WX;
  let top = (tile / across) * WY * {p.TM}u;
  let lane = local.y * WX + local.x;
{_lines(2, sums)}
  for (var k0 = 0u; k0 < K / 4u; k0 += DEPTH) {{
    for (var i = lane; i < A_AREA; i += WX * WY) {{
      let row = top + i / DEPTH;
      let k = k0 + i % DEPTH;
      var value = vec4<f32>();
      if (row < M && k < K / 4u) {{ value = a[row * (K / 4u) + k]; }}
      tile_a[i] = value;
    }}
    for (var i = lane; i < B_AREA; i += WX * WY) {{
      let k = k0 * 4u + i / WX;
      let col = left + i % WX;
      var value = vec4<f32>();
      if (k < K && col < N / 4u) {{ value = b[k * (N / 4u) + col]; }}
      tile_b[i] = value;
    }}
    workgroupBarrier();
    for (var k = 0u; k < DEPTH; k++) {{
{_lines(6, loads)}
{_lines(6, steps)}
    }}
    workgroupBarrier();
  }}
{_lines(2, stores)}
}}
"""
