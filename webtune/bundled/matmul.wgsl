// The matrix product. A shader is "scalar" or "vec4", "head", and one of "naive", "direct" and
// "tiled" with the constants that it names. Extents and places across are counted in elements,
// those of c, b and a row of a in steps of WIDE.
//
// A workgroup finds its tile of c from a number, since neither extent of c is bounded by what a
// dispatch may have in one dimension.

//// scalar
alias Element = f32;
const WIDE = 1u;

//// vec4
alias Element = vec4<f32>;
const WIDE = 4u;

//// head
override WX: u32;
override WY: u32;
override M: u32;
override N: u32;
override K: u32;
@group(0) @binding(0) var<storage, read> a: array<Element>;
@group(0) @binding(1) var<storage, read> b: array<Element>;
@group(0) @binding(2) var<storage, read_write> c: array<Element>;

fn put(row: u32, col: u32, value: Element) {
  if (row < M && col < N / WIDE) { c[row * (N / WIDE) + col] = value; }
}

//// naive
@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_id) local: vec3u,
) {
  let tile = group.y * groups.x + group.x;
  let across = (N + WX - 1u) / WX;
  let col = (tile % across) * WX + local.x;
  let row = (tile / across) * WY + local.y;
  if (row >= M || col >= N) { return; }
  var sum = 0.0;
  for (var k = 0u; k < K; k++) {
    sum += a[row * K + k] * b[k * N + col];
  }
  c[row * N + col] = sum;
}

//// direct
// TM rows of c to an invocation, straight from memory. Constants: TM.
@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_id) local: vec3u,
) {
  let tile = group.y * groups.x + group.x;
  let across = (N / WIDE + WX - 1u) / WX;
  let col = (tile % across) * WX + local.x;
  let top = ((tile / across) * WY + local.y) * TM;
  if (top >= M || col >= N / WIDE) { return; }
  $sums
  $starts
  for (var k = 0u; k < K / WIDE; k++) {
    $loads
    $steps
  }
  $stores
}

//// tiled
// ROWS × COLS elements of c to a workgroup, each invocation's a workgroup's width and height apart,
// from tiles of a that are DEPTH elements deep. Constants: ROWS, COLS, DEPTH.
var<workgroup> tile_a: array<Element, ROWS * DEPTH>;
var<workgroup> tile_b: array<Element, DEPTH * WIDE * COLS>;

fn a_at(row: u32, k: u32) -> Element {
  if (row < M && k < K / WIDE) { return a[row * (K / WIDE) + k]; }
  return Element();
}

fn b_at(k: u32, col: u32) -> Element {
  if (k < K && col < N / WIDE) { return b[k * (N / WIDE) + col]; }
  return Element();
}

@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_id) local: vec3u,
) {
  let tile = group.y * groups.x + group.x;
  let across = (N / WIDE + COLS - 1u) / COLS;
  let left = (tile % across) * COLS;
  let top = (tile / across) * ROWS;
  let lane = local.y * WX + local.x;
  $sums
  for (var k0 = 0u; k0 < K / WIDE; k0 += DEPTH) {
    for (var i = lane; i < ROWS * DEPTH; i += WX * WY) {
      tile_a[i] = a_at(top + i / DEPTH, k0 + i % DEPTH);
    }
    for (var i = lane; i < DEPTH * WIDE * COLS; i += WX * WY) {
      tile_b[i] = b_at(k0 * WIDE + i / COLS, left + i % COLS);
    }
    workgroupBarrier();
    for (var k = 0u; k < DEPTH; k++) {
      $loads
      $steps
    }
    workgroupBarrier();
  }
  $stores
}
