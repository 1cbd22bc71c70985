"""The browser's modules in another Python: they load, and say where they belong."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from webtune.errors import ConfigError, HostUnavailable
from webtune.gpu.browser.javascript import pyodide_module
from webtune.hosts import browser as host
from webtune.store.opfs import OpfsStore
from webtune.testing.browser import PythonPage

Fresh = Callable[..., PythonPage]


@pytest.mark.parametrize("name", ["js", "pyodide.ffi"])
def test_pyodides_modules_are_asked_for_with_a_sentence(name: str) -> None:
    with pytest.raises(HostUnavailable, match=r"needs Pyodide .*open_tuner\(\)"):
        pyodide_module(name)
    assert "js" not in sys.modules


def test_the_store_says_that_it_needs_a_page() -> None:
    with pytest.raises(HostUnavailable, match="needs Pyodide"):
        OpfsStore()


def test_a_namespace_is_a_plain_name() -> None:
    with pytest.raises(ConfigError, match="no namespace"):
        OpfsStore("../elsewhere")


def test_opening_a_device_elsewhere_says_that_it_needs_a_page() -> None:
    # Not asyncio.run: Playwright's own loop is running in this thread.
    opening = host.open_device()
    with pytest.raises(HostUnavailable, match="needs Pyodide"):
        opening.send(None)
    adopting = host.adopt_device(object())
    with pytest.raises(HostUnavailable, match="needs Pyodide"):
        adopting.send(None)


@pytest.mark.parametrize(
    ("agent", "named"),
    [
        (
            "Mozilla/5.0 (X11) AppleWebKit/537.36 HeadlessChrome/156.0.0.0 Safari/537.36",
            "Chromium 156",
        ),
        ("Mozilla/5.0 (Macintosh) AppleWebKit/605 Version/26.1 Safari/605.1.15", "Safari 26"),
        ("Mozilla/5.0 (X11; rv:153.0) Gecko/20100101 Firefox/153.0", "Firefox 153"),
        ("curl/8", "unknown browser"),
    ],
)
def test_browsers_are_told_apart_by_their_major_version(agent: str, named: str) -> None:
    assert host.browser_version(agent) == named


@pytest.mark.parametrize("worker", [False, True])
def test_a_wheel_that_does_not_load_is_named_at_once(open_page: Fresh, worker: bool) -> None:
    with pytest.raises(HostUnavailable, match=r"nowhere-1\.0-py3-none-any\.whl"):
        open_page(worker=worker, wheels=("/wheels/nowhere-1.0-py3-none-any.whl",))
