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

__all__ = [
    "CHROMIUM_ARGUMENTS",
    "PageError",
    "PythonPage",
    "chromium",
    "chromium_path",
    "open_python",
    "pack_webtune",
    "serve",
]

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

_MIME = {
    ".whl": "application/zip",
    ".wasm": "application/wasm",
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".json": "application/json",
}
_INSIDE = "/_webtune/"
_PAGE = """<!doctype html><meta charset="utf-8"><title>webtune test page</title>
<link rel="icon" href="data:,"><script type="module">
import * as inside from "./inside.mjs"; window.inside = inside;
</script>"""
_SCRIPT = r"""
const HARNESS = `
import importlib, inspect, json, linecache, traceback
_counter = [0]
def _webtune_load(source, name):
    _counter[0] += 1
    filename = f"<test {_counter[0]}>"
    # Python must find the source again: what a kernel's functions say is part of its identity.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    space = {"__name__": "inside"}
    exec(compile(source, filename, "exec"), space)
    return space[name]
def _webtune_failed(error):
    return json.dumps({"kind": type(error).__name__, "message": str(error),
                       "traceback": traceback.format_exc()})
async def _webtune_call(source, name, arguments):
    try:
        value = _webtune_load(source, name)(**json.loads(arguments))
        return json.dumps({"value": await value if inspect.isawaitable(value) else value})
    except BaseException as error:
        return _webtune_failed(error)
def _webtune_block(source, name, arguments):
    try:
        return json.dumps({"value": _webtune_load(source, name)(**json.loads(arguments))})
    except BaseException as error:
        return _webtune_failed(error)
`;
export async function startHere({ runtime, wheels }) {
  const began = performance.now();
  const { loadPyodide } = await import(runtime + "pyodide.mjs");
  const python = await loadPyodide({ indexURL: runtime });
  const loaded = performance.now();
  for (const wheel of wheels) {
    // loadPackage itself goes on without what it could not load.
    const failed = [], errorCallback = message => failed.push(message);
    await python.loadPackage(wheel, { messageCallback: () => {}, errorCallback });
    if (failed.length) throw new Error(`${wheel} did not load: ${failed.join("; ")}`);
  }
  python.runPython(HARNESS);
  const call = python.globals.get("_webtune_call"), block = python.globals.get("_webtune_block");
  const times = { pyodide: loaded - began, packages: performance.now() - loaded };
  return { python, times, call: (source, name, args, blocking) =>
    blocking ? block.callPromising(source, name, args) : call(source, name, args) };
}
export async function start(options, inWorker) {
  if (!inWorker) {
    window.inside_python = await startHere(options);
    return window.inside_python.times;
  }
  const worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" });
  const waiting = new Map(); let last = 0;
  worker.onmessage = ({ data }) => {
    const { done, failed } = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error) failed(new Error(data.error)); else done(data.value);
  };
  worker.onerror = event => {
    for (const { failed } of waiting.values()) failed(new Error(event.message));
  };
  const ask = message => new Promise((done, failed) => {
    waiting.set(++last, { done, failed }); worker.postMessage({ id: last, ...message });
  });
  window.inside_python = { worker, call: (source, name, args, blocking) =>
    ask({ source, name, args, blocking }) };
  return ask({ options });
}
"""
_WORKER = r"""
import { startHere } from "./inside.mjs";
let started = null;
self.onmessage = async ({ data }) => {
  try {
    let value;
    if (data.options) { started = await startHere(data.options); value = started.times; }
    else value = await started.call(data.source, data.name, data.args, data.blocking);
    self.postMessage({ id: data.id, value });
  } catch (error) { self.postMessage({ id: data.id, error: String(error) }); }
};
"""
_CALL = """([source, name, args, ms, blocking]) => Promise.race([
  window.inside_python.call(source, name, args, blocking),
  new Promise((_, late) =>
    setTimeout(() => late(new Error(`${name} did not end in ${ms} ms`)), ms)),
])"""
_ADAPTER = """async () => {
  if (!navigator.gpu) return "no navigator.gpu";
  const adapter = await navigator.gpu.requestAdapter();
  return adapter ? "" : "no adapter";
}"""


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
        answer = json.loads(self.page.evaluate(_CALL, call))
        if "kind" in answer:
            raise PageError(answer["kind"], answer["message"], answer["traceback"])
        return answer["value"]


def chromium_path() -> str | None:
    """The Chromium to start: WEBTUNE_TEST_CHROMIUM, else the system's, else None for
    Playwright's own."""
    named = os.environ.get("WEBTUNE_TEST_CHROMIUM")
    if named:
        return named
    return shutil.which("chromium")


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

    def do_GET(self) -> None:
        inside = {"": _PAGE, "inside.mjs": _SCRIPT, "worker.mjs": _WORKER}
        path = self.path.partition("?")[0]
        if path.startswith(_INSIDE) and path.removeprefix(_INSIDE) in inside:
            name = path.removeprefix(_INSIDE)
            body = inside[name].encode()
            self.send_response(200)
            self.send_header("Content-Type", _MIME.get(Path(name).suffix, "text/html"))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        super().do_GET()

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        return _MIME.get(Path(path).suffix) or super().guess_type(path)

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
    rooted = {"": Path(os.devnull).parent / "nothing", **folders}
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

    `runtime` and `wheels` are paths on `origin` (the runtime's folder ends in "/"). `prepare` is
    JavaScript that runs in the page before Pyodide loads. The page leaves where it is for one of
    `serving`'s own; a page of yours loads Pyodide by itself. Raises `HostUnavailable` where the
    page has no adapter, so that a test cannot pass without one, and where Pyodide or a wheel does
    not load.
    """
    page.goto(origin + _INSIDE)
    page.wait_for_function("() => window.inside !== undefined")
    trouble = page.evaluate(_ADAPTER)
    if trouble:
        raise HostUnavailable(f"this browser cannot compute: {trouble}")
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
