"""Transpose of an f32 matrix: strided reads or strided writes, or neither through workgroup memory.

Size: (rows, columns). Padding a tile by one column spreads its columns over the memory's banks
(Ruetsch and Micikevicius, "Optimizing Matrix Transpose in CUDA", 2009).
"""

from __future__ import annotations

from typing import Any

import webtune as wt
from webtune.bundled.base import (
    INVOCATIONS,
    STORAGE_BYTES,
    Bundled,
    Size,
    extents,
    f32,
    fold,
    wgsl_sections,
    zeros,
)

WGSL = wgsl_sections("transpose.wgsl")


def _size_of(x: Any, y: Any) -> Size:
    rows, cols = extents("x", x, 2)
    if extents("y", y, 2) != (cols, rows):
        raise wt.ArgumentError(f"y has the shape {y.shape}; the transpose of x has {(cols, rows)}")
    return rows, cols


BUNDLED = Bundled(
    name="transpose",
    summary="transpose of a matrix",
    sizes={
        "default": (1024, 1024),
        "large": (4096, 4096),
        "small": (64, 64),
        "odd": (1003, 517),
        "odd-small": (33, 65),
        "odd-wide": (1, 7),
        "odd-one": (1, 1),
    },
    size_of=_size_of,
    work=lambda size: wt.Work(bytes=8 * size[0] * size[1]),
    arguments=lambda size: [f32(size), zeros(size[::-1])],
    expected=lambda size, x, y: x.T,
    output="y",
)


def _naive_groups(p: wt.Params, x: Any, y: Any) -> tuple[int, int]:
    rows, cols = x.shape
    fast, slow = (rows, cols) if p.ALONG_OUTPUT else (cols, rows)
    return fold(wt.ceil_div(fast, p.WX) * wt.ceil_div(slow, p.WY))


def _tiled_groups(p: wt.Params, x: Any, y: Any) -> tuple[int, int]:
    rows, cols = x.shape
    return fold(wt.ceil_div(rows, p.TILE) * wt.ceil_div(cols, p.TILE))


def _shape(p: wt.Params, x: Any, y: Any) -> dict[str, int]:
    return {"ROWS": x.shape[0], "COLS": x.shape[1]}


BUNDLED.kernel.add(
    wt.Kernel(
        "naive",
        source=WGSL["head"] + WGSL["naive"],
        params=wt.grid(WX=[16, 8, 32, 64], WY=[16, 8, 4], ALONG_OUTPUT=[False, True]).where(
            lambda p: 64 <= p.WX * p.WY <= INVOCATIONS
        ),
        workgroups=_naive_groups,
        constants=_shape,
    )
)
BUNDLED.kernel.add(
    wt.Kernel(
        "tiled",
        source=WGSL["head"] + WGSL["tiled"],
        params=wt.grid(TILE=[16, 32, 64, 8], WY=[16, 8, 4], PAD=[0, 1]).where(
            lambda p: (
                32 <= p.TILE * p.WY <= INVOCATIONS
                and p.WY <= p.TILE
                and 4 * p.TILE * (p.TILE + p.PAD) <= STORAGE_BYTES
            )
        ),
        workgroups=_tiled_groups,
        constants=lambda p, x, y: {**_shape(p, x, y), "AREA": p.TILE * (p.TILE + p.PAD)},
    )
)
