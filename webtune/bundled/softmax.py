"""Softmax of every row of an f32 matrix, one row to a team of invocations.

Size: (rows, columns). Three passes read a row for its maximum, its sum and its result; the online
form finds maximum and sum together (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018).
"""

from __future__ import annotations

from typing import Any

import webtune as wt
from webtune.bundled.base import (
    INVOCATIONS,
    Bundled,
    Size,
    equal_shapes,
    f32,
    fold,
    numpy,
    vec4_count,
    wgsl_sections,
    zeros,
)

WGSL = wgsl_sections("softmax.wgsl")


def _expected(size: Size, x: Any, y: Any) -> Any:
    np = numpy()
    wide = x.astype("f8")
    raised = np.exp(wide - wide.max(axis=1, keepdims=True))
    return (raised / raised.sum(axis=1, keepdims=True)).astype("f4")


BUNDLED = Bundled(
    name="softmax",
    summary="softmax of every row",
    sizes={
        "default": (512, 1024),
        "large": (4096, 4096),
        "small": (16, 64),
        "odd": (333, 1023),
        "odd-small": (5, 7),
        "odd-quads": (7, 1004),
        "odd-tall": (4099, 3),
        "odd-one": (1, 1),
    },
    size_of=lambda x, y: equal_shapes(2, x=x, y=y),
    # A comparison, a difference, an exponential, an addition and a division for each element.
    work=lambda size: wt.Work(flops=5 * size[0] * size[1], bytes=8 * size[0] * size[1]),
    arguments=lambda size: [f32(size), zeros(size)],
    expected=_expected,
    output="y",
    rtol=1e-4,
    atol=1e-7,
)


def _groups(p: wt.Params, x: Any, y: Any) -> tuple[int, int]:
    return fold(wt.ceil_div(x.shape[0], p.WY))


def _shape(p: wt.Params, x: Any, y: Any) -> dict[str, int]:
    return {"ROWS": x.shape[0], "COLS": x.shape[1], "LANES": p.WX * p.WY}


def _vec4_shape(p: wt.Params, x: Any, y: Any) -> dict[str, int]:
    return {**_shape(p, x, y), "COLS": vec4_count(x.shape[1])}


_TEAMS = wt.grid(WX=[64, 32, 16, 128, 256], WY=[1, 4, 8]).where(
    lambda p: 32 <= p.WX * p.WY <= INVOCATIONS
)
for _name, _sections, _constants in (
    ("three-pass", ("scalar", "head", "three passes"), _shape),
    ("online", ("scalar", "head", "online"), _shape),
    ("online vec4", ("vec4", "head", "online"), _vec4_shape),
):
    BUNDLED.kernel.add(
        wt.Kernel(
            _name,
            source="".join(WGSL[section] for section in _sections),
            params=_TEAMS,
            workgroups=_groups,
            constants=_constants,
        )
    )
