"""y = 2·x + y over f32: nothing but memory traffic, so layout and workgroup size are all there is.

Size: (elements,). y is read and written.
"""

from __future__ import annotations

from typing import Any

from webtune.bundled.base import Bundled, Size, extents, fold, host_f32
from webtune.errors import ArgumentError, Reject
from webtune.kernel.kernel import Kernel
from webtune.kernel.space import Params, ceil_div, grid
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work

_SCALAR = """
override WG: u32;
override PER: u32;
override STRIDED: bool;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let first = (group.y * groups.x + group.x) * WG * PER;
  let count = arrayLength(&x);
  for (var i = 0u; i < PER; i++) {
    let k = first + select(lane * PER + i, i * WG + lane, STRIDED);
    if (k < count) { y[k] = 2.0 * x[k] + y[k]; }
  }
}
"""

_VEC4 = """
override WG: u32;
override PER: u32;
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let first = (group.y * groups.x + group.x) * WG * PER;
  let count = arrayLength(&x);
  for (var i = 0u; i < PER; i++) {
    let k = first + i * WG + lane;
    if (k < count) { y[k] = 2.0 * x[k] + y[k]; }
  }
}
"""


def _vec4_groups(p: Params, x: Any, y: Any) -> tuple[int, int]:
    if x.size % 4:
        raise Reject(f"{x.size} elements are no whole number of vec4")
    return fold(ceil_div(x.size // 4, p.WG * p.PER))


def _key(x: Any, y: Any) -> list[int]:
    (count,) = extents("x", x, 1)
    if extents("y", y, 1) != (count,):
        raise ArgumentError(f"y has the shape {y.shape}, x has {x.shape}; they must be equal")
    return [count]


def _work(size: Size) -> Work:
    return Work(flops=2 * size[0], bytes=12 * size[0])


KERNEL = TunableSet("saxpy", key=_key, work=lambda x, y: _work((x.size,)))
KERNEL.add(
    Kernel(
        "scalar",
        source=_SCALAR,
        params=grid(WG=[64, 128, 256, 32], PER=[1, 2, 4, 8], STRIDED=[True, False]).where(
            lambda p: p.STRIDED or p.PER > 1
        ),
        workgroups=lambda p, x, y: fold(ceil_div(x.size, p.WG * p.PER)),
        restore=["y"],
    )
)
KERNEL.add(
    Kernel(
        "vec4",
        source=_VEC4,
        params=grid(WG=[64, 128, 256], PER=[1, 2, 4]),
        workgroups=_vec4_groups,
        restore=["y"],
    )
)


def _arguments(size: Size) -> list[Any]:
    return [host_f32(size), host_f32(size, 7)]


def _expected(size: Size, x: Any, y: Any) -> Any:
    return 2 * x + y


BUNDLED = Bundled(
    name="saxpy",
    summary="y = 2x + y",
    kernel=KERNEL,
    sizes={
        "default": (1 << 20,),
        "large": (1 << 24,),
        "small": (1 << 10,),
        "odd": (1000003,),
        "odd-small": (7,),
        "odd-one": (1,),
    },
    arguments=_arguments,
    expected=_expected,
    work=_work,
    output="y",
    rtol=1e-6,
    atol=1e-6,
)
