"""What a caller's function raises is told with the kernel's name and the function's, once."""

from __future__ import annotations

from typing import Any

import pytest

import webtune as wt
from webtune.testing import ScriptedDevice

KERNEL = """
override WG: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(WG)
fn main() { y[0] = 1u; }
"""
LOST = wt.DeviceLost("gone")


def kernel(**options: Any) -> wt.Kernel:
    given = {"source": KERNEL, "params": wt.grid(WG=[1, 2]), "workgroups": 1}
    return wt.Kernel("job", **{**given, **options})


def raising(error: BaseException) -> Any:
    def function(*_: Any) -> Any:
        raise error

    return function


SETS = ["key", "work", "inputs", "evict"]


@pytest.mark.parametrize("what", SETS)
@pytest.mark.parametrize("error", [ZeroDivisionError("no"), wt.Reject("no"), wt.KernelError("no")])
def test_what_a_function_of_the_set_raises_is_a_usage_error_that_names_it(opened, what, error):
    tuner = opened(ScriptedDevice())
    y = tuner.empty(4, "u32")
    with pytest.raises(wt.UsageError, match=rf"^job: {what}= .*no$") as caught:
        tuner.tune(kernel(**{what: raising(error)}), y)
    causes, link = [], caught.value.__cause__
    while link is not None:
        causes.append(link)
        link = link.__cause__
    assert error in causes
    assert tuner.tune(kernel(), y).winner is not None


@pytest.mark.parametrize("kind", [wt.UsageError, wt.ArgumentError, wt.KernelError])
def test_a_refusal_on_purpose_keeps_its_class_and_is_told_with_the_function(opened, kind):
    tuner = opened(ScriptedDevice())
    y = tuner.empty(4, "u32")
    for what in ("key", "work", "inputs"):
        with pytest.raises(kind, match=rf"^job: {what}= refused: y must be square$") as caught:
            tuner.tune(kernel(**{what: raising(kind("y must be square"))}), y)
        assert type(caught.value) is kind


@pytest.mark.parametrize("what", [*SETS, "constants", "workgroups"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), LOST])
def test_an_interrupt_or_a_lost_device_inside_a_function_stays_what_it_is(opened, what, error):
    tuner = opened(ScriptedDevice())
    with pytest.raises(type(error)) as caught:
        tuner.tune(kernel(**{what: raising(error)}), tuner.empty(4, "u32"))
    assert caught.value is error


@pytest.mark.parametrize("what", ["constants", "workgroups"])
def test_a_function_of_a_candidate_is_named_in_the_reason_and_may_reject(opened, what):
    tuner = opened(ScriptedDevice())
    y = tuner.empty(4, "u32")

    def picky(p: wt.Params, y: wt.Buffer) -> Any:
        if p.WG == 1:
            raise wt.Reject("odd sizes only")
        return {} if what == "constants" else 1

    report = tuner.tune(kernel(**{what: picky}), y)
    assert report.results[0].reason == "odd sizes only"
    with pytest.raises(wt.NoValidKernel) as caught:
        tuner.tune(kernel(**{what: raising(ValueError("no"))}), y)
    reasons = {failure.reason for failure in caught.value.failures.values()}
    assert reasons == {f"{what}= raised ValueError: no"}


def test_constants_that_are_no_dict_are_told(opened):
    tuner = opened(ScriptedDevice())
    with pytest.raises(wt.NoValidKernel, match="constants= returned None; return a dict"):
        tuner.run(kernel(constants=lambda p, y: None), tuner.empty(4, "u32"))


def test_inputs_that_do_not_fit_are_told_as_what_inputs_returned(opened):
    tuner = opened(ScriptedDevice())
    y = tuner.empty(4, "u32")
    for returned, says in [
        ([], r"takes 1 argument \(y\), 0 given"),
        ([3], "argument y is of type int"),
    ]:
        with pytest.raises(wt.ArgumentError, match=f"^job: inputs= returned .*{says}"):
            tuner.tune(kernel(inputs=lambda y, returned=returned: returned), y)


def test_a_priority_that_raises_is_told_with_its_kernel_and_its_group(opened):
    tuner = opened(ScriptedDevice())
    group = wt.Group("wide", priority=raising(ValueError("no")))
    with pytest.raises(wt.UsageError, match=r"^job: group 'wide': priority= raised ValueError: no"):
        tuner.tune(kernel(groups={group: 0}), tuner.empty(4, "u32"))


def test_a_key_that_json_cannot_hold_is_told_with_its_kernel(opened):
    tuner = opened(ScriptedDevice())
    with pytest.raises(wt.KeyUnserialisable, match=r"^job: key\[0\] is of type object"):
        tuner.run(kernel(key=lambda y: [object()]), tuner.empty(4, "u32"))


def test_equal_reasons_of_many_candidates_are_told_once(opened):
    tuner = opened(ScriptedDevice())
    with pytest.raises(wt.NoValidKernel) as caught:
        tuner.run(kernel(workgroups=lambda p, y: 1.5), tuner.empty(4, "u32"))
    assert str(caught.value).count("workgroups in x came out as 1.5") == 1


@pytest.mark.parametrize("known", [True, False])
def test_what_is_no_pass_is_told_and_no_candidate_is_blamed(opened, known):
    tuner = opened(ScriptedDevice())
    job, y = kernel(), tuner.empty(4, "u32")
    if known:
        tuner.tune(job, y)
    with pytest.raises(wt.ArgumentError, match="compute_pass is of type NoneType"):
        tuner.record(None, job, y)
    recorded: list[Any] = []
    assert isinstance(tuner.record(recorded, job, y), wt.Hit)
    assert len(recorded) == 1
