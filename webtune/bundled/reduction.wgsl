// The sum of values. A shader is "head", "blocks" or "strided", and "tree" or "subgroups" (with
// "enable subgroups" before all others).

//// enable subgroups
enable subgroups;

//// head
override WG: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
var<workgroup> partial: array<f32, WG>;

//// blocks
override PER: u32;

// What one lane adds up: a workgroup takes a block of WG * PER values.
fn lane_sum(number: u32, groups: u32, lane: u32) -> f32 {
  let first = number * WG * PER + lane;
  var sum = 0.0;
  for (var i = 0u; i < PER; i++) {
    let k = first + i * WG;
    if (k < arrayLength(&x)) { sum += x[k]; }
  }
  return sum;
}

//// strided
// What one lane adds up: all workgroups step through the whole together.
fn lane_sum(number: u32, groups: u32, lane: u32) -> f32 {
  var sum = 0.0;
  for (var k = number * WG + lane; k < arrayLength(&x); k += groups * WG) { sum += x[k]; }
  return sum;
}

//// tree
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  let number = group.y * groups.x + group.x;
  partial[lane] = lane_sum(number, groups.x * groups.y, lane);
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  if (lane == 0u && number < arrayLength(&sums)) { sums[number] = partial[0]; }
}

//// subgroups
// Neither the size of a subgroup nor which invocations share one is fixed, so each subgroup takes
// the next free slot. The counter is set by hand: lavapipe starts it with what was there before.
var<workgroup> taken: atomic<u32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32, @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
  let number = group.y * groups.x + group.x;
  let sum = lane_sum(number, groups.x * groups.y, lane);
  if (lane == 0u) { atomicStore(&taken, 0u); }
  workgroupBarrier();
  let mine = subgroupAdd(sum);
  if (subgroup_lane == 0u) { partial[atomicAdd(&taken, 1u)] = mine; }
  workgroupBarrier();
  if (lane == 0u && number < arrayLength(&sums)) {
    var all = 0.0;
    let count = atomicLoad(&taken);
    for (var i = 0u; i < count; i++) { all += partial[i]; }
    sums[number] = all;
  }
}
