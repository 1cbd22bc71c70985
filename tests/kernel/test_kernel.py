"""Kernels: what is wrong is told where it was written; ids follow content and nothing else."""

from array import array

import pytest

import webtune as wt


def test_arguments_and_outputs_are_read_in_the_shader(make):
    kernel = make()
    assert kernel.arguments == ("x", "y")
    assert kernel.outputs == ("y",)
    assert [t.name for t in kernel.candidates] == ["WG=32", "WG=64"]


def test_a_parameter_without_an_override_is_refused(make):
    with pytest.raises(wt.KernelError, match="no override for the parameter PER"):
        make(params=wt.grid(WG=[32], PER=[1, 2]))


def test_a_parameter_only_for_the_launch_is_declared(make):
    assert len(make(params=wt.grid(WG=[32], PER=[1, 2]), launch_params=["PER"]).candidates) == 2


def test_an_override_that_nobody_sets_is_refused(make, wgsl):
    with pytest.raises(wt.KernelError, match="nobody sets the override EXTRA"):
        make(source="override EXTRA: f32;" + wgsl)


def test_an_entry_point_that_is_not_there_is_refused(make):
    with pytest.raises(wt.KernelError, match=r"no compute entry point 'go'; the shader has main"):
        make(entry="go")


def test_restore_of_an_unknown_or_read_only_argument_is_refused(make):
    with pytest.raises(wt.KernelError, match="the arguments are x, y"):
        make(restore=["z"])
    with pytest.raises(wt.KernelError, match="only reads"):
        make(restore=["x"])


def test_ids_follow_wgsl_and_parameters(make, wgsl):
    before = make()
    same = make()
    edited = make(source=wgsl.replace("= x[id.x]", "= 1.0 * x[id.x]"))
    assert [t.id for t in before.candidates] == [t.id for t in same.candidates]
    assert not {t.id for t in before.candidates} & {t.id for t in edited.candidates}
    assert before.fingerprint == same.fingerprint != edited.fingerprint


def test_adding_a_point_keeps_the_ids_of_the_others(make):
    fewer = {t.name: t.id for t in make().candidates}
    more = {t.name: t.id for t in make(params=wt.grid(WG=[16, 32, 64])).candidates}
    assert fewer.items() <= more.items()


def test_editing_the_launch_changes_the_id(make):
    other = make(workgroups=lambda p, x, y: wt.ceil_div(x.size, 2 * p.WG))
    assert {t.id for t in make().candidates}.isdisjoint(t.id for t in other.candidates)


def test_a_source_function_gets_each_point(wgsl):
    kernel = wt.Kernel(
        "typed",
        source=lambda p: wgsl.replace("f32", p.T),
        params=wt.grid(WG=[32], T=["f32", "u32"]),
        workgroups=1,
    )
    assert len({t.id for t in kernel.candidates}) == 2


def test_the_work_of_a_kernel_is_the_least_of_its_points(make):
    def work(p, x, y):
        return wt.Work(flops=1000 // p.WG, bytes=p.WG)

    args = [array("f", [0.0])] * 2
    assert make(work=work).work_of(args) == wt.Work(flops=1000 // 64, bytes=32)
    assert make().work_of(args) is None
    assert make(work=lambda p, x, y: None if p.WG == 64 else work(p, x, y)).work_of(args) is None
