#!/usr/bin/env python3
"""The project's chores, one word each. Standard library only; never imports webtune.

Every chore does its own setting up inside the checkout (`.venv`, `.build`) and remembers it in
stamps, so that a second run starts at once.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
WORK = ROOT / ".build"
DIST = ROOT / "dist"
PINS = {"run": ("run.txt",), "test": ("run.txt", "test.txt")}
PYODIDE = {
    "314.0.8": "9a52704e0ae5b07aaacb8e4fed9f1658e8024694a078695ea45ac79dee4cefcb",
    "0.27.7": "89d5d952675eb08e11286e52c7238f1248ce71726e896db9703e73bef23dc343",
}
"""Pyodide's npm packages by version, with the SHA-256 of each tarball."""

ADAPTER_PROBE = """
import wgpu
from wgpu.utils.compute import compute_with_buffers
code = '''@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  y[id.x] = id.x + 1u;
}'''
got = compute_with_buffers({}, {0: (4, "I")}, code, n=1)[0].tolist()
assert got == [1, 2, 3, 4], got
print(wgpu.gpu.request_adapter_sync().summary)
"""


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


def unstamp(name: str) -> None:
    """Have it done again next time."""
    (WORK / f"{name}.stamp").unlink(missing_ok=True)


def may_apt() -> bool:
    """True where packages can be installed without asking anyone."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return root and shutil.which("apt-get") is not None


def apt(*packages: str) -> None:
    """Install Debian packages. Only where `may_apt`."""
    say(f"apt-get install {' '.join(packages)}")
    quietly = {"DEBIAN_FRONTEND": "noninteractive"}
    if not stamped("apt-update", "done"):
        run("apt-get", "update", "-qq", env=quietly, quiet=True)
        stamp("apt-update", "done")
    run(
        "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages,
        env=quietly, quiet=True,
    )  # fmt: skip


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
    unstamp("pins-run")
    unstamp("pins-test")
    run(sys.executable, "-m", "venv", "--clear", VENV, quiet=True)
    stamp("venv", mark)


def ensure_pins(level: str) -> None:
    """The pinned packages of a level ("run" or "test"), and the checkout itself, installed."""
    files = [ROOT / "requirements" / name for name in PINS[level]]
    mark = digest(*(file.read_bytes() for file in files), (ROOT / "pyproject.toml").read_bytes())
    if stamped(f"pins-{level}", mark):
        return
    say(f"installing the pinned packages ({', '.join(file.name for file in files)})")
    pip = ["-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-deps"]
    listed = [word for file in files for word in ("-r", str(file))]
    run(venv_tool("python"), *pip, *listed, quiet=True)
    run(venv_tool("python"), *pip, "--no-build-isolation", "-e", ROOT, quiet=True)
    stamp(f"pins-{level}", mark)


def adapter_computes() -> bool:
    """True when WebGPU adds up four numbers here, tried in a process of its own: a broken driver
    may take the process down."""
    probe = [str(venv_tool("python")), "-c", ADAPTER_PROBE]
    try:
        done = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode == 0:
        say(f"adapter: {done.stdout.strip()}")
    return done.returncode == 0


def ensure_adapter() -> None:
    """An adapter that computes; a software one through apt where nothing else does."""
    if stamped("adapter", "computes"):
        return
    if not adapter_computes():
        packages = ("libvulkan1", "mesa-vulkan-drivers")
        advice = (
            "no WebGPU adapter computes on this machine: install the driver of its GPU, or a "
            f"software Vulkan driver (on Debian and Ubuntu: apt-get install {' '.join(packages)})"
        )
        if not may_apt():
            raise ChoreError(advice)
        apt(*packages)
        if not adapter_computes():
            raise ChoreError(advice)
    stamp("adapter", "computes")


def setup(level: str = "run") -> None:
    """Everything that running (or testing) needs on this machine."""
    ensure_venv()
    ensure_pins(level)
    ensure_adapter()


# ---- browser: Chromium, Pyodide -----------------------------------------------------------------


def is_debian() -> bool:
    """Debian proper: Ubuntu's chromium package only points to a snap, which containers lack."""
    try:
        return "\nID=debian\n" in "\n" + Path("/etc/os-release").read_text()
    except OSError:
        return False


def playwright_has_chromium() -> bool:
    """True when Playwright's own Chromium is there."""
    code = (
        "import sys, pathlib; from playwright.sync_api import sync_playwright as p\n"
        "with p() as x: sys.exit(not pathlib.Path(x.chromium.executable_path).exists())"
    )
    done = subprocess.run([str(venv_tool("python")), "-c", code], cwd=ROOT, capture_output=True)
    return done.returncode == 0


