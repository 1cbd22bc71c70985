"""Three devices of one machine, by driver and by implementation: none reads another's picks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CODE = """
import json, sys
import webtune as wt
SOURCE = '''
override WG: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&y)) { y[id.x] = id.x; }
}
'''
kernel = wt.Kernel("fill", source=SOURCE, params=wt.grid(WG=[8, 32]),
                   workgroups=lambda p, y: wt.ceil_div(y.size, p.WG))
with wt.open_tuner(store=sys.argv[1], adapter=sys.argv[2]) as tuner:
    y = tuner.empty(256, "u32")
    before = [address.hardware for address, _ in tuner.store.entries()]
    report = tuner.tune(kernel, y)
    print(json.dumps(dict(
        digest=tuner.device.identity.digest,
        label=tuner.device.identity.label,
        source=report.source,
        before=before,
        after=[address.hardware for address, _ in tuner.store.entries()],
    )))
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


def tuned(cache: Path, library: str, adapter: str) -> dict[str, Any]:
    env = {**os.environ, "WEBTUNE_WGPU": library, "PYTHONPATH": os.pathsep.join(sys.path)}
    if adapter == "swiftshader":
        env |= dict.fromkeys(("VK_ICD_FILENAMES", "VK_DRIVER_FILES"), str(swiftshader()))
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(cache), adapter],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


DEVICES = [("wgpu", "llvmpipe"), ("wgpu", "swiftshader"), ("wgpudawn", "swiftshader")]


def test_three_identities_of_one_machine_keep_their_own_picks(tmp_path: Path) -> None:
    first = [tuned(tmp_path, *device) for device in DEVICES]
    assert len({told["digest"] for told in first}) == 3
    assert [told["source"] for told in first] == ["tuned"] * 3
    assert [len(told["before"]) for told in first] == [0, 1, 2]
    assert sorted(first[-1]["after"]) == sorted(told["digest"] for told in first)

    again = [tuned(tmp_path, *device) for device in DEVICES]
    assert [told["digest"] for told in again] == [told["digest"] for told in first]
    assert [told["source"] for told in again] == ["store"] * 3
