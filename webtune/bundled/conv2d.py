"""2-D convolution of an f32 image with a small odd filter, zeros outside, output as large as input.

Size: (height, width, filter height, filter width). Correlation, as neural networks mean it: the
filter is not flipped.
"""

from __future__ import annotations

from typing import Any

import webtune as wt
from webtune.bundled.base import (
    INVOCATIONS,
    STORAGE_BYTES,
    Bundled,
    Size,
    equal_shapes,
    extents,
    f32,
    fold,
    numpy,
    wgsl_constants,
    wgsl_sections,
    written_out,
    zeros,
)

WGSL = wgsl_sections("conv2d.wgsl")


def _size_of(image: Any, kernel: Any, out: Any) -> Size:
    filter_shape = extents("kernel", kernel, 2)
    if not all(extent % 2 for extent in filter_shape):
        raise wt.ArgumentError(f"the filter is {filter_shape}; both extents must be odd")
    return *equal_shapes(2, image=image, out=out), *filter_shape


def _work(size: Size) -> wt.Work:
    height, width, rows, cols = size
    return wt.Work(
        flops=2 * height * width * rows * cols, bytes=4 * (2 * height * width + rows * cols)
    )


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
    sizes={
        "default": (512, 512, 5, 5),
        "large": (2048, 2048, 7, 7),
        "small": (64, 64, 3, 3),
        "odd": (131, 197, 7, 3),
        "odd-small": (5, 7, 3, 9),
        "odd-one": (1, 1, 1, 1),
    },
    size_of=_size_of,
    work=_work,
    arguments=lambda size: [f32(size[:2]), f32(size[2:], 7), zeros(size[:2])],
    expected=_expected,
    output="out",
    rtol=1e-5,
    atol=1e-4,
)


def _direct(p: wt.Params) -> str:
    """Neighbouring outputs of a row, read straight from memory."""
    return _source("direct", p, "pixel(y, x + {j}u)", "col + {j}u")


def _tiled(p: wt.Params) -> str:
    """Outputs of a row that are a workgroup's width apart, read from workgroup memory."""
    return _source("tiled", p, "part[base + {j}u * WX]", "col + {j}u * WX")


def _source(section: str, p: wt.Params, value: str, col: str) -> str:
    outputs = range(p.PX)
    return written_out(
        wgsl_constants(PX=p.PX) + WGSL["head"] + WGSL[section],
        sums=[f"var s{j} = 0.0;" for j in outputs],
        steps=[f"s{j} += weight * {value.format(j=j)};" for j in outputs],
        stores=[f"put(row, {col.format(j=j)}, s{j});" for j in outputs],
    )


def _groups(p: wt.Params, image: Any, kernel: Any, out: Any) -> tuple[int, int]:
    height, width = image.shape
    return fold(wt.ceil_div(height, p.WY) * wt.ceil_div(width, p.WX * p.PX))


def _extents(p: wt.Params, image: Any, kernel: Any, out: Any) -> dict[str, int]:
    return dict(zip(("H", "W", "FH", "FW"), _size_of(image, kernel, out), strict=True))


def _extents_and_part(p: wt.Params, image: Any, kernel: Any, out: Any) -> dict[str, int]:
    rows, cols = p.WY + kernel.shape[0] - 1, p.WX * p.PX + kernel.shape[1] - 1
    if 4 * rows * cols > STORAGE_BYTES:
        raise wt.Reject(
            f"{4 * rows * cols} bytes of workgroup memory are more than {STORAGE_BYTES}"
        )
    part = {"PART_W": cols, "PART_AREA": rows * cols}
    return {**_extents(p, image, kernel, out), **part}


_SPACE = wt.grid(WX=[16, 8, 32, 64], WY=[8, 4, 16], PX=[1, 2, 4]).where(
    lambda p: 64 <= p.WX * p.WY <= INVOCATIONS and p.WX * p.PX <= 128
)
BUNDLED.kernel.add(
    wt.Kernel("direct", source=_direct, params=_SPACE, workgroups=_groups, constants=_extents)
)
BUNDLED.kernel.add(
    wt.Kernel(
        "tiled", source=_tiled, params=_SPACE, workgroups=_groups, constants=_extents_and_part
    )
)
