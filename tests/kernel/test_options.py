"""Options: one that there is not is refused, a function among them is named when it raises."""

import re

import pytest

import webtune as wt
from webtune.kernel.kernel import KernelOptions
from webtune.kernel.tunable_set import SetOptions


def test_a_source_or_requires_function_that_raises_is_named(make):
    with pytest.raises(wt.UsageError, match="copy: source= raised ZeroDivisionError") as caught:
        make(source=lambda p: 1 / 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(wt.UsageError, match="copy: requires= raised ZeroDivisionError"):
        _ = make(requires=lambda p: 1 / 0).candidates


def test_an_option_that_there_is_not_is_refused_with_the_near_one(make):
    with pytest.raises(wt.KernelError, match=r"no option entri=; did you mean entry=\?"):
        make(entri="main")
    with pytest.raises(wt.KernelError, match=r"no option output=; did you mean outputs="):
        wt.TunableSet("ops", output=["y"])
    with pytest.raises(wt.KernelError, match=r"no option xyz=; there are arguments, check, evict"):
        wt.TunableSet("ops", xyz=1)


def test_every_option_is_described_where_its_class_is_looked_up():
    for kind, options in ((wt.TunableSet, SetOptions), (wt.Kernel, KernelOptions)):
        for option in options.__optional_keys__:
            assert re.search(rf"`{option}\b", kind.__doc__), f"{kind.__name__}: {option}"
