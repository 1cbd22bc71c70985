"""Whether the process that wrote something down is still alive. In doubt it is.

A process is named by its host, its pid and its beginning, since a pid is used again. The standard
library has no such test: `os.kill` with signal 0 tells only whether a pid is in use, and on
Windows it would end the process.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

DOUBT_S = 3600.0
"""After so many seconds a process of another host (a shared folder, a container) counts as gone."""


@dataclass(frozen=True, slots=True)
class Process:
    """`began` is what the system says of its beginning, empty where it says nothing."""

    host: str
    pid: int
    began: str

    @classmethod
    def this(cls) -> Process:
        """The process that runs this."""
        return cls(platform.node(), os.getpid(), _began(os.getpid()))

    def alive(self, age_s: float) -> bool:
        """Whether it still runs, `age_s` seconds after it wrote itself down."""
        if self.host != platform.node():
            return age_s < DOUBT_S
        return _in_use(self.pid) and self.began == _began(self.pid)


def _began(pid: int) -> str:
    """The boot and the time since then at which a process began; empty where /proc is missing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
    # Field 22; the name in brackets before it may hold spaces.
    return f"{boot_id}/{stat.rpartition(')')[2].split()[19]}"


def _in_use(pid: int) -> bool:
    if sys.platform == "win32":
        return _in_use_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _in_use_on_windows(pid: int) -> bool:
    import ctypes

    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009
    query_limited, still_active = 0x1000, 259
    handle = kernel.OpenProcess(query_limited, False, pid)
    if not handle:
        return False
    code = ctypes.c_ulong()
    kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.CloseHandle(handle)
    return code.value == still_active
