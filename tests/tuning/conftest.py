"""A scripted GPU under a real tuner: sets whose candidates are known by name, and an event loop's
host for what a page does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

import webtune as wt
from webtune.config import resolve
from webtune.report.decision_log import open_sink
from webtune.report.log import Logger
from webtune.store.memory import MemoryStore
from webtune.testing import ScriptedDevice
from webtune.tuning.context import Context

SOURCE = """
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main() { y[0] = y[0] + 1u; }
"""

Make = Callable[..., wt.TunableSet]
Open = Callable[..., wt.Tuner]


def _make(
    names: Iterable[str],
    *,
    name: str = "job",
    groups: Mapping[str, Mapping[wt.Group, Any]] | None = None,
    sources: Mapping[str, str] | None = None,
    **options: Any,
) -> wt.TunableSet:
    ops = wt.TunableSet(name, outputs=["y"], **options)
    for each in names:
        text = (sources or {}).get(each, SOURCE)
        ops.tunable(each, groups=(groups or {}).get(each))(_bound(text))
    return ops


def _bound(text: str) -> Callable[..., None]:
    def candidate(rec: wt.Recorder, y: wt.Buffer) -> None:
        rec.dispatch(text, [y], 1)

    return candidate


@pytest.fixture
def make() -> Make:
    """`make(["a", "b"])`: a set of candidates with these names on one u32 buffer `y`."""
    return _make


@pytest.fixture
def opened() -> Iterable[Open]:
    """`opened(device)`: a native tuner on a scripted GPU, closed after the test."""
    tuners: list[wt.Tuner] = []

    def make_one(device: ScriptedDevice, store: Any = "memory", **settings: Any) -> wt.Tuner:
        tuners.append(wt.open_tuner(device=device, store=store, **settings))
        return tuners[-1]

    yield make_one
    for tuner in tuners:
        tuner.close()


@pytest.fixture
def page(page_host: Any) -> Open:
    """`page(device)`: a tuner as a page has it. The device must be `awaiting`."""

    def make_one(
        device: ScriptedDevice, store: Any = None, decision_log: Any = None, **settings: Any
    ) -> wt.Tuner:
        config = resolve(arguments=settings)
        observer = Logger(config.log, open_sink(decision_log))
        return wt.Tuner(Context(device, store or MemoryStore(), page_host, config, observer))

    return make_one


@pytest.fixture
def shots() -> Callable[[ScriptedDevice], list[str]]:
    """The names of all timed launches, in order."""
    return lambda device: [shot.program.label for shot in device.shots]
