#!/usr/bin/env python3
"""The project's chores, one word each. Standard library only; never imports webtune.

Every chore sets up what it needs inside the checkout (`.venv`, `.build`), and remembers it in
stamps, so that a second run starts at once.
"""

from __future__ import annotations

import argparse
import contextlib
import email
import email.message
import functools
import hashlib
import http.server
import json
import modulefinder
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent
PINNED = ROOT / "requirements"
VENV = ROOT / ".venv"
WORK = ROOT / ".build"
DIST = ROOT / "dist"
PINS = {
    "run": ("run.txt",),
    "wheel": ("run.txt", "wheel.txt"),
    "test": ("run.txt", "wheel.txt", "test.txt"),
}
"""What each level of set-up installs, of the files in requirements/."""


# ---- helpers ------------------------------------------------------------------------------------


class ChoreError(Exception):
    """Ends a chore with one sentence for the person at the keyboard."""


def say(text: str) -> None:
    """One line of progress, apart from what the chore itself prints."""
    print(f"[build] {text}", file=sys.stderr, flush=True)


def run(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    quiet: bool = False,
    check: bool = True,
) -> int:
    """Run a command; its exit status. With `check`, a failure stops the chore. With `quiet`,
    its output is shown only when it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        errors="replace",
    )
    if done.returncode and quiet:
        print(done.stdout, file=sys.stderr)
    if done.returncode and check:
        raise ChoreError(f"`{' '.join(words)}` failed with exit status {done.returncode}")
    return done.returncode


def venv_tool(name: str) -> Path:
    """A program of the checkout's virtual environment."""
    if os.name == "nt":
        return VENV / "Scripts" / f"{name}.exe"
    return VENV / "bin" / name


def digest(*texts: str | bytes) -> str:
    """A short fingerprint of what a stamp stands for."""
    whole = hashlib.sha256()
    for text in texts:
        whole.update(text.encode() if isinstance(text, str) else text)
        whole.update(b"\0")
    return whole.hexdigest()[:24]


def stamped(name: str, value: str) -> bool:
    """True when the stamp says that this was done for this very value."""
    path = WORK / f"{name}.stamp"
    return path.is_file() and path.read_text() == value


def stamp(name: str, value: str) -> None:
    """Remember that something is done; only ever called after it worked."""
    WORK.mkdir(exist_ok=True)
    (WORK / f"{name}.stamp").write_text(value)


def unstamp(*names: str) -> None:
    """Have it done again next time."""
    for name in names:
        (WORK / f"{name}.stamp").unlink(missing_ok=True)


def may_apt() -> bool:
    """True where Debian packages can be installed without asking anyone."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return root and shutil.which("apt-get") is not None


def apt(*packages: str) -> None:
    """Install Debian packages. Only where `may_apt`."""
    say(f"apt-get install {' '.join(packages)}")
    apt_get = functools.partial(run, "apt-get", env={"DEBIAN_FRONTEND": "noninteractive"})
    apt_get("update", "-qq", quiet=True)
    apt_get("install", "-y", "-qq", "--no-install-recommends", *packages, quiet=True)


# ---- setting up ---------------------------------------------------------------------------------


def ensure_venv() -> None:
    """A virtual environment with pip, made once for this interpreter."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    mark = digest(version, str(ROOT))
    if stamped("venv", mark) and venv_tool("python").exists():
        return
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        if not may_apt():
            raise ChoreError(f"Python has no ensurepip: install python{version}-venv") from None
        apt(f"python{version}-venv")
    say(f"virtual environment in {VENV.name}")
    unstamp(*(f"pins-{level}" for level in PINS))
    run(sys.executable, "-m", "venv", "--clear", VENV, quiet=True)
    stamp("venv", mark)


def pip_install(*words: str | Path) -> None:
    """What is pinned, into the virtual environment; nothing is resolved."""
    pip = ("-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-deps")
    run(venv_tool("python"), *pip, *words, quiet=True)


def ensure_pins(level: str) -> None:
    """The pinned packages of a level of `PINS`, and the checkout itself, installed."""
    files = [PINNED / name for name in PINS[level]]
    mark = digest(*(file.read_bytes() for file in files), (ROOT / "pyproject.toml").read_bytes())
    if stamped(f"pins-{level}", mark):
        return
    say(f"installing the pinned packages ({', '.join(file.name for file in files)})")
    pip_install(*(word for file in files for word in ("-r", file)))
    pip_install("--no-build-isolation", "-e", ROOT)
    stamp(f"pins-{level}", mark)


