"""Inclusive prefix sums of u32 values (they wrap): blocks, the sums of blocks, and back.

Size: (elements,). Either blocks are scanned and what stands before each is added afterwards, or
blocks are summed first and scanned once, which moves a quarter less. Within a block: Hillis and
Steele, "Data parallel algorithms", 1986, or Blelloch, "Prefix sums and their applications", 1990,
over each invocation's own run of values.
"""

from __future__ import annotations

from typing import Any

from webtune.bundled.base import Bundled, Size, extents, fold, host_u32, numpy, zeros_u32
from webtune.errors import ArgumentError
from webtune.kernel.recorder import Recorder
from webtune.kernel.space import Params, ceil_div, grid
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work

_HEAD = """
override WG: u32;
override PER: u32;
@group(0) @binding(0) var<storage, read> x: array<u32>;
"""

_MAIN = """
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let number = group.y * groups.x + group.x;
  let count = arrayLength(&x);
  let first = (number * WG + lane) * PER;
"""

# Each defines before(lane, sum): the sum of the lower lanes' sums. Every lane of the workgroup
# calls it; afterwards part[WG - 1] still is one lane's value, not the total.
_HILLIS = """
var<workgroup> part: array<u32, WG>;
fn before(lane: u32, sum: u32) -> u32 {
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
"""

_BLELLOCH = """
var<workgroup> part: array<u32, WG>;
fn before(lane: u32, sum: u32) -> u32 {
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
"""

_RUN_SUM = """
  var sum = 0u;
  for (var i = 0u; i < PER; i++) {
    if (first + i < count) { sum += x[first + i]; }
  }
"""

_RUN_SCAN = """
  for (var i = 0u; i < PER; i++) {
    if (first + i < count) {
      running += x[first + i];
      y[first + i] = running;
    }
  }
"""

_Y = "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n"

# Scan one block; it is all there is.
_ONE_BLOCK = f"{_MAIN}{_RUN_SUM}\n  var running = before(lane, sum);\n{_RUN_SCAN}}}\n"
ONE_BLOCK_HILLIS = _HEAD + _Y + _HILLIS + _ONE_BLOCK
ONE_BLOCK_BLELLOCH = _HEAD + _Y + _BLELLOCH + _ONE_BLOCK

# Scan every block on its own, and tell its sum.
_BLOCKS = f"""
@group(0) @binding(2) var<storage, read_write> sums: array<u32>;
{_MAIN}{_RUN_SUM}
  var running = before(lane, sum);
  if (lane == WG - 1u && number < arrayLength(&sums)) {{ sums[number] = running + sum; }}
{_RUN_SCAN}}}
"""
BLOCKS_HILLIS = _HEAD + _Y + _HILLIS + _BLOCKS
BLOCKS_BLELLOCH = _HEAD + _Y + _BLELLOCH + _BLOCKS

# Add the scanned sums of the blocks before.
ADD = """
override WG: u32;
override PER: u32;
@group(0) @binding(0) var<storage, read> sums: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let number = group.y * groups.x + group.x + 1u;
  let offset = sums[number - 1u];
  for (var i = 0u; i < PER; i++) {
    let k = number * WG * PER + i * WG + lane;
    if (k < arrayLength(&y)) { y[k] += offset; }
  }
}
"""

# The sum of every block.
BLOCK_SUMS = f"""{_HEAD}
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
var<workgroup> part: array<u32, WG>;
{_MAIN.replace("(number * WG + lane) * PER", "number * WG * PER + lane")}
  var sum = 0u;
  for (var i = 0u; i < PER; i++) {{
    if (first + i * WG < count) {{ sum += x[first + i * WG]; }}
  }}
  part[lane] = sum;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {{
    if (lane < half) {{ part[lane] += part[lane + half]; }}
    workgroupBarrier();
  }}
  if (lane == 0u && number < arrayLength(&sums)) {{ sums[number] = part[0]; }}
}}
"""

