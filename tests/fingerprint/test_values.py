"""Values are known by their content, and by no address or path."""

import dataclasses
import enum
import os
import re
import string
import sys
from pathlib import Path
from threading import Lock
from types import MappingProxyType

import numpy as np
import pytest

from webtune.fingerprint.content import content_of
from webtune.kernel.space import Params


class Shade(enum.Enum):
    DARK = 2
    LIGHT = 3


@dataclasses.dataclass(frozen=True)
class Tile:
    side: int


VALUES = {
    "tuple": lambda v: (1, v),
    "dict": lambda v: {"s": {"t": [v]}},
    "set": lambda v: {v, 9},
    "bytes": lambda v: bytes([v]),
    "long list": lambda v: [0] * 100_000 + [v],
    "numpy scalar": np.float32,
    "numpy scalar of another type": lambda v: np.int64(v) if v == 2 else np.int32(v),
    "array": lambda v: np.array([1, v]),
    "array of objects": lambda v: np.array([None, v], dtype=object),
    "enum": Shade,
    "dataclass": Tile,
    "mapping proxy": lambda v: MappingProxyType({"s": v}),
    "params": lambda v: Params({"S": v}),
    "pattern": lambda v: re.compile("x" * 300 + str(v)),
    "template": lambda v: string.Template(f"{v} $S"),
    "path": lambda v: Path(f"kernel{v}.wgsl"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_that_differ_are_told_apart_and_equal_ones_are_not(holding, assert_told_apart, kind):
    assert_told_apart(lambda v: holding(VALUES[kind](v)))


def test_what_cannot_be_told_is_known_by_its_type(holding):
    for value in (object(), iter([1]), open, sys.stderr, Tile, np, (x for x in ()), Lock()):
        text = content_of(holding(value))
        assert "0x" not in text
        assert text == content_of(holding(value))
    assert content_of(holding(object())) == content_of(holding(object()))


def test_the_environment_of_a_process_is_no_part_of_it(holding, monkeypatch):
    before = content_of(holding(os.environ))
    monkeypatch.setenv("A_SECRET", "told to nobody")
    assert content_of(holding(os.environ)) == before
    assert "PATH" not in before


WIDTHS = {
    "an enum member's method": """
import enum
class E(enum.Enum):
    A = 1
    def w(self): return 32 * self.value
e = E.A
def f(): return e.w()
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
}


@pytest.mark.parametrize("kind", WIDTHS)
def test_an_edit_of_a_class_derived_from_a_value_counts(assert_edit_counts, kind):
    assert_edit_counts(WIDTHS[kind])
