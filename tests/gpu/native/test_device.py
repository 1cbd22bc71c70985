"""The native device on real drivers: lavapipe here, Chromium's SwiftShader through wgpu and through
Dawn in processes of their own (the driver is chosen when a process first asks for one)."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import wgpu

from webtune.errors import (
    ArgumentError,
    DeviceLost,
    DeviceTimeout,
    HostUnavailable,
    LaunchError,
    UsageError,
)
from webtune.gpu.base import Binding, Copy, Dispatch, Shot
from webtune.gpu.clock import span_fault
from webtune.gpu.native import adapters as host
from webtune.gpu.native.adapters import adapters, adopt_device, open_device
from webtune.gpu.native.device import NativeDevice
from webtune.hosts.native import open_native
from webtune.strategies.drive import complete

COUNT = """
@group(0) @binding(0) var<storage, read_write> count: array<atomic<u32>>;
@compute @workgroup_size(1)
fn main() { atomicAdd(&count[0], 1u); }
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

STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST

TRIES = 3
"""A busy machine may hold up most of a few launches: a gap is seen in one of so many tries."""


@pytest.fixture
def raw() -> Iterator[Any]:
    """A caller's own device, opened without webtune, with no feature asked for."""
    device = wgpu.gpu.request_adapter_sync().request_device_sync()
    yield device
    device.destroy()


@pytest.fixture
def device() -> Iterator[NativeDevice]:
    opened = open_device()
    yield opened
    opened.close()


def counter(device: NativeDevice, handle: Any) -> Any:
    one = Dispatch(COUNT, "main", (), (Binding(0, "storage", handle, 4),), (1, 1, 1), "count")
    return complete(device.compile([one]))