# Scan every block on from the scanned sums of the blocks before.
_ONWARD = f"""
@group(0) @binding(2) var<storage, read> sums: array<u32>;
{_MAIN}{_RUN_SUM}
  var running = before(lane, sum);
  if (number > 0u) {{ running += sums[number - 1u]; }}
{_RUN_SCAN}}}
"""
ONWARD_HILLIS = _HEAD + _Y + _HILLIS + _ONWARD
ONWARD_BLELLOCH = _HEAD + _Y + _BLELLOCH + _ONWARD


def _key(x: Any, y: Any) -> list[int]:
    (count,) = extents("x", x, 1)
    if extents("y", y, 1) != (count,):
        raise ArgumentError(f"y has the shape {y.shape}, x has {x.shape}; they must be equal")
    return [count]


def _work(size: Size) -> Work:
    return Work(flops=size[0], bytes=8 * size[0])


KERNEL = TunableSet("scan", outputs=["y"], key=_key, work=lambda x, y: _work((x.size,)))
_SPACE = grid(WG=[128, 64, 256], PER=[4, 1, 8, 16], WITHIN=["hillis", "blelloch"])


@KERNEL.tunable("scan-add", params=_SPACE)
def _scan_add(rec: Recorder, p: Params, x: Any, y: Any) -> None:
    hillis = p.WITHIN == "hillis"
    one_block = ONE_BLOCK_HILLIS if hillis else ONE_BLOCK_BLELLOCH
    blocks = BLOCKS_HILLIS if hillis else BLOCKS_BLELLOCH
    constants = {"WG": p.WG, "PER": p.PER}
    pending = []
    count = ceil_div(x.size, p.WG * p.PER)
    while count > 1:
        sums, scanned = rec.scratch(count, "u32"), rec.scratch(count, "u32")
        rec.dispatch(blocks, [x, y, sums], workgroups=fold(count), constants=constants)
        pending.append((scanned, y, count))
        x, y, count = sums, scanned, ceil_div(count, p.WG * p.PER)
    rec.dispatch(one_block, [x, y], workgroups=1, constants=constants)
    for scanned, target, count in reversed(pending):
        rec.dispatch(ADD, [scanned, target], workgroups=fold(count - 1), constants=constants)


@KERNEL.tunable("sum-scan", params=_SPACE)
def _sum_scan(rec: Recorder, p: Params, x: Any, y: Any) -> None:
    hillis = p.WITHIN == "hillis"
    one_block = ONE_BLOCK_HILLIS if hillis else ONE_BLOCK_BLELLOCH
    onward = ONWARD_HILLIS if hillis else ONWARD_BLELLOCH
    constants = {"WG": p.WG, "PER": p.PER}
    pending = []
    count = ceil_div(x.size, p.WG * p.PER)
    while count > 1:
        sums, scanned = rec.scratch(count, "u32"), rec.scratch(count, "u32")
        rec.dispatch(BLOCK_SUMS, [x, sums], workgroups=fold(count), constants=constants)
        pending.append((x, y, scanned, count))
        x, y, count = sums, scanned, ceil_div(count, p.WG * p.PER)
    rec.dispatch(one_block, [x, y], workgroups=1, constants=constants)
    for source, target, scanned, count in reversed(pending):
        rec.dispatch(onward, [source, target, scanned], workgroups=fold(count), constants=constants)


def _arguments(size: Size) -> list[Any]:
    return [host_u32(size), zeros_u32(size)]


def _expected(size: Size, x: Any, y: Any) -> Any:
    return numpy().cumsum(x, dtype="u4")


BUNDLED = Bundled(
    name="scan",
    summary="inclusive prefix sums",
    kernel=KERNEL,
    sizes={
        "default": (1 << 18,),
        "large": (1 << 24,),
        "small": (1 << 10,),
        "odd": (100003,),
        "odd-small": (7,),
        "odd-mid": (4099,),
        "odd-one": (1,),
    },
    arguments=_arguments,
    expected=_expected,
    work=_work,
    output="y",
)
