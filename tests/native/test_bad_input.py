"""Bad input on a real device: a clear error at the call that made it, and nothing is lost."""

import numpy as np
import pytest

import webtune as wt
from webtune.kernel.recorder import _fits

COPY = """
override WG: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&x)) { y[id.x] = x[id.x]; }
}
"""


def copy_kernel(**changes):
    given = {
        "source": COPY,
        "params": wt.grid(WG=[32, 64]),
        "workgroups": lambda p, x, y: wt.ceil_div(x.size, p.WG),
    }
    return wt.Kernel("copy", **{**given, **changes})


@pytest.fixture(scope="module")
def tuner():
    with wt.open_tuner(store="memory") as opened:
        yield opened


@pytest.fixture
def args(tuner):
    return tuner.upload(np.arange(1000, dtype=np.float32)), tuner.empty(1000)


def works(tuner):
    """Nothing was lost: an ordinary call still runs."""
    x, y = tuner.upload(np.arange(10, dtype=np.float32)), tuner.empty(10)
    tuner.run(copy_kernel(), x, y)
    np.testing.assert_array_equal(tuner.download(y), np.arange(10))


@pytest.mark.parametrize("count", [0, -3, 2.5, 2.0, "4", None, [1, 2, 3, 4], [], True])
def test_workgroups_that_are_no_count_are_told_for_every_candidate(tuner, args, count):
    with pytest.raises(wt.NoValidKernel, match="workgroups") as caught:
        tuner.run(copy_kernel(workgroups=lambda p, x, y: count), *args)
    assert len(caught.value.failures) == 2
    works(tuner)


def test_workgroups_past_the_limit_say_the_limit(tuner, args):
    with pytest.raises(wt.NoValidKernel, match="maxComputeWorkgroupsPerDimension of 65535"):
        tuner.run(copy_kernel(workgroups=lambda p, x, y: 65536), *args)


def test_one_candidate_past_the_limit_leaves_the_others(tuner, args):
    kernel = copy_kernel(workgroups=lambda p, x, y: 70000 if p.WG == 32 else 16)
    report = tuner.tune(kernel, *args)
    assert [r.status for r in report.results] == ["rejected", "winner"]
    assert "70000" in report.results[0].reason


def test_a_launch_function_that_raises_is_the_candidates_reason(tuner, args):
    with pytest.raises(wt.NoValidKernel, match=r"AttributeError: no parameter 'WGS'"):
        tuner.run(copy_kernel(workgroups=lambda p, x, y: p.WGS), *args)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (3.5, "is of type float"),
        ("text", "is of type str"),
        (None, "is of type NoneType"),
        (np.zeros(1000, np.int32), "holds i32"),
        (np.zeros(1000, np.float64), "holds f64"),
        (np.zeros(0, np.float32), "has 0 bytes"),
        (np.zeros(3, np.complex64), "no WGSL type"),
        (np.zeros(3, ">f4"), "big-endian"),
    ],
)
def test_an_argument_of_the_wrong_kind_or_dtype_is_told_at_the_call(tuner, args, bad, says):
    with pytest.raises(wt.ArgumentError, match=says):
        tuner.run(copy_kernel(), bad, args[1])
    works(tuner)


UNIFORM = """
struct P { rows: u32, cols: u32 }
override WG: u32;
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(WG) fn main() { y[0] = p.rows; y[1] = p.cols; }
"""


def uniform_kernel(**changes):
    return wt.Kernel(
        "uniform", **{"source": UNIFORM, "params": wt.grid(WG=[1, 2]), "workgroups": 1, **changes}
    )


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64, np.bool_])
def test_data_that_no_wgsl_buffer_fits_is_told_also_where_a_struct_is_declared(tuner, dtype):
    y = tuner.empty(2, "u32")
    with pytest.raises(wt.ArgumentError, match="which no WGSL buffer does; convert it"):
        tuner.run(uniform_kernel(), np.array([64, 128], dtype), y)
    with pytest.raises(wt.ArgumentError, match=r"which no WGSL buffer does; .*np\.float32"):
        tuner.run(copy_kernel(), tuner.upload(np.ones(8, dtype)), tuner.empty(8))
    tuner.run(uniform_kernel(), np.array([64, 128], np.uint32), y)
    assert list(tuner.download(y)) == [64, 128]


