"""One SQLite file: opening it for many processes, telling damage from refusal, transactions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "LAYOUT",
    "UnusableError",
    "damaged",
    "open_file",
    "open_read_only",
    "sound",
    "transaction",
]

LAYOUT = 1
"""`user_version` of the file; a file of a later layout is left alone."""

PAUSE_S = 0.02

TABLES = (
    """
    CREATE TABLE IF NOT EXISTS records (
      environment TEXT NOT NULL, hardware TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL,
      body TEXT NOT NULL, PRIMARY KEY (environment, hardware, name, key)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS journal (
      hardware TEXT NOT NULL, candidate TEXT NOT NULL, owner TEXT NOT NULL,
      host TEXT NOT NULL, pid INTEGER NOT NULL, began TEXT NOT NULL,
      since_s REAL NOT NULL, dead INTEGER NOT NULL DEFAULT 0,
      PRIMARY KEY (hardware, candidate, owner)
    ) WITHOUT ROWID
    """,
    f"PRAGMA user_version = {LAYOUT}",
)


class UnusableError(Exception):
    """The file cannot be used, and is not to be set aside either."""


def open_file(path: Path, busy_s: float) -> sqlite3.Connection:
    """Open or begin the file, with the right to write. Raises `sqlite3.Error` or `UnusableError`.

    `busy_s` is how long this and every later transaction waits for other processes.
    """
    until_s = time.monotonic() + busy_s
    while True:
        db = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
        db.text_factory = _text
        try:
            _prepare(db)
            return db
        except sqlite3.Error as error:
            db.close()
            # The switch to WAL does not wait as transactions do: two first openers can collide.
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
            time.sleep(PAUSE_S)
        except BaseException:
            db.close()
            raise


def _text(raw: bytes) -> str:
    """A stored text. A damaged byte is one record's: its checksum tells, and the rest is read."""
    return raw.decode("utf-8", "replace")


def _prepare(db: sqlite3.Connection) -> None:
    layout = layout_of(db)
    if layout > LAYOUT:
        raise UnusableError(f"it was written by a newer webtune (layout {layout})")
    # Where WAL is not possible (some network folders), SQLite keeps its older journal.
    if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    # Also of a file that is complete: a missing right to write shows here, not at the first pick.
    with transaction(db):
        if layout < LAYOUT:
            for statement in TABLES:
                db.execute(statement)


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open what cannot be written, without locks. Raises `sqlite3.Error` or `UnusableError`."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    db.text_factory = _text
    try:
        if layout_of(db) != LAYOUT:
            raise UnusableError("its layout is not known")
    except BaseException:
        db.close()
        raise
    return db


def layout_of(db: sqlite3.Connection) -> int:
    """The layout that the file says it has; 0 for a new one."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def damaged(error: Exception) -> bool:
    """Whether the error says that the content of the file is broken."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def sound(path: Path) -> bool:
    """Whether SQLite finds nothing wrong with the file as it lies there now."""
    try:
        db = sqlite3.connect(path, timeout=1.0)
    except sqlite3.Error:
        return False
    try:
        return bool(db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.Error as error:
        return not damaged(error)
    finally:
        db.close()


@contextmanager
def transaction(db: sqlite3.Connection, *, durable: bool = False) -> Iterator[None]:
    """Alone with the file from the first read on, so that read-merge-write is one step.

    `durable` waits for the disk; without it a crash of the machine may lose what is newest.
    """
    if durable:
        db.execute("PRAGMA synchronous = FULL")
    try:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
    finally:
        if durable:
            db.execute("PRAGMA synchronous = NORMAL")


def _code(error: Exception) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF
