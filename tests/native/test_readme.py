"""The README's example runs as it is printed."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any


def blocks(root: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)


def test_the_first_example_tunes_and_computes(
    root: Path, python: Any, cache_dir: Path, tmp_path: Path
) -> None:
    script = tmp_path / "example.py"
    script.write_text(blocks(root)[0])
    done = python(str(script))
    assert done.returncode == 0, done.stderr
    first, *table = done.stdout.splitlines()
    assert first == "[2. 2. 2. 2.]"
    assert any(line.split()[0:1] == ["candidate"] for line in table)
    assert any(" winner" in line for line in table)
    assert list(cache_dir.iterdir()), "nothing was remembered"


def test_every_example_is_python(root: Path) -> None:
    for block in blocks(root):
        compile(block, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