def setup(level: str = "run") -> None:
    """Everything that running (or testing) needs on this machine."""
    ensure_venv()
    ensure_pins(level)
    ensure_adapter()


# ---- adapters -----------------------------------------------------------------------------------

LAVAPIPE = ("libvulkan1", "mesa-vulkan-drivers")
"""The Debian packages of the software adapter that can do most: it has timestamps and subgroups."""
DRIVER_VARIABLES = (
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
)
"""With these a person chooses among the installed Vulkan drivers, or hides them all."""
ADAPTER_PROBE = """
import json, wgpu
from wgpu.utils.compute import compute_with_buffers
code = '''@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  y[id.x] = id.x + 1u;
}'''
got = compute_with_buffers({}, {0: (4, "I")}, code, n=1)[0].tolist()
assert got == [1, 2, 3, 4], got
chosen = wgpu.gpu.request_adapter_sync()
every = [chosen, *wgpu.gpu.enumerate_adapters_sync()]
print(json.dumps([[a.summary, a.info["adapter_type"], a.info["backend_type"]] for a in every]))
"""


class Adapter(NamedTuple):
    """What wgpu says of an adapter."""

    summary: str
    kind: str
    over: str

    @property
    def software(self) -> bool:
        """It computes on the processor."""
        return self.kind == "CPU"


def adapters() -> list[Adapter]:
    """The adapter that WebGPU takes here, then all that there are; none where adding up four
    numbers fails. Tried in a process of its own: a broken driver may take the process down."""
    probe = [str(venv_tool("python")), "-c", ADAPTER_PROBE]
    try:
        done = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return []
    if done.returncode:
        return []
    return [Adapter(*words) for words in json.loads(done.stdout.splitlines()[-1])]


def serve_well(found: Sequence[Adapter]) -> bool:
    """True unless all there is is software over OpenGL, which lacks subgroups."""
    return any(not adapter.software or adapter.over != "OpenGL" for adapter in found)


def ensure_adapter() -> None:
    """An adapter that computes: a GPU's, else the software adapter that can do most, through apt
    where that may be. Vulkan drivers that a person has hidden stay hidden."""
    hidden = [name for name in DRIVER_VARIABLES if name in os.environ]
    if not hidden and stamped("adapter", "serves well"):
        return
    found = adapters()
    if not serve_well(found) and not hidden and may_apt():
        have = found[0].summary if found else "no adapter that computes"
        say(f"{have}: the software Vulkan driver can do more")
        try:
            apt(*LAVAPIPE)
            found = adapters()
        except ChoreError as error:
            say(str(error))
    better = f"apt-get install {' '.join(LAVAPIPE)}"
    if not found:
        raise ChoreError(
            "no WebGPU adapter computes on this machine: install the driver of its GPU, or a "
            f"software Vulkan driver (on Debian and Ubuntu: {better})"
            + (f"; {', '.join(hidden)} may hide one" if hidden else "")
        )
    software = ", in software: no GPU here has a driver" if found[0].software else ""
    say(f"adapter: {found[0].summary}{software}")
    if hidden:
        say(f"{', '.join(hidden)} is set: the Vulkan drivers are left as they are")
    elif serve_well(found):
        stamp("adapter", "serves well")
    else:
        say(f"this adapter has no subgroups; one that has (on Debian and Ubuntu): {better}")


# ---- browser: Chromium, Pyodide -----------------------------------------------------------------

NODE_MODULES = WORK / "node_modules"
"""The pinned packages of requirements/package.json: Pyodide's releases."""


def ensure_chromium() -> None:
    """A Chromium that the browser tests can start: one that is named, the system's, or
    Playwright's own."""
    mark = digest((PINNED / "test.txt").read_bytes())
    named = os.environ.get("WEBTUNE_TEST_CHROMIUM")
    if named or shutil.which("chromium") or stamped("chromium", mark):
        return
    # Ubuntu's package only points to a snap, which containers lack.
    if may_apt() and platform.freedesktop_os_release()["ID"] == "debian":
        apt("chromium")
        return
    say("Playwright fetches its Chromium")
    with_deps = ["--with-deps"] if may_apt() else []
    run(venv_tool("python"), "-m", "playwright", "install", *with_deps, "chromium", quiet=True)
    stamp("chromium", mark)


