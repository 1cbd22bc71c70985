"""Libraries are known by name; the user's own modules are read, whatever they are called."""

import os
import sys
import threading
from types import ModuleType

import pytest

from webtune.fingerprint.packages import is_library, is_process_state, package_of, type_name


def test_libraries_are_the_standard_one_and_those_under_kernels():
    assert all(map(is_library, ("builtins", "math", "numpy", "wgpu", "webtune", "js")))
    assert not any(map(is_library, ("", "__main__", "torch", "my_kernels")))


def test_a_module_of_the_user_may_have_a_name_of_the_standard_library(monkeypatch):
    module = ModuleType("this")
    module.__file__ = "/elsewhere/this.py"
    monkeypatch.setitem(sys.modules, "this", module)
    is_library.cache_clear()
    try:
        assert not is_library("this")
    finally:
        is_library.cache_clear()


@pytest.mark.parametrize(
    ("value", "acting"), [(os.environ, True), (threading.Event(), True), (1, False)]
)
def test_what_stands_for_the_process_is_told_from_values(value, acting):
    assert is_process_state(value) is acting


def test_names_of_types_leave_out_the_module_where_it_may_be_moved():
    class Mine: ...

    assert type_name(1) == "int"
    assert type_name(Mine()) == "Mine"
    assert type_name(threading.Event()) == "threading.Event"
    assert package_of("a.b.c") == "a"
    assert package_of(None) == ""
