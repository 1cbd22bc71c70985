"""A function is known with all that it reads from outside itself."""

import functools
from types import FunctionType

import pytest

from webtune.fingerprint.content import content_of


def with_keyword(value):
    def f(p, *, scale=value):
        return scale

    return f


def with_default(value):
    def f(p, scale=(value,)):
        return scale[0]

    return f


def through_helper(value):
    def helper():
        return value

    return lambda p: helper()


def through_global_in_lambda(value):
    code = (lambda p: (lambda: HIDDEN)()).__code__  # noqa: F821
    return FunctionType(code, {"HIDDEN": value})


def wrapped(value):
    def inner(p):
        return 1

    @functools.wraps(inner)
    def outer(p):
        return inner(p) * value

    return outer


def add(scale, p):
    return scale + p


FUNCTIONS = {
    "method of a string": lambda v: f"{v}".format,
    "keyword-only default": with_keyword,
    "tuple default": with_default,
    "closure of a helper": through_helper,
    "global in an inner lambda": through_global_in_lambda,
    "wrapper": wrapped,
    "partial": lambda v: functools.partial(add, v),
    "keyword of a partial": lambda v: functools.partial(add, scale=v),
    "cached function": lambda v: functools.lru_cache(through_helper(v)),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions_that_differ_in_what_they_read_are_told_apart(assert_told_apart, kind):
    assert_told_apart(FUNCTIONS[kind])


WIDTHS = {
    "a single dispatch": """
import functools
@functools.singledispatch
def h(x): return 1
@h.register
def _(x: int): return 32
def f(): return h(1)
""",
    "what is defined below": """
def f(): return h()
def h(): return WIDTH
WIDTH = 32
""",
}


@pytest.mark.parametrize("kind", WIDTHS)
def test_an_edit_of_what_a_function_calls_counts(assert_edit_counts, kind):
    assert_edit_counts(WIDTHS[kind])


def test_a_constant_that_a_function_names_is_part_of_it(load):
    one = load("N = 1\ndef f(p):\n    return N\n", "one")
    two = load("N = 2\ndef f(p):\n    return N\n", "two")
    assert content_of(one.f) != content_of(two.f)


def test_the_place_of_a_file_is_no_part_of_it(load, tmp_path):
    text = (
        "from pathlib import Path\nHERE = Path(__file__)\n"
        "def f(p):\n    return HERE.parent, __file__\n"
    )
    one = load(text, "one", tmp_path / "a").f
    assert content_of(one) == content_of(load(text, "one", tmp_path / "b").f)
    assert str(tmp_path) not in content_of(one)


def test_a_module_that_is_imported_in_the_function_counts(load, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = load("def f():\n    from width_of_it import WIDTH\n    return WIDTH\n")
    (tmp_path / "width_of_it.py").write_text("WIDTH = 32\n", encoding="utf-8")
    text = content_of(module.f)
    assert module.f() == 32
    assert content_of(module.f) == text
    (tmp_path / "width_of_it.py").write_text("WIDTH = 64\n", encoding="utf-8")
    assert content_of(module.f) != text


def test_what_is_defined_below_a_candidate_is_part_of_the_set(load):
    text = """
import webtune as wt
ops = wt.TunableSet("late")
@ops.tunable("a")
def a(rec, y): rec.dispatch(make(), [y], 1)
def make(): return str(WIDTH)
WIDTH = 32
"""
    before = load(text).ops.fingerprint
    assert load(text).ops.fingerprint == before
    assert load(text.replace("32", "64")).ops.fingerprint != before
