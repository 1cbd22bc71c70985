"""y = 2·x + y over f32: nothing but memory traffic, so layout and workgroup size are all there is.

Size: (elements,). y is read and written.
"""

from __future__ import annotations

from typing import Any

import webtune as wt
from webtune.bundled.base import Bundled, equal_shapes, f32, fold, vec4_count, wgsl_sections

WGSL = wgsl_sections("saxpy.wgsl")

BUNDLED = Bundled(
    name="saxpy",
    summary="y = 2x + y",
    sizes={
        "default": (1 << 20,),
        "large": (1 << 24,),
        "small": (1 << 10,),
        "odd": (1000003,),
        "odd-small": (7,),
        "odd-one": (1,),
    },
    size_of=lambda x, y: equal_shapes(1, x=x, y=y),
    work=lambda size: wt.Work(flops=2 * size[0], bytes=12 * size[0]),
    arguments=lambda size: [f32(size), f32(size, 7)],
    expected=lambda size, x, y: 2 * x + y,
    output="y",
    rtol=1e-6,
    atol=1e-6,
)


def _vec4_groups(p: wt.Params, x: Any, y: Any) -> tuple[int, int]:
    return fold(wt.ceil_div(vec4_count(x.size), p.WG * p.PER))


BUNDLED.kernel.add(
    wt.Kernel(
        "scalar",
        source=WGSL["scalar"] + WGSL["saxpy"],
        params=wt.grid(WG=[64, 128, 256, 32], PER=[1, 2, 4, 8], STRIDED=[True, False]).where(
            lambda p: p.STRIDED or p.PER > 1
        ),
        workgroups=lambda p, x, y: fold(wt.ceil_div(x.size, p.WG * p.PER)),
        restore=["y"],
    )
)
BUNDLED.kernel.add(
    wt.Kernel(
        "vec4",
        source=WGSL["vec4"] + WGSL["saxpy"],
        params=wt.grid(WG=[64, 128, 256], PER=[1, 2, 4]),
        workgroups=_vec4_groups,
        restore=["y"],
    )
)
