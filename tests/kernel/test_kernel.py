"""Kernels: what is wrong is told where it was written; ids follow content and nothing else."""

from array import array

import pytest

import webtune as wt
from webtune.kernel.candidates import priority_of
from webtune.testing import ScriptedDevice

SOURCE = """
override WG: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&x)) { y[id.x] = x[id.x]; }
}
"""


def make(source=SOURCE, params=None, **more):
    more.setdefault("workgroups", lambda p, x, y: wt.ceil_div(x.size, p.WG))
    return wt.Kernel("copy", source=source, params=params or wt.grid(WG=[32, 64]), **more)


def test_arguments_and_outputs_are_read_in_the_shader():
    kernel = make()
    assert kernel.arguments == ("x", "y")
    assert kernel.outputs == ("y",)
    assert [t.name for t in kernel.candidates] == ["WG=32", "WG=64"]


def test_a_parameter_without_an_override_is_refused():
    with pytest.raises(wt.KernelError, match="no override for the parameter PER"):
        make(params=wt.grid(WG=[32], PER=[1, 2]))


def test_a_parameter_only_for_the_launch_is_declared():
    assert len(make(params=wt.grid(WG=[32], PER=[1, 2]), launch_params=["PER"]).candidates) == 2


def test_an_override_that_nobody_sets_is_refused():
    with pytest.raises(wt.KernelError, match="nobody sets the override EXTRA"):
        make(source="override EXTRA: f32;" + SOURCE)


def test_an_entry_point_that_is_not_there_is_refused():
    with pytest.raises(wt.KernelError, match=r"no compute entry point 'go'; the shader has main"):
        make(entry="go")


def test_restore_of_an_unknown_or_read_only_argument_is_refused():
    with pytest.raises(wt.KernelError, match="the arguments are x, y"):
        make(restore=["z"])
    with pytest.raises(wt.KernelError, match="only reads"):
        make(restore=["x"])


def test_ids_follow_wgsl_and_parameters():
    before = make()
    same = make()
    edited = make(source=SOURCE.replace("= x[id.x]", "= 1.0 * x[id.x]"))
    assert [t.id for t in before.candidates] == [t.id for t in same.candidates]
    assert not {t.id for t in before.candidates} & {t.id for t in edited.candidates}
    assert before.fingerprint == same.fingerprint != edited.fingerprint


def test_adding_a_point_keeps_the_ids_of_the_others():
    fewer = {t.name: t.id for t in make().candidates}
    more = {t.name: t.id for t in make(params=wt.grid(WG=[16, 32, 64])).candidates}
    assert fewer.items() <= more.items()


def test_editing_the_launch_changes_the_id():
    other = make(workgroups=lambda p, x, y: wt.ceil_div(x.size, 2 * p.WG))
    assert {t.id for t in make().candidates}.isdisjoint(t.id for t in other.candidates)


def test_a_source_function_gets_each_point():
    kernel = wt.Kernel(
        "typed",
        source=lambda p: SOURCE.replace("f32", p.T),
        params=wt.grid(WG=[32], T=["f32", "u32"]),
        workgroups=1,
    )
    assert len({t.id for t in kernel.candidates}) == 2


def test_sets_join_sources_and_refuse_other_arguments():
    both = wt.TunableSet("either")
    both.add(make())
    other = wt.Kernel("twice", source=SOURCE, params=wt.grid(WG=[16]), workgroups=1)
    both.add(other)
    assert [t.name for t in both.candidates] == ["copy: WG=32", "copy: WG=64", "twice: WG=16"]
    with pytest.raises(wt.KernelError, match="this function takes x"):

        @both.tunable("third")
        def third(rec, x):
            pass


def test_a_set_without_candidates_says_so():
    with pytest.raises(wt.KernelError, match="no candidates"):
        _ = wt.TunableSet("empty").candidates


def test_a_function_candidate_is_known_by_its_code_and_what_it_names():
    def make_set(text):
        ops = wt.TunableSet("ops")

        @ops.tunable("one", params=wt.grid(N=[1, 2]))
        def one(rec, p, x, y):
            rec.dispatch(text, [x, y], p.N)

        return [t.id for t in ops.candidates]

    assert make_set("a") == make_set("a")
    assert set(make_set("a")).isdisjoint(make_set("b"))


