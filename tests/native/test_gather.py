"""Gather, compile together, tune: the same on a real device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import webtune as wt
from webtune.tuning.gather import Gather

SCALE = """
override WG: u32;
override STEP: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let k = id.x + STEP - STEP;
  if (k < arrayLength(&x)) { y[k] = 2.0 * x[k]; }
}
"""


def scale(count: int = 2) -> wt.Kernel:
    return wt.Kernel(
        "scale",
        source=SCALE,
        params=wt.grid(WG=[32, 64], STEP=list(range(count))),
        workgroups=lambda p, x, y: wt.ceil_div(x.size, p.WG),
    )


def twice() -> wt.TunableSet:
    """x times 4, by two scales through scratch memory."""
    ops = wt.TunableSet("twice", outputs=["y"])
    inner = scale()

    @ops.tunable("two scales")
    def two_scales(rec: wt.Recorder, x: wt.Buffer, y: wt.Buffer) -> None:
        middle = rec.scratch(x.shape, "f32")
        rec.run(inner, x, middle)
        rec.run(inner, middle, y)

    @ops.tunable("by hand", params=wt.grid(WG=[32]))
    def by_hand(rec: wt.Recorder, p: wt.Params, x: wt.Buffer, y: wt.Buffer) -> None:
        source = SCALE.replace("2.0", "4.0")
        rec.dispatch(source, [x, y], wt.ceil_div(x.size, 32), constants={"WG": 32, "STEP": 0})

    return ops


@pytest.fixture
def tuner() -> Iterator[wt.Tuner]:
    with wt.open_tuner(store="memory") as opened:
        yield opened


def application(tuner: wt.Tuner) -> wt.Buffer:
    """Two sizes of one kernel, and another that runs it inside."""
    kernel, ops = scale(), twice()
    for size in (100, 1000):
        x, y = tuner.upload(np.arange(size, dtype=np.float32)), tuner.empty(size)
        tuner.run(kernel, x, y)
        tuner.run(ops, x, y)
    return y


@pytest.mark.parametrize("launch", [False, True])
def test_an_application_is_gathered_compiled_and_tuned(tuner: wt.Tuner, launch: bool) -> None:
    with wt.gather(tuner, launch=launch) as g:
        y = application(tuner)
        if launch:
            np.testing.assert_array_equal(tuner.download(y), 4 * np.arange(1000, dtype=np.float32))
    assert [(entry.name, entry.state) for entry in g] == [
        ("scale", wt.GatherState.COLLECTED),
        ("twice", wt.GatherState.COLLECTED),
    ] * 2
    assert g.compile() == 2 * (4 + 2)
    g.tune()
    assert {entry.state for entry in g} == {wt.GatherState.MEASURED}
    assert all(r.status != "rejected" for e in g for r in e.report.results)  # type: ignore[union-attr]
    y = application(tuner)
    np.testing.assert_array_equal(tuner.download(y), 4 * np.arange(1000, dtype=np.float32))


def test_a_nested_key_on_scratch_memory_is_tuned_after_the_walk(tuner: wt.Tuner) -> None:
    x, y = tuner.upload(np.arange(64, dtype=np.float32)), tuner.empty(64)
    with wt.gather(tuner) as g:
        tuner.run(twice(), x, y)
    assert [(entry.name, entry.nested) for entry in g] == [("scale", True), ("twice", False)]
    g.tune()
    assert [entry.error for entry in g] == [None, None]
    tuner.run(twice(), x, y)
    np.testing.assert_array_equal(tuner.download(y), 4 * np.arange(64, dtype=np.float32))


def compiled(parallelism: int) -> Gather:
    with wt.open_tuner(store="memory", compile_parallelism=parallelism) as tuner:
        with wt.gather(tuner) as g:
            tuner.run(scale(24), tuner.empty(64), tuner.empty(64))
        assert g.compile() == 48
        g.free()
        return g


@pytest.mark.parametrize("parallelism", [1, 8, 64])
def test_so_many_threads_compile_all_pipelines_and_none_fails(parallelism: int) -> None:
    [entry] = compiled(parallelism)
    assert entry.compile_failures == {}


def test_a_shader_that_does_not_compile_is_told_with_its_message(tuner: wt.Tuner) -> None:
    ops = wt.TunableSet("half broken", outputs=["y"])
    ops.add(scale(1))

    @ops.tunable("broken")
    def broken(rec: wt.Recorder, x: wt.Buffer, y: wt.Buffer) -> None:
        rec.dispatch(SCALE.replace("2.0 *", "no_such_name *"), [x, y], 1, constants=CONSTANTS)

    with wt.gather(tuner) as g:
        tuner.run(ops, tuner.empty(64), tuner.empty(64))
    [entry] = g.tune()
    assert list(entry.compile_failures) == ["broken"]
    assert "no_such_name" in entry.compile_failures["broken"]
    assert entry.report is not None
    assert entry.report.winner is not None


CONSTANTS = {"WG": 32, "STEP": 0}
