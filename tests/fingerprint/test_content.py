"""A function is known by what it does and what it names, not by where it stands."""

import dataclasses
import enum
import functools
import importlib
import importlib.util
import os
import re
import string
import subprocess
import sys
import time
from pathlib import Path
from threading import Lock
from types import FunctionType, MappingProxyType, ModuleType

import numpy as np
import pytest

from webtune import open_tuner
from webtune.fingerprint.code import code_text
from webtune.fingerprint.content import content_of
from webtune.kernel.space import Params
from webtune.testing import ScriptedDevice

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
    assert content_of(here.f) == content_of(there.f)
    assert content_of(here.g) == content_of(there.g)
    assert "x.size // p.WG" in content_of(here.f)


def test_two_lambdas_on_one_line_are_told_apart(tmp_path):
    module = load(tmp_path, "pair = (lambda p: p.A, lambda p: p.B + 1)\n")
    first, second = map(content_of, module.pair)
    assert "p.A" in first
    assert "p.B + 1" in second


def test_a_constant_that_a_function_names_is_part_of_it(tmp_path):
    one = load(tmp_path, "N = 1\ndef f(p):\n    return N\n", "one")
    two = load(tmp_path, "N = 2\ndef f(p):\n    return N\n", "two")
    assert content_of(one.f) != content_of(two.f)


def test_a_docstring_is_not_part_of_it(tmp_path):
    one = load(tmp_path, 'def f(p):\n    """Old."""\n    return 1\n', "one")
    two = load(tmp_path, 'def f(p):\n    """New."""\n    return 1\n', "two")
    assert content_of(one.f) == content_of(two.f)


def test_code_without_a_file_is_known_by_its_bytecode():
    scope: dict[str, object] = {}
    exec("f = lambda p: p.A\ng = lambda p: p.B", scope)
    assert content_of(scope["f"]) != content_of(scope["g"])
    assert content_of(scope["f"]) == content_of(scope["f"])


def test_nothing_is_nothing():
    assert content_of(None) == ""


# -- what a function reads from outside itself


class Counted:
    def __init__(self, value):
        self.value = value

    def __call__(self, p):
        return self.value

    def method(self, p):
        return self.value

    @property
    def doubled(self):
        return 2 * self.value


class App:
    """Much of it has nothing to do with a kernel."""

    def __init__(self, value):
        self.value = value
        self.frame = 0

    def method(self, p):
        return self.value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Shade(enum.Enum):
    DARK = 2
    LIGHT = 3


@dataclasses.dataclass(frozen=True)
class Tile:
    side: int


class Reader:
    """Its state is read by an operator, not by name."""

    def __init__(self, value):
        self.table = {"s": value}

    def __getitem__(self, name):
        return self.table[name]


def closure(value):
    return lambda p: value


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


def through_attribute(holder):
    return lambda p: holder.value


def through_property(value):
    held = Counted(value)
    return lambda p: held.doubled


def through_late_helper(value):
    held = Counted(value)

    def reads(thing):
        return thing.value

    return lambda p: reads(held)


def a_module(value):
    module = ModuleType("shaders")
    module.value = value
    module.unused = object()
    return module


def add(scale, p):
    return scale + p


