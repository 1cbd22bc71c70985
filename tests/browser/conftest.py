"""One Chromium for all browser tests, and one page for each version of Pyodide and kind of thread.

Pages are shared, since loading Pyodide takes seconds; a test opens its own device and leaves the
page as it found it. What cannot be shared asks for `fresh`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from webtune.testing.browser import PythonPage, chromium, open_python, pack_webtune, serve

ROOT = Path(__file__).resolve().parents[2]
RUNTIMES = ROOT / ".build" / "node_modules"
NEW, OLD = "314.0.8", "0.27.7"
PACKAGES = {NEW: "pyodide", OLD: "pyodide-oldest"}
"""Pyodide's releases by version: where requirements/package.json puts them."""
PLACES = {
    "314 main": (NEW, False),
    "314 worker": (NEW, True),
    "0.27 main": (OLD, False),
    "0.27 worker": (OLD, True),
}
NUMPY = "numpy-2.0.2-cp312-cp312-pyodide_2024_0_wasm32.whl"
NUMPY_URL = f"https://cdn.jsdelivr.net/pyodide/v{OLD}/full/{NUMPY}"


@pytest.fixture(scope="package")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages load besides Pyodide: the built wheels for pages where there are some, else
    one with all of the webtune under test."""
    folder = tmp_path_factory.mktemp("wheels")
    built = os.environ.get("WEBTUNE_TEST_WHEELS")
    if built:
        shutil.copytree(Path(built, "page"), folder, dirs_exist_ok=True)
    else:
        pack_webtune(folder)
    return folder


@pytest.fixture(scope="package")
def own_wheels(files: Path) -> list[str]:
    """The paths of webtune's wheels, as pages load them."""
    return [f"/wheels/{path.name}" for path in sorted(files.glob("webtune*.whl"))]


@pytest.fixture(scope="package")
def origin(files: Path) -> Iterator[str]:
    for name in PACKAGES.values():
        if not (RUNTIMES / name / "pyodide.mjs").is_file():
            pytest.fail(f"{name} is not in {RUNTIMES}: run `python3 build.py test`")
    with serve({"pyodide": RUNTIMES, "wheels": files}) as address:
        yield address


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


Fresh = Callable[..., PythonPage]


@pytest.fixture(scope="package")
def open_page(browser: Any, origin: str, own_wheels: list[str]) -> Iterator[Fresh]:
    """Opens a page with Pyodide and webtune. Pages of one `context` share their OPFS."""
    opened: list[Any] = []

    def load(
        version: str = NEW,
        worker: bool = False,
        *,
        context: Any = None,
        wheels: tuple[str, ...] = (),
        prepare: str = "",
    ) -> PythonPage:
        page = (context or browser.new_context()).new_page()
        opened.append(page)
        return open_python(
            page,
            origin,
            runtime=f"/pyodide/{PACKAGES[version]}/",
            wheels=[*wheels, *own_wheels],
            worker=worker,
            prepare=prepare,
        )

    yield load
    for page in opened:
        page.close()


@pytest.fixture(scope="package")
def shared(open_page: Fresh) -> Callable[[str], PythonPage]:
    """The page of a place, loaded when it is first asked for."""
    pages: dict[str, PythonPage] = {}

    def get(place: str) -> PythonPage:
        if place not in pages:
            version, worker = PLACES[place]
            pages[place] = open_page(version, worker)
        return pages[place]

    return get


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, shared: Callable[[str], PythonPage]) -> PythonPage:
    """Every version of Pyodide, on the main thread and in a worker."""
    return shared(request.param)


@pytest.fixture
def main(shared: Callable[[str], PythonPage]) -> PythonPage:
    """The newer Pyodide on the main thread."""
    return shared("314 main")


@pytest.fixture(scope="package")
def numpy_wheel(files: Path) -> str:
    """numpy for the older Pyodide: named, lying beside the checkout, or from Pyodide's CDN."""
    target = files / NUMPY
    named = os.environ.get("WEBTUNE_TEST_NUMPY_WHEEL")
    beside = ROOT.parent / "shared" / "pyodide" / OLD / NUMPY
    kept = RUNTIMES / NUMPY
    for source in [*([Path(named)] if named else []), beside, kept]:
        if source.is_file():
            return offered(source.read_bytes(), target)
    try:
        with urllib.request.urlopen(NUMPY_URL, timeout=60) as answer:
            content = answer.read()
    except OSError as error:
        pytest.fail(
            f"{NUMPY} is needed: put it into {RUNTIMES}, or name it in "
            f"WEBTUNE_TEST_NUMPY_WHEEL; its CDN did not answer ({error})"
        )
    path = offered(content, target)
    kept.write_bytes(content)
    return path


def offered(content: bytes, target: Path) -> str:
    """The wheel among what pages load, if it is the one that Pyodide's lock file names."""
    lock = json.loads((RUNTIMES / PACKAGES[OLD] / "pyodide-lock.json").read_text())
    assert hashlib.sha256(content).hexdigest() == lock["packages"]["numpy"]["sha256"]
    target.write_bytes(content)
    return f"/wheels/{NUMPY}"
