"""The bundled kernels give the reference's answers in a page; numpy is used where it is."""

from __future__ import annotations

import base64
import inspect
import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webtune.bundled import get, names
from webtune.testing.browser import PythonPage

INSIDE = (Path(__file__).parent / "inside.py").read_text()
Fresh = Callable[..., PythonPage]

# ruff: noqa: F821 (names of inside.py)


def run(page: PythonPage, function: Callable[..., Any], **arguments: Any) -> Any:
    """Run a function inside, after the helpers of inside.py."""
    source = INSIDE + "\n\n" + textwrap.dedent(inspect.getsource(function))
    return page.run_source(source, function.__name__, timeout_s=120, **arguments)


async def answers(name: str, size: list[int], leave_out: list[str]) -> Any:
    """What a bundled kernel's candidates write: the first that serves of each way to write it."""
    import base64

    from webtune.bundled import get
    from webtune.gpu.base import Copy
    from webtune.tuning.programs import ProgramCache

    bundled = get(name)
    async with opened() as tuner:
        device = tuner.device
        args = [tuner.upload(array) for array in bundled.arguments(tuple(size))]
        out = args[bundled.output_index]
        nbytes = -(-out.nbytes // 4) * 4
        poison = device.create_buffer(nbytes)
        if name == "saxpy":
            device.copy([Copy(out.handle, poison, nbytes)])
        else:
            device.write(poison, memoryview(b"\xff\xff\xc0\x7f" * (nbytes // 4)))
        taken, found = set(leave_out), {}
        for candidate in bundled.kernel.candidates:
            way = candidate.name.partition(":")[0]
            if way in taken:
                continue
            try:
                recording = ProgramCache(device).record(candidate, tuple(args))
            except wt.Reject:
                continue
            taken.add(way)
            program = await device.compile(recording.dispatches)
            device.submit(program, [Copy(poison, out.handle, nbytes)])
            content = bytes(await device.read(out.handle, nbytes))[: out.nbytes]
            found[candidate.name] = base64.b64encode(content).decode()
            device.release(program)
            recording.free()
        return found


def judge(name: str, size: tuple[int, ...], found: dict[str, str]) -> None:
    """Compare what came back with numpy's answer."""
    bundled = get(name)
    expected = bundled.expected(size, *bundled.arguments(size))
    for candidate, text in found.items():
        got = np.frombuffer(base64.b64decode(text), expected.dtype).reshape(expected.shape)
        np.testing.assert_allclose(
            got, expected, rtol=bundled.rtol or 1e-4, atol=bundled.atol or 1e-4, err_msg=candidate
        )


@pytest.mark.parametrize("name", names())
def test_every_way_of_writing_a_bundled_kernel_gives_the_references_answer(
    shared: Callable[[str], PythonPage], name: str
) -> None:
    ways = {each.name.partition(":")[0] for each in get(name).kernel.candidates}
    met: set[str] = set()
    for size in smallest_sizes(name):
        found = run(
            shared("314 worker"), answers, name=name, size=list(size), leave_out=sorted(met)
        )
        judge(name, size, found)
        met |= {candidate.partition(":")[0] for candidate in found}
    assert met == ways


def smallest_sizes(name: str) -> list[tuple[int, ...]]:
    """The smallest size that divides nothing, then "small" for what the first one cannot serve."""
    sizes = get(name).sizes
    odd = min((size for label, size in sizes.items() if label.startswith("odd")), key=math.prod)
    return [odd, sizes["small"]]


async def with_numpy() -> Any:
    import sys

    had = "numpy" in sys.modules
    import numpy as np

    from webtune.bundled import get

    async with opened() as tuner:
        x = tuner.upload(np.arange(1024, dtype=np.float32))
        y = tuner.empty((32, 32))
        flat = tuner.wrap(y.handle, "f32", 1024)
        report = await tuner.tune_async(spin(), x, flat)
        tuner.run(spin(), x, flat)
        got = await tuner.download_async(y)
        half = tuner.upload(np.ones(8, np.float16))
        bundled = get("saxpy")
        args = [tuner.upload(array) for array in bundled.arguments((1000,))]
        checked = wt.Kernel(
            "checked", source=SPIN, params=wt.grid(TURNS=[2_000, 50]),
            workgroups=lambda p, x, y: 32,
            check=wt.AllClose(reference=lambda x, y: 2 * x),
        )  # fmt: skip
        verdict = await tuner.tune_async(checked, x, flat)
        return [had, type(got).__name__, list(got.shape), str(got.dtype),
                bool((got.ravel() == 2 * np.arange(1024)).all()), report.winner.params["TURNS"],
                half.dtype, type(args[0]).__name__, verdict.winner.params["TURNS"]]  # fmt: skip


def test_with_numpy_arrays_go_in_and_out_directly(open_page: Fresh, numpy_wheel: str) -> None:
    page = open_page("0.27.7", wheels=(numpy_wheel,))
    had, kind, shape, dtype, right, winner, half, _, checked = run(page, with_numpy)
    assert had is False, "importing webtune loaded numpy"
    assert (kind, shape, dtype) == ("ndarray", [32, 32], "float32")
    assert right
    assert winner == 60
    assert half == "f16"
    assert checked == 50


def test_without_numpy_arrays_come_as_memoryviews(place: PythonPage) -> None:
    async def body() -> Any:
        async with opened() as tuner:
            x, y = data(tuner, 12)
            matrix = tuner.wrap(x.handle, "f32", (3, 4))
            got = await tuner.download_async(matrix)
            return [type(got).__name__, list(got.shape), got.tolist()[2], y.dtype]

    kind, shape, row, dtype = run(place, body)
    assert (kind, shape, dtype) == ("memoryview", [3, 4], "f32")
    assert row == [8.0, 9.0, 10.0, 11.0]