def ensure_pyodide() -> None:
    """Pyodide's pinned releases in `NODE_MODULES`, fetched and verified by npm."""
    pins = [PINNED / "package.json", PINNED / "package-lock.json"]
    mark = digest(*(file.read_bytes() for file in pins))
    if stamped("npm", mark) and NODE_MODULES.is_dir():
        return
    npm: str | Path | None = shutil.which("npm")
    if npm is None:
        say("installing Node.js with npm (npm.txt)")
        pip_install("-r", PINNED / "npm.txt")
        npm = venv_tool("npm")
    say("npm fetches Pyodide")
    for file in pins:
        shutil.copy(file, WORK)
    run(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=WORK, quiet=True)
    stamp("npm", mark)


# ---- wheels -------------------------------------------------------------------------------------

IN_PAGES = "webtune.hosts.browser"
"""What this module imports, directly or through others, is all of webtune that a page uses …"""
NOT_IN_PAGES = "webtune.hosts.native"
"""… but for this one, which only other Pythons come to."""
SHORTEN = (
    "--remove-literal-statements",
    "--no-combine-imports",
    "--no-constant-folding",
    "--no-convert-posargs-to-args",
    "--no-hoist-literals",
    "--no-remove-annotations",
    "--no-remove-builtin-exception-brackets",
    "--no-remove-dead-branches",
    "--no-remove-explicit-return-none",
    "--no-remove-object-base",
    "--no-rename-locals",
)
"""For `pyminify`: comments, docstrings and spaces go, all else stays as it is written."""


class Wheels(NamedTuple):
    """What a build leaves in dist/."""

    full: Path
    """All of webtune, for `pip install`."""
    pages: tuple[Path, ...]
    """For `pyodide.loadPackage`: what every page uses, and the bundled kernels."""


def build_wheels() -> Wheels:
    """All wheels, fresh in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(venv_tool("python"), "-m", "hatchling", "build", "-t", "wheel", "-d", DIST, quiet=True)
    (full,) = DIST.glob("webtune-*-py3-none-any.whl")
    tree = unpack_wheel(full, WORK / "full")
    package = tree / "webtune"
    used = modules_used_in_pages(tree)
    common = [path for path in files_in(package) if path in used or is_data_beside(path, used)]
    bundled = files_in(package / "bundled")
    pages = (page_wheel("webtune", tree, common), page_wheel("webtune_bundled", tree, bundled))
    return Wheels(full, pages)


def files_in(folder: Path) -> list[Path]:
    """All files in a folder and in those inside it."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def modules_used_in_pages(tree: Path) -> set[Path]:
    """The files of all modules that `IN_PAGES` comes to."""
    finder = modulefinder.ModuleFinder(path=[str(tree)], excludes=[NOT_IN_PAGES])
    finder.import_hook(IN_PAGES)
    files = (getattr(module, "__file__", None) for module in finder.modules.values())
    return {Path(file) for file in files if file}


def is_data_beside(path: Path, modules: set[Path]) -> bool:
    """True for JavaScript and other data in the folder of a package that is used."""
    return path.suffix != ".py" and path.with_name("__init__.py") in modules


def page_wheel(name: str, tree: Path, files: Sequence[Path]) -> Path:
    """A wheel in dist/page of some files of an unpacked wheel, its Python shortened."""
    stage = WORK / "page" / name
    shutil.rmtree(stage, ignore_errors=True)
    (old,) = tree.glob("webtune-*.dist-info")
    info = stage / old.name.replace("webtune", name, 1)
    for path in files:
        target = stage / path.relative_to(tree)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copytree(old / "licenses", info / "licenses")
    shutil.copyfile(old / "WHEEL", info / "WHEEL")
    about = email.message_from_bytes((old / "METADATA").read_bytes())
    (info / "METADATA").write_text(str(page_metadata(about, name)))
    run(venv_tool("pyminify"), "--in-place", *SHORTEN, stage / "webtune", quiet=True)
    if (stage / "webtune" / "__init__.py").exists():
        gather_modules(stage / "webtune")
    target = DIST / "page"
    target.mkdir(exist_ok=True)
    run(venv_tool("wheel"), "pack", "--dest-dir", target, stage, quiet=True)
    (wheel,) = target.glob(f"{name}-*-py3-none-any.whl")
    return wheel


