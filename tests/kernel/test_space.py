"""Parameter spaces: constraints, order, and errors at the call that made them."""

import pickle

import pytest

import webtune as wt


def test_grid_enumerates_the_product_in_order_with_the_first_values_first():
    points = list(wt.grid(A=[2, 1], B=[True, False]))
    assert [dict(p) for p in points] == [
        {"A": 2, "B": True},
        {"A": 2, "B": False},
        {"A": 1, "B": True},
        {"A": 1, "B": False},
    ]


def test_constraints_join_and_see_attributes():
    space = wt.grid(WG=[32, 64, 128], PER=[1, 2]).where(lambda p: p.WG * p.PER <= 128)
    space = space.where(lambda p: p["PER"] == 2)
    assert [str(p) for p in space] == ["WG=32, PER=2", "WG=64, PER=2"]
    assert len(space) == 2


def test_enumeration_is_lazy():
    seen = []
    space = wt.grid(A=range(10**6)).where(lambda p: seen.append(p.A) or True)
    next(iter(space))
    assert len(seen) < 10


def test_joined_spaces_count_a_point_once():
    space = wt.grid(A=[1, 2]) | wt.grid(A=[2, 3])
    assert [p.A for p in space] == [1, 2, 3]


def test_an_empty_axis_is_refused_where_it_is_written():
    with pytest.raises(wt.SpaceError, match="axis WG has no values"):
        wt.grid(WG=[])


def test_a_repeated_value_is_refused():
    with pytest.raises(wt.SpaceError, match="repeats"):
        wt.grid(WG=[32, 32])


def test_a_value_of_another_type_is_refused():
    with pytest.raises(wt.SpaceError, match="use int, float, bool or str"):
        wt.grid(WG=[None])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_value_without_an_end_is_refused_where_it_is_written(value):
    with pytest.raises(wt.SpaceError, match=r"axis S has .*; values are finite"):
        wt.grid(S=[1.0, value])


def test_a_constraint_that_leaves_nothing_is_refused_at_where():
    with pytest.raises(wt.SpaceError, match="leaves nothing of 2 points"):
        wt.grid(WG=[32, 64]).where(lambda p: p.WG > 1000)


def test_a_constraint_that_raises_names_the_point_and_the_error():
    with pytest.raises(wt.SpaceError, match=r"TypeError for WG=32") as caught:
        wt.grid(WG=[32, 64]).where(lambda p: p.WG + "x")
    assert isinstance(caught.value.__cause__, TypeError)


def test_an_unknown_parameter_names_the_known_ones():
    (point,) = wt.grid(WG=32)
    with pytest.raises(AttributeError, match="the space has: WG"):
        _ = point.WGS


def test_params_are_read_only_hashable_and_picklable():
    (point,) = wt.grid(WG=32)
    with pytest.raises(AttributeError):
        point.WG = 64
    assert {point: 1}[wt.Params({"WG": 32})] == 1
    assert pickle.loads(pickle.dumps(point)) == point


def test_numpy_axes_become_plain_numbers():
    np = pytest.importorskip("numpy")
    (first, *_) = wt.grid(WG=np.array([32, 64]))
    assert type(first.WG) is int


@pytest.mark.parametrize(("a", "b", "pieces"), [(1, 64, 1), (64, 64, 1), (65, 64, 2), (0, 4, 0)])
def test_ceil_div_covers(a, b, pieces):
    assert wt.ceil_div(a, b) == pieces


def test_ceil_div_by_zero_says_so():
    with pytest.raises(ZeroDivisionError, match="must be positive"):
        wt.ceil_div(3, 0)