def test_a_uniform_with_too_much_data_is_told(tuner):
    y = tuner.empty(2, "u32")
    with pytest.raises(wt.ArgumentError, match="has 28 bytes, P takes 8"):
        tuner.run(uniform_kernel(), np.zeros(7, np.uint32), y)
    with pytest.raises(wt.ArgumentError, match="has 12 bytes, P takes 8; pass one value for each"):
        tuner.run(uniform_kernel(), np.zeros(3, np.uint32), y)
    tuner.run(uniform_kernel(), np.array([1, 2, 0, 0], np.uint32), y)  # padded to 16 bytes


def test_a_constant_that_params_has_already_is_told(tuner, args):
    with pytest.raises(wt.NoValidKernel, match="constants= sets WG, which params= has already"):
        tuner.run(copy_kernel(constants=lambda p, x, y: {"WG": 128}), *args)
    report = tuner.tune(copy_kernel(constants=lambda p, x, y: {"WG": p.WG}), *args)
    assert report.winner is not None


@pytest.mark.parametrize("value", [16.5, -1, 2**32])
def test_a_parameter_that_its_override_cannot_be_is_told(tuner, args, value):
    with pytest.raises(wt.NoValidKernel, match="override WG is of type u32, which cannot be"):
        tuner.run(copy_kernel(params=wt.grid(WG=[value]), workgroups=1), *args)


def test_a_source_without_an_entry_point_is_told():
    with pytest.raises(wt.KernelError, match="no @compute function"):
        copy_kernel(source="hello")


@pytest.mark.parametrize(
    ("what", "function"),
    [
        ("key", lambda x: [1]),
        ("work", lambda p, x: None),
        ("inputs", lambda x: [x]),
        ("evict", lambda rec: None),
    ],
)
def test_a_function_of_the_callers_that_raises_is_named_with_its_kernel(
    tuner, args, what, function
):
    with pytest.raises(wt.UsageError, match=rf"copy: {what}= raised TypeError: .*argument"):
        tuner.tune(copy_kernel(**{what: function}), *args)
    works(tuner)


def test_inputs_that_are_no_list_are_told(tuner, args):
    with pytest.raises(wt.UsageError, match="copy: inputs= returned 1; return a list"):
        tuner.tune(copy_kernel(inputs=lambda x, y: 1), *args)


@pytest.mark.parametrize("what", ["constants", "workgroups"])
def test_a_launch_function_that_raises_is_named_in_the_reason_once_for_all(tuner, args, what):
    with pytest.raises(wt.NoValidKernel) as caught:
        tuner.run(copy_kernel(**{what: lambda p: 1}), *args)
    assert str(caught.value).count(f"{what}= raised TypeError") == 1
    assert set(caught.value.failures) == {"WG=32", "WG=64"}


@pytest.mark.parametrize("groups", [[wt.Group("a")], {wt.Group("a"): "x"}, {"a": 1}])
def test_groups_that_are_no_priorities_by_group_are_told(groups):
    with pytest.raises(wt.KernelError, match=r"groups= maps wt\.Group objects to priorities"):
        copy_kernel(groups=groups)


@pytest.mark.parametrize("priority", [lambda: 1, lambda key: "high"])
def test_a_priority_that_is_none_is_told_with_its_group(tuner, args, priority):
    with pytest.raises(wt.UsageError, match=r"group 'a': priority= (raised|came out as)"):
        tuner.tune(copy_kernel(groups={wt.Group("a", priority=priority): 0}), *args)
    with pytest.raises(wt.UsageError, match=r"group 'a': priority= (raised|came out as)"):
        tuner.tune(copy_kernel(groups={wt.Group("a"): priority}), *args)


@pytest.mark.parametrize(("kind", "most"), [("f32", 3.5e38), ("f16", 65505.0)])
def test_a_parameter_beyond_the_floats_of_its_override_is_told(kind, most):
    assert not _fits(kind, most)
    assert not _fits(kind, -most)
    assert _fits(kind, most / 2)
    assert _fits("", most)  # of an override without a type the device decides


