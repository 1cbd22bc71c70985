"""For authors of tests: a scripted GPU, and a Chromium with WebGPU (`webtune.testing.browser`)."""

from webtune.testing.device import ScriptedDevice, ScriptedProgram
from webtune.testing.memory import ScriptedBuffer
from webtune.testing.script import Duration, Effect, Faults, Pace, ScriptedAdapter, ScriptedClock

__all__ = [
    "Duration",
    "Effect",
    "Faults",
    "Pace",
    "ScriptedAdapter",
    "ScriptedBuffer",
    "ScriptedClock",
    "ScriptedDevice",
    "ScriptedProgram",
]
