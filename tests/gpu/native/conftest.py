"""What the tests of the native room share: devices, two programs, and processes of their own.

What could abort the interpreter runs in a child process, and so does everything on another driver:
a process chooses its drivers once, when it first asks for one.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wgpu

from webtune.gpu.base import Binding, Dispatch
from webtune.gpu.native.adapters import open_device
from webtune.gpu.native.device import NativeDevice
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


@pytest.fixture
def raw() -> Iterator[Any]:
    """A caller's own device, opened without webtune, with no feature asked for."""
    device = wgpu.gpu.request_adapter_sync().request_device_sync()
    yield device
    device.destroy()


@pytest.fixture
def device() -> Iterator[NativeDevice]:
    """A device of webtune's own."""
    opened = open_device()
    yield opened
    opened.close()


@pytest.fixture(params=[True, False], ids=["timestamps", "wall"])
def either_clock(request: pytest.FixtureRequest) -> Iterator[NativeDevice]:
    """A device of webtune's own with each kind of clock."""
    opened = open_device(timestamps=request.param)
    yield opened
    opened.close()


@pytest.fixture
def count_source() -> str:
    """WGSL that adds 1 to a word."""
    return COUNT


@pytest.fixture
def spin_source() -> str:
    """WGSL that works for a time in proportion to its constant TURNS."""
    return SPIN


@pytest.fixture
def counter() -> Callable[[NativeDevice, Any], Any]:
    """Compiles a program that adds 1 to the first word of a buffer."""

    def compiled(device: NativeDevice, handle: Any) -> Any:
        binding = Binding(0, "storage", handle, 4)
        return complete(
            device.compile([Dispatch(COUNT, "main", (), (binding,), (1, 1, 1), "count")])
        )

    return compiled


@pytest.fixture
def spin() -> Callable[..., Any]:
    """Compiles a program that works on a whole buffer for so many turns."""

    def compiled(device: NativeDevice, handle: Any, turns: int = 1) -> Any:
        binding = Binding(0, "storage", handle, handle.size)
        groups = (max(1, handle.size // 128), 1, 1)
        dispatch = Dispatch(SPIN, "main", (("TURNS", turns),), (binding,), groups, f"spin {turns}")
        return complete(device.compile([dispatch]))

    return compiled


@pytest.fixture
def read_word() -> Callable[[NativeDevice, Any], int]:
    """The first word of a buffer."""

    def read(device: NativeDevice, handle: Any) -> int:
        word: int = struct.unpack("<I", complete(device.read(handle, 4)))[0]
        return word

    return read


@pytest.fixture
def interrupt_after() -> Callable[[float], threading.Timer]:
    """Sends this process an interrupt after some seconds, as Ctrl-C does."""

    def start(delay_s: float) -> threading.Timer:
        timer = threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        return timer

    return start


def _alone(code: str, **env: str) -> str:
    """The last line that `code` prints in a process that ends well."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "XDG_RUNTIME_DIR" not in done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture
def alone() -> Callable[..., str]:
    """Runs code in a process of its own and gives its last line; it must end well."""
    return _alone


@pytest.fixture
def on_opengl() -> Callable[[str], str]:
    """Runs code in a process of its own that finds no driver but OpenGL."""

    def run(code: str) -> str:
        return _alone(code, VK_DRIVER_FILES="/nonexistent", VK_ICD_FILENAMES="/nonexistent")

    return run


@pytest.fixture
def on_swiftshader() -> Callable[[str], str]:
    """Runs code in a process of its own on Chromium's software driver."""

    def run(code: str) -> str:
        driver = str(_swiftshader())
        return _alone(code, VK_DRIVER_FILES=driver, VK_ICD_FILENAMES=driver)

    return run


def _swiftshader() -> Path:
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
