"""Equal content compiles once, and what is released or of the past is let go."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from webtune.errors import (
    LaunchError,
)
from webtune.gpu.base import Binding, Dispatch
from webtune.gpu.native.device import NativeDevice
from webtune.gpu.native.programs import _KEPT_MODULES, _KEPT_PIPELINES
from webtune.strategies.drive import complete

Compile = Callable[..., Any]
Alone = Callable[..., str]


def test_equal_content_compiles_once(device: NativeDevice, counter: Compile) -> None:
    first, second = device.create_buffer(4), device.create_buffer(4)
    programs = [counter(device, handle) for handle in (first, second, first)]
    assert len({program.steps[0].pipeline for program in programs}) == 1
    assert programs[0].steps[0].group is programs[2].steps[0].group
    assert programs[0].steps[0].group is not programs[1].steps[0].group


def test_released_programs_leave_no_bind_group_behind(
    device: NativeDevice, counter: Compile
) -> None:
    before = len(device._programs.groups)
    programs = [counter(device, device.create_buffer(4)) for _ in range(5)]
    assert len(device._programs.groups) == before + 5
    for program in programs:
        device.release(program)
    assert len(device._programs.groups) == before


def test_a_refused_program_leaves_no_bind_group_behind(
    device: NativeDevice, count_source: str
) -> None:
    before = len(device._programs.groups)
    binding = Binding(0, "storage", device.create_buffer(4), 4)
    good = Dispatch(count_source, "main", (), (binding,), (1, 1, 1))
    with pytest.raises(LaunchError):
        complete(
            device.compile([good, Dispatch(count_source, "nobody", (), (binding,), (1, 1, 1))])
        )
    assert len(device._programs.groups) == before


def test_webgpus_subgroup_directive_is_accepted(
    device: NativeDevice, read_word: Callable[..., int]
) -> None:
    source = """enable subgroups;
    @group(0) @binding(0) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(32) fn main() { y[0] = subgroupAdd(1u); }"""
    handle = device.create_buffer(4)
    assert "subgroups" in device.features
    one = Dispatch(source, "main", (), (Binding(0, "storage", handle, 4),), (1, 1, 1))
    device.submit(complete(device.compile([one])))
    assert read_word(device, handle) >= 4


def test_pipelines_and_modules_of_the_past_are_let_go(
    device: NativeDevice, spin_source: str
) -> None:
    handle = device.create_buffer(128)
    binding = Binding(0, "storage", handle, 128)
    for number in range(_KEPT_PIPELINES + 20):
        source = f"{spin_source}// {number // 2}"
        constants = (("TURNS", number),)
        one = Dispatch(source, "main", constants, (binding,), (1, 1, 1))
        device.release(complete(device.compile([one])))
    gc.collect()
    assert len(device._programs.pipelines) == _KEPT_PIPELINES
    assert len(device._programs.modules) <= _KEPT_MODULES


LEAK = """
import gc, os
from webtune.strategies.drive import complete
from webtune.gpu.base import Binding, Dispatch
from webtune.gpu.native.adapters import open_device

SOURCE = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;" \\
    "@compute @workgroup_size(1) fn main() { y[0] = 7u; }"

def resident_bytes():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGESIZE")

device = open_device()

def compile_many():
    for _ in range(200):
        binding = Binding(0, "storage", device.create_buffer(4), 4)
        program = complete(device.compile([Dispatch(SOURCE, "main", (), (binding,), (1, 1, 1))]))
        complete(device.drain())
        device.release(program)
    gc.collect()
    return resident_bytes()

before = compile_many()
print((compile_many() - before) >> 20)
device.close()
"""


def test_compiling_again_and_again_costs_no_memory(alone: Alone) -> None:
    assert int(alone(LEAK)) < 10


def test_a_pipeline_in_use_is_never_compiled_twice(device: NativeDevice, spin: Compile) -> None:
    handle = device.create_buffer(128)
    held = spin(device, handle, 1)
    for number in range(2, _KEPT_PIPELINES + 10):
        device.release(spin(device, handle, number))
    assert spin(device, device.create_buffer(128), 1).steps[0].pipeline is held.steps[0].pipeline
    device.submit(held)
    complete(device.drain())