def spin(device: NativeDevice, handle: Any, turns: int) -> Any:
    binding = Binding(0, "storage", handle, handle.size)
    groups = (handle.size // 128, 1, 1)
    one = Dispatch(SPIN, "main", (("TURNS", turns),), (binding,), groups, f"spin {turns}")
    return complete(device.compile([one]))


def read_word(device: NativeDevice, handle: Any) -> int:
    word: int = struct.unpack("<I", complete(device.read(handle, 4)))[0]
    return word


def test_a_callers_device_and_buffer_work_and_survive_webtune(raw: Any) -> None:
    mine = raw.create_buffer(size=64, usage=STORAGE)
    device = adopt_device(raw)
    assert device.adopt(mine) == 64
    program = counter(device, mine)
    device.submit(program)
    made = device.create_buffer(16)
    device.copy([Copy(mine, made, 16)])
    assert read_word(device, made) == 1
    device.close()
    assert device.lost
    assert struct.unpack("<I", raw.queue.read_buffer(mine, 0, 4)) == (1,)
    again = adopt_device(raw)
    again.submit(counter(again, mine))
    assert read_word(again, mine) == 2
    again.close()


def test_a_callers_buffer_without_storage_usage_is_refused_with_advice(raw: Any) -> None:
    device = adopt_device(raw)
    staging = raw.create_buffer(size=64, usage=wgpu.BufferUsage.COPY_DST)
    with pytest.raises(ArgumentError, match="STORAGE"):
        device.adopt(staging)
    device.close()


def test_a_program_is_recorded_into_a_callers_own_pass(raw: Any) -> None:
    device = adopt_device(raw)
    mine = raw.create_buffer(size=4, usage=STORAGE)
    program = counter(device, mine)
    encoder = raw.create_command_encoder()
    compute_pass = encoder.begin_compute_pass()
    device.encode(compute_pass, program)
    device.encode(compute_pass, program)
    compute_pass.end()
    raw.queue.submit([encoder.finish()])
    assert read_word(device, mine) == 2
    device.close()


def test_a_program_of_another_device_is_refused(raw: Any, device: NativeDevice) -> None:
    other = adopt_device(raw)
    program = counter(other, other.create_buffer(4))
    with pytest.raises(UsageError):
        device.submit(program)
    other.close()


def test_what_is_no_device_is_not_adopted() -> None:
    with pytest.raises(HostUnavailable):
        adopt_device(object())


def test_a_lost_device_is_not_adopted() -> None:
    gone = wgpu.gpu.request_adapter_sync().request_device_sync()
    gone.destroy()
    with pytest.raises(DeviceLost):
        adopt_device(gone)


def test_without_timestamps_the_wall_clock_ranks_a_tenfold_gap(raw: Any) -> None:
    device = adopt_device(raw)
    assert device.clock.kind == "wall"
    assert device.clock.quantum_ns >= 1
    handle = device.create_buffer(4 * 32 * 16)
    short, long = spin(device, handle, 600), spin(device, handle, 60_000)
    complete(device.time([Shot(short), Shot(long)]))
    for _ in range(TRIES):
        spans = complete(device.time([Shot(long, 4), Shot(short, 4)] * 5))
        long_ns, short_ns = (median(s.elapsed_ns for s in spans[first::2]) for first in (0, 1))
        if long_ns > 10 * short_ns:
            break
    assert long_ns > 10 * short_ns
    device.close()


def test_timestamps_stay_within_the_wall_time_around_them(device: NativeDevice) -> None:
    assert device.clock.kind == "timestamp"
    handle = device.create_buffer(4 * 32 * 16)
    program = spin(device, handle, 3000)
    complete(device.time([Shot(program)]))
    for span in complete(device.time([Shot(program, repeat) for repeat in (1, 2, 4, 8)])):
        assert span_fault(span, device.clock) is None


def test_ticks_are_scaled_to_the_hosts_nanoseconds(device: NativeDevice) -> None:
    handle = device.create_buffer(4 * 32 * 64)
    program = spin(device, handle, 60_000)
    complete(device.time([Shot(program)]))
    (span,) = complete(device.time([Shot(program, 20)]))
    assert 0.2 * span.wall_ns < span.elapsed_ns <= span.wall_ns


def test_more_shots_than_the_query_set_holds_are_all_taken(device: NativeDevice) -> None:
    handle = device.create_buffer(4)
    program = counter(device, handle)
    spans = complete(device.time([Shot(program)] * 150))
    assert len(spans) == 150
    assert read_word(device, handle) == 150
    assert sum(span.elapsed_ns > 0 for span in spans) > 140


def test_the_clock_is_known_within_a_tenth_of_a_second_of_opening(raw: Any) -> None:
    adopt_device(raw).close()
    opened_s = []
    for _ in range(5):
        started = time.perf_counter()
        device = adopt_device(raw)
        opened_s.append(time.perf_counter() - started)
        device.close()
    assert min(opened_s) < 0.1


def test_equal_content_compiles_once(device: NativeDevice) -> None:
    first, second = device.create_buffer(4), device.create_buffer(4)
    programs = [counter(device, handle) for handle in (first, second, first)]
    assert len({program.steps[0].pipeline for program in programs}) == 1
    assert programs[0].steps[0].group is programs[2].steps[0].group
    assert programs[0].steps[0].group is not programs[1].steps[0].group


def test_released_programs_leave_no_bind_group_behind(device: NativeDevice) -> None:
    before = device._programs.group_count
    programs = [counter(device, device.create_buffer(4)) for _ in range(5)]
    assert device._programs.group_count == before + 5
    for program in programs:
        device.release(program)
    assert device._programs.group_count == before


def test_a_refused_program_leaves_no_bind_group_behind(device: NativeDevice) -> None:
    before = device._programs.group_count
    binding = Binding(0, "storage", device.create_buffer(4), 4)
    good = Dispatch(COUNT, "main", (), (binding,), (1, 1, 1))
    with pytest.raises(LaunchError):
        complete(device.compile([good, Dispatch(COUNT, "nobody", (), (binding,), (1, 1, 1))]))
    assert device._programs.group_count == before


def test_a_forgotten_buffer_is_not_kept_alive(device: NativeDevice) -> None:
    handle = device.create_buffer(4)
    watch = weakref.ref(handle)
    program = counter(device, handle)
    device.release(program)
    del handle, program
    gc.collect()
    assert watch() is None


def test_webgpus_subgroup_directive_is_accepted(device: NativeDevice) -> None:
    source = """enable subgroups;
    @group(0) @binding(0) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(32) fn main() { y[0] = subgroupAdd(1u); }"""
    handle = device.create_buffer(4)
    assert "subgroups" in device.features
    one = Dispatch(source, "main", (), (Binding(0, "storage", handle, 4),), (1, 1, 1))
    device.submit(complete(device.compile([one])))
    assert read_word(device, handle) >= 4


def test_measuring_keeps_other_threads_off_the_queue(device: NativeDevice) -> None:
    handle = device.create_buffer(4 * 32 * 16)
    program = spin(device, handle, 30_000)
    complete(device.time([Shot(program)]))
    intervals: dict[str, tuple[float, float]] = {}
    measuring = threading.Event()
    take = device._timer.take

    def watched(shots: Any) -> Any:
        measuring.set()
        started = time.perf_counter()
        spans = take(shots)
        intervals["time"] = (started, time.perf_counter())
        return spans

    device._timer.take = watched  # type: ignore[method-assign]
    worker = threading.Thread(target=lambda: complete(device.time([Shot(program, 8)] * 4)))
    worker.start()
    assert measuring.wait(10)
    device.submit(program)
    submitted = time.perf_counter()
    worker.join()
    assert submitted >= intervals["time"][1]


def test_many_threads_compile_and_launch_without_harm(device: NativeDevice) -> None:
    handle = device.create_buffer(4)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            program = counter(device, handle)
            for _ in range(5):
                device.submit(program)
                complete(device.time([Shot(program)]))
            device.release(program)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert read_word(device, handle) == 80


def test_work_that_does_not_come_back_gives_the_device_up(
    device: NativeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = device.create_buffer(4 * 32 * 64)
    program = spin(device, handle, 60_000)
    complete(device.time([Shot(program)]))
    monkeypatch.setattr(device._link, "timeout_s", 0.001)
    with pytest.raises(DeviceTimeout, match="did not come back"):
        complete(device.time([Shot(program, 30)]))
    assert device.lost
    with pytest.raises(DeviceLost):
        complete(device.drain())
    device.close()


def test_closing_logs_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        device = open_device()
        complete(device.time([Shot(counter(device, device.create_buffer(4)))]))
        device.close()
    assert not caplog.records


def test_the_best_adapter_comes_first() -> None:
    found = adapters()
    assert found
    assert found[0].backend in ("Vulkan", "Metal", "D3D12")
    device = open_device()
    facts = dict(device.identity.facts)
    device.close()
    assert (facts["device"], facts["backend_type"]) == (found[0].device, found[0].backend)


def test_an_adapter_is_chosen_by_a_part_of_its_name() -> None:
    open_device(adapters()[0].text.upper()[:12]).close()
    with pytest.raises(HostUnavailable, match="no such card"):
        open_device("no such card")


def test_the_environment_chooses_adapter_and_package_of_a_tuner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEBTUNE_ADAPTER", "no such card")
    with pytest.raises(HostUnavailable, match="no such card"):
        open_native(store="none")
    monkeypatch.setenv("WEBTUNE_WGPU", "no_such_wgpu")
    with pytest.raises(HostUnavailable, match="pip install no_such_wgpu"):
        open_native(store="none")


def test_a_missing_package_is_named_with_what_to_install() -> None:
    with pytest.raises(HostUnavailable, match="pip install no_such_wgpu"):
        adapters("no_such_wgpu")


@pytest.mark.parametrize("name", ["../x", ".", "wgpu..gpu", "json", "a b"])
def test_what_is_no_package_of_wgpus_is_refused_as_such(name: str) -> None:
    with pytest.raises(HostUnavailable):
        open_device(library=name)


def test_no_adapter_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_ranked", lambda library: [])
    with pytest.raises(HostUnavailable, match="mesa-vulkan-drivers"):
        open_device()


REPORT = """
import json
from statistics import median
from webtune.strategies.drive import complete
from webtune.gpu.base import Binding, Dispatch, Shot
from webtune.gpu.clock import span_fault
from webtune.gpu.native.adapters import open_device

device = open_device({adapter!r}, library={library!r})
handle = device.create_buffer(4 * 32 * 4)
programs = [
    complete(device.compile([Dispatch({source!r}, "main", (("TURNS", turns),),
        (Binding(0, "storage", handle, handle.size),), (4, 1, 1))]))
    for turns in (300, 30_000)
]
for _ in range(12):
    complete(device.time([Shot(program) for program in programs]))
for _ in range({tries}):
    spans = complete(device.time([Shot(program, {repeat}) for program in programs] * 7))
    short_ns, long_ns = (median(s.elapsed_ns for s in spans[first::2]) for first in (0, 1))
    if long_ns > 10 * short_ns:
        break
word = complete(device.read(handle, 4))
print(json.dumps(dict(
    facts=dict(device.identity.facts), digest=device.identity.digest, kind=device.clock.kind,
    quantum_ns=device.clock.quantum_ns, period_ns=device.clock.period_ns,
    short_ns=short_ns,
    long_ns=long_ns,
    steps=[span.elapsed_ns for span in spans],
    faults=[span_fault(span, device.clock) for span in spans[1::2]],
)))
device.close()
"""


def swiftshader() -> Path:
    """Chromium's own software Vulkan driver, which lies beside its real executable."""
    folders = [Path("/usr/lib/chromium"), Path("/usr/lib/chromium-browser")]
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        found = shutil.which(name)
        if found:
            folders.append(Path(found).resolve().parent)
    if configured := os.environ.get("WEBTUNE_TEST_CHROMIUM"):
        folders.insert(0, Path(configured).resolve().parent)
    folders += sorted(Path.home().glob(".cache/ms-playwright/chromium*/chrome-linux*"))
    for folder in folders:
        driver = folder / "vk_swiftshader_icd.json"
        if driver.is_file():
            return driver
    pytest.fail("Chromium's vk_swiftshader_icd.json was not found; run: python3 build.py setup")


def run_on_swiftshader(code: str) -> str:
    env = {
        **os.environ,
        "VK_ICD_FILENAMES": str(swiftshader()),
        "VK_DRIVER_FILES": str(swiftshader()),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "XDG_RUNTIME_DIR" not in done.stderr
    return done.stdout.splitlines()[-1]


def on_swiftshader(library: str, repeat: int) -> dict[str, Any]:
    code = REPORT.format(
        adapter="swiftshader", library=library, source=SPIN, repeat=repeat, tries=TRIES
    )
    answer: dict[str, Any] = json.loads(run_on_swiftshader(code))
    return answer


def test_swiftshader_is_a_second_device_with_another_identity(device: NativeDevice) -> None:
    told = on_swiftshader("wgpu", 8)
    assert "SwiftShader" in told["facts"]["device"]
    assert told["digest"] != device.identity.digest
    assert told["kind"] == "timestamp"
    assert told["long_ns"] > 10 * told["short_ns"]
    assert told["faults"] == [None] * 7


def test_dawns_quantised_clock_is_found_and_still_ranks() -> None:
    told = on_swiftshader("wgpudawn", 64)
    assert "dawn" in told["facts"]["implementation"]
    assert told["kind"] == "timestamp"
    assert told["period_ns"] == 1.0
    assert told["quantum_ns"] == 65_536
    assert all(step % 65_536 == 0 for step in told["steps"])
    assert told["long_ns"] > 10 * told["short_ns"]
    assert told["faults"] == [None] * 7


def test_wgpu_and_dawn_on_one_driver_have_two_identities() -> None:
    digests = {on_swiftshader(library, 1)["digest"] for library in ("wgpu", "wgpudawn")}
    assert len(digests) == 2


HANG = """
import time
from webtune.strategies.drive import complete
from webtune.errors import DeviceLost, DeviceTimeout
from webtune.gpu.base import Binding, Dispatch, Shot
from webtune.gpu.native.adapters import open_device

source = (
    "@group(0) @binding(0) var<storage, read_write> y: array<atomic<u32>>;"
    "@compute @workgroup_size(1) fn main() { loop { if (atomicLoad(&y[0]) == 7u) { break; } } }"
)
device = open_device("swiftshader", library={library!r}, timeout_s=0.5)
handle = device.create_buffer(4)
binding = Binding(0, "storage", handle, 4)
program = complete(device.compile([Dispatch(source, "main", (), (binding,), (1, 1, 1))]))
seen = []
started = time.perf_counter()
try:
    complete(device.time([Shot(program)]))
except DeviceTimeout:
    seen.append("timeout" if time.perf_counter() - started < 5 else "late")
try:
    complete(device.read(handle, 4))
except DeviceLost:
    seen.append("lost")
device.close()
print(*seen)
"""


@pytest.mark.parametrize("library", ["wgpu", "wgpudawn"])
def test_a_kernel_that_never_ends_costs_one_device_and_no_process(library: str) -> None:
    code = HANG.replace("{library!r}", repr(library))
    assert run_on_swiftshader(code) == "timeout lost"


def test_importing_the_host_loads_no_wgpu() -> None:
    load = "import sys, webtune.gpu.native.adapters"
    code = f"{load}; assert not {{'wgpu', 'wgpudawn'}} & set(sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)
