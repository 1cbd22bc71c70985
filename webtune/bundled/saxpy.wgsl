// y = 2x + y. A shader is "scalar" or "vec4", and "saxpy".

//// scalar
alias Element = f32;

//// vec4
alias Element = vec4<f32>;

//// saxpy
override WG: u32;
override PER: u32;
override STRIDED: bool = true;
@group(0) @binding(0) var<storage, read> x: array<Element>;
@group(0) @binding(1) var<storage, read_write> y: array<Element>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  let first = (group.y * groups.x + group.x) * WG * PER;
  let count = arrayLength(&x);
  for (var i = 0u; i < PER; i++) {
    let k = first + select(lane * PER + i, i * WG + lane, STRIDED);
    if (k < count) { y[k] = 2.0 * x[k] + y[k]; }
  }
}
