"""The documented uses, as they are written, on this machine's own device."""

import asyncio
import warnings

import numpy as np
import pytest

import webtune as wt

SAXPY = """
override WG: u32;
override PER: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  for (var i = 0u; i < PER; i++) {
    let k = id.x * PER + i;
    if (k < arrayLength(&x)) { y[k] = 2.0 * x[k] + y[k]; }
  }
}
"""


def make_saxpy(**more):
    return wt.Kernel(
        "saxpy",
        source=SAXPY,
        params=wt.grid(WG=[32, 64, 128, 256], PER=[1, 2, 4]).where(lambda p: p.WG * p.PER <= 512),
        workgroups=lambda p, x, y: wt.ceil_div(x.size, p.WG * p.PER),
        restore=["y"],
        **more,
    )


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def test_the_first_example_tunes_runs_once_and_explains(cache):
    saxpy = make_saxpy()
    with wt.open_tuner(store=cache) as tuner:
        x = tuner.upload(np.ones(1 << 20, np.float32))
        y = tuner.upload(np.zeros(1 << 20, np.float32))
        state = tuner.run(saxpy, x, y)
        assert isinstance(state, wt.Hit)
        np.testing.assert_array_equal(tuner.download(y), np.full(1 << 20, 2, np.float32))
        table = str(tuner.explain(saxpy, x, y))
        assert saxpy.candidates[state.index].name in table
        assert tuner.run(saxpy, x, y) == state
        np.testing.assert_array_equal(tuner.download(y), np.full(1 << 20, 4, np.float32))


def test_the_pick_is_remembered_by_the_next_tuner(cache):
    saxpy = make_saxpy()
    data = np.ones(4096, np.float32)
    with wt.open_tuner(store=cache) as tuner:
        args = tuner.upload(data), tuner.upload(data)
        first = tuner.tune(saxpy, *args)
        assert first.source == "tuned"
        assert first.winner is not None
    with wt.open_tuner(store=cache) as tuner:
        args = tuner.upload(data), tuner.upload(data)
        assert isinstance(tuner.lookup(saxpy, *args), wt.Hit | wt.Miss)
        again = tuner.tune(saxpy, *args)
        assert again.source in ("store", "memory")
        assert again.winner is not None
        assert again.winner.name == first.winner.name
        assert again.decision.launches == first.decision.launches


def test_open_tuner_async_works_natively(cache):
    async def main():
        async with await wt.open_tuner_async(store=cache) as tuner:
            x = tuner.upload(np.ones(1000, np.float32))
            y = tuner.upload(np.zeros(1000, np.float32))
            report = await tuner.tune_async(make_saxpy(), x, y)
            await tuner.settled()
            return report

    assert asyncio.run(main()).winner is not None


def test_a_callers_own_device_and_raw_buffers_work(cache):
    import wgpu

    device = wgpu.gpu.request_adapter_sync().request_device_sync()
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    x = device.create_buffer_with_data(data=np.ones(5000, np.float32), usage=usage)
    y = device.create_buffer_with_data(data=np.zeros(5000, np.float32), usage=usage)
    with wt.open_tuner(device=device, store=cache) as tuner:
        tuner.run(make_saxpy(), x, y)
        got = np.frombuffer(device.queue.read_buffer(y), np.float32)
        np.testing.assert_array_equal(got, np.full(5000, 2, np.float32))
    # The device is still the caller's.
    device.create_buffer(size=16, usage=usage)


def test_the_winner_is_recorded_into_a_callers_pass(cache):
    import wgpu

    device = wgpu.gpu.request_adapter_sync().request_device_sync()
    with wt.open_tuner(device=device, store=cache) as tuner:
        x = tuner.upload(np.ones(5000, np.float32))
        y = tuner.upload(np.zeros(5000, np.float32))
        encoder = device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        tuner.record(compute_pass, make_saxpy(), x, y)
        tuner.record(compute_pass, make_saxpy(), x, y)
        compute_pass.end()
        device.queue.submit([encoder.finish()])
        np.testing.assert_array_equal(tuner.download(y), np.full(5000, 4, np.float32))


SCALE = """
override WG: u32 = 64u;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> factor: vec4<f32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&x)) { y[id.x] = factor.x * x[id.x]; }
}
"""


