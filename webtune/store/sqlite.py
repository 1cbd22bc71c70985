"""Picks in one SQLite file, safe for many threads and processes. It never fails a tune.

A folder or file that cannot be used means one `StoreWarning` and memory from then on. A damaged
file is set aside and a new one begun.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from webtune.errors import StoreWarning, reason_of, warn
from webtune.store.base import LOST_STARTS, Address
from webtune.store.database import (
    UnusableError,
    damaged,
    open_file,
    open_read_only,
    sound,
    transaction,
)
from webtune.store.decision import Decision, Unreadable, decode, encode, merge
from webtune.store.folder import FILE_NAME, user_folder
from webtune.store.memory import MemoryStore
from webtune.store.processes import Process, alive, this_process

__all__ = ["SqliteStore"]

BUSY_S = 10.0

WHERE = "environment = ? AND hardware = ? AND name = ? AND key = ?"
ALL = "SELECT environment, hardware, name, key, body FROM records"
STARTS = "SELECT candidate, host, pid, began, since_s, dead, owner FROM journal WHERE hardware = ?"
OURS = "owner = ? AND dead = 0"
ABANDONED, CLOSED = 1, 2
"""What `dead` says of a start: one of an abandoned device bars its candidate at once, as that of a
process which died does; one of a closed store only counts."""

Answer = TypeVar("Answer")


INHERITED: list[sqlite3.Connection] = []
"""Connections that came through a fork. They are the parent's: this process does not even close
them, which would touch its locks and its log."""


class Nowhere(MemoryStore):
    """Stands in for one call whose name the file cannot hold: nothing is kept, nothing changes."""

    def absorb(self, address: Address, record: Decision) -> bool:
        return False


class SqliteStore:
    """Records and journal in `path` (a file), in `folder`, or in the user's cache folder.

    Opens by itself at the first use. After a fork the child opens its own connection.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        busy_s: float = BUSY_S,
    ) -> None:
        self._path = Path(path) if path is not None else None
        self._folder = Path(folder) if folder is not None else None
        self._busy_s = busy_s
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process: Process | None = None
        self._owner = ""
        self._memory: MemoryStore | None = None
        self._warned = False

    # ---- Store ---------------------------------------------------------------------------
    @property
    def scope(self) -> str:
        """Tuners of one process whose stores have the same scope share their memory."""
        return f"sqlite:{self.location}"

    @property
    def location(self) -> str:
        if self._memory is not None:
            return self._memory.location
        try:
            return str(self._file())
        except (OSError, RuntimeError) as error:
            return f"nowhere yet ({error})"

    @property
    def lasting(self) -> bool:
        """Whether what is put outlives this process; False once it could not be written."""
        return self._memory is None

    async def open(self) -> None:
        """Open the file now. Never raises."""
        self._do(lambda db: None, lambda memory: None)

    def get(self, address: Address) -> Decision | None:
        """The record, or None; one that cannot be read is None and a warning."""

        def find(db: sqlite3.Connection) -> Decision | None:
            row = db.execute(f"SELECT body FROM records WHERE {WHERE}", _parts(address)).fetchone()
            return None if row is None else self._decoded(address, row[0])

        return self._do(find, lambda memory: memory.get(address))

    def put(self, address: Address, record: Decision) -> bool:
        """Remember in place of what was there; False when only memory could take it, or when
        the record has a float that JSON cannot hold (then with a warning)."""
        try:
            body = encode(record)
        except ValueError as error:
            self._warn(f"the pick of {address.name!r} cannot be stored: {error}")
            return False

        def write(db: sqlite3.Connection) -> bool:
            with transaction(db):
                _write(db, address, body)
            return True

        return self._do(write, lambda memory: memory.put(address, record))

    def absorb(self, address: Address, record: Decision) -> bool:
        """Merge with what is there, in one transaction; True when that changed it."""

        def join(db: sqlite3.Connection) -> bool:
            with transaction(db):
                before = self._read(db, address)
                after = record if before is None else merge(before, record)
                if after != before:
                    _write(db, address, encode(after))
            return after != before

        return self._do(join, lambda memory: memory.absorb(address, record))

    def entries(self) -> Iterable[tuple[Address, Decision]]:
        """All records that can be read, ordered by address."""
        return self._do(self._all, lambda memory: memory.entries())

    def purge(
        self,
        *,
        environment: str | None = None,
        hardware: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> int:
        """Forget what matches every given part; how many records went. Without environment, name
        and key the suspects (of that hardware, or all) are forgotten too."""
        given = {"environment": environment, "hardware": hardware, "name": name, "key": key}
        parts = {part: value for part, value in given.items() if value is not None}
        where = " AND ".join(f"{part} = ?" for part in parts) or "1"

        def forget(db: sqlite3.Connection) -> int:
            with transaction(db):
                count = db.execute(
                    f"DELETE FROM records WHERE {where}", (*parts.values(),)
                ).rowcount
                if not parts.keys() - {"hardware"}:
                    db.execute(f"DELETE FROM journal WHERE {where}", (*parts.values(),))
            return count

        return self._do(
            forget,
            lambda memory: memory.purge(
                environment=environment, hardware=hardware, name=name, key=key
            ),
        )

    def begin(self, hardware: str, candidate: str) -> None:
        """Journal a start, on the disk before this returns: what follows may stop the machine."""

        def write(db: sqlite3.Connection) -> None:
            with transaction(db, durable=True):
                # One that was under way when this store was closed is lost for good now.
                db.execute(
                    "UPDATE journal SET owner = ? WHERE owner = ? AND dead = ? AND hardware = ? "
                    "AND candidate = ?",
                    (uuid.uuid4().hex, self._owner, CLOSED, hardware, candidate),
                )
                db.execute(
                    "INSERT OR REPLACE INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
                    (hardware, candidate, self._owner, *self._origin(), time.time()),
                )

        self._do(write, lambda memory: memory.begin(hardware, candidate))

    def end(self, hardware: str, candidate: str) -> None:
        """Journal that our start came back, if only after the store was closed: lost ones of the
        candidate are forgotten. Those that others still run stay, as those of abandoned devices
        do."""

        def write(db: sqlite3.Connection) -> None:
            place = "hardware = ? AND candidate = ? AND owner = ?"
            with transaction(db):
                ours = db.execute(
                    "DELETE FROM journal WHERE owner = ? AND dead <> ? AND hardware = ? "
                    "AND candidate = ?",
                    (self._owner, ABANDONED, hardware, candidate),
                ).rowcount
                if not ours:
                    return
                rows = db.execute(f"{STARTS} AND candidate = ?", (hardware, candidate)).fetchall()
                for row in rows:
                    if row[5] == CLOSED or _died(row):
                        db.execute(
                            f"DELETE FROM journal WHERE {place}", (hardware, candidate, row[6])
                        )

        self._do(write, lambda memory: memory.end(hardware, candidate))

    def abandon(self, hardware: str) -> None:
        """The device is given up: what we started on this hardware will not come back."""

        def write(db: sqlite3.Connection) -> None:
            # Under another owner, so that our next start of the candidate does not replace it.
            with transaction(db, durable=True):
                db.execute(
                    f"UPDATE journal SET dead = ?, owner = ? WHERE {OURS} AND hardware = ?",
                    (ABANDONED, uuid.uuid4().hex, self._owner, hardware),
                )

        self._do(write, lambda memory: memory.abandon(hardware))

    def suspects(self, hardware: str) -> frozenset[str]:
        """Candidates that were abandoned, in which a process died, or that were under way too often
        when a store was closed."""

        def find(db: sqlite3.Connection) -> frozenset[str]:
            rows = db.execute(STARTS, (hardware,)).fetchall()
            closed = Counter(row[0] for row in rows if row[5] == CLOSED)
            barred = {row[0] for row in rows if row[5] == ABANDONED or _died(row)}
            return frozenset(barred | {name for name in closed if closed[name] >= LOST_STARTS})

        return self._do(find, lambda memory: memory.suspects(hardware))

    async def flush(self) -> None:
        """Nothing to wait for: what was put is committed."""

    def close(self) -> None:
        """Close the file; what we started and never ended is lost from now on."""
        with self._lock:
            if self._memory is not None:
                self._memory.close()
            if self._connection is None or self._process != this_process():
                return
            try:
                with transaction(self._connection):
                    self._connection.execute(
                        f"UPDATE journal SET dead = ? WHERE {OURS}", (CLOSED, self._owner)
                    )
            except sqlite3.Error:
                # Our process will be gone soon, which says the same.
                pass
            finally:
                self._connection.close()
                self._connection = None

    # ---- reading -------------------------------------------------------------------------
    def _read(self, db: sqlite3.Connection, address: Address) -> Decision | None:
        row = db.execute(f"SELECT body FROM records WHERE {WHERE}", _parts(address)).fetchone()
        found = None if row is None else decode(row[0])
        return None if isinstance(found, Unreadable) else found

    def _all(self, db: sqlite3.Connection) -> list[tuple[Address, Decision]]:
        rows = db.execute(ALL).fetchall()
        found = [(address := Address(*row[:4]), self._decoded(address, row[4])) for row in rows]
        return sorted((a, r) for a, r in found if r is not None)

    def _decoded(self, address: Address, body: str) -> Decision | None:
        found = decode(body)
        if isinstance(found, Unreadable):
            self._warn(
                f"the pick of {address.name!r} for {address.key} in {self._path} cannot be read: "
                f"{found.reason}. It is measured again"
            )
            return None
        return found

    # ---- the file ------------------------------------------------------------------------
    def _file(self) -> Path:
        if self._path is None:
            self._path = (self._folder or user_folder()) / FILE_NAME
        return self._path

    def _origin(self) -> tuple[str, int, str]:
        process = self._process or this_process()
        return process.host, process.pid, process.began

    def _do(
        self,
        act: Callable[[sqlite3.Connection], Answer],
        otherwise: Callable[[MemoryStore], Answer],
    ) -> Answer:
        """Act on the file, else on memory. Never raises for what the file does."""
        with self._lock:
            for attempt in (1, 2):
                if self._memory is not None:
                    break
                try:
                    return act(self._connected())
                except UnicodeEncodeError as error:
                    # A name that no file can hold: it is this call's alone.
                    self._warn(f"a pick cannot be stored under its name: {error}")
                    return otherwise(Nowhere())
                except (OSError, RuntimeError, ValueError, sqlite3.Error, UnusableError) as error:
                    self._disconnect()
                    if attempt == 1 and damaged(error) and self._set_aside(error):
                        continue
                    self._fall_back(error)
            assert self._memory is not None
            return otherwise(self._memory)

    def _connected(self) -> sqlite3.Connection:
        if self._process is None or self._process.pid != os.getpid():
            if self._connection is not None:
                INHERITED.append(self._connection)
                self._connection = None
            self._process = this_process()
            self._owner = uuid.uuid4().hex
        if self._connection is None:
            path = self._file()
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = open_file(path, self._busy_s)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _set_aside(self, error: Exception) -> bool:
        """Rename a damaged file so that a new one can begin; False when that is not possible."""
        path = self._file()
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        try:
            # Another process may have done this between our failure and now.
            if sound(path):
                return True
            os.replace(path, aside)
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
        except OSError:
            return False
        self._warn(f"{path} is damaged ({error}); it now lies at {aside}, and a new one is begun")
        return True

    def _fall_back(self, error: Exception) -> None:
        place = self._path or "the cache folder"
        self._memory = MemoryStore(f"{place} cannot be used: {reason_of(error)}")
        self._memory.fill(dict(self._rescued()))
        self._warn(
            f"picks are not remembered, since {place} cannot be used ({reason_of(error)}). "
            "Name a folder that can be written (cache_dir, or WEBTUNE_CACHE_DIR)"
        )

    def _rescued(self) -> list[tuple[Address, Decision]]:
        """What can be read of a file that cannot be written, as in a read-only folder."""
        if self._path is None:
            return []
        try:
            db = open_read_only(self._path)
        except (OSError, ValueError, sqlite3.Error, UnusableError):
            return []
        try:
            found = [(Address(*row[:4]), decode(row[4])) for row in db.execute(ALL)]
        except sqlite3.Error:
            return []
        finally:
            db.close()
        return [(address, each) for address, each in found if isinstance(each, Decision)]

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warn(StoreWarning(text))


def _died(row: tuple[str, str, int, str, float, int, str]) -> bool:
    """Whether the process of a row of `STARTS` is gone, with nothing said of the start."""
    _, host, pid, began, since_s, dead, _ = row
    return not dead and not alive(Process(host, pid, began), time.time() - since_s)


def _write(db: sqlite3.Connection, address: Address, body: str) -> None:
    db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)", (*_parts(address), body))


def _parts(address: Address) -> tuple[str, str, str, str]:
    return address.environment, address.hardware, address.name, address.key
