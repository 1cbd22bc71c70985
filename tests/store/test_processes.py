"""Whether a process that wrote itself down is still the one that runs."""

import os
import subprocess
import sys
from dataclasses import replace

from webtune.store.processes import DOUBT_S, Process


def test_a_pid_that_is_used_again_is_another_process():
    here = Process.this()
    assert here.alive(0.0)
    assert here.alive(DOUBT_S * 100)
    assert not replace(here, began="before").alive(0.0)


def test_a_process_of_another_host_is_doubted_after_a_while():
    there = Process("elsewhere", 1, "")
    assert there.alive(DOUBT_S / 2)
    assert not there.alive(DOUBT_S * 2)


def test_a_process_that_ended_is_gone():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    seen = replace(Process.this(), pid=child.pid)
    child.communicate()
    assert not seen.alive(0.0)
    assert Process.this().pid == os.getpid()
