"""build.py: its command line, the adapter that it sets up, and the wheels that it leaves."""

from __future__ import annotations

import ast
import email
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE_LIMIT = 120_000
"""Bytes of the wheel that every page loads."""
Python = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def quiet(chores: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """build.py with stamps of its own and no environment that a person may have set."""
    monkeypatch.setattr(chores, "WORK", tmp_path)
    for name in chores.DRIVER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return chores


# -- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["serve", "--help"], ["test", "-h"]])
def test_help_is_answered(chores: Any, words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        chores.main(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: build.py")


def test_every_chore_has_help_that_says_what_it_does(chores: Any, capsys: Any) -> None:
    for name, chore in chores.CHORES.items():
        with pytest.raises(SystemExit) as ended:
            chores.main([name, "--help"])
        assert ended.value.code == 0
        assert chore.__doc__.split()[0] in capsys.readouterr().out


def test_without_a_chore_all_are_listed(chores: Any, capsys: Any) -> None:
    assert chores.main([]) == 2
    told = capsys.readouterr().out
    assert all(re.search(rf"^ +{name} ", told, re.MULTILINE) for name in chores.CHORES)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["servo"], "'servo' .*'serve'"),
        (["wheel", "now"], "wheel takes no now"),
        (["clean", "--all"], "clean takes no --all"),
        (["serve", "http"], "invalid int value: 'http'"),
    ],
)
def test_words_that_are_none_are_named(
    chores: Any, words: list[str], told: str, capsys: Any
) -> None:
    with pytest.raises(SystemExit) as ended:
        chores.main(words)
    assert ended.value.code == 2
    assert re.search(told, capsys.readouterr().err)


