"""A function is known by what it does and what it names, not by where it stands."""

import importlib.util

from webtune.material import material

GROUP = 64


def load(tmp_path, text, name="module_under_test"):
    path = tmp_path / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_moving_a_function_changes_nothing(tmp_path):
    text = "def f(p, x):\n    return x.size // p.WG\ng = lambda p, x: (x.size + 1) // p.WG\n"
    here = load(tmp_path, text, "here")
    there = load(tmp_path, "# a comment\n\nimport sys\n" + text, "there")
    assert material(here.f) == material(there.f)
    assert material(here.g) == material(there.g)
    assert "x.size // p.WG" in material(here.f)


def test_two_lambdas_on_one_line_are_told_apart(tmp_path):
    module = load(tmp_path, "pair = (lambda p: p.A, lambda p: p.B + 1)\n")
    first, second = map(material, module.pair)
    assert "p.A" in first
    assert "p.B + 1" in second


def test_a_constant_that_a_function_names_is_part_of_it(tmp_path):
    one = load(tmp_path, "N = 1\ndef f(p):\n    return N\n", "one")
    two = load(tmp_path, "N = 2\ndef f(p):\n    return N\n", "two")
    assert material(one.f) != material(two.f)


def test_a_docstring_is_not_part_of_it(tmp_path):
    one = load(tmp_path, 'def f(p):\n    """Old."""\n    return 1\n', "one")
    two = load(tmp_path, 'def f(p):\n    """New."""\n    return 1\n', "two")
    assert material(one.f) == material(two.f)


def test_code_without_a_file_is_known_by_its_bytecode():
    scope: dict[str, object] = {}
    exec("f = lambda p: p.A\ng = lambda p: p.B", scope)
    assert material(scope["f"]) != material(scope["g"])
    assert material(scope["f"]) == material(scope["f"])


def test_nothing_is_nothing():
    assert material(None) == ""
