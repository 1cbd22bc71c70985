"""How the commands print: JSON documents, and texts wrapped for the terminal that they go to."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from webtune.report.table import wrapped


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2))


def print_wrapped(text: str, indent: str, *, piped_width: int | None = None) -> None:
    """Print a text in lines as wide as the terminal; those after the first begin with `indent`.

    A pipe has no width: there, lines have `piped_width` columns, or the text is one line.
    """
    piped = piped_width or len(text)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else piped
    print("\n".join(wrapped(text, width, indent)))