def test_a_pass_that_has_ended_or_draws_is_told_and_costs_no_candidate_its_place(tuner, args):
    import wgpu

    raw = tuner.device.raw
    kernel = copy_kernel(key=lambda x, y: "passes")
    tuner.tune(kernel, *args)
    before = tuner.lookup(kernel, *args)
    encoder = raw.create_command_encoder()
    with pytest.raises(wt.ArgumentError, match="is of type GPUCommandEncoder; pass a GPUCompute"):
        tuner.record(encoder, kernel, *args)
    compute_pass = encoder.begin_compute_pass()
    tuner.record(compute_pass, kernel, *args)
    compute_pass.end()
    with pytest.raises(wt.ArgumentError, match="compute_pass has ended; record into it between"):
        tuner.record(compute_pass, kernel, *args)
    target = raw.create_texture(
        size=(4, 4, 1), format="rgba8unorm", usage=wgpu.TextureUsage.RENDER_ATTACHMENT
    )
    drawing = raw.create_command_encoder().begin_render_pass(
        color_attachments=[{"view": target.create_view(), "load_op": "clear", "store_op": "store"}]
    )
    with pytest.raises(wt.ArgumentError, match="is of type GPURenderPassEncoder"):
        tuner.record(drawing, kernel, *args)
    assert tuner.lookup(kernel, *args) == before
    assert tuner.run(kernel, *args) == before


@pytest.mark.parametrize("compute_pass", [None, 7, "pass"])
def test_what_is_no_compute_pass_is_told_at_once(tuner, args, compute_pass):
    with pytest.raises(wt.ArgumentError, match="pass a GPUComputePassEncoder"):
        tuner.record(compute_pass, copy_kernel(params=wt.grid(WG=[16, 128])), *args)
    works(tuner)


def test_a_host_array_where_the_kernel_writes_is_told(tuner, args):
    with pytest.raises(wt.ArgumentError, match=r"tuner\.upload"):
        tuner.run(copy_kernel(), args[0], np.zeros(1000, np.float32))


def test_the_wrong_count_of_arguments_names_them(tuner, args):
    with pytest.raises(wt.ArgumentError, match=r"takes 2 arguments \(x, y\), 1 given"):
        tuner.run(copy_kernel(), args[0])


def test_a_buffer_too_small_for_its_binding_is_told(tuner, args):
    source = COPY.replace(
        "var<storage, read> x: array<f32>", "var<uniform> x: array<vec4<f32>, 64>"
    )
    source = source.replace("arrayLength(&x)", "64u").replace("x[id.x];", "x[id.x].x;")
    kernel = copy_kernel(source=source, workgroups=lambda p, x, y: 1)
    with pytest.raises(wt.ArgumentError, match="needs at least 1024"):
        tuner.run(kernel, np.zeros(4, np.float32), args[1])


def test_a_buffer_of_another_device_or_destroyed_is_told(tuner, args):
    with wt.open_tuner(store="memory") as other:
        foreign = other.empty(1000)
        with pytest.raises(wt.ArgumentError, match="another device"):
            tuner.run(copy_kernel(), args[0], foreign)
        with pytest.raises(wt.ArgumentError, match="another device"):
            tuner.download(foreign)
    gone = tuner.empty(1000)
    gone.destroy()
    with pytest.raises(wt.ArgumentError, match="destroyed"):
        tuner.run(copy_kernel(), args[0], gone)
    works(tuner)


def test_wgsl_that_does_not_compile_is_a_reason_with_the_line_and_the_others_go_on(tuner, args):
    def source(p):
        return COPY if p.GOOD else COPY.replace("= x[id.x]", "= nonsense[id.x]")

    kernel = copy_kernel(source=source, params=wt.grid(WG=[32], GOOD=[True, False]))
    report = tuner.tune(kernel, *args)
    assert [r.status for r in report.results] == ["winner", "launch"]
    assert "nonsense" in report.results[1].reason
    assert "6" in report.results[1].reason  # the line in the shader
    assert "nonsense" in str(report)


