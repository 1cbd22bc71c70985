"""Of objects, classes and modules those attributes count that the code names or may read."""

from types import ModuleType

import pytest

from webtune import open_tuner
from webtune.fingerprint.classes import state_of
from webtune.fingerprint.content import content_of
from webtune.testing import ScriptedDevice


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
    __slots__ = ("__hidden", "unset", "value")

    def __init__(self, value):
        self.value = self.__hidden = value


class Reader:
    """Its state is read by an operator, not by name."""

    def __init__(self, value):
        self.table = {"s": value}

    def __getitem__(self, name):
        return self.table[name]


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


OBJECTS = {
    "callable object": Counted,
    "bound method": lambda v: Counted(v).method,
    "attribute of an instance": lambda v: through_attribute(Counted(v)),
    "slot of an instance": lambda v: through_attribute(Slotted(v)),
    "attribute of a module": lambda v: through_attribute(a_module(v)),
    "attribute of a class": lambda v: through_attribute(type("K", (), {"value": v})),
    "attribute through a property": through_property,
    "attribute that a helper names": through_late_helper,
    "item of an object": lambda v: (lambda held: lambda p: held["s"])(Reader(v)),
    "reflection": lambda v: (lambda held: lambda p: getattr(held, p))(Counted(v)),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_that_differ_in_what_is_read_of_them_are_told_apart(assert_told_apart, kind):
    assert_told_apart(OBJECTS[kind])


def test_what_no_code_names_is_no_part_of_it():
    one, two = App(1), App(1)
    two.frame = 17
    assert content_of(through_attribute(one)) == content_of(through_attribute(two))
    assert content_of(one.method) == content_of(two.method)


def test_a_buffer_is_known_by_what_the_code_reads_of_it():
    tuner = open_tuner(ScriptedDevice(), store="memory")
    short, long = tuner.empty(256), tuner.empty(512)
    sized = lambda held: lambda p: held.size  # noqa: E731
    assert content_of(sized(short)) == content_of(sized(tuner.empty(256)))
    assert content_of(sized(short)) != content_of(sized(long))


def test_the_state_of_an_instance_is_in_its_dictionary_and_its_slots():
    class Both(Slotted):
        def __getstate__(self):
            raise RuntimeError

    both = Both(2)
    both.more = 3
    assert state_of(both) == {"value": 2, "_Slotted__hidden": 2, "more": 3}
    assert state_of(object()) == {}


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
}


@pytest.mark.parametrize("kind", WIDTHS)
def test_an_edit_of_a_class_counts_however_the_code_reaches_it(assert_edit_counts, kind):
    assert_edit_counts(WIDTHS[kind])
