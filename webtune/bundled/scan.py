"""Inclusive prefix sums of u32 values (they wrap): blocks, the sums of blocks, and back.

Size: (elements,). Either blocks are scanned and what stands before each is added afterwards, or
blocks are summed first and scanned once, which moves a quarter less. Within a block: Hillis and
Steele, "Data parallel algorithms", 1986, or Blelloch, "Prefix sums and their applications", 1990,
over each invocation's own run of values.
"""

from __future__ import annotations

from typing import Any

import webtune as wt
from webtune.bundled.base import Bundled, equal_shapes, fold, numpy, u32, wgsl_sections, zeros

WGSL = wgsl_sections("scan.wgsl")
BLOCK_SUMS = WGSL["head"] + WGSL["block sums"]

BUNDLED = Bundled(
    name="scan",
    summary="inclusive prefix sums",
    sizes={
        "default": (1 << 18,),
        "large": (1 << 24,),
        "small": (1 << 10,),
        "odd": (100003,),
        "odd-small": (7,),
        "odd-mid": (4099,),
        "odd-one": (1,),
    },
    size_of=lambda x, y: equal_shapes(1, x=x, y=y),
    work=lambda size: wt.Work(flops=size[0], bytes=8 * size[0]),
    arguments=lambda size: [u32(size), zeros(size, "I")],
    expected=lambda size, x, y: numpy().cumsum(x, dtype="u4"),
    output="y",
)
_SPACE = wt.grid(WG=[128, 64, 256], PER=[4, 1, 8, 16], WITHIN=["hillis", "blelloch"])


def _scanning(within: str, section: str) -> str:
    return "".join(WGSL[name] for name in ("head", "y", "runs", within, section))


@BUNDLED.kernel.tunable("scan-add", params=_SPACE)
def _scan_add(rec: wt.Recorder, p: wt.Params, x: Any, y: Any) -> None:
    constants = {"WG": p.WG, "PER": p.PER}
    count = wt.ceil_div(x.size, p.WG * p.PER)
    if count == 1:
        rec.dispatch(_scanning(p.WITHIN, "one block"), [x, y], 1, constants=constants)
        return
    sums, scanned = rec.scratch(count, "u32"), rec.scratch(count, "u32")
    blocks = _scanning(p.WITHIN, "blocks")
    rec.dispatch(blocks, [x, y, sums], fold(count), constants=constants)
    _scan_add(rec, p, sums, scanned)
    rec.dispatch(WGSL["add"], [scanned, y], fold(count - 1), constants=constants)


@BUNDLED.kernel.tunable("sum-scan", params=_SPACE)
def _sum_scan(rec: wt.Recorder, p: wt.Params, x: Any, y: Any) -> None:
    constants = {"WG": p.WG, "PER": p.PER}
    count = wt.ceil_div(x.size, p.WG * p.PER)
    if count == 1:
        rec.dispatch(_scanning(p.WITHIN, "one block"), [x, y], 1, constants=constants)
        return
    sums, scanned = rec.scratch(count, "u32"), rec.scratch(count, "u32")
    rec.dispatch(BLOCK_SUMS, [x, sums], fold(count), constants=constants)
    _sum_scan(rec, p, sums, scanned)
    onward = _scanning(p.WITHIN, "onward")
    rec.dispatch(onward, [x, y, scanned], fold(count), constants=constants)