def ensure_chromium() -> None:
    """A Chromium that the browser tests can start: the system's, or Playwright's own."""
    if shutil.which("chromium") or stamped("chromium", "playwright"):
        return
    if not playwright_has_chromium():
        if may_apt() and is_debian():
            apt("chromium")
            return
        say("Playwright fetches its Chromium")
        extra = ["--with-deps"] if may_apt() else []
        run(venv_tool("python"), "-m", "playwright", "install", *extra, "chromium", quiet=True)
    stamp("chromium", "playwright")


def pyodide(version: str) -> Path:
    """The folder with Pyodide's runtime (pyodide.mjs, the lock file …) at a pinned version."""
    folder = WORK / "pyodide" / version
    if stamped(f"pyodide-{version}", PYODIDE[version]) and folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        if not may_apt():
            raise ChoreError("npm fetches Pyodide for the browser: install Node.js with npm")
        apt("npm")
        npm = shutil.which("npm") or "npm"
    say(f"fetching Pyodide {version}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run(npm, "pack", "--silent", f"pyodide@{version}", cwd=folder.parent, quiet=True)
    tarball = folder.parent / f"pyodide-{version}.tgz"
    got = hashlib.sha256(tarball.read_bytes()).hexdigest()
    if got != PYODIDE[version]:
        raise ChoreError(f"{tarball.name} has SHA-256 {got}, not the pinned {PYODIDE[version]}")
    unpack(tarball, folder)
    stamp(f"pyodide-{version}", PYODIDE[version])
    return folder


def unpack(tarball: Path, folder: Path) -> None:
    """The files of an npm tarball, without its leading `package/`, flat names only."""
    with tarfile.open(tarball) as tar:
        for member in tar:
            source = tar.extractfile(member) if member.isfile() else None
            name = Path(*Path(member.name).parts[1:])
            if source is None or ".." in name.parts or name.is_absolute():
                continue
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read())


# ---- wheel --------------------------------------------------------------------------------------


def build_wheel() -> Path:
    """The pure wheel, fresh in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(venv_tool("python"), "-m", "hatchling", "build", "-t", "wheel", "-d", DIST, quiet=True)
    (wheel,) = DIST.glob("webtune-*-py3-none-any.whl")
    return wheel


def unpack_wheel(wheel: Path) -> Path:
    """A folder that holds what an installed wheel holds, for PYTHONPATH."""
    folder = WORK / "installed"
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


# ---- site ---------------------------------------------------------------------------------------

SITE = WORK / "site"
SITE_PYODIDE = "314.0.8"
RUNTIME_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
RUNTIME_LOCK = "pyodide-lock.json"
MIME = {
    ".wasm": "application/wasm",
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".whl": "application/zip",
    ".json": "application/json",
    ".py": "text/x-python",
}
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
"""They sharpen the page's clock from 100 µs to 5 µs, and cost a page of one origin nothing."""


def build_site(wheel: Path) -> Path:
    """A static folder with the page, the wheel and Pyodide: all that it needs, no other host."""
    runtime = pyodide(SITE_PYODIDE)
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(ROOT / "web", SITE, ignore=shutil.ignore_patterns("__pycache__"))
    (SITE / "pyodide").mkdir()
    for name in (*RUNTIME_FILES, RUNTIME_LOCK):
        shutil.copyfile(runtime / name, SITE / "pyodide" / name)
    shutil.copyfile(wheel, SITE / wheel.name)
    about = {"wheel": wheel.name, "pyodide": SITE_PYODIDE}
    (SITE / "site.json").write_text(json.dumps(about))
    return SITE


