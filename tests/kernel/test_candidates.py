"""Candidates: their groups, priorities and features are checked where they are written."""

import numpy as np
import pytest

import webtune as wt
from webtune.kernel.candidates import priority_of


@pytest.mark.parametrize("needs", [None, 7, ["subgroups", 3]])
def test_features_that_are_no_names_are_told(make, needs):
    with pytest.raises(wt.KernelError, match=r"copy: requires= takes names of features"):
        _ = make(requires=lambda p: needs).candidates
    with pytest.raises(wt.KernelError, match=r"ops: requires= takes names of features"):
        wt.TunableSet("ops").tunable("one", requires=needs)(lambda rec, x: None)


@pytest.mark.parametrize("wrong", [{"priority": "high"}, {"priority": 1.5}, {"patience": 0}])
def test_a_group_with_a_number_that_is_none_is_refused_where_it_is_made(wrong):
    with pytest.raises(wt.UsageError, match="group 'wide': "):
        wt.Group("wide", **wrong)


def test_a_priority_may_be_any_whole_number():
    assert priority_of("wide", lambda key: np.int64(key), 2) == 2
