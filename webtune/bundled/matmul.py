"""c = a·b over f32: naive, tiled in workgroup memory, blocked in registers, and with vec4 loads.

Size: (m, n, k). a is m × k, b is k × n, c is m × n, all row-major.
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
    zeros_f32,
)
from webtune.bundled.matmul_wgsl import NAIVE, TILED, blocked, vec4_direct, vec4_tiled
from webtune.errors import ArgumentError, Reject
from webtune.kernel.kernel import Kernel
from webtune.kernel.space import Params, ceil_div, grid
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work


def _size(a: Any, b: Any) -> Size:
    return a.shape[0], b.shape[1], a.shape[1]


def _extents(p: Params, a: Any, b: Any, c: Any) -> dict[str, int]:
    m, n, k = _size(a, b)
    return {"M": m, "N": n, "K": k}


def _extents_and_areas(p: Params, a: Any, b: Any, c: Any) -> dict[str, int]:
    areas = {"A_AREA": p.WY * p.DEPTH, "B_AREA": p.DEPTH * p.WX}
    return {**_extents(p, a, b, c), **areas}


def _one_each(p: Params, a: Any, b: Any, c: Any) -> tuple[int, int]:
    m, n, _ = _size(a, b)
    return fold(ceil_div(m, p.WY) * ceil_div(n, p.WX))


def _blocks(p: Params, a: Any, b: Any, c: Any) -> tuple[int, int]:
    m, n, _ = _size(a, b)
    return fold(ceil_div(m, p.WY * p.TM) * ceil_div(n, p.WX * p.TN))


def _vec4_blocks(p: Params, a: Any, b: Any, c: Any) -> tuple[int, int]:
    m, n, k = _size(a, b)
    if n % 4 or k % 4:
        raise Reject(f"rows of {k} and {n} elements are no whole number of vec4")
    return fold(ceil_div(m, p.WY * p.TM) * ceil_div(n // 4, p.WX))


def _tiles_fit(p: Params, cols: int) -> bool:
    return bool(4 * p.DEPTH * (p.WY * p.TM + cols) <= STORAGE_BYTES)


def _key(a: Any, b: Any, c: Any) -> list[int]:
    m, k = extents("a", a, 2)
    inner, n = extents("b", b, 2)
    if inner != k or extents("c", c, 2) != (m, n):
        raise ArgumentError(
            f"a {a.shape} times b {b.shape} does not give c {c.shape}; "
            "a is m × k, b is k × n, c is m × n"
        )
    return [m, n, k]


def _work(size: Size) -> Work:
    m, n, k = size
    return Work(flops=2 * m * n * k, bytes=4 * (m * k + k * n + m * n))


KERNEL = TunableSet("matmul", key=_key, work=lambda a, b, c: _work(_size(a, b)))
KERNEL.add(
    Kernel(
        "naive",
        source=NAIVE,
        params=grid(WX=[8, 16, 32], WY=[8, 16, 4]).where(
            lambda p: 64 <= p.WX * p.WY <= INVOCATIONS
        ),
        workgroups=_one_each,
        constants=_extents,
    )
)
KERNEL.add(
    Kernel(
        "tiled",
        source=TILED,
        params=grid(WX=[16, 8], WY=[16, 8], DEPTH=[16, 32]).where(
            lambda p: p.WX >= p.WY and p.WX * p.WY <= INVOCATIONS
        ),
        workgroups=_one_each,
        constants=_extents_and_areas,
    )
)
KERNEL.add(
    Kernel(
        "blocked",
        source=blocked,
        params=grid(WX=[8, 16], WY=[8, 16], TM=[2, 4, 8], TN=[2, 4, 8], DEPTH=[16, 8]).where(
            lambda p: (
                p.WX >= p.WY
                and p.TM in (p.TN, 2 * p.TN)
                and (p.DEPTH == 8 or p.TM * p.TN <= 16)
                and (p.DEPTH == 16 or p.TM * p.TN >= 16)
                and _tiles_fit(p, p.WX * p.TN)
            )
        ),
        workgroups=_blocks,
        constants=_extents,
    )
)
KERNEL.add(
    Kernel(
        "vec4 direct",
        source=vec4_direct,
        params=grid(WX=[8, 16, 32], WY=[8, 4], TM=[4, 2, 8]).where(
            lambda p: 64 <= p.WX * p.WY <= INVOCATIONS
        ),
        workgroups=_vec4_blocks,
        constants=_extents,
    )
)
KERNEL.add(
    Kernel(
        "vec4 tiled",
        source=vec4_tiled,
        params=grid(WX=[8, 16], WY=[8, 16], TM=[4, 8], DEPTH=[16, 32]).where(
            lambda p: p.WX >= p.WY and _tiles_fit(p, 4 * p.WX)
        ),
        workgroups=_vec4_blocks,
        constants=_extents,
    )
)


def _arguments(size: Size) -> list[Any]:
    m, n, k = size
    return [host_f32((m, k)), host_f32((k, n), 7), zeros_f32((m, n))]


def _expected(size: Size, a: Any, b: Any, c: Any) -> Any:
    return (a.astype("f8") @ b.astype("f8")).astype("f4")


BUNDLED = Bundled(
    name="matmul",
    summary="matrix product c = a·b",
    kernel=KERNEL,
    sizes={
        "default": (256, 256, 256),
        "large": (1024, 1024, 1024),
        "small": (64, 64, 64),
        "odd": (33, 65, 17),
        "odd-quads": (37, 52, 44),
        "odd-one": (1, 1, 1),
    },
    arguments=_arguments,
    expected=_expected,
    work=_work,
    output="c",
    rtol=1e-5,
    atol=1e-4,
)
