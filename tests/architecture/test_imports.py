"""Imports point one way. Read from the sources, so that no machine's set-up can hide an arrow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "webtune"

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
HOUSE = CONTRIBUTING.partition("## The house\n")[2].partition("\n## ")[0]
FLOORS = [
    line.replace("(webtune)", "").split() or [""]
    for line in reversed(HOUSE.split("```")[1].strip().splitlines())
]
"""The rooms from the ground up, as CONTRIBUTING draws them: each may import those on lower floors,
and itself. `` is the package."""
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

PURE = ("strategies",)
FORBIDDEN_IN_PURE = {
    "asyncio", "concurrent", "io", "js", "logging", "multiprocessing", "numpy", "os", "pathlib",
    "platform", "pyodide", "random", "secrets", "shutil", "socket", "sqlite3", "subprocess", "sys",
    "tempfile", "time", "datetime", "wgpu", "uuid",
}  # fmt: skip


@dataclass(frozen=True)
class Import:
    """One import statement's target as a module name, and whether it runs when imported."""

    target: str
    at_load: bool


def module_name(path: Path) -> str:
    """`webtune/strategies/model.py` → `strategies.model`; the package itself → ``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(body: list[ast.stmt], at_load: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """All statements that can run, with whether they run at load; blocks for type checkers are
    left out, for they never run."""
    for node in body:
        if is_type_checking(node):
            yield from statements(node.orelse, at_load)  # type: ignore[attr-defined]
            continue
        yield node, at_load
        inner_at_load = at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for field in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, field, []), inner_at_load)
        for handler in getattr(node, "handlers", []):
            yield from statements(handler.body, inner_at_load)


def imports(name: str) -> list[Import]:
    """What a module of webtune imports, as absolute names."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: list[Import] = []
    for node, at_load in statements(ast.parse(path.read_text()).body, True):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, at_load) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ["webtune", *filter(None, package.split("."))]
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                is_module = deeper.removeprefix("webtune.") in MODULES
                found.append(Import(deeper if is_module else base, at_load))
    return found


def own(target: str) -> str | None:
    """The module of webtune that a target names, or None for another package."""
    if target == "webtune":
        return ""
    name = target.removeprefix("webtune.")
    return name if name != target and name in MODULES else None


def room(name: str) -> str:
    return name.partition(".")[0]


def test_every_module_has_its_floor() -> None:
    assert {room(name) for name in MODULES} == set(FLOOR)


@pytest.mark.parametrize("name", MODULES)
def test_every_arrow_points_down(name: str) -> None:
    here = room(name)
    for item in imports(name):
        target = own(item.target)
        if target is not None and room(target) != here:
            there = room(target)
            assert FLOOR[there] < FLOOR[here], f"{name} ({here}) imports {target} ({there})"


def test_every_room_has_its_sentence() -> None:
    told = re.findall(r"^\| `(\w+)/?` \| .*\. \|$", HOUSE, re.MULTILINE)
    assert sorted(told) == sorted(set(FLOOR) - {"", "__main__"})


def test_no_module_imports_itself_round_a_corner() -> None:
    graph = {name: {own(item.target) for item in imports(name)} - {None, name} for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"circle of imports: {circle.args[1]}")


@pytest.mark.parametrize("name", [name for name in MODULES if name.partition(".")[0] in PURE])
def test_what_decides_touches_no_clock_device_file_chance_or_javascript(name: str) -> None:
    heads = {item.target.partition(".")[0] for item in imports(name)}
    assert not heads & FORBIDDEN_IN_PURE
    called = {
        node.func.id
        for node in ast.walk(ast.parse(MODULES[name].read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "eval", "exec", "__import__"}


def naming(pattern: str) -> set[str]:
    return {name for name, path in MODULES.items() if re.search(pattern, path.read_text())}


def test_only_hosts_auto_asks_whether_this_is_a_browser() -> None:
    assert naming("emscripten") == {"hosts.auto"}


def test_only_hosts_and_edges_ask_which_system_this_is() -> None:
    asking = naming(r"sys\.platform|platform\.system|\bos\.name\b")
    assert {room(name) for name in asking} <= {"hosts", "gpu", "store"}


@pytest.mark.parametrize("package", ["wgpu", "js", "pyodide", "numpy"])
def test_packages_of_a_host_are_loaded_at_import_by_its_own_modules_only(package: str) -> None:
    loading = {
        name
        for name in MODULES
        if any(i.at_load and i.target.partition(".")[0] == package for i in imports(name))
    }
    assert loading == set()


def test_the_reader_of_imports_sees_through_functions_and_relative_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "probe.py"
    source.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import hidden\n"
        "def f():\n    import late\n"
        "try:\n    import tried\nexcept ImportError:\n    import instead\n"
        "from .model import Round\nfrom . import plan\nfrom .. import errors\n"
    )
    monkeypatch.setitem(MODULES, "strategies.probe", source)
    assert imports("strategies.probe") == [
        Import("typing", True),
        Import("late", False),
        Import("tried", True),
        Import("instead", True),
        Import("webtune.strategies.model", True),
        Import("webtune.strategies.plan", True),
        Import("webtune.errors", True),
    ]
