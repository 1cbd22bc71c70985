"""What is the same and what is not: programs, picks and arguments are never taken for another's."""

from array import array

import pytest

import webtune as wt
from webtune.testing import Pace, ScriptedDevice

COPY = """
override N: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1) fn main() { y[0] = N; }
"""


def stamp(views, dispatch):
    views[0].cast("I")[0] = dict(dispatch.constants)["N"]


def ops(values, order=(0, 1)):
    """Candidates that differ in an object that no digest can see into."""

    class Opaque:
        __slots__ = ("hidden",)

    opaque = Opaque()
    found = wt.TunableSet("ops", outputs=["y"])
    for place in order:

        def write(rec, y, place=place, box=opaque):
            rec.dispatch(COPY, [y], 1, constants={"N": values[place]})

        found.tunable(f"c{place}")(write)
    return found


@pytest.fixture
def tuner():
    device = ScriptedDevice({"c0": 1000, "c1": 900_000}, effect=stamp)
    with wt.open_tuner(device=device, store="memory") as opened:
        yield opened


def test_equal_ids_never_share_a_program(tuner):
    y = tuner.empty(1, "u32")
    for value in (2, 3):
        made = wt.TunableSet("one", outputs=["y"])
        made.tunable("c0")(
            lambda rec, y, v=[value]: rec.dispatch(COPY, [y], 1, constants={"N": v[0]})
        )
        tuner.run(made, y)
        assert tuner.download(y)[0] == value


def test_candidates_in_another_order_keep_their_winner(tuner):
    y = tuner.empty(1, "u32")
    tuner.run(ops((10, 20)), y)
    assert tuner.download(y)[0] == 10
    turned = ops((10, 20), order=(1, 0))
    assert tuner.run(turned, y) == wt.Hit(1)
    assert tuner.download(y)[0] == 10


def test_two_views_of_one_buffer_are_two_problems(tuner):
    seen = []

    def count(views, dispatch):
        seen.append(dispatch.workgroups[0])

    device = ScriptedDevice(pace=Pace(default_ns=1000), effect=count)
    kernel = wt.Kernel("views", source=COPY, params=wt.grid(N=[1]), workgroups=lambda p, y: y.size)
    with wt.open_tuner(device=device, store="memory") as opened:
        whole = opened.empty(8, "u32")
        part = opened.wrap(whole.handle, "u32", 4)
        opened.run(kernel, whole)
        opened.run(kernel, part)
    assert seen == [8, 4]


def test_a_candidate_that_writes_what_outputs_does_not_name_is_out(tuner):
    made = wt.TunableSet("stray", outputs=["y"])

    @made.tunable("c0")
    def right(rec, x, y):
        rec.dispatch(COPY, [y], 1, constants={"N": 1})

    @made.tunable("c1")
    def stray(rec, x, y):
        rec.dispatch(COPY, [x], 1, constants={"N": 9})

    x, y = tuner.upload(array("I", [5])), tuner.empty(1, "u32")
    report = tuner.tune(made, x, y)
    assert [r.status for r in report.results] == ["winner", "rejected"]
    assert "it writes x, which outputs= does not name" in report.results[1].reason
    assert tuner.download(x)[0] == 5


def test_joined_sets_write_by_place_and_not_by_name():
    first = wt.TunableSet("first", outputs=["b"])
    first.tunable("f")(lambda rec, a, b: None)
    second = wt.TunableSet("second", outputs=["in_"], restore=["in_"])
    second.tunable("s")(lambda rec, in_, out: None)
    first.add(second)
    assert set(first.outputs) == {"a", "b"}
    assert first.restore == ("a",)


def test_one_buffer_as_a_written_and_another_argument_is_told(tuner):
    source = """
    override N: u32;
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(1) fn main() { y[0] = N + x[0]; }
    """
    kernel = wt.Kernel("alias", source=source, params=wt.grid(N=[1, 2]), workgroups=1)
    y = tuner.empty(4, "u32")
    with pytest.raises(wt.ArgumentError, match="the same buffer"):
        tuner.run(kernel, y, y)


def test_a_check_that_is_added_later_is_passed_before_a_pick_is_served(tuner):
    y = tuner.empty(1, "u32")
    unchecked = ops((10, 20))
    tuner.run(unchecked, y)
    assert tuner.download(y)[0] == 10
    checked = ops((10, 20))
    checked.check = wt.AllClose(reference=lambda y: array("I", [20]))
    tuner.run(checked, y)
    assert tuner.download(y)[0] == 20
    # What passed a check may be served without one.
    assert tuner.tune(ops((10, 20)), y).winner.name in ("c0", "c1")


