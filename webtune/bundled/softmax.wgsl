// Softmax of every row, WX invocations to a row. A shader is "scalar" or "vec4", "head", and
// "three passes" or "online".

//// scalar
alias Element = f32;
fn largest_of(value: Element) -> f32 { return value; }
fn sum_of(value: Element) -> f32 { return value; }

//// vec4
alias Element = vec4<f32>;
fn largest_of(value: Element) -> f32 { return max(max(value.x, value.y), max(value.z, value.w)); }
fn sum_of(value: Element) -> f32 { return dot(value, vec4<f32>(1.0)); }

//// head
override WX: u32;
override WY: u32;
override ROWS: u32;
override COLS: u32;
override LANES: u32;
@group(0) @binding(0) var<storage, read> x: array<Element>;
@group(0) @binding(1) var<storage, read_write> y: array<Element>;
var<workgroup> most: array<f32, LANES>;
var<workgroup> sums: array<f32, LANES>;
const LOWEST = -3.4028234e38;

//// three passes
// A row past the last is worked on as the last and not written: barriers need every invocation.
@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_id) local: vec3u,
) {
  let row = (group.y * groups.x + group.x) * WY + local.y;
  let start = min(row, ROWS - 1u) * COLS;
  let team = local.y * WX;
  let lane = team + local.x;
  var mine = LOWEST;
  for (var i = local.x; i < COLS; i += WX) { mine = max(mine, largest_of(x[start + i])); }
  most[lane] = mine;
  workgroupBarrier();
  for (var half = WX / 2u; half > 0u; half /= 2u) {
    if (local.x < half) { most[lane] = max(most[lane], most[lane + half]); }
    workgroupBarrier();
  }
  let largest = most[team];
  var sum = 0.0;
  for (var i = local.x; i < COLS; i += WX) { sum += sum_of(exp(x[start + i] - largest)); }
  sums[lane] = sum;
  workgroupBarrier();
  for (var half = WX / 2u; half > 0u; half /= 2u) {
    if (local.x < half) { sums[lane] += sums[lane + half]; }
    workgroupBarrier();
  }
  let total = sums[team];
  if (row < ROWS) {
    for (var i = local.x; i < COLS; i += WX) {
      y[start + i] = exp(x[start + i] - largest) / total;
    }
  }
}

//// online
fn merge(to: u32, other: u32) {
  let larger = max(most[to], most[other]);
  sums[to] = sums[to] * exp(most[to] - larger) + sums[other] * exp(most[other] - larger);
  most[to] = larger;
}

// A row past the last is worked on as the last and not written: barriers need every invocation.
@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_id) local: vec3u,
) {
  let row = (group.y * groups.x + group.x) * WY + local.y;
  let start = min(row, ROWS - 1u) * COLS;
  let team = local.y * WX;
  let lane = team + local.x;
  var mine = LOWEST;
  var sum = 0.0;
  for (var i = local.x; i < COLS; i += WX) {
    let value = x[start + i];
    let larger = max(mine, largest_of(value));
    sum = sum * exp(mine - larger) + sum_of(exp(value - larger));
    mine = larger;
  }
  most[lane] = mine;
  sums[lane] = sum;
  workgroupBarrier();
  for (var half = WX / 2u; half > 0u; half /= 2u) {
    if (local.x < half) { merge(lane, lane + half); }
    workgroupBarrier();
  }
  let largest = most[team];
  let total = sums[team];
  if (row < ROWS) {
    for (var i = local.x; i < COLS; i += WX) {
      y[start + i] = exp(x[start + i] - largest) / total;
    }
  }
}
