"""c = a·b over f32: naive, tiled in workgroup memory, blocked in registers, and with vec4 loads.

Size: (m, n, k). a is m × k, b is k × n, c is m × n, all row-major.
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
    vec4_count,
    wgsl_constants,
    wgsl_sections,
    written_out,
    zeros,
)

WGSL = wgsl_sections("matmul.wgsl")


def _size_of(a: Any, b: Any, c: Any) -> Size:
    m, k = extents("a", a, 2)
    inner, n = extents("b", b, 2)
    if inner != k or extents("c", c, 2) != (m, n):
        raise wt.ArgumentError(
            f"a {a.shape} times b {b.shape} does not give c {c.shape}; "
            "a is m × k, b is k × n, c is m × n"
        )
    return m, n, k


def _work(size: Size) -> wt.Work:
    m, n, k = size
    return wt.Work(flops=2 * m * n * k, bytes=4 * (m * k + k * n + m * n))


def _arguments(size: Size) -> list[Any]:
    m, n, k = size
    return [f32((m, k)), f32((k, n), 7), zeros((m, n))]


BUNDLED = Bundled(
    name="matmul",
    summary="matrix product c = a·b",
    sizes={
        "default": (256, 256, 256),
        "large": (1024, 1024, 1024),
        "small": (64, 64, 64),
        "odd": (33, 65, 17),
        "odd-quads": (37, 52, 44),
        "odd-one": (1, 1, 1),
    },
    size_of=_size_of,
    work=_work,
    arguments=_arguments,
    expected=lambda size, a, b, c: (a.astype("f8") @ b.astype("f8")).astype("f4"),
    output="c",
    rtol=1e-5,
    atol=1e-4,
)

# -- sources: sums and what they read are written out, so that they live in registers --------------


def _sums(p: wt.Params) -> tuple[int, int]:
    """How many rows and columns of c an invocation computes."""
    return p.get("TM", 1), p.get("TN", 1)  # type: ignore[return-value]


def _tiled(p: wt.Params) -> str:
    """`TM` × `TN` sums an invocation, from tiles that are `DEPTH` deep."""
    rows, cols = map(range, _sums(p))
    constants = wgsl_constants(DEPTH=p.DEPTH, ROWS=len(rows) * p.WY, COLS=len(cols) * p.WX)
    each = [(i, j) for i in rows for j in cols]
    return written_out(
        constants + WGSL["scalar"] + WGSL["head"] + WGSL["tiled"],
        sums=[f"var s{i}_{j} = 0.0;" for i, j in each],
        loads=[
            *(f"let a{i} = tile_a[(local.y + {i}u * WY) * DEPTH + k];" for i in rows),
            *(f"let b{j} = tile_b[k * COLS + local.x + {j}u * WX];" for j in cols),
        ],
        steps=[f"s{i}_{j} += a{i} * b{j};" for i, j in each],
        stores=[
            f"put(top + local.y + {i}u * WY, left + local.x + {j}u * WX, s{i}_{j});"
            for i, j in each
        ],
    )


def _vec4_tiled(p: wt.Params) -> str:
    """`TM` rows of four sums an invocation, from tiles of vec4. N and K are multiples of 4."""
    rows = range(p.TM)
    constants = wgsl_constants(DEPTH=p.DEPTH // 4, ROWS=p.TM * p.WY, COLS=p.WX)
    return written_out(
        constants + WGSL["vec4"] + WGSL["head"] + WGSL["tiled"],
        sums=[f"var s{i} = vec4<f32>();" for i in rows],
        loads=[f"let a{i} = tile_a[(local.y + {i}u * WY) * DEPTH + k];" for i in rows],
        steps=_vec4_steps(rows, "tile_b[(k * 4u + {part}u) * COLS + local.x]"),
        stores=[f"put(top + local.y + {i}u * WY, left + local.x, s{i});" for i in rows],
    )


def _vec4_direct(p: wt.Params) -> str:
    """`TM` rows of four sums an invocation, straight from memory. N and K are multiples of 4."""
    rows = range(p.TM)
    return written_out(
        wgsl_constants(TM=p.TM) + WGSL["vec4"] + WGSL["head"] + WGSL["direct"],
        sums=[f"var s{i} = vec4<f32>();" for i in rows],
        # Rows below the last are read as the last, which costs less than a branch in the loop.
        starts=[f"let r{i} = min(top + {i}u, M - 1u) * (K / 4u);" for i in rows],
        loads=[f"let a{i} = a[r{i} + k];" for i in rows],
        steps=_vec4_steps(rows, "b[(k * 4u + {part}u) * (N / 4u) + col]"),
        stores=[f"put(top + {i}u, col, s{i});" for i in rows],
    )


def _vec4_steps(rows: range, b: str) -> list[str]:
    steps = []
    for part, axis in enumerate("xyzw"):
        steps.append(f"let b{part} = {b.format(part=part)};")
        steps += [f"s{i} += a{i}.{axis} * b{part};" for i in rows]
    return steps


# -- launches and candidates ----------------------------------------------------------------------


def _extents(p: wt.Params, a: Any, b: Any, c: Any) -> dict[str, int]:
    return dict(zip("MNK", _size_of(a, b, c), strict=True))


def _blocks(p: wt.Params, a: Any, b: Any, c: Any) -> tuple[int, int]:
    m, n, _ = _size_of(a, b, c)
    rows, cols = _sums(p)
    return fold(wt.ceil_div(m, p.WY * rows) * wt.ceil_div(n, p.WX * cols))


def _vec4_blocks(p: wt.Params, a: Any, b: Any, c: Any) -> tuple[int, int]:
    m, n, k = _size_of(a, b, c)
    vec4_count(k)  # rows of a are read as vec4 too
    return fold(wt.ceil_div(m, p.WY * p.TM) * wt.ceil_div(vec4_count(n), p.WX))


def _tiles_fit(p: wt.Params, cols: int) -> bool:
    return bool(4 * p.DEPTH * (p.WY * p.TM + cols) <= STORAGE_BYTES)


for _name, _source, _space, _groups in (
    (
        "naive",
        WGSL["scalar"] + WGSL["head"] + WGSL["naive"],
        wt.grid(WX=[8, 16, 32], WY=[8, 16, 4]).where(lambda p: 64 <= p.WX * p.WY <= INVOCATIONS),
        _blocks,
    ),
    (
        "tiled",
        _tiled,
        wt.grid(WX=[16, 8], WY=[16, 8], DEPTH=[16, 32]).where(
            lambda p: p.WX >= p.WY and p.WX * p.WY <= INVOCATIONS
        ),
        _blocks,
    ),
    (
        "blocked",
        _tiled,
        wt.grid(WX=[8, 16], WY=[8, 16], TM=[2, 4, 8], TN=[2, 4, 8], DEPTH=[16, 8]).where(
            lambda p: (
                p.WX >= p.WY
                and p.TM in (p.TN, 2 * p.TN)
                and (p.DEPTH == 8 or p.TM * p.TN <= 16)
                and (p.DEPTH == 16 or p.TM * p.TN >= 16)
                and _tiles_fit(p, p.WX * p.TN)
            )
        ),
        _blocks,
    ),
    (
        "vec4 direct",
        _vec4_direct,
        wt.grid(WX=[8, 16, 32], WY=[8, 4], TM=[4, 2, 8]).where(
            lambda p: 64 <= p.WX * p.WY <= INVOCATIONS
        ),
        _vec4_blocks,
    ),
    (
        "vec4 tiled",
        _vec4_tiled,
        wt.grid(WX=[8, 16], WY=[8, 16], TM=[4, 8], DEPTH=[16, 32]).where(
            lambda p: p.WX >= p.WY and _tiles_fit(p, 4 * p.WX)
        ),
        _vec4_blocks,
    ),
):
    BUNDLED.kernel.add(
        wt.Kernel(_name, source=_source, params=_space, workgroups=_groups, constants=_extents)
    )
