"""What every device promises: one body, run on each implementation.

`EVERY` has all of them; `COMPUTING` those that really execute WGSL.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pytest

from webtune.errors import ArgumentError, DeviceLost, LaunchError, UsageError
from webtune.gpu.base import Binding, Copy, Device, Dispatch, Program, Shot
from webtune.gpu.native.adapters import open_device
from webtune.gpu.native.device import NativeDevice
from webtune.strategies.drive import complete
from webtune.testing import ScriptedDevice

COUNT = """
@group(0) @binding(0) var<storage, read_write> count: array<atomic<u32>>;
@compute @workgroup_size(1)
fn main() { atomicAdd(&count[0], 1u); }
"""

SCALE = """
override FACTOR: f32;
override WG: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&x)) { y[id.x] = FACTOR * x[id.x]; }
}
"""

SPIN = """
override TURNS: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var state = y[id.x] + id.x;
  for (var i = 0u; i < TURNS; i++) { state = state * 1664525u + 1013904223u; }
  y[id.x] = state;
}
"""


@dataclass(frozen=True)
class Rig:
    """How to reach what the contract needs beyond the protocol."""

    open: Callable[[], Device]
    lose: Callable[[Any], None]
    """Takes the device away, as a driver's reset would."""
    executions: Callable[[int], int]
    """How often a shot of so many repeats runs its program in all."""


def _lose_native(device: NativeDevice) -> None:
    device.raw.destroy()


COMPUTING: dict[str, Rig] = {
    "native": Rig(open_device, _lose_native, lambda repeat: repeat),
    "native-wall": Rig(
        lambda: open_device(timestamps=False), _lose_native, lambda repeat: 3 * repeat
    ),
}
EVERY: dict[str, Rig] = {
    **COMPUTING,
    "scripted": Rig(ScriptedDevice, ScriptedDevice.lose, lambda repeat: repeat),
}


@pytest.fixture(params=EVERY)
def rig(request: pytest.FixtureRequest) -> Rig:
    return EVERY[request.param]


@pytest.fixture
def device(rig: Rig) -> Iterator[Device]:
    opened = rig.open()
    yield opened
    opened.close()


@pytest.fixture(params=COMPUTING)
def computing_rig(request: pytest.FixtureRequest) -> Rig:
    return COMPUTING[request.param]


@pytest.fixture
def gpu(computing_rig: Rig) -> Iterator[Device]:
    opened = computing_rig.open()
    yield opened
    opened.close()


def compiled(
    gpu: Device,
    source: str,
    buffers: Sequence[tuple[str, Any, int]],
    workgroups: tuple[int, int, int] = (1, 1, 1),
    **constants: float,
) -> Program:
    bindings = tuple(
        Binding(index, kind, handle, nbytes) for index, (kind, handle, nbytes) in enumerate(buffers)
    )
    one = Dispatch(source, "main", tuple(constants.items()), bindings, workgroups, "under test")
    return complete(gpu.compile([one]))


def words(gpu: Device, handle: Any, count: int, code: str = "I") -> list[Any]:
    return list(struct.unpack(f"<{count}{code}", complete(gpu.read(handle, 4 * count))))


def floats(*values: float) -> memoryview:
    return memoryview(struct.pack(f"<{len(values)}f", *values))


def test_buffers_start_as_zeros(device: Device) -> None:
    handle = device.create_buffer(64)
    assert bytes(complete(device.read(handle, 64))) == bytes(64)


def test_what_is_written_is_read(device: Device) -> None:
    handle = device.create_buffer(64)
    device.write(handle, memoryview(bytes(range(16))), 32)
    assert bytes(complete(device.read(handle, 64))) == bytes(32) + bytes(range(16)) + bytes(16)


def test_sizes_that_are_no_multiple_of_four_survive_the_round_trip(device: Device) -> None:
    handle = device.create_buffer(7)
    device.write(handle, memoryview(b"seven!!"))
    assert bytes(complete(device.read(handle, 7))) == b"seven!!"


def test_reading_nothing_gives_nothing(device: Device) -> None:
    assert bytes(complete(device.read(device.create_buffer(4), 0))) == b""


def test_a_write_past_the_end_is_refused_at_once(device: Device) -> None:
    with pytest.raises(ArgumentError):
        device.write(device.create_buffer(8), memoryview(bytes(16)))


