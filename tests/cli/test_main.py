"""The words of the command: what is wrong with them is one line and an exit status."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tune", "sexpy"), "no bundled kernel 'sexpy'"),
        (("tune", "saxpy", "--size", "12x34"), "is no size of saxpy"),
        (("tune", "saxpy", "--size", "0"), "is no size of saxpy"),
        (("tune", "saxpy", "--size", "huge"), "no size 'huge'"),
        (("tune", "saxpy", "--strategy", "guess"), "guess"),
        (("tune", "--sise", "1"), "unrecognized arguments"),
        (("tunes",), "invalid choice"),
        (("cache", "purge"), "--all"),
        (("replay", "measure", "--spaces", "nowhere", "--protocol", "fixed"), "does not exist"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_status_2(
    webtune: Run, one_line: Any, words: tuple[str, ...], says: str
) -> None:
    done = webtune(*words)
    assert done.returncode == 2
    assert says in one_line(done.stderr)


def test_an_adapter_that_is_not_there_is_one_line_with_those_that_are(
    webtune: Run, one_line: Any
) -> None:
    done = webtune("tune", "saxpy", "--adapter", "no such card")
    assert done.returncode == 1
    assert "no such card" in one_line(done.stderr)


def test_no_command_prints_help_and_fails(webtune: Run) -> None:
    done = webtune()
    assert done.returncode == 2
    assert "doctor" in done.stderr


def test_version_is_the_packages(webtune: Run) -> None:
    import webtune as package

    assert webtune("--version").stdout == f"webtune {package.__version__}\n"
