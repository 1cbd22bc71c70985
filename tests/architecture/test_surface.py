"""What the package shows: its names, its documentation, and what importing it costs."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import webtune
from webtune.config import knobs

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "webtune").rglob("*.py"))


def test_public_names_are_the_listed_ones() -> None:
    listed = (Path(__file__).parent / "public_names.txt").read_text().split()
    assert sorted(webtune.__all__) == listed


def test_every_public_name_is_there_and_documented() -> None:
    for name in webtune.__all__:
        value = getattr(webtune, name)
        if callable(value):
            assert value.__doc__, f"webtune.{name} has no docstring"


def test_import_loads_no_device_no_numpy_no_javascript(python: Any) -> None:
    done = python(
        "-c",
        "import sys, webtune; heads = {m.partition('.')[0] for m in sys.modules}; "
        "print(sorted(heads & {'wgpu', 'numpy', 'js', 'pyodide', 'rich', 'platformdirs'}))",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_opens_with_its_law(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_no_file_names_a_place_of_one_machine() -> None:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    place = re.compile(r"(?<![\w.])/(?:work|home|Users|tmp/venv|opt/pypi)[/\w-]*")
    found = []
    for name in filter(None, listing.stdout.split("\0")):
        path = ROOT / name
        if not path.is_file() or path == Path(__file__):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {hit}" for hit in place.findall(text)]
    assert found == []


def test_package_is_marked_as_typed() -> None:
    assert (ROOT / "webtune" / "py.typed").is_file()


def test_readme_lists_every_setting_with_its_reader() -> None:
    readme = (ROOT / "README.md").read_text()
    for knob in knobs():
        default = "–" if knob.default is None else f"`{knob.default}`"
        row = f"| `{knob.name}` | {default} | {knob.reader} | {knob.doc} |"
        assert row in readme, f"write into README.md: {row}"


def test_version_is_told_once_more_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == webtune.__version__
    assert project["dependencies"] == []
