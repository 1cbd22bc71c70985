"""The blocks of the behaviour page run as they are printed, as one script."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any


def blocks(root: Path) -> list[str]:
    text = (root / "docs" / "behaviour.md").read_text(encoding="utf-8")
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