def test_words_after_tune_and_check_go_through(
    chores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(chores, "setup", lambda level="run": None)
    monkeypatch.setattr(chores, "gate", list)

    def run(*words: object, **more: object) -> int:
        commands.append(tuple(map(str, words)))
        return 0

    monkeypatch.setattr(chores, "run", run)
    assert chores.main(["tune", "saxpy", "--json", "--size", "small"]) == 0
    assert commands.pop()[-4:] == ("saxpy", "--json", "--size", "small")
    assert chores.main(["check", "-k", "a and b", "tests/x.py::y", "-x"]) == 0
    assert commands.pop()[-4:] == ("-k", "a and b", "tests/x.py::y", "-x")


def test_an_older_python_is_told_so(
    chores: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(chores.sys, "version_info", (3, 9, 2))
    assert chores.main(["tune"]) == 2
    assert "needs Python 3.11 or newer, this is 3.9" in capsys.readouterr().err


def test_a_failing_command_ends_a_chore_with_one_sentence(quiet: Any, capsys: Any) -> None:
    with pytest.raises(quiet.ChoreError, match="failed with exit status 3"):
        quiet.run(sys.executable, "-c", "print('why'); raise SystemExit(3)", quiet=True)
    assert "why" in capsys.readouterr().err


# -- adapters ------------------------------------------------------------------------------------

GPU = ["Radeon (DiscreteGPU) via Vulkan", "DiscreteGPU", "Vulkan"]
OLD_GPU = ["Intel (IntegratedGPU) via OpenGL", "IntegratedGPU", "OpenGL"]
LAVAPIPE = ["llvmpipe (CPU) via Vulkan", "CPU", "Vulkan"]
LLVMPIPE = ["llvmpipe (CPU) via OpenGL", "CPU", "OpenGL"]


class Machine:
    """What ensure_adapter finds and does on an invented machine."""

    def __init__(self, chores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chores = chores
        self.here: list[list[str]] = []
        self.after_apt: list[list[str]] = []
        self.installed: list[str] = []
        self.probes = 0
        self.root = True
        monkeypatch.setattr(chores, "adapters", self.adapters)
        monkeypatch.setattr(chores, "apt", self.apt)
        monkeypatch.setattr(chores, "may_apt", lambda: self.root)

    def adapters(self) -> list[Any]:
        self.probes += 1
        return [self.chores.Adapter(*words) for words in self.here]

    def apt(self, *packages: str) -> None:
        self.installed += packages
        if not self.after_apt:
            raise self.chores.ChoreError("apt-get failed")
        self.here = self.after_apt


@pytest.fixture
def machine(quiet: Any, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(quiet, monkeypatch)


@pytest.mark.parametrize("found", [[GPU], [LAVAPIPE, LLVMPIPE], [OLD_GPU, LLVMPIPE]])
def test_a_gpu_or_a_software_adapter_that_can_do_most_is_kept_and_remembered(
    machine: Machine, found: list[list[str]], capsys: Any
) -> None:
    machine.here = found
    machine.chores.ensure_adapter()
    machine.chores.ensure_adapter()
    assert machine.probes == 1
    assert machine.installed == []
    assert f"adapter: {found[0][0]}" in capsys.readouterr().err


@pytest.mark.parametrize("found", [[], [LLVMPIPE]])
def test_the_software_vulkan_driver_is_installed_where_nothing_better_is(
    machine: Machine, found: list[list[str]], capsys: Any
) -> None:
    machine.here, machine.after_apt = found, [LAVAPIPE, LLVMPIPE]
    machine.chores.ensure_adapter()
    assert "mesa-vulkan-drivers" in machine.installed
    assert "adapter: llvmpipe (CPU) via Vulkan, in software" in capsys.readouterr().err
    machine.chores.ensure_adapter()
    assert machine.probes == 2


def test_who_may_not_install_computes_over_opengl_and_hears_what_to_install(
    machine: Machine, capsys: Any
) -> None:
    machine.here, machine.root = [LLVMPIPE], False
    machine.chores.ensure_adapter()
    assert machine.installed == []
    assert "apt-get install libvulkan1 mesa-vulkan-drivers" in capsys.readouterr().err
    machine.chores.ensure_adapter()
    assert machine.probes == 2, "a driver that comes later is found"


def test_a_failed_installation_is_told_and_what_computes_is_used(
    machine: Machine, capsys: Any
) -> None:
    machine.here = [LLVMPIPE]
    machine.chores.ensure_adapter()
    told = capsys.readouterr().err
    assert "apt-get failed" in told
    assert "adapter: llvmpipe (CPU) via OpenGL" in told


@pytest.mark.parametrize("root", [True, False])
def test_where_nothing_computes_the_set_up_stops_with_advice(machine: Machine, root: bool) -> None:
    machine.root = root
    with pytest.raises(machine.chores.ChoreError, match=r"install the driver .*mesa-vulkan"):
        machine.chores.ensure_adapter()


@pytest.mark.parametrize("name", ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"])
def test_hidden_drivers_stay_hidden_and_are_not_remembered(
    machine: Machine, name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    machine.here, machine.after_apt = [LLVMPIPE], [LAVAPIPE]
    monkeypatch.setenv(name, "/nonexistent")
    machine.chores.ensure_adapter()
    assert machine.installed == []
    assert f"{name} is set: the Vulkan drivers are left" in capsys.readouterr().err
    monkeypatch.delenv(name)
    machine.chores.ensure_adapter()
    assert "mesa-vulkan-drivers" in machine.installed


def test_the_probe_finds_an_adapter_that_computes_here(quiet: Any) -> None:
    found = quiet.adapters()
    assert found[0].summary
    assert quiet.serve_well(found)


# -- pins ----------------------------------------------------------------------------------------


def test_every_dependency_is_pinned_once(chores: Any, root: Path) -> None:
    pinned = [
        re.split(r"[= ]", line)[0].lower().replace("_", "-")
        for name in chores.PINS["test"]
        for line in (root / "requirements" / name).read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert len(pinned) == len(set(pinned))
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = {
        re.split(r"[<>=]", word)[0]
        for extra in project["optional-dependencies"].values()
        for word in extra
    }
    assert wanted <= set(pinned)


def test_what_npm_brings_is_verified_and_names_no_host(root: Path) -> None:
    lock = json.loads((root / "requirements" / "package-lock.json").read_text())
    fetched = {name: about for name, about in lock["packages"].items() if name}
    assert all(about["integrity"].startswith("sha512-") for about in fetched.values())
    assert not any("resolved" in about for about in fetched.values())
    wanted = json.loads((root / "requirements" / "package.json").read_text())["dependencies"]
    assert lock["packages"][""]["dependencies"] == wanted


# -- JavaScript ----------------------------------------------------------------------------------


def oxlint(chores: Any, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(chores.venv_tool("oxlint")), "--deny-warnings", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def test_all_javascript_that_git_knows_is_linted(chores: Any, root: Path) -> None:
    names = ["git", "ls-files", "--cached", "--", "*.js", "*.mjs"]
    known = subprocess.run(names, cwd=root, capture_output=True, text=True, check=True).stdout
    linted = oxlint(chores, "--debug=files", cwd=root).stdout.replace("./", "")
    missing = set(known.split()) - set(linted.split())
    assert known
    assert not missing, linted


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("() => documnet.title", "no-undef"),
        ("(a) => { const b = a; return a; }", "no-unused-vars"),
        ("(a, b) => a == b", "eqeqeq"),
    ],
)
def test_the_linter_names_what_is_wrong(
    chores: Any, root: Path, tmp_path: Path, text: str, rule: str
) -> None:
    (tmp_path / "wrong.js").write_text(text)
    answer = oxlint(chores, "-c", str(root / ".oxlintrc.json"), cwd=tmp_path)
    assert answer.returncode == 1
    assert rule in answer.stdout


# -- wheels --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dist(chores: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheels that the gate built; built here where there was no gate."""
    built = os.environ.get("WEBTUNE_TEST_WHEELS")
    if built:
        yield Path(built)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chores, "DIST", tmp_path_factory.mktemp("dist"))
        patch.setattr(chores, "WORK", tmp_path_factory.mktemp("work"))
        yield chores.build_wheels().full.parent


@pytest.fixture(scope="module")
def full(dist: Path) -> Path:
    (wheel,) = dist.glob("webtune-*-py3-none-any.whl")
    return wheel


@pytest.fixture(scope="module")
def pages(dist: Path) -> dict[str, Path]:
    """The wheels for pages by name."""
    return {path.name.partition("-")[0]: path for path in (dist / "page").glob("*.whl")}


def sources(wheel: Path) -> dict[str, str]:
    """The Python files of a wheel, and of the archive of modules inside it."""
    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                found[name] = archive.read(name).decode()
            elif name.endswith(".zip"):
                with archive.open(name) as file, zipfile.ZipFile(file) as inner:
                    modules = [each for each in inner.namelist() if each.endswith(".py")]
                    found |= {f"webtune/{each}": inner.read(each).decode() for each in modules}
    return found


def metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_that_a_page_loads_is_small(pages: dict[str, Path]) -> None:
    assert set(pages) == {"webtune", "webtune_bundled"}
    assert pages["webtune"].stat().st_size < PAGE_LIMIT


def test_wheels_are_whole_and_pure(
    chores: Any, full: Path, pages: dict[str, Path], tmp_path: Path
) -> None:
    for wheel in (full, *pages.values()):
        # It compares every file with the hash that RECORD has of it.
        chores.run(chores.venv_tool("wheel"), "unpack", "-d", tmp_path, wheel, quiet=True)
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        assert not [name for name in names if name.endswith((".so", ".pyc", ".wasm"))]
        assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_full_wheel_holds_the_whole_package_as_it_is_written(full: Path, root: Path) -> None:
    with zipfile.ZipFile(full) as archive:
        inside = {name for name in archive.namelist() if name.startswith("webtune/")}
        for path in (root / "webtune").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(root).as_posix()
                assert archive.read(name) == path.read_bytes()
                inside.discard(name)
    assert inside == set()


def test_wheels_for_pages_say_what_they_are(full: Path, pages: dict[str, Path]) -> None:
    version = metadata(full)["Version"]
    page, bundled = metadata(pages["webtune"]), metadata(pages["webtune_bundled"])
    assert (page["Name"], page["Version"], page["Requires-Dist"]) == ("webtune", version, None)
    assert (bundled["Name"], bundled["Version"]) == ("webtune-bundled", version)
    assert bundled["Requires-Dist"] == f"webtune=={version}"


def bare(text: str) -> str:
    """What a module does, as text: all of it but docstrings and `pass`."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [each for each in body if not is_literal(each) and not is_pass(each)]
            node.body = kept  # type: ignore[attr-defined]
    return ast.dump(tree)


def is_literal(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_pass(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass)


def test_shortening_takes_away_docstrings_and_nothing_else(
    full: Path, pages: dict[str, Path]
) -> None:
    written = sources(full)
    page = sources(pages["webtune"])
    finding, _, page["webtune/__init__.py"] = page["webtune/__init__.py"].partition("\n")
    assert "modules.zip" in finding
    # A bundled kernel's functions are part of its identity: a pick is valid for both wheels.
    for name, text in {**page, **sources(pages["webtune_bundled"])}.items():
        assert bare(text) == bare(written[name]), name
        assert ast.get_docstring(ast.parse(text)) is None


def imported(text: str) -> set[str]:
    """The modules, as files of a wheel, that a text may import of webtune."""
    found = {
        node.module.replace(".", "/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("webtune")
    }
    return {f"{name}.py" for name in found} | {f"{name}/__init__.py" for name in found}


def test_a_page_has_all_that_it_imports_and_nothing_that_it_cannot_use(
    full: Path, pages: dict[str, Path]
) -> None:
    written = set(sources(full))
    page = sources(pages["webtune"])
    reached = {name for text in page.values() for name in imported(text) & written}
    assert reached - set(page) == {"webtune/hosts/native.py"}
    rooms = {name.split("/")[1] for name in page}
    assert not rooms & {"cli", "testing", "bundled", "__main__.py", "replay.py", "progress.py"}
    assert not [name for name in page if "native" in name or "sqlite" in name]
    assert {name for name in written if name.startswith("webtune/bundled/")} == set(
        sources(pages["webtune_bundled"])
    )


def test_the_installed_wheel_answers_the_command(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-index"]
    words = [*pip, "--no-deps", "-q", "--target", str(target), str(full)]
    subprocess.run(words, check=True, capture_output=True)
    answer = subprocess.run(
        [sys.executable, str(target / "bin" / "webtune"), "doctor"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(target),
            "WEBTUNE_CACHE_DIR": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
