// The transpose of a matrix. A shader is "head" and one other section.

//// head
override ROWS: u32;
override COLS: u32;
override WY: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

//// naive
override WX: u32;
override ALONG_OUTPUT: bool;

@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_id) local: vec3u,
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

//// tiled
override TILE: u32;
override PAD: u32;
override AREA: u32;
var<workgroup> tile: array<f32, AREA>;

@compute @workgroup_size(TILE, WY)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_id) local: vec3u,
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
