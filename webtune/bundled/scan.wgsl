// Inclusive prefix sums of u32 values. A shader that scans blocks is "head", "y", "runs", "hillis"
// or "blelloch", and "one block", "blocks" or "onward". "block sums" needs "head" alone, "add"
// stands by itself.

//// head
override WG: u32;
override PER: u32;
@group(0) @binding(0) var<storage, read> x: array<u32>;
var<workgroup> part: array<u32, WG>;

//// y
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

//// runs
// The sum of the PER values that one lane takes.
fn run_sum(first: u32) -> u32 {
  var sum = 0u;
  for (var i = 0u; i < PER; i++) {
    if (first + i < arrayLength(&x)) { sum += x[first + i]; }
  }
  return sum;
}

// Write the prefix sums of these values, onto the sum of all values before.
fn scan_run(first: u32, before: u32) {
  var running = before;
  for (var i = 0u; i < PER; i++) {
    if (first + i < arrayLength(&x)) {
      running += x[first + i];
      y[first + i] = running;
    }
  }
}

//// hillis
// The sum of the lower lanes' sums. Every lane of the workgroup must call this.
fn sum_before(lane: u32, sum: u32) -> u32 {
  part[lane] = sum;
  workgroupBarrier();
  for (var reach = 1u; reach < WG; reach *= 2u) {
    var lower = 0u;
    if (lane >= reach) { lower = part[lane - reach]; }
    workgroupBarrier();
    part[lane] += lower;
    workgroupBarrier();
  }
  return part[lane] - sum;
}

//// blelloch
// The sum of the lower lanes' sums. Every lane of the workgroup must call this.
fn sum_before(lane: u32, sum: u32) -> u32 {
  part[lane] = sum;
  workgroupBarrier();
  var step = 1u;
  for (var busy = WG / 2u; busy > 0u; busy /= 2u) {
    if (lane < busy) {
      let right = (2u * lane + 2u) * step - 1u;
      part[right] += part[right - step];
    }
    step *= 2u;
    workgroupBarrier();
  }
  if (lane == 0u) { part[WG - 1u] = 0u; }
  workgroupBarrier();
  for (var busy = 1u; busy < WG; busy *= 2u) {
    step /= 2u;
    if (lane < busy) {
      let right = (2u * lane + 2u) * step - 1u;
      let left = part[right - step];
      part[right - step] = part[right];
      part[right] += left;
    }
    workgroupBarrier();
  }
  return part[lane];
}

//// one block
@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lane: u32) {
  scan_run(lane * PER, sum_before(lane, run_sum(lane * PER)));
}

//// blocks
// Scan every block on its own, and tell its sum.
@group(0) @binding(2) var<storage, read_write> sums: array<u32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  let number = group.y * groups.x + group.x;
  let first = (number * WG + lane) * PER;
  let sum = run_sum(first);
  let before = sum_before(lane, sum);
  if (lane == WG - 1u && number < arrayLength(&sums)) { sums[number] = before + sum; }
  scan_run(first, before);
}

//// add
// Add to every block but the first the scanned sums of the blocks before.
override WG: u32;
override PER: u32;
@group(0) @binding(0) var<storage, read> sums: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  let number = group.y * groups.x + group.x + 1u;
  let offset = sums[number - 1u];
  for (var i = 0u; i < PER; i++) {
    let k = number * WG * PER + i * WG + lane;
    if (k < arrayLength(&y)) { y[k] += offset; }
  }
}

//// block sums
// The sum of every block.
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  let number = group.y * groups.x + group.x;
  let first = number * WG * PER + lane;
  var sum = 0u;
  for (var i = 0u; i < PER; i++) {
    if (first + i * WG < arrayLength(&x)) { sum += x[first + i * WG]; }
  }
  part[lane] = sum;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] += part[lane + half]; }
    workgroupBarrier();
  }
  if (lane == 0u && number < arrayLength(&sums)) { sums[number] = part[0]; }
}

//// onward
// Scan every block on from the scanned sums of the blocks before.
@group(0) @binding(2) var<storage, read> sums: array<u32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  let number = group.y * groups.x + group.x;
  let first = (number * WG + lane) * PER;
  var before = sum_before(lane, run_sum(first));
  if (number > 0u) { before += sums[number - 1u]; }
  scan_run(first, before);
}