def test_a_function_without_the_parameters_that_it_gets_is_told():
    ops = wt.TunableSet("ops")

    @ops.tunable("one", params=wt.grid(N=[1, 2]))
    def one(rec, x, y):
        pass

    with pytest.raises(
        wt.ArgumentError,
        match=r"ops takes 1 argument \(y\), 2 given; one\(rec, x, y\) was decorated with params=, "
        "so it gets the recorder, the parameters and then the arguments",
    ):
        ops.bind([array("f", [0.0]), array("f", [0.0])], ScriptedDevice())
    with pytest.raises(wt.KernelError, match=r"outputs= names x; the arguments are y \(two"):

        @wt.TunableSet("others", outputs=["x"]).tunable("two", params=wt.grid(N=[1, 2]))
        def two(rec, x, y):
            pass


@pytest.mark.parametrize("params", [None, wt.grid(N=[1])])
def test_a_function_that_takes_no_recorder_is_told(params):
    with pytest.raises(wt.KernelError, match=r"ops: nothing\(\) was decorated with.*the recorder"):

        @wt.TunableSet("ops").tunable("none", params=params)
        def nothing():
            pass


def test_a_function_of_any_arguments_needs_a_set_that_names_them():
    def candidate(rec, *args):
        pass

    with pytest.raises(wt.KernelError, match=r"candidate\(rec\) takes any arguments; name each"):
        wt.TunableSet("ops").tunable("one")(candidate)
    ops = wt.TunableSet("ops", arguments=["x", "y"], outputs=["y"])
    ops.tunable("one")(candidate)
    assert ops.arguments == ("x", "y")


@pytest.mark.parametrize("needs", [None, 7, ["subgroups", 3]])
def test_features_that_are_no_names_are_told(needs):
    with pytest.raises(wt.KernelError, match=r"copy: requires= takes names of features"):
        _ = make(requires=lambda p: needs).candidates
    with pytest.raises(wt.KernelError, match=r"ops: requires= takes names of features"):
        wt.TunableSet("ops").tunable("one", requires=needs)(lambda rec, x: None)


def test_a_source_or_requires_function_that_raises_is_named():
    with pytest.raises(wt.UsageError, match="copy: source= raised ZeroDivisionError") as caught:
        make(source=lambda p: 1 / 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(wt.UsageError, match="copy: requires= raised ZeroDivisionError"):
        _ = make(requires=lambda p: 1 / 0).candidates


@pytest.mark.parametrize("wrong", [{"priority": "high"}, {"priority": 1.5}, {"patience": 0}])
def test_a_group_with_a_number_that_is_none_is_refused_where_it_is_made(wrong):
    with pytest.raises(wt.UsageError, match="group 'wide': "):
        wt.Group("wide", **wrong)


def test_a_priority_may_be_any_whole_number():
    import numpy as np

    assert priority_of("wide", lambda key: np.int64(key), 2) == 2


def test_the_work_of_a_kernel_is_the_least_of_its_points():
    def work(p, x, y):
        return wt.Work(flops=1000 // p.WG, bytes=p.WG)

    args = [array("f", [0.0])] * 2
    assert make(work=work).work_of(args) == wt.Work(flops=1000 // 64, bytes=32)
    assert make().work_of(args) is None
    assert make(work=lambda p, x, y: None if p.WG == 64 else work(p, x, y)).work_of(args) is None


def test_a_set_is_enumerated_in_pieces_where_the_host_must_breathe():
    import asyncio

    pauses = 0

    async def pause():
        nonlocal pauses
        pauses += 1

    slow, fast = (make(params=wt.grid(WG=range(1, 40))) for _ in range(2))
    asyncio.run(slow.enumerate(pause))
    assert pauses == 3
    assert [t.id for t in slow.candidates] == [t.id for t in fast.candidates]
    asyncio.run(slow.enumerate(pause))
    assert pauses == 3