def test_a_workgroup_past_the_limit_is_that_candidates_reason(tuner, args):
    limit = tuner.device.limits["maxComputeInvocationsPerWorkgroup"]
    kernel = copy_kernel(params=wt.grid(WG=[64, 4 * limit]))
    report = tuner.tune(kernel, *args)
    assert [r.status for r in report.results] == ["winner", "rejected"]
    assert f"of {limit}" in report.results[1].reason


def test_every_candidate_failing_gives_the_table_of_reasons(tuner, args):
    kernel = copy_kernel(source=COPY.replace("y[id.x] =", "y[id.x] +* ="))
    with pytest.raises(wt.NoValidKernel) as caught:
        tuner.run(kernel, *args)
    assert set(caught.value.failures) == {"WG=32", "WG=64"}
    assert all(f.kind is wt.FailureKind.LAUNCH for f in caught.value.failures.values())
    assert "every candidate failed" in str(caught.value)
    works(tuner)


def test_a_feature_that_the_device_lacks_rejects_its_candidates(tuner, args):
    kernel = copy_kernel(requires=lambda p: ["no-such-feature"] if p.WG == 32 else [])
    report = tuner.tune(kernel, *args)
    assert [r.status for r in report.results] == ["rejected", "winner"]
    assert "no-such-feature" in report.results[0].reason


@pytest.mark.parametrize("bad", [object(), {1, 2}, b"bytes", float("nan")])
def test_a_key_that_cannot_be_serialised_is_told_at_the_call(tuner, args, bad):
    with pytest.raises(wt.KeyUnserialisable):
        tuner.run(copy_kernel(key=lambda x, y: bad), *args)
    works(tuner)


def test_a_destroyed_device_is_lost_at_once_and_stays_lost():
    import wgpu

    device = wgpu.gpu.request_adapter_sync().request_device_sync()
    with wt.open_tuner(device=device, store="memory") as tuner:
        x, y = tuner.upload(np.ones(10, np.float32)), tuner.empty(10)
        tuner.run(copy_kernel(), x, y)
        device.destroy()
        for _ in range(2):
            with pytest.raises(wt.DeviceLost):
                tuner.run(copy_kernel(), x, y)
        with pytest.raises(wt.DeviceLost):
            tuner.tune(copy_kernel(key=lambda x, y: "another"), x, y)
        with pytest.raises(wt.DeviceLost):
            tuner.download(y)


def test_a_closed_tuner_says_so(args):
    tuner = wt.open_tuner(store="memory")
    x = tuner.empty(4)
    tuner.close()
    tuner.close()
    with pytest.raises(wt.TunerClosed, match="open another"):
        tuner.run(copy_kernel(), x, x)


