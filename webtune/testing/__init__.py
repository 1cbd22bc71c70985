"""For authors of tests: a scripted GPU, and a Chromium with WebGPU (`webtune.testing.browser`)."""

from webtune.testing.device import (
    Duration,
    Effect,
    Script,
    ScriptedBuffer,
    ScriptedDevice,
    ScriptedProgram,
)
from webtune.testing.script import Faults, ScriptedClock

__all__ = [
    "Duration",
    "Effect",
    "Faults",
    "Script",
    "ScriptedBuffer",
    "ScriptedClock",
    "ScriptedDevice",
    "ScriptedProgram",
]