def test_copies_move_whole_buffers(device: Device) -> None:
    source, target = device.create_buffer(16), device.create_buffer(16)
    device.write(source, memoryview(b"0123456789abcdef"))
    device.copy([Copy(source, target, 16)])
    assert bytes(complete(device.read(target, 16))) == b"0123456789abcdef"


def test_a_foreign_object_is_not_adopted(device: Device) -> None:
    assert device.adopt(object()) is None
    assert device.adopt(memoryview(bytes(4))) is None


def test_the_clock_has_a_kind_and_a_step(device: Device) -> None:
    assert device.clock.kind in ("timestamp", "wall")
    assert device.clock.quantum_ns >= 1
    assert device.clock.period_ns > 0


def test_identities_of_one_adapter_agree(rig: Rig) -> None:
    first, second = rig.open(), rig.open()
    assert first.identity.digest == second.identity.digest
    assert first.identity.label
    first.close()
    second.close()


def test_names_are_spelled_as_webgpu_does(device: Device) -> None:
    assert device.limits["maxComputeWorkgroupSizeX"] >= 1
    assert all(re.fullmatch("[a-zA-Z0-9]+", name) for name in device.limits)
    assert "subgroup" not in device.features


def test_a_lost_device_says_so_and_refuses_everything(rig: Rig) -> None:
    device = rig.open()
    handle = device.create_buffer(16)
    program = compiled(device, COUNT, [("storage", handle, 16)])
    assert device.lost is None
    rig.lose(device)
    assert device.lost
    copies = [Copy(handle, handle, 16)]
    refused: list[Callable[[], object]] = [
        lambda: device.create_buffer(16),
        lambda: device.write(handle, memoryview(bytes(16))),
        lambda: complete(device.read(handle, 16)),
        lambda: device.copy(copies),
        lambda: compiled(device, COUNT, [("storage", handle, 16)]),
        lambda: device.submit(program),
        lambda: complete(device.time([Shot(program)])),
        lambda: complete(device.drain()),
    ]
    for call in refused:
        with pytest.raises(DeviceLost):
            call()
    device.destroy_buffer(handle)
    device.release(program)
    device.close()


def test_a_loss_is_noticed_by_the_call_that_meets_it(rig: Rig) -> None:
    device = rig.open()
    handle = device.create_buffer(16)
    program = compiled(device, COUNT, [("storage", handle, 16)])
    rig.lose(device)
    with pytest.raises(DeviceLost):
        complete(device.time([Shot(program)]))
    device.close()


def test_a_closed_device_refuses_work_and_closes_twice(rig: Rig) -> None:
    device = rig.open()
    handle = device.create_buffer(16)
    device.close()
    device.close()
    assert device.lost
    with pytest.raises(DeviceLost):
        complete(device.read(handle, 16))
    with pytest.raises(DeviceLost):
        device.create_buffer(16)


def test_destroying_a_buffer_never_fails(device: Device) -> None:
    handle = device.create_buffer(16)
    device.destroy_buffer(handle)
    device.destroy_buffer(handle)


def test_spans_come_in_the_order_of_the_shots(device: Device) -> None:
    handle = device.create_buffer(16)
    program = compiled(device, COUNT, [("storage", handle, 16)])
    spans = complete(device.time([Shot(program, repeat) for repeat in (1, 2, 3, 4, 5)]))
    assert [span.repeat for span in spans] == [1, 2, 3, 4, 5]
    assert all(span.wall_ns > 0 for span in spans)


def test_no_shots_give_no_spans(device: Device) -> None:
    assert list(complete(device.time([]))) == []


def test_constants_reach_the_shader(gpu: Device) -> None:
    x, y = gpu.create_buffer(16), gpu.create_buffer(16)
    gpu.write(x, floats(1, 2, 3, 4))
    buffers = [("read-only-storage", x, 16), ("storage", y, 16)]
    gpu.submit(compiled(gpu, SCALE, buffers, FACTOR=2.5, WG=4))
    assert words(gpu, y, 4, "f") == [2.5, 5.0, 7.5, 10.0]
    gpu.submit(compiled(gpu, SCALE, buffers, FACTOR=-1, WG=4))
    assert words(gpu, y, 4, "f") == [-1, -2, -3, -4]


