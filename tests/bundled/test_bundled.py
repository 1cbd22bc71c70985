"""Every candidate of every bundled kernel gives the right answer, on a device with the limits that
any WebGPU device grants, at sizes that nothing divides."""

import math

import numpy as np
import pytest
import wgpu

import webtune as wt
from webtune import bundled as kernels
from webtune.bundled import base
from webtune.strategies.drive import complete
from webtune.tuning.programs import ProgramCache

ODD = [
    (name, label) for name in kernels.names() for label in kernels.get(name).sizes if "odd" in label
]
QNAN = 0x7FC0_BEEF

# The candidate with the smallest blocks, and a size of which it needs more workgroups than one
# dimension of a dispatch may have.
FOLDED = [
    ("saxpy", "scalar: WG=32, PER=1, STRIDED=true", (2_100_001,)),
    ("reduction", "tree(WG=64, PER=1)", (4_200_001,)),
    ("scan", "scan-add(WG=64, PER=1, WITHIN=hillis)", (4_200_001,)),
    ("scan", "sum-scan(WG=64, PER=1, WITHIN=hillis)", (4_200_001,)),
    ("softmax", "online: WX=32, WY=1", (70_001, 3)),
    ("transpose", "naive: WX=16, WY=4, ALONG_OUTPUT=false", (1, 1_050_001)),
    ("transpose", "tiled: TILE=8, WY=8, PAD=1", (530_001, 1)),
    ("conv2d", "direct: WX=16, WY=4, PX=1", (1, 1_050_001, 1, 3)),
    ("conv2d", "tiled: WX=8, WY=8, PX=1", (530_001, 1, 3, 1)),
    ("matmul", "naive: WX=8, WY=8", (530_001, 1, 2)),
    ("matmul", "vec4 direct: WX=8, WY=8, TM=2", (1_050_001, 4, 4)),
]


@pytest.fixture(scope="module")
def tuner():
    adapter = wgpu.gpu.request_adapter_sync()
    wanted = {"subgroup", "subgroups"} & set(adapter.features)
    device = adapter.request_device_sync(
        required_features=sorted(wanted),
        required_limits={
            "max-compute-invocations-per-workgroup": base.INVOCATIONS,
            "max-compute-workgroup-size-x": 256,
            "max-compute-workgroup-size-y": 256,
            "max-compute-workgroup-storage-size": base.STORAGE_BYTES,
        },
    )
    with wt.open_tuner(device=device, store=None) as tuner:
        assert "subgroups" in tuner.device.features
        assert tuner.device.limits["maxComputeInvocationsPerWorkgroup"] == base.INVOCATIONS
        assert tuner.device.limits["maxComputeWorkgroupStorageSize"] == base.STORAGE_BYTES
        yield tuner


def answer(tuner, bundled, candidate, args, array):
    """What one candidate leaves in the output, which holds NaNs (or the input) before."""
    output = args[bundled.output_index]
    content = array if bundled.output in bundled.kernel.restore else poison(array)
    tuner.device.write(output.handle, memoryview(np.ascontiguousarray(content)).cast("B"))
    recording = ProgramCache(tuner.device).record(candidate, tuple(args))
    for buffer in recording.scratch:
        dirt = np.full(max(1, buffer.size), QNAN, np.uint32)
        tuner.device.write(buffer.handle, memoryview(dirt).cast("B"))
    program = complete(tuner.device.compile(recording.dispatches))
    tuner.device.submit(program)
    got = tuner.download(output)
    tuner.device.release(program)
    recording.free()
    return got


def poison(array):
    return np.full(array.shape, QNAN, np.uint32).view(array.dtype)


def wrong_candidates(tuner, bundled, size, wanted=lambda candidate: True, arrays=None):
    """Names of candidates with a wrong answer, and how many ran."""
    arrays = arrays or bundled.arguments(size)
    expected = bundled.expected(size, *arrays)
    args = [tuner.upload(array) for array in arrays]
    wrong, ran = [], 0
    for candidate in bundled.kernel.candidates:
        if not wanted(candidate):
            continue
        try:
            got = answer(tuner, bundled, candidate, args, arrays[bundled.output_index])
        except wt.Reject:
            continue
        ran += 1
        assert got.shape == expected.shape
        if not np.allclose(got, expected, rtol=bundled.rtol, atol=bundled.atol):
            wrong.append(candidate.name)
    for buffer in args:
        buffer.destroy()
    return wrong, ran


@pytest.mark.parametrize(("name", "label"), ODD)
def test_every_candidate_that_serves_an_odd_size_gives_the_right_answer(tuner, name, label):
    bundled = kernels.get(name)
    wrong, ran = wrong_candidates(tuner, bundled, bundled.size(label))
    assert wrong == []
    assert ran >= len(bundled.kernel) / 2


@pytest.mark.parametrize("name", kernels.names())
def test_every_candidate_serves_the_small_size_and_gives_the_right_answer(tuner, name):
    bundled = kernels.get(name)
    wrong, ran = wrong_candidates(tuner, bundled, bundled.size("small"))
    assert wrong == []
    assert ran == len(bundled.kernel)


