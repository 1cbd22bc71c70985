// 2-D convolution, PX outputs of a row to an invocation. A shader is the constant PX, "head" and
// one other section.

//// head
override WX: u32;
override WY: u32;
override H: u32;
override W: u32;
override FH: u32;
override FW: u32;
@group(0) @binding(0) var<storage, read> image: array<f32>;
@group(0) @binding(1) var<storage, read> kernel: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

// A coordinate left of or above the image wraps round to a huge one, which is outside as well.
fn pixel(row: u32, col: u32) -> f32 {
  if (row >= H || col >= W) { return 0.0; }
  return image[row * W + col];
}

fn put(row: u32, col: u32, value: f32) {
  if (row < H && col < W) { out[row * W + col] = value; }
}

//// direct
@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_id) local: vec3u,
) {
  let tile = group.y * groups.x + group.x;
  let across = (W + WX * PX - 1u) / (WX * PX);
  let col = ((tile % across) * WX + local.x) * PX;
  let row = (tile / across) * WY + local.y;
  if (row >= H || col >= W) { return; }
  $sums
  for (var i = 0u; i < FH; i++) {
    let y = row + i - FH / 2u;
    for (var j = 0u; j < FW; j++) {
      let x = col + j - FW / 2u;
      let weight = kernel[i * FW + j];
      $steps
    }
  }
  $stores
}

//// tiled
// A workgroup loads its part of the image, with the rim that the filter reaches into.
override PART_W: u32;
override PART_AREA: u32;
var<workgroup> part: array<f32, PART_AREA>;

@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_id) local: vec3u,
) {
  let tile = group.y * groups.x + group.x;
  let across = (W + WX * PX - 1u) / (WX * PX);
  let left = (tile % across) * WX * PX;
  let top = (tile / across) * WY;
  for (var k = local.y * WX + local.x; k < PART_AREA; k += WX * WY) {
    part[k] = pixel(top + k / PART_W - FH / 2u, left + k % PART_W - FW / 2u);
  }
  workgroupBarrier();
  let row = top + local.y;
  let col = left + local.x;
  $sums
  for (var i = 0u; i < FH; i++) {
    for (var j = 0u; j < FW; j++) {
      let weight = kernel[i * FW + j];
      let base = (local.y + i) * PART_W + local.x + j;
      $steps
    }
  }
  $stores
}