def test_functions_that_record_several_dispatches_and_kernels_share_a_set(cache):
    ops = wt.TunableSet(
        "square-scale", outputs=["y"], check=wt.AllClose(reference=lambda x, y: 6 * x)
    )

    @ops.tunable("two-pass")
    def two_pass(rec, x, y):
        middle = rec.scratch(x.shape, x.dtype)
        groups = wt.ceil_div(x.size, 64)
        rec.dispatch(SCALE, [x, middle, np.array([2, 0, 0, 0], np.float32)], groups)
        rec.dispatch(SCALE, [middle, y, np.array([3, 0, 0, 0], np.float32)], groups)

    @ops.tunable("one-pass", params=wt.grid(WG=[32, 128]))
    def one_pass(rec, p, x, y):
        rec.dispatch(
            SCALE,
            [x, y, np.array([6, 0, 0, 0], np.float32)],
            wt.ceil_div(x.size, p.WG),
            constants={"WG": p.WG},
        )

    @ops.tunable("never")
    def never(rec, x, y):
        raise wt.Reject("it serves no size")

    with wt.open_tuner(store=cache) as tuner:
        data = np.arange(999, dtype=np.float32)
        x, y = tuner.upload(data), tuner.empty(999)
        report = tuner.tune(ops, x, y)
        assert {r.name: r.status for r in report.results}["never"] == "rejected"
        tuner.run(ops, x, y)
        np.testing.assert_array_equal(tuner.download(y), 6 * data)


def test_a_small_array_with_the_buffer_protocol_is_a_uniform(cache):
    kernel = wt.Kernel(
        "scale",
        source=SCALE,
        params=wt.grid(WG=[32, 64]),
        workgroups=lambda p, x, y, factor: wt.ceil_div(x.size, p.WG),
    )
    import array

    with wt.open_tuner(store=cache) as tuner:
        x, y = tuner.upload(array.array("f", range(100))), tuner.empty(100)
        for factor in (2.0, 5.0):
            tuner.run(kernel, x, y, array.array("f", [factor, 0, 0, 0]))
            np.testing.assert_array_equal(
                tuner.download(y), factor * np.arange(100, dtype=np.float32)
            )


def test_a_tune_leaves_the_callers_buffers_alone(cache):
    with wt.open_tuner(store=cache) as tuner:
        x = tuner.upload(np.ones(3000, np.float32))
        y = tuner.upload(np.full(3000, 7, np.float32))
        tuner.tune(make_saxpy(), x, y)
        np.testing.assert_array_equal(tuner.download(x), np.ones(3000, np.float32))
        np.testing.assert_array_equal(tuner.download(y), np.full(3000, 7, np.float32))


def test_a_wrong_candidate_never_wins_and_says_where(cache):
    wrong = make_saxpy(check=wt.AllClose(reference=lambda x, y: 2 * x + y))
    # A candidate of the set that does half the work would be the fastest.
    half = wt.Kernel(
        "half",
        source=SAXPY.replace("k < arrayLength(&x)", "k < arrayLength(&x) / 2u"),
        params=wt.grid(WG=[64], PER=[1]),
        workgroups=lambda p, x, y: wt.ceil_div(x.size, p.WG * p.PER),
        restore=["y"],
    )
    ops = wt.TunableSet("checked", check=wt.AllClose(reference=lambda x, y: 2 * x + y))
    ops.add(wrong)
    ops.add(half)
    with wt.open_tuner(store=cache) as tuner:
        x = tuner.upload(np.ones(4096, np.float32))
        y = tuner.upload(np.ones(4096, np.float32))
        report = tuner.tune(ops, x, y)
        out = [r for r in report.results if r.name.startswith("half")]
        assert [r.status for r in out] == ["wrong answer"]
        assert "2048" in out[0].reason
        assert report.winner is not None
        assert report.winner.name.startswith("saxpy")


def test_an_environment_has_its_own_picks(cache):
    saxpy = make_saxpy()
    with wt.open_tuner(store=cache) as tuner:
        x = tuner.upload(np.ones(2048, np.float32))
        y = tuner.upload(np.ones(2048, np.float32))
        tuner.tune(saxpy, x, y)
        with wt.environment("other"):
            assert isinstance(tuner.lookup(saxpy, x, y), wt.Miss)
        assert tuner.tune(saxpy, x, y).source in ("store", "memory")


def test_no_warning_is_given_by_ordinary_use(cache):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with wt.open_tuner(store=cache) as tuner:
            x = tuner.upload(np.ones(64, np.float32))
            y = tuner.upload(np.ones(64, np.float32))
            tuner.run(make_saxpy(), x, y)