@pytest.mark.parametrize(("name", "wanted", "size"), FOLDED)
def test_more_workgroups_than_one_dimension_holds_are_folded(tuner, name, wanted, size):
    bundled = kernels.get(name)
    args = [tuner.upload(array) for array in bundled.arguments(size)]
    (candidate,) = (each for each in bundled.kernel.candidates if each.name == wanted)
    recording = ProgramCache(tuner.device).record(candidate, tuple(args))
    assert (
        max(math.prod(dispatch.workgroups) for dispatch in recording.dispatches) > base.MOST_GROUPS
    )
    recording.free()
    for buffer in args:
        buffer.destroy()
    assert wrong_candidates(tuner, bundled, size, lambda each: each is candidate) == ([], 1)


def test_softmax_of_huge_values_neither_overflows_nor_vanishes(tuner):
    bundled = kernels.get("softmax")
    size = (9, 404)
    x, y = bundled.arguments(size)
    x *= 30_000
    wrong, ran = wrong_candidates(tuner, bundled, size, arrays=[x, y])
    assert wrong == []
    assert ran == len(bundled.kernel)


def test_prefix_sums_wrap_as_u32_does(tuner):
    bundled = kernels.get("scan")
    size = (5003,)
    x, y = bundled.arguments(size)
    x *= 0x0FFF_FFF1
    assert int(x.sum(dtype="u8")) > 1 << 32
    wrong, ran = wrong_candidates(tuner, bundled, size, arrays=[x, y])
    assert wrong == []
    assert ran == len(bundled.kernel)


@pytest.mark.parametrize("name", kernels.names())
def test_a_checked_tune_of_a_bundled_kernel_fails_nobody_and_changes_no_argument(
    tuner, name, monkeypatch
):
    bundled = kernels.get(name)
    size = bundled.size("small")
    arrays = bundled.arguments(size)
    args = [tuner.upload(array) for array in arrays]
    monkeypatch.setattr(bundled.kernel, "check", bundled.check(size))
    report = tuner.tune(bundled.kernel, *args)
    assert report.winner_ns > 0
    fine = {"winner", "tie", "slower", "eliminated", "skipped"}
    assert [result for result in report.results if result.status not in fine] == []
    for buffer, array in zip(args, arrays, strict=True):
        np.testing.assert_array_equal(tuner.download(buffer), array)


def test_matmul_has_at_least_48_candidates_and_the_naive_one_is_the_default():
    bundled = kernels.get("matmul")
    assert len(bundled.kernel) >= 48
    assert bundled.kernel.candidates[0].name == "naive: WX=8, WY=8"


@pytest.mark.parametrize("name", kernels.names())
def test_a_kernel_counts_the_same_work_for_its_size_and_for_its_arguments(name):
    bundled = kernels.get(name)
    size = bundled.size("odd")
    arrays = bundled.arguments(size)
    work = bundled.kernel.work_of(arrays)
    assert work == bundled.work(size)
    least = sum(array.nbytes for array in arrays)
    if bundled.output in bundled.kernel.restore:
        least += arrays[bundled.output_index].nbytes
    assert work.bytes == pytest.approx(least, abs=8)


@pytest.mark.parametrize("name", kernels.names())
def test_arguments_are_the_same_without_numpy(name, monkeypatch):
    bundled = kernels.get(name)
    size = bundled.size("odd-small" if "odd-small" in bundled.sizes else "odd")
    with_numpy = bundled.arguments(size)

    def missing():
        raise ImportError("no numpy")

    monkeypatch.setattr(base, "numpy", missing)
    without = bundled.arguments(size)
    assert [type(array) for array in without] == [memoryview] * len(without)
    for left, right in zip(with_numpy, without, strict=True):
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()


@pytest.mark.parametrize("name", kernels.names())
def test_arguments_that_do_not_fit_each_other_are_refused_by_name(tuner, name):
    bundled = kernels.get(name)
    args = [tuner.upload(array) for array in bundled.arguments(bundled.size("small"))]
    place = bundled.output_index
    args[place] = tuner.empty((3, 5, 7), args[place].dtype)
    with pytest.raises(wt.ArgumentError, match=bundled.output):
        tuner.run(bundled.kernel, *args)


def test_an_even_filter_is_refused(tuner):
    conv2d = kernels.get("conv2d")
    args = [tuner.upload(array) for array in conv2d.arguments((8, 8, 2, 3))]
    with pytest.raises(wt.ArgumentError, match="odd"):
        tuner.run(conv2d.kernel, *args)


def test_a_name_or_a_size_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(wt.UsageError, match="matmul, reduction"):
        kernels.get("sgemm")
    with pytest.raises(wt.ArgumentError, match="default, large, small"):
        kernels.get("saxpy").size("huge")


@pytest.mark.parametrize("groups", [1, 65535, 65536, 131071, 5_000_000])
def test_folded_counts_cover_all_and_waste_less_than_a_row(groups):
    x, y = base.fold(groups)
    assert max(x, y) <= base.MOST_GROUPS
    assert groups <= x * y < groups + y
