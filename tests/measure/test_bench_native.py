"""The bench on real drivers: kernels below a clock's quantum rank right where gaps are tenfold, by
timestamps and by the wall. Each run is a process of its own, which chooses driver and library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, sys
from statistics import median
from webtune.measure.bench import Bench
from webtune.measure.bench_candidate import BenchCandidate, Conditions, WrittenArgument
from webtune.kernel.arguments import Buffer
from webtune.measure.check import AllClose
from webtune.strategies.model import Request, Round
from webtune.strategies.drive import complete
from webtune.gpu.base import Binding, Dispatch
from webtune.gpu.native.adapters import open_device

SOURCE = '''
override TURNS: u32;
override SKIP: bool = false;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (SKIP) { return; }
  var state = id.x + 1u;
  for (var i = 0u; i < TURNS; i++) {
    state ^= state << 13u; state ^= state >> 17u; state ^= state << 5u;
  }
  let k = id.x % 32u;
  y[k] = select(k, 7u, state == 0u);
}
'''
asked = json.loads(sys.argv[1])
device = open_device(asked["adapter"], library=asked["library"], timestamps=asked["timestamps"])
y = device.create_buffer(128)

def record(index):
    turns, groups = asked["work"][index]
    constants = (("TURNS", turns), ("SKIP", index == asked["silent"]))
    bound = (Binding(0, "storage", y, 128),)
    name = f"k{index}"
    dispatch = Dispatch(SOURCE, "main", constants, bound, (groups, 1, 1), name)
    return BenchCandidate(name, name, (dispatch,))

argument = Buffer(y, "u32", (32,), device)
check = AllClose(lambda y: list(range(32))).prepare("spin", (argument,), ("y",))
written = WrittenArgument("y", 0, y, 128, "u32", (32,))
bench = Bench(device, record, Conditions((written,), checker=check))
count = len(asked["work"])
first = complete(bench.measure(Round(tuple(Request(i, 3, 0) for i in range(count)))))
rest = complete(bench.measure(Round(tuple(Request(i, 0, 9) for i in range(count)))))
print(json.dumps(dict(
    clock=[device.clock.kind, device.clock.quantum_ns],
    failures=[None if r.failure is None else str(r.failure) for r in rest],
    least_ns=[min(r.durations_ns, default=None) for r in rest],
    median_ns=[median(r.durations_ns) if r.durations_ns else None for r in rest],
)))
bench.close()
device.close()
"""


def swiftshader() -> Path:
    """Chromium's software Vulkan driver."""
    folders = [Path("/usr/lib/chromium"), Path("/usr/lib/chromium-browser")]
    folders += [
        Path(found).resolve().parent
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ]
    if configured := os.environ.get("WEBTUNE_TEST_CHROMIUM"):
        folders.insert(0, Path(configured).resolve().parent)
    folders += sorted(Path.home().glob(".cache/ms-playwright/chromium*/chrome-linux*"))
    for folder in folders:
        if (folder / "vk_swiftshader_icd.json").is_file():
            return folder / "vk_swiftshader_icd.json"
    pytest.fail("Chromium's vk_swiftshader_icd.json was not found; run: python3 build.py setup")


def measured(
    library: str,
    *work: tuple[int, int],
    on_swiftshader: bool = True,
    timestamps: bool = True,
    silent: int | None = None,
) -> dict[str, Any]:
    """What the bench said of kernels of so many turns and workgroups each, on one driver."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    adapter = ""
    if on_swiftshader:
        adapter = "swiftshader"
        env |= dict.fromkeys(("VK_ICD_FILENAMES", "VK_DRIVER_FILES"), str(swiftshader()))
    asked = {
        "adapter": adapter,
        "library": library,
        "timestamps": timestamps,
        "work": work,
        "silent": silent,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(asked)],
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


# A short launch, a long one and one between, each many times as long as the next: on a busy machine
# a short launch takes several times what it costs, and the tenfold gap must survive that. llvmpipe
# ends any loop after 65,535 turns, so length comes from workgroups there.
SHORT = (20, 1)
ON_SWIFTSHADER = (20_000, 32), SHORT, (10_000, 4)
ON_LLVMPIPE = (60_000, 128), SHORT, (60_000, 8)
TRIES = 3


def well_ranked(told: dict[str, Any]) -> bool:
    longest, shortest, middle = told["median_ns"]
    return bool(shortest < middle < longest and longest > 10 * shortest)


def ranked(library: str, *work: tuple[int, int], **how: Any) -> dict[str, Any]:
    """What was measured where all ran and rank as they should: of a few tries, since a busy machine
    may hold up any launch for longer than the longest of these kernels takes."""
    tries = []
    for _ in range(TRIES):
        told = measured(library, *work, **how)
        if told["failures"] == [None] * 3 and well_ranked(told):
            assert min(told["least_ns"]) > 0
            return told
        tries.append(told)
    pytest.fail(f"ranked wrongly {TRIES} times: {tries}")


def test_below_the_quantum_of_a_real_coarse_clock_kernels_rank_right() -> None:
    told = ranked("wgpudawn", *ON_SWIFTSHADER)
    assert told["clock"] == ["timestamp", 65_536]
    assert told["least_ns"][1] < 65_536 / 2


def test_a_fine_clock_ranks_the_same_kernels_the_same_way() -> None:
    told = ranked("wgpu", *ON_SWIFTSHADER)
    assert told["clock"][0] == "timestamp"
    assert told["clock"][1] < 1_000


@pytest.mark.parametrize("on_swiftshader", [True, False])
def test_without_timestamps_the_wall_ranks_them(on_swiftshader: bool) -> None:
    work = ON_SWIFTSHADER if on_swiftshader else ON_LLVMPIPE
    told = ranked("wgpu", *work, on_swiftshader=on_swiftshader, timestamps=False)
    assert told["clock"][0] == "wall"


def test_a_kernel_that_writes_nothing_is_out_on_a_real_device() -> None:
    told = measured("wgpu", SHORT, SHORT, on_swiftshader=False, silent=1)
    assert told["failures"][0] is None
    assert "never written" in told["failures"][1]
    assert told["median_ns"][1] is None