def test_compile_now_gives_the_same_program(gpu: Device) -> None:
    count = gpu.create_buffer(4)
    one = Dispatch(COUNT, "main", (), (Binding(0, "storage", count, 4),), (3, 1, 1))
    program = gpu.compile_now([one, one])
    assert program.failure is None
    gpu.submit(program)
    assert words(gpu, count, 1) == [6]


def test_bindings_that_the_shader_does_not_use_are_allowed(gpu: Device) -> None:
    count, idle = gpu.create_buffer(4), gpu.create_buffer(16)
    buffers = [("storage", count, 4), ("read-only-storage", idle, 16)]
    gpu.submit(compiled(gpu, COUNT, buffers))
    assert words(gpu, count, 1) == [1]


def test_a_uniform_of_twelve_bytes_serves_a_padded_struct(gpu: Device) -> None:
    source = """
    struct Size { m: u32, n: u32, k: u32 }
    @group(0) @binding(0) var<uniform> size: Size;
    @group(0) @binding(1) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(1) fn main() { y[0] = size.m * size.n * size.k; }
    """
    size, y = gpu.create_buffer(12, uniform=True), gpu.create_buffer(4)
    gpu.write(size, memoryview(struct.pack("<3I", 2, 3, 7)))
    gpu.submit(compiled(gpu, source, [("uniform", size, 12), ("storage", y, 4)]))
    assert words(gpu, y, 1) == [42]


def test_a_compile_error_carries_the_message_and_the_line(gpu: Device) -> None:
    source = "@compute @workgroup_size(1)\nfn main() {\n  let x = nowhere;\n}"
    with pytest.raises(LaunchError, match=r"^line 3: (?s:.)*nowhere"):
        compiled(gpu, source, [])


