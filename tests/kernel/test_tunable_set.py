"""Sets: alternatives with the same arguments, and candidates that are functions."""

import asyncio
from array import array

import pytest

import webtune as wt
from webtune.testing import ScriptedDevice


def test_sets_join_sources_and_refuse_other_arguments(make, wgsl):
    both = wt.TunableSet("either")
    both.add(make())
    other = wt.Kernel("twice", source=wgsl, params=wt.grid(WG=[16]), workgroups=1)
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


def test_a_set_is_enumerated_in_pieces_where_the_host_must_breathe(make):
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
