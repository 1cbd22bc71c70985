"""2-D convolution of an f32 image with a small odd filter, zeros outside, output as large as input.

Size: (height, width, filter height, filter width). Correlation, as neural networks mean it: the
filter is not flipped.
"""

from __future__ import annotations

from typing import Any

from webtune.bundled.base import (
    INVOCATIONS,
    STORAGE_BYTES,
    Bundled,
    Size,
    extents,
    fold,
    host_f32,
    numpy,
    zeros_f32,
)
from webtune.errors import ArgumentError, Reject
from webtune.kernel.kernel import Kernel
from webtune.kernel.space import Params, ceil_div, grid
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work

_HEAD = """
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
"""

_MAIN = """
@compute @workgroup_size(WX, WY)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
  let tile = group.y * groups.x + group.x;
"""


def _lines(indent: int, lines: list[str]) -> str:
    return "\n".join(" " * indent + line for line in lines)


def direct(p: Params) -> str:
    """`PX` neighbouring outputs of a row a thread, read straight from memory."""
    outputs = range(p.PX)
    sums = [f"var s{j} = 0.0;" for j in outputs]
    steps = [f"s{j} += weight * pixel(y, x + {j}u);" for j in outputs]
    stores = [f"if (col + {j}u < W) {{ out[row * W + col + {j}u] = s{j}; }}" for j in outputs]
    return f"""{_HEAD}{_MAIN}
  let across = (W + WX * {p.PX}u - 1u) / (WX * {p.PX}u);
  let col = ((tile % across) * WX + local.x) * {p.PX}u;
  let row = (tile / across) * WY + local.y;
  if (row >= H || col >= W) {{ return; }}
{_lines(2, sums)}
  for (var i = 0u; i < FH; i++) {{
    let y = row + i - FH / 2u;
    for (var j = 0u; j < FW; j++) {{
      let x = col + j - FW / 2u;
      let weight = kernel[i * FW + j];
{_lines(6, steps)}
    }}
  }}
{_lines(2, stores)}
}}
"""


def tiled(p: Params) -> str:
    """A workgroup loads its part of the image with the rim that the filter reaches into; a thread
    writes `PX` outputs of a row, a workgroup's width apart."""
    outputs = range(p.PX)
    sums = [f"var s{j} = 0.0;" for j in outputs]
    steps = [f"s{j} += weight * part[base + {j}u * WX];" for j in outputs]
    stores = [
        f"if (row < H && col + {j}u * WX < W) {{ out[row * W + col + {j}u * WX] = s{j}; }}"
        for j in outputs
    ]
    return f"""{_HEAD}
override PART_W: u32;
override PART_AREA: u32;
var<workgroup> part: array<f32, PART_AREA>;
{_MAIN}
  let across = (W + WX * {p.PX}u - 1u) / (WX * {p.PX}u);
  let left = (tile % across) * WX * {p.PX}u;
  let top = (tile / across) * WY;
  for (var k = local.y * WX + local.x; k < PART_AREA; k += WX * WY) {{
    part[k] = pixel(top + k / PART_W - FH / 2u, left + k % PART_W - FW / 2u);
  }}
  workgroupBarrier();
  let row = top + local.y;
  let col = left + local.x;
{_lines(2, sums)}
  for (var i = 0u; i < FH; i++) {{
    for (var j = 0u; j < FW; j++) {{
      let weight = kernel[i * FW + j];
      let base = (local.y + i) * PART_W + local.x + j;
{_lines(6, steps)}
    }}
  }}
{_lines(2, stores)}
}}
"""


def _groups(p: Params, image: Any, kernel: Any, out: Any) -> tuple[int, int]:
    height, width = image.shape
    return fold(ceil_div(height, p.WY) * ceil_div(width, p.WX * p.PX))


def _extents(p: Params, image: Any, kernel: Any, out: Any) -> dict[str, int]:
    (height, width), (rows, cols) = image.shape, kernel.shape
    return {"H": height, "W": width, "FH": rows, "FW": cols}


def _part(p: Params, kernel: Any) -> tuple[int, int]:
    return p.WY + kernel.shape[0] - 1, p.WX * p.PX + kernel.shape[1] - 1


def _tiled_groups(p: Params, image: Any, kernel: Any, out: Any) -> tuple[int, int]:
    rows, cols = _part(p, kernel)
    if 4 * rows * cols > STORAGE_BYTES:
        raise Reject(f"{4 * rows * cols} bytes of workgroup memory are more than {STORAGE_BYTES}")
    return _groups(p, image, kernel, out)


def _extents_and_part(p: Params, image: Any, kernel: Any, out: Any) -> dict[str, int]:
    rows, cols = _part(p, kernel)
    part = {"PART_W": cols, "PART_AREA": rows * cols}
    return {**_extents(p, image, kernel, out), **part}


def _key(image: Any, kernel: Any, out: Any) -> list[int]:
    shape, filter_shape = extents("image", image, 2), extents("kernel", kernel, 2)
    if extents("out", out, 2) != shape:
        raise ArgumentError(f"out has the shape {out.shape}, image has {shape}; they must be equal")
    if not all(extent % 2 for extent in filter_shape):
        raise ArgumentError(f"the filter is {filter_shape}; both extents must be odd")
    return [*shape, *filter_shape]


def _work(size: Size) -> Work:
    height, width, rows, cols = size
    return Work(
        flops=2 * height * width * rows * cols, bytes=4 * (2 * height * width + rows * cols)
    )


KERNEL = TunableSet(
    "conv2d",
    key=_key,
    work=lambda image, kernel, out: _work((*image.shape, *kernel.shape)),
)
_SPACE = grid(WX=[16, 8, 32, 64], WY=[8, 4, 16], PX=[1, 2, 4]).where(
    lambda p: 64 <= p.WX * p.WY <= INVOCATIONS and p.WX * p.PX <= 128
)
KERNEL.add(Kernel("direct", source=direct, params=_SPACE, workgroups=_groups, constants=_extents))
KERNEL.add(
    Kernel(
        "tiled",
        source=tiled,
        params=_SPACE,
        workgroups=_tiled_groups,
        constants=_extents_and_part,
    )
)


def _arguments(size: Size) -> list[Any]:
    return [host_f32(size[:2]), host_f32(size[2:], 7), zeros_f32(size[:2])]


def _expected(size: Size, image: Any, kernel: Any, out: Any) -> Any:
    np = numpy()
    height, width, rows, cols = size
    padded = np.pad(image.astype("f8"), ((rows // 2, rows // 2), (cols // 2, cols // 2)))
    total = np.zeros((height, width))
    for i in range(rows):
        for j in range(cols):
            total += kernel[i, j] * padded[i : i + height, j : j + width]
    return total.astype("f4")


BUNDLED = Bundled(
    name="conv2d",
    summary="2-D convolution with an odd filter",
    kernel=KERNEL,
    sizes={
        "default": (512, 512, 5, 5),
        "large": (2048, 2048, 7, 7),
        "small": (64, 64, 3, 3),
        "odd": (131, 197, 7, 3),
        "odd-small": (5, 7, 3, 9),
        "odd-one": (1, 1, 1, 1),
    },
    arguments=_arguments,
    expected=_expected,
    work=_work,
    output="out",
    rtol=1e-5,
    atol=1e-4,
)
