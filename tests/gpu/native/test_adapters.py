"""Which adapters there are, how one is chosen, and what may be adopted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import wgpu

from webtune.errors import (
    DeviceLost,
    HostUnavailable,
)
from webtune.gpu.native import adapters as host
from webtune.gpu.native.adapters import adapters, adopt_device, open_device
from webtune.hosts.native import open_native

Alone = Callable[..., str]


def test_what_is_no_device_is_not_adopted() -> None:
    with pytest.raises(HostUnavailable):
        adopt_device(object())


def test_a_lost_device_is_not_adopted() -> None:
    gone = wgpu.gpu.request_adapter_sync().request_device_sync()
    gone.destroy()
    with pytest.raises(DeviceLost):
        adopt_device(gone)


def test_the_best_adapter_comes_first() -> None:
    found = adapters()
    assert found
    assert found[0].backend in ("Vulkan", "Metal", "D3D12")
    device = open_device()
    facts = dict(device.identity.facts)
    device.close()
    assert (facts["device"], facts["backend_type"]) == (found[0].device, found[0].backend)


def test_hardware_comes_before_software_and_opengl_last_for_the_same_hardware() -> None:
    def adapter(kind: str, backend: str) -> Any:
        return SimpleNamespace(info={"adapter_type": kind, "backend_type": backend})

    ranked = [
        adapter("DiscreteGPU", "Vulkan"),
        adapter("IntegratedGPU", "D3D12"),
        adapter("Unknown", "Metal"),
        adapter("DiscreteGPU", "OpenGL"),
        adapter("Unknown", "OpenGLES"),
        adapter("CPU", "Vulkan"),
        adapter("CPU", "OpenGL"),
    ]
    shuffled = [ranked[i] for i in (6, 2, 4, 0, 5, 3, 1)]
    assert sorted(shuffled, key=host._rank) == ranked


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


def test_importing_the_host_loads_no_wgpu() -> None:
    load = "import sys, webtune.gpu.native.adapters"
    code = f"{load}; assert not {{'wgpu', 'wgpudawn'}} & set(sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)