REFUSED: dict[str, tuple[dict[str, float], tuple[int, int, int], str]] = {
    "unknown constant": ({"FACTOR": 1, "WG": 4, "NOBODY": 1}, (1, 1, 1), "NOBODY"),
    "missing constant": ({"FACTOR": 1}, (1, 1, 1), "WG"),
    "workgroup too large": ({"FACTOR": 1, "WG": 1 << 20}, (1, 1, 1), "workgroup"),
    "workgroup of zero": ({"FACTOR": 1, "WG": 0}, (1, 1, 1), "workgroup_size"),
    "too many workgroups": ({"FACTOR": 1, "WG": 4}, (1 << 20, 1, 1), "1048576"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_validator_refuses_is_a_launch_error(gpu: Device, case: str) -> None:
    constants, workgroups, named = REFUSED[case]
    x, y = gpu.create_buffer(16), gpu.create_buffer(16)
    buffers = [("read-only-storage", x, 16), ("storage", y, 16)]
    with pytest.raises(LaunchError, match=named):
        compiled(gpu, SCALE, buffers, workgroups, **constants)
    gpu.submit(compiled(gpu, SCALE, buffers, FACTOR=1, WG=4))
    assert gpu.lost is None


def test_a_buffer_too_small_for_its_binding_is_a_launch_error(gpu: Device) -> None:
    source = """
    @group(0) @binding(0) var<storage, read_write> y: array<f32, 1024>;
    @compute @workgroup_size(1) fn main() { y[0] = 1.0; }
    """
    with pytest.raises(LaunchError):
        compiled(gpu, source, [("storage", gpu.create_buffer(64), 64)])


def test_a_missing_binding_is_a_launch_error(gpu: Device) -> None:
    with pytest.raises(LaunchError):
        compiled(gpu, SCALE, [("read-only-storage", gpu.create_buffer(16), 16)], FACTOR=1, WG=4)


def test_an_unknown_entry_point_is_a_launch_error(gpu: Device) -> None:
    one = Dispatch(
        COUNT, "nobody", (), (Binding(0, "storage", gpu.create_buffer(4), 4),), (1, 1, 1)
    )
    with pytest.raises(LaunchError, match="nobody"):
        complete(gpu.compile([one]))


def test_a_launch_on_a_destroyed_buffer_is_a_launch_error(gpu: Device) -> None:
    count = gpu.create_buffer(4)
    program = compiled(gpu, COUNT, [("storage", count, 4)])
    gpu.destroy_buffer(count)
    with pytest.raises(LaunchError, match="destroyed"):
        gpu.submit(program)
    with pytest.raises(LaunchError, match="destroyed"):
        complete(gpu.time([Shot(program)]))
    with pytest.raises(LaunchError, match="destroyed"):
        gpu.copy([Copy(count, gpu.create_buffer(4), 4)])
    assert gpu.lost is None


def test_a_released_program_is_refused(gpu: Device) -> None:
    program = compiled(gpu, COUNT, [("storage", gpu.create_buffer(4), 4)])
    gpu.release(program)
    gpu.release(program)
    with pytest.raises(UsageError):
        gpu.submit(program)


def test_releasing_one_of_two_equal_programs_leaves_the_other(gpu: Device) -> None:
    count = gpu.create_buffer(4)
    first = compiled(gpu, COUNT, [("storage", count, 4)])
    second = compiled(gpu, COUNT, [("storage", count, 4)])
    gpu.release(first)
    gpu.submit(second)
    assert words(gpu, count, 1) == [1]


def test_a_shot_runs_its_program_repeat_times(gpu: Device, computing_rig: Rig) -> None:
    count = gpu.create_buffer(4)
    program = compiled(gpu, COUNT, [("storage", count, 4)], (2, 1, 1))
    complete(gpu.time([Shot(program, 7), Shot(program, 5)]))
    runs = computing_rig.executions(7) + computing_rig.executions(5)
    assert words(gpu, count, 1) == [2 * runs]


def test_copies_and_evictor_run_before_every_shot(gpu: Device) -> None:
    count, fresh, evicted = (gpu.create_buffer(4) for _ in range(3))
    gpu.write(fresh, memoryview(struct.pack("<I", 100)))
    program = compiled(gpu, COUNT, [("storage", count, 4)])
    evict = compiled(gpu, COUNT, [("storage", evicted, 4)])
    restore = (Copy(fresh, count, 4),)
    complete(gpu.time([Shot(program, 3, restore, evict) for _ in range(4)]))
    (left,) = words(gpu, count, 1)
    assert left in (103, 106)  # by wall clock, the last launch of a shot is the doubled one
    assert words(gpu, evicted, 1)[0] >= 4


def test_copies_before_a_shot_are_outside_its_span(gpu: Device) -> None:
    nbytes = 48 << 20
    large, other, count = gpu.create_buffer(nbytes), gpu.create_buffer(nbytes), gpu.create_buffer(4)
    program = compiled(gpu, COUNT, [("storage", count, 4)])
    complete(gpu.time([Shot(program, before=(Copy(large, other, nbytes),))]))
    spans = complete(gpu.time([Shot(program, before=(Copy(large, other, nbytes),) * 4)] * 5))
    assert median(span.elapsed_ns for span in spans) * 5 < min(span.wall_ns for span in spans)


def test_a_hundred_times_the_work_takes_ten_times_as_long_at_least(gpu: Device) -> None:
    y = gpu.create_buffer(4 * 32 * 16)
    short, long = (
        compiled(gpu, SPIN, [("storage", y, 4 * 32 * 16)], (16, 1, 1), TURNS=turns)
        for turns in (300, 30_000)
    )
    complete(gpu.time([Shot(short), Shot(long)]))
    for _ in range(3):  # a busy machine may hold up most of a few launches
        spans = complete(gpu.time([Shot(short, 8), Shot(long, 8)] * 5))
        short_ns = median(span.elapsed_ns for span in spans[0::2])
        long_ns = median(span.elapsed_ns for span in spans[1::2])
        if long_ns > 10 * short_ns:
            break
    assert long_ns > 10 * short_ns


def test_a_program_runs_in_order_with_what_it_needs(gpu: Device) -> None:
    buffers = [gpu.create_buffer(16) for _ in range(3)]
    gpu.write(buffers[0], floats(1, 2, 3, 4))
    steps = [
        Dispatch(
            SCALE,
            "main",
            (("FACTOR", factor), ("WG", 4)),
            (Binding(0, "read-only-storage", source, 16), Binding(1, "storage", target, 16)),
            (1, 1, 1),
        )
        for factor, source, target in ((3, *buffers[:2]), (10, *buffers[1:]))
    ]
    gpu.submit(complete(gpu.compile(steps)))
    assert words(gpu, buffers[2], 4, "f") == [30, 60, 90, 120]


def test_a_submit_restores_first(gpu: Device) -> None:
    count, fresh = gpu.create_buffer(4), gpu.create_buffer(4)
    program = compiled(gpu, COUNT, [("storage", count, 4)])
    for _ in range(3):
        gpu.submit(program, [Copy(fresh, count, 4)])
    assert words(gpu, count, 1) == [1]
