"""One SQLite file: opening it for many processes, telling damage from refusal, transactions."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from webtune.store.folder import FILE_NAME, user_folder
from webtune.store.processes import Process

LAYOUT = 2
"""`user_version` of the file; a file of a later layout is left alone."""

PAUSE_S = 0.02

TABLES = (
    """
    CREATE TABLE IF NOT EXISTS decisions (
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

Where = str | os.PathLike[str] | None

INHERITED: list[sqlite3.Connection] = []
"""Connections that came through a fork. They are the parent's: this process does not even close
them, which would touch its locks and its log."""


class UnusableError(Exception):
    """The file cannot be used, and is not to be set aside either."""


class Database:
    """The file of one store: located at the first need, opened at the first use.

    `path` names the file, else `folder` its folder, else it lies in the user's cache folder.
    `busy_s` is how long opening and every transaction wait for other processes.
    """

    def __init__(self, path: Where, folder: Where, busy_s: float) -> None:
        self._path, self._folder = path, folder
        self._busy_s = busy_s
        self._connection: sqlite3.Connection | None = None
        self.process = Process("", 0, "")
        """The process that uses the file now; another one after a fork."""
        self.session = ""
        """A name for this object in this process, as owner of its starts in the journal."""

    @property
    def path(self) -> Path:
        """Where the file lies. Raises `OSError` or `RuntimeError` where no folder is known."""
        if self._path is None:
            self._path = Path(self._folder or user_folder()) / FILE_NAME
        return Path(self._path)

    @property
    def connected(self) -> bool:
        """Whether this process has the file open."""
        return self._connection is not None and self.process.pid == os.getpid()

    def connect(self) -> sqlite3.Connection:
        """The connection of this process, opened if it is not. Raises `OSError`, `RuntimeError`,
        `ValueError`, `sqlite3.Error` or `UnusableError`."""
        if self.process.pid != os.getpid():
            if self._connection is not None:
                INHERITED.append(self._connection)
                self._connection = None
            self.process, self.session = Process.this(), uuid.uuid4().hex
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = _open(self.path, self._busy_s)
        return self._connection

    def disconnect(self) -> None:
        """Close the connection if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def set_aside(self) -> Path | None:
        """Rename a damaged file so that a new one can begin. Returns where it lies now, or None if
        another process did this meanwhile. Raises `OSError` where it cannot be done."""
        if _sound(self.path):
            return None
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        os.replace(self.path, aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        return aside


def read_only(path: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows that a query finds in a file which cannot be written, read without locks. Raises
    `sqlite3.Error` or `UnusableError`."""
    where = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(where, uri=True)) as db:
        db.text_factory = _text
        if _layout(db) != LAYOUT:
            raise UnusableError("its layout is not known")
        return db.execute(query).fetchall()


def damaged(error: Exception) -> bool:
    """Whether the error says that the content of the file is broken."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextmanager
def transaction(db: sqlite3.Connection, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
    """Alone with the file from the first read on, so that read-merge-write is one step.

    `durable` waits for the disk; without it a crash of the machine may lose what is newest.
    """
    if durable:
        db.execute("PRAGMA synchronous = FULL")
    try:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
    finally:
        if durable:
            db.execute("PRAGMA synchronous = NORMAL")


def _open(path: Path, busy_s: float) -> sqlite3.Connection:
    until_s = time.monotonic() + busy_s
    while True:
        db = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
        db.text_factory = _text
        try:
            _prepare(db)
            return db
        except BaseException as error:
            db.close()
            # The switch to WAL does not wait as transactions do: two first openers can collide.
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
            time.sleep(PAUSE_S)


def _prepare(db: sqlite3.Connection) -> None:
    layout = _layout(db)
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


def _layout(db: sqlite3.Connection) -> int:
    """The layout that the file says it has; 0 for a new one."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _text(raw: bytes) -> str:
    """A stored text. A damaged byte is one decision's: its checksum tells, and the rest is read."""
    return raw.decode("utf-8", "replace")


def _sound(path: Path) -> bool:
    """Whether SQLite finds nothing wrong with the file as it lies there now."""
    try:
        with closing(sqlite3.connect(path, timeout=1.0)) as db:
            return bool(db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.Error as error:
        return not damaged(error)


def _code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF
