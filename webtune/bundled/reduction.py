"""The sum of f32 values, in one number: trees, subgroups, and how much each workgroup takes.

Size: (elements,). x is read, total has one element. Passes are repeated until one number is left.
The order of additions differs between candidates, so the last bits may.
"""

from __future__ import annotations

from typing import Any

from webtune.bundled.base import Bundled, Size, extents, fold, host_f32, zeros_f32
from webtune.errors import ArgumentError
from webtune.kernel.recorder import Recorder
from webtune.kernel.space import Params, ceil_div, grid
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work

_HEAD = """
override WG: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
"""

_MAIN = """
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
"""

# A workgroup takes a block of WG * PER values.
_TAKE_BLOCK = """
  let number = group.y * groups.x + group.x;
  let first = number * WG * PER + lane;
  var sum = 0.0;
  for (var i = 0u; i < PER; i++) {
    let k = first + i * WG;
    if (k < arrayLength(&x)) { sum += x[k]; }
  }
"""

# All workgroups step through the whole together.
_TAKE_STRIDED = """
  let number = group.y * groups.x + group.x;
  let stride = groups.x * groups.y * WG;
  var sum = 0.0;
  for (var k = number * WG + lane; k < arrayLength(&x); k += stride) { sum += x[k]; }
"""

_TREE = """
  partial[lane] = sum;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  if (lane == 0u && number < arrayLength(&sums)) { sums[number] = partial[0]; }
}
"""

# Neither the size of a subgroup nor which invocations share one is fixed, so each subgroup takes
# the next free slot. The counter is set by hand: lavapipe starts it with what was there before.
_SUBGROUPS = """
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
"""

_PARTIAL = "var<workgroup> partial: array<f32, WG>;\n"
_TAKEN = "var<workgroup> taken: atomic<u32>;\n"
_SUBGROUP_LANE = "  @builtin(subgroup_invocation_id) subgroup_lane: u32,\n"

TREE_OF_BLOCKS = _HEAD + "override PER: u32;\n" + _PARTIAL + _MAIN + ") {" + _TAKE_BLOCK + _TREE
TREE_STRIDED = _HEAD + _PARTIAL + _MAIN + ") {" + _TAKE_STRIDED + _TREE
SUBGROUPS_STRIDED = (
    "enable subgroups;\n"
    + (_HEAD + _PARTIAL + _TAKEN + _MAIN + _SUBGROUP_LANE + ") {")
    + (_TAKE_STRIDED + _SUBGROUPS)
)


def _key(x: Any, total: Any) -> list[int]:
    (count,) = extents("x", x, 1)
    if total.size != 1:
        raise ArgumentError(f"total has {total.size} elements; the sum is one number")
    return [count]


def _work(size: Size) -> Work:
    return Work(flops=size[0], bytes=4 * size[0])


KERNEL = TunableSet(
    "reduction", outputs=["total"], key=_key, work=lambda x, total: _work((x.size,))
)


@KERNEL.tunable("tree", params=grid(WG=[128, 64, 256], PER=[8, 1, 2, 4, 16, 64]))
def _tree(rec: Recorder, p: Params, x: Any, total: Any) -> None:
    constants = {"WG": p.WG, "PER": p.PER}
    source, left = x, ceil_div(x.size, p.WG * p.PER)
    while left > 1:
        target = rec.scratch(left)
        rec.dispatch(TREE_OF_BLOCKS, [source, target], workgroups=fold(left), constants=constants)
        source, left = target, ceil_div(left, p.WG * p.PER)
    rec.dispatch(TREE_OF_BLOCKS, [source, total], workgroups=1, constants=constants)


@KERNEL.tunable("grid-stride", params=grid(WG=[256, 64, 128], GROUPS=[64, 1, 16, 256, 1024]))
def _grid_stride(rec: Recorder, p: Params, x: Any, total: Any) -> None:
    constants = {"WG": p.WG}
    groups = min(p.GROUPS, ceil_div(x.size, p.WG))
    partial = rec.scratch(groups) if groups > 1 else None
    if partial is not None:
        rec.dispatch(TREE_STRIDED, [x, partial], workgroups=groups, constants=constants)
    rec.dispatch(TREE_STRIDED, [partial or x, total], workgroups=1, constants=constants)


@KERNEL.tunable(
    "subgroup",
    params=grid(WG=[256, 64, 128], GROUPS=[64, 16, 256, 1024]),
    requires=["subgroups"],
)
def _subgroup(rec: Recorder, p: Params, x: Any, total: Any) -> None:
    constants = {"WG": p.WG}
    groups = min(p.GROUPS, ceil_div(x.size, p.WG))
    partial = rec.scratch(groups) if groups > 1 else None
    if partial is not None:
        rec.dispatch(SUBGROUPS_STRIDED, [x, partial], workgroups=groups, constants=constants)
    rec.dispatch(SUBGROUPS_STRIDED, [partial or x, total], workgroups=1, constants=constants)


def _arguments(size: Size) -> list[Any]:
    return [host_f32(size), zeros_f32((1,))]


def _expected(size: Size, x: Any, total: Any) -> Any:
    return x.sum(dtype="f8").reshape(1).astype("f4")


BUNDLED = Bundled(
    name="reduction",
    summary="sum of a vector",
    kernel=KERNEL,
    sizes={
        "default": (1 << 20,),
        "large": (1 << 24,),
        "small": (1 << 10,),
        "odd": (1000003,),
        "odd-small": (7,),
        "odd-mid": (4099,),
        "odd-one": (1,),
    },
    arguments=_arguments,
    expected=_expected,
    work=_work,
    output="total",
    rtol=1e-5,
    atol=1e-4,
)