def gather_modules(package: Path) -> None:
    """Put all of a package but its `__init__.py` into one archive beside that, from which Python
    imports as from a folder. Modules compress together to two thirds of what each takes alone."""
    first = package / "__init__.py"
    with zipfile.ZipFile(package / "modules.zip", "w", zipfile.ZIP_STORED) as archive:
        for path in files_in(package):
            if path not in (first, package / "modules.zip"):
                archive.write(path, path.relative_to(package))
                path.unlink()
    first.write_text(f'__path__.append(__path__[0] + "/modules.zip")\n{first.read_text()}')


def page_metadata(about: email.message.Message, name: str) -> email.message.Message:
    """The metadata of a page's wheel: without the long description and the extras."""
    for header in ("Requires-Dist", "Provides-Extra", "Description-Content-Type"):
        del about[header]
    if name != about["Name"]:
        about["Requires-Dist"] = f"{about['Name']}=={about['Version']}"
        about.replace_header("Name", name.replace("_", "-"))
    about.set_payload("")
    return about


def unpack_wheel(wheel: Path, folder: Path) -> Path:
    """A folder that holds what an installed wheel holds, for PYTHONPATH."""
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


# ---- site ---------------------------------------------------------------------------------------

SITE = WORK / "site"
RUNTIME_FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)


def build_site(wheels: Sequence[Path]) -> Path:
    """A static folder with the page, the wheels and Pyodide: all that it needs, no other host."""
    ensure_pyodide()
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(ROOT / "web", SITE, ignore=shutil.ignore_patterns("__pycache__"))
    (SITE / "pyodide").mkdir()
    for name in RUNTIME_FILES:
        shutil.copyfile(NODE_MODULES / "pyodide" / name, SITE / "pyodide" / name)
    for wheel in wheels:
        shutil.copyfile(wheel, SITE / wheel.name)
    (SITE / "site.json").write_text(json.dumps({"wheels": [wheel.name for wheel in wheels]}))
    return SITE


class SiteHandler(http.server.SimpleHTTPRequestHandler):
    """Files with the types that a browser asks of modules (whatever this machine's registry says)
    and cross-origin isolation, which sharpens the page's clock from 100 µs to 5 µs."""

    extensions_map = {  # noqa: RUF012 (as the base class has it)
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *words: object) -> None:
        """Nothing: the terminal belongs to the chore."""


