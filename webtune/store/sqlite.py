"""Picks in one SQLite file, safe for many threads and processes. It never fails a tune.

A folder or file that cannot be used means one `StoreWarning` and memory from then on. A damaged
file is set aside and a new one begun.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import astuple
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from webtune.errors import StoreWarning, reason_of, warn
from webtune.store.base import EVERYTHING, Address, Selector
from webtune.store.database import Database, UnusableError, Where, damaged, read_only, transaction
from webtune.store.decision import Decision, Unreadable, decode, encode, merge
from webtune.store.journal import Event, Journalled, Start, State, What, advance
from webtune.store.memory import MemoryStore, NoStore
from webtune.store.processes import Process

BUSY_S = 10.0

ALL = "SELECT environment, hardware, name, key, body FROM decisions"
ONE = "SELECT body FROM decisions WHERE environment = ? AND hardware = ? AND name = ? AND key = ?"
WRITE = "INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?)"
STARTS = """SELECT hardware, candidate, owner, dead, host, pid, began, since_s FROM journal
    WHERE hardware = coalesce(?, hardware)"""
DELETE_START = "DELETE FROM journal WHERE hardware = ? AND candidate = ? AND owner = ?"
INSERT_START = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

DEAD = {State.RUNNING: 0, State.ABANDONED: 1, State.CLOSED: 2}
"""What the column `dead` says of a start. That its process died is found out while reading."""

P = ParamSpec("P")
Answer = TypeVar("Answer")


def on_file(
    method: Callable[Concatenate[SqliteStore, P], Answer],
) -> Callable[Concatenate[SqliteStore, P], Answer]:
    """The method; `MemoryStore`'s of this name once the file cannot be used. Never raises for what
    the file does."""

    @wraps(method)
    def act(self: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        with self._lock:
            other, tries = self._memory, 0
            while other is None:
                try:
                    return method(self, *args, **kwargs)
                except UnicodeEncodeError as error:
                    # A name that no file can hold: it is this call's alone.
                    self._warn(f"a pick cannot be stored under its name: {error}")
                    other = NoStore()
                except (OSError, RuntimeError, ValueError, sqlite3.Error, UnusableError) as error:
                    tries += 1
                    other = self._mended(error, retry=tries == 1)
            answer: Answer = getattr(other, method.__name__)(*args, **kwargs)
            return answer

    return act


class SqliteStore(Journalled):
    """Decisions and journal in `path` (a file), in `folder`, or in the user's cache folder.

    `busy_s` is how many seconds every use waits for other processes. Opens by itself at the first
    use. After a fork the child opens its own connection.
    """

    def __init__(self, path: Where = None, *, folder: Where = None, busy_s: float = BUSY_S) -> None:
        super().__init__()
        self._database = Database(path, folder, busy_s)
        self._memory: MemoryStore | None = None
        self._warned = False

    @property
    def location(self) -> str:
        if self._memory is not None:
            return self._memory.location
        try:
            return str(self._database.path)
        except (OSError, RuntimeError) as error:
            return f"nowhere yet ({error})"

    @property
    def scope(self) -> str:
        return f"sqlite:{self.location}"

    @property
    def lasting(self) -> bool:
        return self._memory is None

    async def open(self) -> None:
        self.suspects("")  # any use opens the file

    @on_file
    def get(self, address: Address) -> Decision | None:
        return self._read(self._database.connect(), address)

    @on_file
    def put(self, address: Address, decision: Decision) -> bool:
        """See `Store.put`. A decision with a float that JSON cannot hold is not kept, with a
        warning."""
        try:
            body = encode(decision)
        except ValueError as error:
            self._warn(f"the pick of {address.name!r} cannot be stored: {error}")
            return False
        with transaction(self._database.connect()) as db:
            db.execute(WRITE, (*astuple(address), body))
        return True

    @on_file
    def absorb(self, address: Address, decision: Decision) -> bool:
        with transaction(self._database.connect()) as db:
            before = self._read(db, address)
            after = decision if before is None else merge(before, decision)
            if after != before:
                db.execute(WRITE, (*astuple(address), encode(after)))
        return after != before

    @on_file
    def entries(self) -> Iterable[tuple[Address, Decision]]:
        rows = self._database.connect().execute(ALL)
        bodies = sorted((Address(*parts), body) for *parts, body in rows)
        found = ((address, self._decoded(address, body)) for address, body in bodies)
        return [(address, decision) for address, decision in found if decision is not None]

    @on_file
    def purge(self, selector: Selector = EVERYTHING) -> int:
        parts = selector.given
        where = " AND ".join(f"{part} = ?" for part in parts) or "1"
        with transaction(self._database.connect()) as db:
            gone = db.execute(f"DELETE FROM decisions WHERE {where}", (*parts.values(),))
        self._forgive(selector)
        return gone.rowcount

    async def flush(self) -> None:
        """Nothing to wait for: what was put is committed."""

    def close(self) -> None:
        with self._lock:
            self._runs.clear()
            if self._memory is not None:
                self._memory.close()
            if self._database.connected:
                # Where this fails our process will be gone soon, which says the same.
                with suppress(sqlite3.Error):
                    self._change(Event(What.CLOSE))
                self._database.disconnect()

    # ---- reading and writing -----------------------------------------------------------------

    def _read(self, db: sqlite3.Connection, address: Address) -> Decision | None:
        row = db.execute(ONE, astuple(address)).fetchone()
        return None if row is None else self._decoded(address, row[0])

    def _decoded(self, address: Address, body: str) -> Decision | None:
        found = decode(body)
        if isinstance(found, Unreadable):
            self._warn(
                f"the pick of {address.name!r} for {address.key} in {self.location} cannot be "
                f"read: {found.reason}. It is measured again"
            )
            return None
        return found

    @on_file
    def _note(self, event: Event) -> None:
        self._change(event)

    @on_file
    def _starts(self, hardware: str) -> frozenset[Start]:
        return _load(self._database.connect(), hardware)

    def _change(self, event: Event) -> None:
        """Advance the journal in the file. A start, and that a device was given up, are on the
        disk before this returns: what follows may stop the machine."""
        durable = event.what in (What.BEGIN, What.ABANDON)
        with transaction(self._database.connect(), durable=durable) as db:
            before = _load(db, event.hardware)
            after = advance(before, event, self._database.session)
            for start in before - after:
                db.execute(DELETE_START, (start.hardware, start.candidate, start.session))
            origin = (*astuple(self._database.process), time.time())
            for start in after - before:
                names = (start.hardware, start.candidate, start.session)
                db.execute(INSERT_START, (*names, *origin, DEAD[start.state]))

    # ---- what may go wrong -------------------------------------------------------------------

    def _mended(self, error: Exception, *, retry: bool) -> MemoryStore | None:
        """What to go on with after an error: memory, or None for a new file."""
        self._database.disconnect()
        if retry and damaged(error):
            with suppress(OSError):
                if aside := self._database.set_aside():
                    self._warn(
                        f"{self._database.path} is damaged ({error}); it now lies at {aside}, and "
                        "a new one is begun"
                    )
                return None
        try:
            path = self._database.path
            where, decisions = str(path), _rescued(path)
        except (OSError, RuntimeError):
            where, decisions = "the cache folder", {}
        self._memory = MemoryStore(f"{where} cannot be used: {reason_of(error)}", decisions)
        self._warn(
            f"picks are not remembered, since {where} cannot be used ({reason_of(error)}). "
            "Name a folder that can be written (cache_dir, or WEBTUNE_CACHE_DIR)"
        )
        return self._memory

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warn(StoreWarning(text))


def _rescued(path: Path) -> dict[Address, Decision]:
    """What can be read of a file that cannot be written, as in a read-only folder."""
    try:
        found = ((Address(*parts), decode(body)) for *parts, body in read_only(path, ALL))
        return {address: read for address, read in found if isinstance(read, Decision)}
    except (OSError, ValueError, sqlite3.Error, UnusableError):
        return {}


def _load(db: sqlite3.Connection, hardware: str | None) -> frozenset[Start]:
    """The starts in the file on one hardware or, for None, on all."""
    states, starts = {number: state for state, number in DEAD.items()}, set()
    for place, candidate, session, dead, *process, since_s in db.execute(STARTS, (hardware,)):
        start = Start(place, candidate, session, states.get(dead, State.CLOSED))
        if start.state is State.RUNNING and not Process(*process).alive(time.time() - since_s):
            start = start.after(What.PROCESS_DIED)
        starts.add(start)
    return frozenset(starts)
