"""The blocks of the behaviour page run as they are printed, as one script."""

from __future__ import annotations

import ast
import gzip
import json
import re
from pathlib import Path
from typing import Any


def blocks(root: Path, page: str = "behaviour.md") -> list[str]:
    text = (root / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_page_runs_as_one_script(
    root: Path, python: Any, cache_dir: Path, tmp_path: Path
) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(each for each in blocks(root) if "await " not in each))
    done = python(str(script))
    assert done.returncode == 0, done.stderr
    assert list(cache_dir.iterdir())


def test_the_blocks_for_pages_are_python(root: Path) -> None:
    awaiting = [each for each in blocks(root) if "await " in each]
    assert len(awaiting) >= 2
    for block in awaiting:
        compile(block, "behaviour.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_page_on_replay_writes_a_space_that_is_replayed(
    root: Path, python: Any, cache_dir: Path, tmp_path: Path
) -> None:
    (block,) = blocks(root, "replay.md")
    (tmp_path / "page.py").write_text(block)
    done = python("page.py")
    assert done.returncode == 0, done.stderr
    words = ("--spaces", ".", "--protocol", "median-10", "--seeds", "3", "--json")
    replayed = python("-m", "webtune", "replay", "measure", *words)
    assert replayed.returncode == 0, replayed.stderr
    assert [one["space"] for one in json.loads(replayed.stdout)["spaces"]] == ["saxpy"]
    told = python("-m", "webtune", "replay", "measure", "--help").stdout
    document = json.loads(gzip.decompress((tmp_path / "saxpy.json.gz").read_bytes()))
    assert all(field in told for field in document)
