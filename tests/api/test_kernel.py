"""Kernels: what is wrong is told where it was written; ids follow content and nothing else."""

import pytest

import webtune as wt

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
    assert [t.name for t in kernel.tunables] == ["WG=32", "WG=64"]


def test_a_parameter_without_an_override_is_refused():
    with pytest.raises(wt.KernelError, match="no override for the parameter PER"):
        make(params=wt.grid(WG=[32], PER=[1, 2]))


def test_a_parameter_only_for_the_launch_is_declared():
    assert len(make(params=wt.grid(WG=[32], PER=[1, 2]), launch_params=["PER"]).tunables) == 2


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
    assert [t.id for t in before.tunables] == [t.id for t in same.tunables]
    assert not {t.id for t in before.tunables} & {t.id for t in edited.tunables}
    assert before.fingerprint == same.fingerprint != edited.fingerprint


def test_adding_a_point_keeps_the_ids_of_the_others():
    fewer = {t.name: t.id for t in make().tunables}
    more = {t.name: t.id for t in make(params=wt.grid(WG=[16, 32, 64])).tunables}
    assert fewer.items() <= more.items()


def test_editing_the_launch_changes_the_id():
    other = make(workgroups=lambda p, x, y: wt.ceil_div(x.size, 2 * p.WG))
    assert {t.id for t in make().tunables}.isdisjoint(t.id for t in other.tunables)


def test_a_source_function_gets_each_point():
    kernel = wt.Kernel(
        "typed",
        source=lambda p: SOURCE.replace("f32", p.T),
        params=wt.grid(WG=[32], T=["f32", "u32"]),
        workgroups=1,
    )
    assert len({t.id for t in kernel.tunables}) == 2


def test_sets_join_sources_and_refuse_other_arguments():
    both = wt.TunableSet("either")
    both.add(make())
    other = wt.Kernel("twice", source=SOURCE, params=wt.grid(WG=[16]), workgroups=1)
    both.add(other)
    assert [t.name for t in both.tunables] == ["copy: WG=32", "copy: WG=64", "twice: WG=16"]
    with pytest.raises(wt.KernelError, match="this function takes x"):

        @both.tunable("third")
        def third(rec, x):
            pass


def test_a_set_without_candidates_says_so():
    with pytest.raises(wt.KernelError, match="no candidates"):
        _ = wt.TunableSet("empty").tunables


def test_a_function_candidate_is_known_by_its_code_and_what_it_names():
    def make_set(text):
        ops = wt.TunableSet("ops")

        @ops.tunable("one", params=wt.grid(N=[1, 2]))
        def one(rec, p, x, y):
            rec.dispatch(text, [x, y], p.N)

        return [t.id for t in ops.tunables]

    assert make_set("a") == make_set("a")
    assert set(make_set("a")).isdisjoint(make_set("b"))


def test_a_set_is_enumerated_in_pieces_where_the_host_must_breathe():
    import asyncio

    pauses = 0

    async def pause():
        nonlocal pauses
        pauses += 1

    slow, fast = (make(params=wt.grid(WG=range(1, 40))) for _ in range(2))
    asyncio.run(slow.enumerate(pause))
    assert pauses == 3
    assert [t.id for t in slow.tunables] == [t.id for t in fast.tunables]
    asyncio.run(slow.enumerate(pause))
    assert pauses == 3