def test_a_read_only_cache_folder_is_one_warning_and_memory(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.warns(wt.StoreWarning) as caught:  # noqa: PT031, SIM117
        with wt.open_tuner(store=blocked / "cache") as tuner:
            x, y = tuner.upload(np.ones(100, np.float32)), tuner.empty(100)
            tuner.run(copy_kernel(), x, y)
            assert tuner.tune(copy_kernel(), x, y).source == "memory"
            tuner.run(copy_kernel(key=lambda x, y: "other"), x, y)
    assert len(caught) == 1


def test_the_warning_of_a_store_points_at_the_line_that_opened_the_tuner(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    with pytest.warns(wt.StoreWarning) as caught:
        wt.open_tuner(store=blocked).close()
    assert caught[0].filename == __file__
    assert str(caught[0].message).count(str(blocked)) == 1
    assert "Errno" not in str(caught[0].message)


def test_unknown_settings_stores_and_adapters_are_told():
    with pytest.raises(wt.ConfigError, match="did you mean 'strategy'"):
        wt.open_tuner(strategie="fixed")
    with pytest.raises(wt.UsageError, match="store="):
        wt.open_tuner(store=7)
    with pytest.raises(wt.HostUnavailable, match="there are"):
        wt.open_tuner(adapter="no such adapter")
    with pytest.raises(wt.HostUnavailable, match="no device"):
        wt.open_tuner(device=object())


def test_a_wrong_strategy_is_wrong_at_once_also_where_nothing_is_to_be_measured(tuner, args):
    with pytest.raises(wt.ConfigError, match=r"strategy is 'fixd'; it takes adaptive \| fixed"):
        wt.open_tuner(strategy="fixd")
    kernel = copy_kernel()
    tuner.tune(kernel, *args)
    with pytest.raises(wt.UsageError, match="no strategy 'fixd'; did you mean 'fixed'"):
        tuner.tune(kernel, *args, strategy="fixd")
    with wt.gather(tuner) as gathered:
        tuner.run(kernel, *args)
    with pytest.raises(wt.UsageError, match="no strategy 'fixd'"):
        gathered.tune(strategy="fixd")


def test_an_unknown_strategy_names_the_known_ones(tuner, args):
    with pytest.raises(wt.UsageError, match="adaptive"):
        tuner.tune(copy_kernel(key=lambda x, y: "strategy"), *args, strategy="best")
    works(tuner)


def test_something_that_is_no_kernel_is_told(tuner, args):
    with pytest.raises(wt.ArgumentError, match="pass a Kernel or TunableSet"):
        tuner.run("copy", *args)


@pytest.mark.parametrize("shape", [0, (3, 0), -1])
def test_an_empty_buffer_is_refused(tuner, shape):
    with pytest.raises(wt.ArgumentError, match="positive"):
        tuner.empty(shape)


def test_uploading_nothing_or_no_data_is_refused(tuner):
    with pytest.raises(wt.ArgumentError, match="empty"):
        tuner.upload(np.zeros(0, np.float32))
    with pytest.raises(wt.ArgumentError, match="buffer protocol"):
        tuner.upload([1, 2, 3])


def test_a_raw_buffer_that_cannot_be_copied_is_told_by_name():
    import wgpu

    device = wgpu.gpu.request_adapter_sync().request_device_sync()
    y = device.create_buffer(size=4000, usage=wgpu.BufferUsage.STORAGE)
    with wt.open_tuner(device=device, store="memory") as tuner:
        x = tuner.upload(np.arange(1000, dtype=np.float32))
        with pytest.raises(wt.ArgumentError, match=r"y could not be copied.*COPY_SRC"):
            tuner.run(copy_kernel(), x, y)
        with pytest.raises(wt.ArgumentError, match="positive"):
            tuner.wrap(y, "f32", (-4,))
        with pytest.raises(wt.ArgumentError, match=r"cannot be read.*COPY_SRC"):
            tuner.download(tuner.wrap(y, "f32"))
        checked = copy_kernel(check=wt.AllClose(reference=lambda x, y: x))
        for call in (tuner.run, tuner.tune):
            with pytest.raises(wt.ArgumentError, match=r"^copy: .*reference reads x, .*COPY_SRC"):
                call(checked, y, tuner.empty(1000))
        unread = copy_kernel(check=wt.AllClose())  # without a reference nothing of x is read
        assert tuner.tune(unread, y, tuner.empty(1000)).winner is not None


def test_a_buffer_destroyed_between_gathering_and_tuning_is_told(tuner, args):
    y = tuner.empty(1000)
    with wt.gather(tuner) as gathered:
        tuner.run(copy_kernel(key=lambda x, y: "gone"), args[0], y)
    y.destroy()
    (entry,) = gathered.tune()
    assert entry.state is wt.GatherState.FAILED
    assert "destroyed" in str(entry.error)


def test_settings_files_that_are_no_utf8_are_told_and_a_bom_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "webtune.toml").write_bytes(b'\xef\xbb\xbfstrategy = "fixed"\n')
    with wt.open_tuner(store="memory") as tuner:
        assert tuner.config.strategy == "fixed"
    (tmp_path / "webtune.toml").write_bytes(b'strategy = "\xff"\n')
    with pytest.raises(wt.ConfigError, match="is not UTF-8"):
        wt.open_tuner(store="memory")


def test_a_bundle_or_an_environment_that_cannot_be_named_is_told():
    with pytest.raises(wt.UsageError, match="bundle="):
        wt.open_tuner(store="memory", bundle="\0")
    with pytest.raises(wt.ArgumentError, match="environment"), wt.environment("\udcff"):
        pass
