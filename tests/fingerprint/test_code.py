"""Code is known by what it does: by its source where that is what was compiled."""

import importlib
import os
import sys

from webtune.fingerprint.code import code_text, names_of
from webtune.fingerprint.content import content_of


def test_moving_a_function_changes_nothing(load):
    text = "def f(p, x):\n    return x.size // p.WG\ng = lambda p, x: (x.size + 1) // p.WG\n"
    here = load(text, "here")
    there = load("# a comment\n\nimport sys\n" + text, "there")
    assert content_of(here.f) == content_of(there.f)
    assert content_of(here.g) == content_of(there.g)
    assert "x.size // p.WG" in content_of(here.f)


def test_lambdas_on_one_line_are_told_apart(load):
    module = load("pair = (lambda p: p.A, lambda p: p.B + 1)\ninner = lambda: lambda p: p.C\n")
    first, second = (code_text(function.__code__) for function in module.pair)
    assert first == "lambda p: p.A"
    assert second == "lambda p: p.B + 1"
    assert code_text(module.inner.__code__) == "lambda: lambda p: p.C"
    assert code_text(module.inner().__code__) == "lambda p: p.C"


def test_a_lambda_whose_body_begins_a_line_is_found(load):
    module = load("f = (lambda p:\np.A)\n")
    assert code_text(module.f.__code__) == "lambda p: p.A"


def test_a_docstring_and_decorators_are_not_part_of_it(load):
    one = load('def f(p):\n    """Old."""\n    return 1\n', "one")
    two = load('same = lambda f: f\n@same\ndef f(p):\n    """New."""\n    return 1\n', "two")
    assert content_of(one.f) == content_of(two.f)


def test_code_without_a_file_is_known_by_its_bytecode():
    scope: dict[str, object] = {}
    exec("f = lambda p: p.A\ng = lambda p: p.B", scope)
    assert content_of(scope["f"]) != content_of(scope["g"])
    assert content_of(scope["f"]) == content_of(scope["f"])


def test_an_edit_and_a_reload_change_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "reloaded_kernels.py"
    texts = []
    for number, body in enumerate(("2.0", "3.0", "3.0  # said")):
        path.write_text(f"def f(p):\n    return {body}\n", encoding="utf-8")
        os.utime(path, (1e9 + number, 1e9 + number))
        module = importlib.import_module("reloaded_kernels")
        if number:
            importlib.reload(module)
        texts.append(content_of(module.f))
    assert texts[0] != texts[1]
    assert texts[1] == texts[2]
    assert "3.0" in texts[1]


def test_a_source_that_is_newer_than_the_code_is_not_taken_for_it(load, tmp_path):
    before = load("def f(p):\n    return 2.0\n")
    (tmp_path / "module_under_test.py").write_text("def f(p):\n    return 3.0\n", encoding="utf-8")
    text = content_of(before.f)
    after = load("def f(p):\n    return 3.0\n")
    assert text != content_of(after.f)
    assert "3.0" not in text


def test_having_run_changes_nothing(load):
    text = "import math\ndef f(p):\n    return math.pi * p + sum(x for x in (p, 2))\n"
    fresh, used = load(text), load(text)
    for number in range(1000):
        used.f(number)
    code_text.cache_clear()
    assert content_of(used.f) == content_of(fresh.f)
    assert "math.pi * p" in content_of(used.f)


def test_names_are_those_of_the_code_and_of_functions_inside_it():
    def function(p, template="{0.unnamed}"):
        from os import path

        return lambda: (path, len(p.WG), ("{0.width}" + template).format(p))

    names = names_of(function.__code__)
    assert names.reads == ("len",)
    assert names.attributes == {"WG", "format", "width"}
    assert names.imports == ("os",)
