"""What CONTRIBUTING says of the house is true: its words and its three walks."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import webtune as wt
from webtune.config import Config
from webtune.store.memory import MemoryStore
from webtune.testing import ScriptedDevice
from webtune.tuning.context import Context

TEXT = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text()
PACKAGE = Path(wt.__file__).resolve().parent
SOURCE = """
override WG: u32;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG) fn main() { y[0] = 1.0; }
"""


def section(title: str) -> str:
    """The text under a heading, down to the next of the same level."""
    level = title.partition(" ")[0]
    return re.split(rf"^{level} ", TEXT.partition(f"{title}\n")[2], flags=re.MULTILINE)[0]


def walk(title: str) -> list[str]:
    return re.findall(r"^\d+\. `([\w/]+\.py)`", section(title), re.MULTILINE)


@contextmanager
def visited() -> Iterator[list[str]]:
    """The files of webtune in which something is called meanwhile, in the order of first calls."""
    files: list[str] = []

    def see(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            file = str(path.relative_to(PACKAGE))
            if file not in files:
                files.append(file)

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield files
    finally:
        sys.setprofile(before)


@pytest.fixture
def kernel() -> wt.Kernel:
    return wt.Kernel("walked", source=SOURCE, params=wt.grid(WG=[1, 2, 4]), workgroups=1)


def in_order(told: Sequence[str], seen: Sequence[str]) -> None:
    """What is told was seen, in that order."""
    assert len(told) >= 6
    assert [file for file in seen if file in told] == list(told)


def test_the_glossary_is_short_and_names_classes_that_there_are() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section("## Words"), re.MULTILINE)[2:]
    assert 10 <= len(rows) <= 25
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    named = set(re.findall(r"`([A-Z]\w+)`", section("## Words")))
    assert {name for name in named if f"class {name}" not in sources} == set()


def test_a_cold_and_a_hot_run_go_as_they_are_told(kernel: wt.Kernel, tmp_path: Path) -> None:
    with wt.open_tuner(device=ScriptedDevice(lambda dispatch: 1000), store=tmp_path) as tuner:
        y = tuner.empty(4)
        with visited() as cold:
            tuner.run(kernel, y)
        with visited() as hot:
            tuner.run(kernel, y)
    in_order(walk("### A cold `run`"), cold)
    in_order(walk("### A hot `run`"), hot)
    assert not {"measure", "strategies", "store", "fingerprint", "report"} & {
        file.partition("/")[0] for file in hot
    }


def test_a_tune_in_the_background_goes_as_it_is_told(kernel: wt.Kernel, page_host: Any) -> None:
    async def main() -> list[str]:
        device = ScriptedDevice(lambda dispatch: 1000, awaiting=True)
        tuner = wt.Tuner(Context(device, MemoryStore(), page_host, Config()))
        y = tuner.empty(4)
        with visited() as files:
            assert tuner.run(kernel, y) == wt.Pending()
            await tuner.settled()
        return files

    in_order(walk("### A tune in the background (in a page)"), asyncio.run(main()))
