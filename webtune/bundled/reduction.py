"""The sum of f32 values, in one number: trees, subgroups, and how much each workgroup takes.

Size: (elements,). x is read, total has one element. Passes are repeated until one number is left.
The order of additions differs between candidates, so the last bits may.
"""

from __future__ import annotations

from typing import Any

import webtune as wt
from webtune.bundled.base import Bundled, Size, extents, f32, fold, wgsl_sections, zeros

WGSL = wgsl_sections("reduction.wgsl")
TREE_OF_BLOCKS = WGSL["head"] + WGSL["blocks"] + WGSL["tree"]
TREE_STRIDED = WGSL["head"] + WGSL["strided"] + WGSL["tree"]
SUBGROUPS = WGSL["enable subgroups"] + WGSL["head"] + WGSL["strided"] + WGSL["subgroups"]


def _size_of(x: Any, total: Any) -> Size:
    if total.size != 1:
        raise wt.ArgumentError(f"total has {total.size} elements; the sum is one number")
    return extents("x", x, 1)


BUNDLED = Bundled(
    name="reduction",
    summary="sum of a vector",
    sizes={
        "default": (1 << 20,),
        "large": (1 << 24,),
        "small": (1 << 10,),
        "odd": (1000003,),
        "odd-small": (7,),
        "odd-mid": (4099,),
        "odd-one": (1,),
    },
    size_of=_size_of,
    work=lambda size: wt.Work(flops=size[0], bytes=4 * size[0]),
    arguments=lambda size: [f32(size), zeros((1,))],
    expected=lambda size, x, total: x.sum(dtype="f8").reshape(1).astype("f4"),
    output="total",
    rtol=1e-5,
    atol=1e-4,
)


@BUNDLED.kernel.tunable("tree", params=wt.grid(WG=[128, 64, 256], PER=[8, 1, 2, 4, 16, 64]))
def _tree(rec: wt.Recorder, p: wt.Params, x: Any, total: Any) -> None:
    constants = {"WG": p.WG, "PER": p.PER}
    source, left = x, wt.ceil_div(x.size, p.WG * p.PER)
    while left > 1:
        target = rec.scratch(left)
        rec.dispatch(TREE_OF_BLOCKS, [source, target], workgroups=fold(left), constants=constants)
        source, left = target, wt.ceil_div(left, p.WG * p.PER)
    rec.dispatch(TREE_OF_BLOCKS, [source, total], workgroups=1, constants=constants)


@BUNDLED.kernel.tunable(
    "grid-stride", params=wt.grid(WG=[256, 64, 128], GROUPS=[64, 1, 16, 256, 1024])
)
def _grid_stride(rec: wt.Recorder, p: wt.Params, x: Any, total: Any) -> None:
    _two_passes(rec, TREE_STRIDED, p, x, total)


@BUNDLED.kernel.tunable(
    "subgroup",
    params=wt.grid(WG=[256, 64, 128], GROUPS=[64, 16, 256, 1024]),
    requires=["subgroups"],
)
def _subgroup(rec: wt.Recorder, p: wt.Params, x: Any, total: Any) -> None:
    _two_passes(rec, SUBGROUPS, p, x, total)


def _two_passes(rec: wt.Recorder, source: str, p: wt.Params, x: Any, total: Any) -> None:
    constants = {"WG": p.WG}
    groups = min(p.GROUPS, wt.ceil_div(x.size, p.WG))
    if groups > 1:
        partial = rec.scratch(groups)
        rec.dispatch(source, [x, partial], workgroups=groups, constants=constants)
        x = partial
    rec.dispatch(source, [x, total], workgroups=1, constants=constants)