class Slotted:
    __slots__ = ("helper", "tolerance")

    def __init__(self, tolerance, helper=None):
        self.tolerance, self.helper = tolerance, helper

    def prepare(self, name, arguments, names):
        return wt.AllClose().prepare(name, arguments, names)


class Helper:
    """Its default repr holds an address."""


def test_a_check_of_ones_own_is_known_by_its_content():
    def checked(check):
        return wt.Kernel("k", source=COPY, params=wt.grid(N=[1, 2]), workgroups=1, check=check)

    text = checked(Slotted(array("f", range(5000)), Helper())).validity
    assert checked(Slotted(array("f", range(5000)), Helper())).validity == text
    other = array("f", range(5000))
    other[2500] = 0
    assert checked(Slotted(other, Helper())).validity != text


@pytest.mark.parametrize("flops", [float("inf"), float("nan"), -1, 10**400, "many", None])
def test_work_that_is_no_finite_number_is_told(tuner, flops):
    kernel = wt.Kernel(
        "k",
        source=COPY,
        params=wt.grid(N=[1, 2]),
        workgroups=1,
        work=lambda p, y: wt.Work(flops=flops),
    )
    with pytest.raises(wt.KernelError, match="finite numbers of at least 0"):
        tuner.tune(kernel, tuner.empty(1, "u32"))


def test_a_fallback_is_never_a_candidate_that_was_wrong():
    from webtune.testing import Faults

    device = ScriptedDevice({"c0": 1000, "c1": 900}, effect=stamp)
    with wt.open_tuner(device=device, store="memory") as tuner:
        y = tuner.empty(1, "u32")
        checked = ops((10, 20))
        checked.check = wt.AllClose(reference=lambda y: array("I", [10]))
        assert tuner.tune(checked, y).winner.name == "c0"
        device.faults = Faults(launch={"c0": "driver says no"})
        with pytest.raises(wt.NoValidKernel):
            tuner.run(checked, y)
        assert tuner.download(y)[0] != 20


def test_a_tune_that_asks_for_its_own_key_is_told(tuner):
    y = tuner.empty(1, "u32")
    made = ops((10, 20))
    caught = []

    def ask(event):
        if not caught:
            with pytest.raises(wt.UsageError, match="this very call") as error:
                tuner.tune(made, y)
            caught.append(error)

    tuner.tune(made, y, progress=ask)
    assert len(caught) == 1


def test_environments_nest_by_block():
    device = ScriptedDevice(pace=Pace(default_ns=1000), effect=stamp)
    with wt.open_tuner(device=device, store="memory") as tuner:
        y = tuner.empty(1, "u32")
        reader = tuner._reader
        with wt.environment("a"), wt.environment("b"):
            with wt.environment("a"):
                assert reader.read(ops((1, 2)), [y]).address.environment == "a"
            assert reader.read(ops((1, 2)), [y]).address.environment == "b"
        assert reader.environment == "default"


def test_a_name_that_no_store_can_hold_is_refused():
    with pytest.raises(wt.KernelError, match="cannot be printed"):
        wt.TunableSet("bad \ud800 name")


def test_kernels_inside_kernels_leave_nothing_behind(tuner):
    inner = ops((10, 20))
    outer = wt.TunableSet("outer", outputs=["y"])

    @outer.tunable("c0")
    def runs_inner(rec, y):
        scratch = rec.scratch(64, "u32")
        rec.run(inner, scratch)
        rec.run(inner, y)

    y = tuner.empty(1, "u32")
    tuner.run(outer, y)
    made = len(tuner.device.buffers) if hasattr(tuner.device, "buffers") else None
    for _ in range(50):
        tuner.run(outer, y)
    assert tuner.download(y)[0] == 10
    if made is not None:
        assert len(tuner.device.buffers) == made


def test_what_half_writes_stands_in_for_no_reference():
    def stamp_some(views, dispatch):
        values = views[0].cast("I")
        for place in range(dict(dispatch.constants)["N"]):
            values[place] = 7

    made = wt.TunableSet("halves", outputs=["y"], check=wt.AllClose())
    for name, count in (("half", 2), ("whole", 4)):

        def write(rec, y, count=count):
            rec.dispatch(COPY, [y], 1, constants={"N": count})

        made.tunable(name)(write)
    device = ScriptedDevice({"half": 10, "whole": 1000}, effect=stamp_some)
    with wt.open_tuner(device=device, store="memory") as tuner:
        report = tuner.tune(made, tuner.empty(4, "u32"))
    assert [r.status for r in report.results] == ["wrong answer", "winner"]
    assert "wrote 2 of 4 elements to y" in report.results[0].reason
