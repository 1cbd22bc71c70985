"""Whether the process that wrote something down is still alive. In doubt it is.

A process is (host, pid, when it began): a pid is used again, a beginning is not.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass

__all__ = ["DOUBT_S", "Process", "alive", "this_process"]

DOUBT_S = 3600.0
"""A start on another host (a shared folder, a container) counts as gone after this many seconds."""


@dataclass(frozen=True, slots=True)
class Process:
    """`began` is what the system says of its beginning, empty where it says nothing."""

    host: str
    pid: int
    began: str


def this_process() -> Process:
    """The one that runs this."""
    pid = os.getpid()
    return Process(platform.node(), pid, _began(pid))


def alive(process: Process, age_s: float) -> bool:
    """Whether it still runs, `age_s` seconds after it wrote itself down."""
    if process.host != platform.node():
        return age_s < DOUBT_S
    if not _exists(process.pid):
        return False
    return process.began == _began(process.pid)


def _began(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            text = stat.read()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            boot_id = boot.read().strip()
    except OSError:
        return ""
    # Field 22; the name in brackets before it may hold spaces.
    return f"{boot_id}/{text.rpartition(')')[2].split()[19]}"


def _exists(pid: int) -> bool:
    if sys.platform == "win32":
        return _exists_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _exists_on_windows(pid: int) -> bool:
    # There os.kill ends a process whatever the signal, so its handle is asked for instead.
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
