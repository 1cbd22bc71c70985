"""Where a user's caches lie on this system: one folder for webtune, by the platform's custom."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

FILE_NAME = "picks.sqlite3"


def user_folder() -> Path:
    """The folder as platformdirs names it. Where that is not installed (the core package needs no
    other) the same folder by `custom_folder`, so that both kinds of processes share their picks.

    Raises `RuntimeError` where the system knows no home folder.
    """
    try:
        import platformdirs
    except ImportError:
        return custom_folder(sys.platform, os.environ)
    return Path(platformdirs.user_cache_dir("webtune", appauthor=False))


def custom_folder(platform: str, environ: Mapping[str, str]) -> Path:
    """The folder by custom: LOCALAPPDATA on Windows, Library/Caches on macOS, else XDG."""
    if platform == "win32":
        local = environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        return Path(local) / "webtune" / "Cache"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "webtune"
    named = environ.get("XDG_CACHE_HOME", "").strip()
    # A relative path is to be ignored, by the XDG base directory specification.
    return (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "webtune"
