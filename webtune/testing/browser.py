"""For test authors: a Chromium with WebGPU, and Python functions run inside its pages.

Nothing here is needed to tune. A browser without an adapter is a failure, never a skip: a test
that quietly did not compute proves nothing. Needs `playwright` (the `test` extra).
"""

from __future__ import annotations

import functools
import http.server
import inspect
import json
import os
import shutil
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import webtune
from webtune.errors import HostUnavailable, UsageError

CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""What makes a headless Chromium compute on the processor, on any machine, and nothing else."""

_PAGE = "_webtune"
"""Where `serve` shows the page that runs Python functions; its files lie in `page/` beside this."""


class PageError(AssertionError):
    """A function that ran inside a page raised. `kind` is the class's name there."""

    def __init__(self, kind: str, message: str, traceback: str) -> None:
        super().__init__(f"{kind}: {message}\n{traceback}")
        self.kind = kind
        self.message = message


class PythonPage:
    """A page (or its worker) with Pyodide and webtune in it. Made by `open_python`."""

    def __init__(self, page: Any, times_ms: Mapping[str, float]) -> None:
        self.page = page
        self.times_ms = dict(times_ms)
        """How long Pyodide and the packages took to load, in ms."""

    def run(
        self,
        function: Callable[..., Any],
        /,
        *,
        timeout_s: float = 60.0,
        blocking: bool = False,
        **arguments: Any,
    ) -> Any:
        """Run a function inside, alone: its text is sent, so it imports what it uses.

        `arguments` and the answer travel as JSON. It may be `async`; with `blocking` it may not,
        but may wait with `pyodide.ffi.run_sync`. Raises `PageError`, and `UsageError` for what
        cannot be sent: a lambda, or a function without a source file.
        """
        if not inspect.isfunction(function) or function.__name__ == "<lambda>":
            raise UsageError(f"run takes a function that was defined with def, not {function!r}")
        try:
            text = inspect.getsource(function)
        except OSError as error:
            raise UsageError(f"the source of {function!r} cannot be read: {error}") from error
        # Annotations must not be looked up: what they name is not there.
        source = "from __future__ import annotations\n" + textwrap.dedent(text)
        name = function.__name__
        return self.run_source(source, name, timeout_s=timeout_s, blocking=blocking, **arguments)

    def run_source(
        self,
        source: str,
        name: str,
        /,
        *,
        timeout_s: float = 60.0,
        blocking: bool = False,
        **arguments: Any,
    ) -> Any:
        """The same for a text that defines the function `name`."""
        call = [source, name, json.dumps(arguments), round(timeout_s * 1000), blocking]
        answer = json.loads(self.page.evaluate("call => window.inside.call(call)", call))
        if "kind" in answer:
            raise PageError(answer["kind"], answer["message"], answer["traceback"])
        return answer["value"]


def chromium_path() -> str | None:
    """The Chromium to start: WEBTUNE_TEST_CHROMIUM, else the system's, else None for
    Playwright's own."""
    return os.environ.get("WEBTUNE_TEST_CHROMIUM") or shutil.which("chromium")


@contextmanager
def chromium(arguments: Sequence[str] = CHROMIUM_ARGUMENTS) -> Iterator[Any]:
    """A headless Chromium (a Playwright `Browser`) that is ready for WebGPU."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=list(arguments), headless=True
        )
        try:
            yield browser
        finally:
            browser.close()


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Files of several folders by the first part of the path, with the headers Pyodide needs."""

    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".whl": "application/zip",
    }

    def __init__(
        self, *args: Any, folders: Mapping[str, Path], isolated: bool, **more: Any
    ) -> None:
        self.folders = folders
        self.isolated = isolated
        super().__init__(*args, **more)

    def translate_path(self, path: str) -> str:
        plain = super().translate_path(path)
        relative = Path(plain).relative_to(Path(self.directory)).as_posix()
        head, _, rest = relative.partition("/")
        folder = self.folders.get(head)
        return str(folder / rest) if folder is not None else str(self.folders[""] / relative)

    def end_headers(self) -> None:
        if self.isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return


@contextmanager
def serve(folders: Mapping[str, Path], *, isolated: bool = True) -> Iterator[str]:
    """Serve folders on localhost (`{"pyodide": path}` under /pyodide/, `""` for the rest); gives
    the origin. `isolated` sends COOP and COEP, which sharpen the page's clock."""
    rooted = {
        "": Path(os.devnull).parent / "nothing",
        _PAGE: Path(__file__).with_name("page"),
        **folders,
    }
    handler = functools.partial(_Handler, folders=rooted, isolated=isolated)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def pack_webtune(folder: Path) -> Path:
    """A pure wheel of the webtune that is imported here, for `pyodide.loadPackage`."""
    version = webtune.__version__
    package = Path(webtune.__file__).parent
    wheel = folder / f"webtune-{version}-py3-none-any.whl"
    info = f"webtune-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(package.parent).as_posix())
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: webtune\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: webtune\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def open_python(
    page: Any,
    origin: str,
    *,
    runtime: str,
    wheels: Sequence[str],
    worker: bool = False,
    prepare: str = "",
) -> PythonPage:
    """Load Pyodide and wheels into a Playwright page, or into a module worker of it.

    - `origin`: what `serve` gave. The page goes to one that is served there.
    - `runtime`, `wheels`: paths on `origin`; the runtime's folder ends in "/".
    - `worker`: whether Python runs in a worker of the page.
    - `prepare`: JavaScript that runs in the page before Pyodide loads.

    Raises `HostUnavailable` where the page has no adapter, so that a test cannot pass without one,
    and where Pyodide or a wheel does not load.
    """
    page.goto(f"{origin}/{_PAGE}/")
    page.wait_for_function("() => window.inside !== undefined")
    missing = page.evaluate("() => window.inside.missing()")
    if missing:
        raise HostUnavailable(f"this browser cannot compute: {missing}")
    if prepare:
        page.evaluate(prepare)
    options = {"runtime": origin + runtime, "wheels": [origin + wheel for wheel in wheels]}
    try:
        times = page.evaluate(
            "([options, worker]) => window.inside.start(options, worker)", [options, worker]
        )
    except Exception as error:
        raise HostUnavailable(f"Python did not start in the page: {error}") from error
    return PythonPage(page, times)
