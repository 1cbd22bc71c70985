"""A function is known by what it does and what it names, not by where it stands."""

import os
import subprocess
import sys
import time

from webtune.fingerprint.content import content_of

PROGRAM = """
import functools, sys
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
for function in (f, g, C(2), functools.partial(f, {"x", "y", "z"}), C(2).__call__, "{}".format):
    print(content_of(function))
"""


def test_it_is_the_same_in_every_process():
    def run(seed):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment)

    one = run("1")
    assert one == run("2") == run("3")
    assert b"0x" not in one


def test_nothing_is_nothing():
    assert content_of(None) == ""


def test_an_ordinary_function_takes_less_than_a_millisecond():
    sizes = {"tile": (8, 8), "unroll": [1, 2, 4]}
    function = lambda p, x: x.size // (p.WG * sizes["tile"][0])  # noqa: E731
    content_of(function)
    start = time.perf_counter()
    for _ in range(100):
        content_of(function)
    assert time.perf_counter() - start < 0.1