def site_server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server of a static folder on localhost, with the types and headers that the page needs."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def guess_type(self, path: str | os.PathLike[str]) -> str:
            return MIME.get(Path(path).suffix) or super().guess_type(path)

        def end_headers(self) -> None:
            for name, value in ISOLATION.items():
                self.send_header(name, value)
            self.send_header("Cache-Control", "no-cache")
            super().end_headers()

        def log_message(self, *words: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


# ---- chores -------------------------------------------------------------------------------------


def chore_setup(words: Sequence[str]) -> int:
    """make .venv, install the pinned packages and, if needed and allowed, a software driver"""
    setup("test" if "--test" in words else "run")
    return 0


def chore_tune(words: Sequence[str]) -> int:
    """tune the bundled kernels on the best adapter (words go to `webtune tune`)"""
    setup()
    status = run(venv_tool("python"), "-m", "webtune", "tune", *words, check=False)
    if status:
        unstamp("adapter")  # the driver may have gone since: look again next time
    return status


def gate() -> list[str]:
    """Style and types over the whole; the names of what failed."""
    commands = {
        "ruff check": ("ruff", "check", "--quiet", "."),
        "ruff format": ("ruff", "format", "--check", "--quiet", "."),
        "mypy": ("mypy",),
    }
    return [
        name
        for name, (tool, *words) in commands.items()
        if run(venv_tool(tool), *words, check=False)
    ]


def pytest(*words: str, env: Mapping[str, str] | None = None) -> int:
    """pytest without the checkout on the path of imports, so that `env` decides what is tested."""
    return run(venv_tool("python"), "-P", "-m", "pytest", *words, env=env, check=False)


def chore_check(words: Sequence[str]) -> int:
    """the gate: ruff, strict types, and the tests of the architecture"""
    setup("test")
    failed = gate()
    if pytest("-q", "tests/architecture", *words):
        failed.append("architecture")
    print(f"check: {'failed: ' + ', '.join(failed) if failed else 'good'}")
    return 1 if failed else 0


def chore_test(words: Sequence[str]) -> int:
    """the gate, then every test against the built wheel (words go to pytest)"""
    setup("test")
    ensure_chromium()
    for version in PYODIDE:
        pyodide(version)
    failed = gate()
    wheel = build_wheel()
    installed = unpack_wheel(wheel)
    say(f"testing {wheel.name}, {wheel.stat().st_size:,} bytes")
    env = {
        "PYTHONPATH": str(installed),
        "PYTHONSAFEPATH": "1",
        "WEBTUNE_TEST_EXPECT_AT": str(installed),
    }
    if pytest("-q", *words, env=env):
        failed.append("pytest")
    say(f"failed: {', '.join(failed)}" if failed else "all good")
    return 1 if failed else 0


def chore_wheel(words: Sequence[str]) -> int:
    """build dist/webtune-*-py3-none-any.whl"""
    ensure_venv()
    ensure_pins("run")
    wheel = build_wheel()
    print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size:,} bytes")
    return 0


def chore_site(words: Sequence[str]) -> int:
    """build .build/site, a static folder with the tuning lab that works without a network"""
    ensure_venv()
    ensure_pins("run")
    site = build_site(build_wheel())
    total = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    print(f"{site.relative_to(ROOT)}  {total:,} bytes, Pyodide {SITE_PYODIDE}")
    return 0


def chore_serve(words: Sequence[str]) -> int:
    """serve the tuning lab on localhost (a word is the port, else 8000)"""
    if words and not words[0].isdecimal():
        raise ChoreError(f"{words[0]!r} is no port: python3 build.py serve 8000")
    ensure_venv()
    ensure_pins("run")
    site = build_site(build_wheel())
    try:
        server = site_server(site, int(words[0]) if words else 8000)
    except OSError as error:
        raise ChoreError(f"{error}: name another port, as in `build.py serve 8001`") from error
    print(f"http://localhost:{server.server_port}/  (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    return 0


def chore_clean(words: Sequence[str]) -> int:
    """remove .venv, .build, dist and the caches of the tools"""
    caches = [ROOT / name for name in (".pytest_cache", ".mypy_cache", ".ruff_cache")]
    for folder in (VENV, WORK, DIST, *caches):
        shutil.rmtree(folder, ignore_errors=True)
    return 0


CHORES: dict[str, Callable[[Sequence[str]], int]] = {
    "setup": chore_setup,
    "tune": chore_tune,
    "test": chore_test,
    "check": chore_check,
    "wheel": chore_wheel,
    "site": chore_site,
    "serve": chore_serve,
    "clean": chore_clean,
}


def main(words: Sequence[str]) -> int:
    """Run one chore; its exit status. 2 for a word that is none."""
    if sys.version_info < (3, 11):  # noqa: UP036 (whoever runs this may have an older one)
        have = ".".join(map(str, sys.version_info[:2]))
        print(f"[build] webtune needs Python 3.11 or newer, this is {have}", file=sys.stderr)
        return 2
    if not words or words[0] not in CHORES:
        print("usage: python3 build.py CHORE [WORDS …]\n")
        for name, chore in CHORES.items():
            print(f"  {name:<8}{chore.__doc__}")
        return 0 if words and words[0] in {"-h", "--help", "help"} else 2
    try:
        return CHORES[words[0]](words[1:])
    except ChoreError as stop:
        print(f"[build] {stop}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