KINDS = {
    "tuple": lambda v: closure((1, v)),
    "dict": lambda v: closure({"s": {"t": [v]}}),
    "set": lambda v: closure({v, 9}),
    "bytes": lambda v: closure(bytes([v])),
    "long list": lambda v: closure([0] * 100_000 + [v]),
    "numpy scalar": lambda v: closure(np.float32(v)),
    "numpy scalar of another type": lambda v: closure(np.int64(v) if v == 2 else np.int32(v)),
    "array": lambda v: closure(np.array([1, v])),
    "array of objects": lambda v: closure(np.array([None, v], dtype=object)),
    "enum": lambda v: closure(Shade(v)),
    "dataclass": lambda v: closure(Tile(v)),
    "mapping proxy": lambda v: closure(MappingProxyType({"s": v})),
    "params": lambda v: closure(Params({"S": v})),
    "pattern": lambda v: closure(re.compile("x" * 300 + str(v))),
    "template": lambda v: closure(string.Template(f"{v} $S")),
    "path": lambda v: closure(Path(f"kernel{v}.wgsl")),
    "callable object": Counted,
    "bound method": lambda v: Counted(v).method,
    "method of a string": lambda v: f"{v}".format,
    "keyword-only default": with_keyword,
    "tuple default": with_default,
    "closure of a helper": through_helper,
    "global in an inner lambda": through_global_in_lambda,
    "wrapper": wrapped,
    "partial": lambda v: functools.partial(add, v),
    "keyword of a partial": lambda v: functools.partial(add, scale=v),
    "cached function": lambda v: functools.lru_cache(closure(v)),
    "attribute of an instance": lambda v: through_attribute(Counted(v)),
    "slot of an instance": lambda v: through_attribute(Slotted(v)),
    "attribute of a module": lambda v: through_attribute(a_module(v)),
    "attribute of a class": lambda v: through_attribute(type("K", (), {"value": v})),
    "attribute through a property": through_property,
    "attribute that a helper names": through_late_helper,
    "item of an object": lambda v: (lambda held: lambda p: held["s"])(Reader(v)),
    "reflection": lambda v: (lambda held: lambda p: getattr(held, p))(Counted(v)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_functions_that_differ_in_what_they_read_differ_and_equal_ones_do_not(kind):
    make = KINDS[kind]
    assert content_of(make(2)) != content_of(make(3))
    assert content_of(make(2)) == content_of(make(2))
    assert "0x" not in content_of(make(2))


def test_what_no_code_names_is_no_part_of_it():
    one, two = App(1), App(1)
    two.frame = 17
    assert content_of(through_attribute(one)) == content_of(through_attribute(two))
    assert content_of(one.method) == content_of(two.method)


def test_what_cannot_be_told_is_known_by_its_type():
    for value in (object(), iter([1]), open, sys.stderr, Counted, np, (x for x in ()), Lock()):
        text = content_of(closure(value))
        assert "0x" not in text
        assert text == content_of(closure(value))
    assert content_of(closure(object())) == content_of(closure(object()))


def test_the_environment_of_a_process_is_no_part_of_it(monkeypatch):
    before = content_of(closure(os.environ))
    monkeypatch.setenv("A_SECRET", "told to nobody")
    assert content_of(closure(os.environ)) == before
    assert "PATH" not in before


def test_a_buffer_is_known_by_what_the_code_reads_of_it():
    tuner = open_tuner(ScriptedDevice(), store="memory")
    short, long = tuner.empty(256), tuner.empty(512)
    sized = lambda held: lambda p: held.size  # noqa: E731
    assert content_of(sized(short)) == content_of(sized(tuner.empty(256)))
    assert content_of(sized(short)) != content_of(sized(long))


def test_circles_end():
    ring = [1]
    ring.append(ring)
    table = {}
    table["self"] = table
    held = Counted(None)
    held.value = held

    def again(p):
        return again(p)

    for value in (ring, table, held, again):
        assert content_of(closure(value)) == content_of(closure(value))


def test_objects_that_raise_when_looked_at_are_known_by_their_type():
    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __iter__(self):
            raise RuntimeError

        def __len__(self):
            raise RuntimeError

    class Refusing(dict):
        def items(self):
            raise RuntimeError

    assert "Hostile" in content_of(closure(Hostile()))
    assert "Refusing" in content_of(closure(Refusing()))


def test_the_place_of_a_file_is_no_part_of_it(tmp_path):
    text = (
        "from pathlib import Path\nHERE = Path(__file__)\n"
        "def f(p):\n    return HERE.parent, __file__\n"
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = load(tmp_path / "a", text, "one").f
    assert content_of(one) == content_of(load(tmp_path / "b", text, "one").f)
    assert str(tmp_path) not in content_of(one)


PROGRAM = """
import functools, sys
from webtune import open_tuner
from webtune.fingerprint.code import code_text
from webtune.fingerprint.content import content_of

class C:
    def __init__(self, v):
        self.v = v
        self.s = {"one", "two", "three"}
    def __call__(self, p):
        return self.v, self.s

def f(s, p):
    return p in {"a", "b", "c"}, s

exec("g = lambda p: p in {'a', 'b', 'c'}")
for each in (f, g, C(2), functools.partial(f, {"x", "y", "z"}), C(2).__call__, "{}".format):
    print(content_of(each))
"""


def test_it_is_the_same_in_every_process():
    def run(seed):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment)

    one = run("1")
    assert one == run("2") == run("3")
    assert b"0x" not in one


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


def test_a_source_that_is_newer_than_the_code_is_not_taken_for_it(tmp_path):
    before = load(tmp_path, "def f(p):\n    return 2.0\n")
    (tmp_path / "module_under_test.py").write_text("def f(p):\n    return 3.0\n", encoding="utf-8")
    text = content_of(before.f)
    after = load(tmp_path, "def f(p):\n    return 3.0\n")
    assert text != content_of(after.f)
    assert "3.0" not in text


WIDTHS = {
    "a base's method through super()": """
class B:
    def w(self): return 32
class C(B):
    def w(self): return super().w()
c = C()
def f(): return c.w()
""",
    "a base's __init__ through super()": """
class B:
    def __init__(self): self.a = 32
class C(B):
    def __init__(self): super().__init__()
def f(): return C().a
""",
    "a named tuple's default": """
import typing
class T(typing.NamedTuple):
    w: int = 32
def f(): return T().w
""",
    "a named tuple's method": """
import typing
class T(typing.NamedTuple):
    n: int = 1
    def w(self): return 32 * self.n
t = T()
def f(): return t.w()
""",
    "an enum member's method": """
import enum
class E(enum.Enum):
    A = 1
    def w(self): return 32 * self.value
e = E.A
def f(): return e.w()
""",
    "an operator": """
class D:
    def __floordiv__(self, other): return 32
d = D()
def f(): return d // 1
""",
    "a context manager": """
class H:
    def __enter__(self): return 32
    def __exit__(self, *a): pass
def f():
    with H() as x: return x
""",
    "__new__": """
class H:
    def __new__(cls): return 32
def f(): return H()
""",
    "a single dispatch": """
import functools
@functools.singledispatch
def h(x): return 1
@h.register
def _(x: int): return 32
def f(): return h(1)
""",
    "a dictionary's method": """
class D(dict):
    def w(self): return 32
d = D()
def f(): return d.w()
""",
    "a default's factory": """
import collections
d = collections.defaultdict(lambda: 32)
def f(): return d['x']
""",
    "a method caller": """
import operator
class C:
    def w(self): return 32
c = C()
g = operator.methodcaller('w')
def f(): return g(c)
""",
    "a metaclass": """
class M(type):
    @property
    def w(cls): return 32
class C(metaclass=M): pass
def f(): return C.w
""",
    "a format string": """
class C: w = 32
c = C()
def f(): return int('{0.w}'.format(c))
""",
    "what is defined below": """
def f(): return h()
def h(): return WIDTH
WIDTH = 32
""",
}


@pytest.mark.parametrize("kind", WIDTHS)
def test_an_edit_counts_however_the_code_reaches_it(tmp_path, kind):
    module = load(tmp_path, WIDTHS[kind])
    text = content_of(module.f)
    assert module.f() == 32
    assert content_of(load(tmp_path, WIDTHS[kind]).f) == text
    edited = load(tmp_path, WIDTHS[kind].replace("32", "64"))
    assert edited.f() == 64
    assert content_of(edited.f) != text


def test_a_module_that_is_imported_in_the_function_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = load(tmp_path, "def f():\n    from width_of_it import WIDTH\n    return WIDTH\n")
    (tmp_path / "width_of_it.py").write_text("WIDTH = 32\n", encoding="utf-8")
    text = content_of(module.f)
    assert module.f() == 32
    assert content_of(module.f) == text
    (tmp_path / "width_of_it.py").write_text("WIDTH = 64\n", encoding="utf-8")
    assert content_of(module.f) != text


def test_what_is_defined_below_a_candidate_is_part_of_the_set(tmp_path):
    text = """
import webtune as wt
ops = wt.TunableSet("late")
@ops.tunable("a")
def a(rec, y): rec.dispatch(make(), [y], 1)
def make(): return str(WIDTH)
WIDTH = 32
"""
    before = load(tmp_path, text).ops.fingerprint
    assert load(tmp_path, text).ops.fingerprint == before
    assert load(tmp_path, text.replace("32", "64")).ops.fingerprint != before


def test_an_ordinary_function_takes_less_than_a_millisecond():
    sizes = {"tile": (8, 8), "unroll": [1, 2, 4]}
    function = lambda p, x: x.size // (p.WG * sizes["tile"][0])  # noqa: E731
    content_of(function)
    start = time.perf_counter()
    for _ in range(100):
        content_of(function)
    assert time.perf_counter() - start < 0.1


def test_having_run_changes_nothing(tmp_path):
    text = "import math\ndef f(p):\n    return math.pi * p + sum(x for x in (p, 2))\n"
    fresh = load(tmp_path, text)
    used = load(tmp_path, text)
    for each in range(1000):
        used.f(each)
    code_text.cache_clear()
    assert content_of(used.f) == content_of(fresh.f)
    assert "math.pi * p" in content_of(used.f)