def site_server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server of a static folder on localhost."""
    handler = functools.partial(SiteHandler, directory=str(folder))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


# ---- chores -------------------------------------------------------------------------------------


def chore_setup(options: argparse.Namespace) -> int:
    """make .venv, install the pinned packages and, if needed and allowed, a software driver"""
    setup("test" if options.test else "run")
    return 0


def chore_tune(options: argparse.Namespace) -> int:
    """tune the bundled kernels on the best adapter (further words go to `webtune tune`)"""
    setup()
    status = run(venv_tool("python"), "-m", "webtune", "tune", *options.words, check=False)
    if status:
        unstamp("adapter")  # the driver may have gone since: look again next time
    return status


def gate() -> list[str]:
    """Style and types over the whole; the names of what failed."""
    commands = {
        "ruff check": ("ruff", "check", "--quiet", "."),
        "ruff format": ("ruff", "format", "--check", "--quiet", "."),
        "mypy": ("mypy",),
        "oxlint": ("oxlint", "--deny-warnings"),
    }
    return [
        name
        for name, (tool, *words) in commands.items()
        if run(venv_tool(tool), *words, check=False)
    ]


def pytest(*words: str, env: Mapping[str, str] | None = None) -> int:
    """pytest without the checkout on the path of imports, so that `env` decides what is tested."""
    return run(venv_tool("python"), "-P", "-m", "pytest", *words, env=env, check=False)


def chore_check(options: argparse.Namespace) -> int:
    """style, strict types, and the tests of the architecture (further words go to pytest)"""
    setup("test")
    failed = gate()
    if pytest("-q", "tests/architecture", *options.words):
        failed.append("architecture")
    print(f"check: {'failed: ' + ', '.join(failed) if failed else 'good'}")
    return 1 if failed else 0


def chore_test(options: argparse.Namespace) -> int:
    """style, types, every test against the built wheels (further words go to pytest)"""
    setup("test")
    ensure_chromium()
    ensure_pyodide()
    failed = gate()
    wheels = build_wheels()
    tell_sizes(wheels)
    installed = unpack_wheel(wheels.full, WORK / "installed")
    env = {
        "PYTHONPATH": str(installed),
        "PYTHONSAFEPATH": "1",
        "WEBTUNE_TEST_EXPECT_AT": str(installed),
        "WEBTUNE_TEST_WHEELS": str(DIST),
    }
    if pytest("-q", *options.words, env=env):
        failed.append("pytest")
    say(f"failed: {', '.join(failed)}" if failed else "all good")
    return 1 if failed else 0


def tell_sizes(wheels: Wheels) -> None:
    """A line for each wheel."""
    for wheel in (wheels.full, *wheels.pages):
        print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size:,} bytes", flush=True)


def chore_wheel(options: argparse.Namespace) -> int:
    """build the wheels in dist/: one for pip, and in dist/page those that pages load"""
    ensure_venv()
    ensure_pins("wheel")
    tell_sizes(build_wheels())
    return 0


def chore_site(options: argparse.Namespace) -> int:
    """build .build/site, a static folder with the tuning lab that works without a network"""
    ensure_venv()
    ensure_pins("wheel")
    site = build_site(build_wheels().pages)
    total = sum(file.stat().st_size for file in files_in(site))
    print(f"{site.relative_to(ROOT)}  {total:,} bytes")
    return 0


def chore_serve(options: argparse.Namespace) -> int:
    """build the site and serve it on localhost"""
    chore_site(options)
    try:
        server = site_server(SITE, options.port)
    except (OSError, OverflowError) as error:
        raise ChoreError(f"{error}: name another port, as in `build.py serve 8001`") from error
    print(f"http://localhost:{server.server_port}/  (Ctrl-C ends it)", flush=True)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


def chore_clean(options: argparse.Namespace) -> int:
    """remove .venv, .build, dist and the caches of the tools"""
    caches = [ROOT / name for name in (".pytest_cache", ".mypy_cache", ".ruff_cache")]
    for folder in (VENV, WORK, DIST, *caches):
        shutil.rmtree(folder, ignore_errors=True)
    return 0


# ---- command line -------------------------------------------------------------------------------

CHORES: dict[str, Callable[[argparse.Namespace], int]] = {
    "setup": chore_setup,
    "tune": chore_tune,
    "test": chore_test,
    "check": chore_check,
    "wheel": chore_wheel,
    "site": chore_site,
    "serve": chore_serve,
    "clean": chore_clean,
}
PASSING_WORDS_ON = ("tune", "test", "check")


def command_line() -> argparse.ArgumentParser:
    """The chores with their options."""
    parser = argparse.ArgumentParser(prog="build.py", description=__doc__)
    chores = parser.add_subparsers(dest="chore", metavar="CHORE", required=True)
    add: dict[str, Any] = {
        name: chores.add_parser(
            name, help=chore.__doc__, description=chore.__doc__, allow_abbrev=False
        )
        for name, chore in CHORES.items()
    }
    add["setup"].add_argument("--test", action="store_true", help="what the gate needs, too")
    add["serve"].add_argument(
        "port", nargs="?", type=int, default=8000, help="0 takes a free one (default: 8000)"
    )
    return parser


def main(words: Sequence[str]) -> int:
    """Run one chore; its exit status. 2 for words that are none."""
    if sys.version_info < (3, 11):  # noqa: UP036 (whoever runs this may have an older one)
        have = ".".join(map(str, sys.version_info[:2]))
        print(f"[build] webtune needs Python 3.11 or newer, this is {have}", file=sys.stderr)
        return 2
    parser = command_line()
    if not words:
        parser.print_help()
        return 2
    options, further = parser.parse_known_args(words)
    options.words = further
    if further and options.chore not in PASSING_WORDS_ON:
        parser.error(f"{options.chore} takes no {' '.join(further)}")
    try:
        return CHORES[options.chore](options)
    except ChoreError as stop:
        print(f"[build] {stop}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
