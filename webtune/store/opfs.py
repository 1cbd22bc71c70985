"""Picks in a browser: one JSON document a namespace, read, merged and written under a Web Lock.

`createWritable` replaces the file when it is closed, so a tab that dies while writing loses that
write and nothing else. What cannot be read is a miss and one warning; without OPFS there is memory
and one warning; every wait has a time-out, so nothing hangs.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from webtune.errors import ConfigError, HostUnavailable, StoreWarning, warn
from webtune.store.base import LOST_STARTS, Address
from webtune.store.decision import SCHEMA, Decision, Unreadable, document, encode, merge, read
from webtune.store.memory import matches

__all__ = ["OpfsStore"]

_TIMEOUT_MS = 5_000
_JOURNAL_DELAY_S = 0.05
"""A candidate that is back by then is not worth a write."""
_FORMAT = "webtune picks"
_NEVER = "never replace, always merge"
_GONE = "given up"
"""Stands in the journal for a session that will not end what it began."""

_FILES = r"""
(timeoutMs) => {
  const held = new Map();
  let last = 0;
  // Never rejects: "text:…", "none:", "ok:" or "error:…".
  const within = work => new Promise(done => {
    const timer = setTimeout(() => done(`error:no answer within ${timeoutMs / 1000} s`), timeoutMs);
    const finish = value => { clearTimeout(timer); done(value); };
    work().then(finish, error => finish(`error:${(error && error.message) || error}`));
  });
  const folder = async create => {
    if (!navigator.storage || !navigator.storage.getDirectory)
      throw new Error("this page has no origin private file system");
    if (!navigator.locks) throw new Error("this page has no Web Locks");
    return (await navigator.storage.getDirectory()).getDirectoryHandle("webtune", { create });
  };
  const missing = error => error && error.name === "NotFoundError";
  return {
    read: name => within(async () => {
      try {
        const file = await (await (await folder(true)).getFileHandle(name)).getFile();
        return "text:" + await file.text();
      } catch (error) {
        if (missing(error)) return "none:";
        throw error;
      }
    }),
    write: (name, text) => {
      let writer = null, late = false;
      return within(async () => {
        const handle = await (await folder(true)).getFileHandle(name, { create: true });
        writer = await handle.createWritable();
        if (late) { await writer.abort(); return "error:too late"; }
        await writer.write(text);
        await writer.close();
        return "ok:";
      }).then(answer => {
        late = true;
        if (answer !== "ok:" && writer) writer.abort().catch(() => 0);
        return answer;
      });
    },
    acquire: (name, wait) => new Promise(done => {
      const ticket = ++last;
      const stop = new AbortController();
      const timer = setTimeout(() => {
        done("error:another tab holds the lock");
        stop.abort();
      }, wait);
      navigator.locks.request(name, { signal: stop.signal }, () => {
        clearTimeout(timer);
        return new Promise(release => { held.set(ticket, release); done("ok:" + ticket); });
      }).catch(error => { clearTimeout(timer); done("error:" + error.message); });
    }),
    release: ticket => {
      const release = held.get(ticket);
      held.delete(ticket);
      if (release) release(0);
    },
    living: prefix => within(async () => {
      const { held: names } = await navigator.locks.query();
      return "text:" + JSON.stringify(names.map(one => one.name).filter(n => n.startsWith(prefix)));
    }),
    session: () => crypto.randomUUID(),
  };
}
"""


@dataclass(frozen=True, slots=True)
class _Put:
    """`base` is the text of the record that was known here when this one replaced it."""

    address: Address
    record: Decision
    base: str


@dataclass(frozen=True, slots=True)
class _Purge:
    environment: str | None
    hardware: str | None
    name: str | None
    key: str | None

    def takes(self, address: Address) -> bool:
        return matches(address, self.environment, self.hardware, self.name, self.key)


class OpfsStore:
    """A `Store` in the origin private file system, shared by the tabs and workers of an origin."""

    def __init__(self, namespace: str = "default", *, timeout_ms: int = _TIMEOUT_MS) -> None:
        """`namespace` names the document. Raises `ConfigError` where it is no plain name and
        `HostUnavailable` outside Pyodide."""
        if not re.fullmatch(r"[\w.-]{1,64}", namespace):
            raise ConfigError(
                f"{namespace!r} is no namespace: use up to 64 letters, digits, '.', '-' and '_'"
            )
        try:
            run_js = importlib.import_module("pyodide.code").run_js
        except ImportError as error:
            raise HostUnavailable("the OPFS store needs Pyodide in a web page or worker") from error
        self._files = run_js(_FILES)(timeout_ms)
        self._timeout_ms = timeout_ms
        self._namespace = namespace
        self._session = str(self._files.session())
        self._session_ticket = 0
        self._records: dict[Address, Decision] = {}
        self._queue: list[_Put | _Purge] = []
        self._started: dict[tuple[str, str], bool] = {}
        self._over: set[tuple[str, str, str]] = set()
        self._abandoned: set[tuple[str, str]] = set()
        self._forgiven: set[tuple[str, str]] = set()
        self._gone: set[tuple[str, str]] = set()
        self._lost: dict[tuple[str, str], set[str]] = {}
        self._broken = "not opened"
        self._warned = False
        self._closed = False
        self._writer: asyncio.Task[None] | None = None
        self._journalist: asyncio.Task[None] | None = None

    @property
    def location(self) -> str:
        """Where the document lies, or why picks are not remembered."""
        if self._broken:
            return f"memory ({self._broken})"
        return f"OPFS: webtune/{self._file}"

    @property
    def scope(self) -> str:
        """Stores with equal scopes are one place."""
        return f"opfs:{self._namespace}" if not self._broken else f"opfs:memory:{self._session}"

    @property
    def _file(self) -> str:
        return f"{self._namespace}.json"

    @property
    def _prefix(self) -> str:
        return f"webtune:session:{self._namespace}:"

    # ---- reading and writing -----------------------------------------------------------------

    async def open(self) -> None:
        """Read the document. Never raises: warns once and goes on in memory."""
        answer = str(await self._files.read(self._file))
        kind, _, text = answer.partition(":")
        if kind == "error":
            self._give_up(text)
            return
        self._broken = ""
        self._take(self._parse(text) if kind == "text" else {})
        session = str(await self._files.acquire(self._prefix + self._session, self._timeout_ms))
        if session.startswith("ok:"):
            self._session_ticket = int(session[3:])
        await self._read_journal()

    def get(self, address: Address) -> Decision | None:
        """The record, or None."""
        return self._records.get(address)

    def put(self, address: Address, record: Decision) -> bool:
        """Remember; True when it is on its way to the file."""
        known = self._records.get(address)
        self._records[address] = record
        if self._broken or self._closed:
            return False
        self._queue.append(_Put(address, record, encode(known) if known else ""))
        self._write_soon()
        return True

    def absorb(self, address: Address, record: Decision) -> bool:
        """Merge with what is there; True when that changed it."""
        before = self._records.get(address)
        after = record if before is None else merge(before, record)
        if after == before:
            return False
        self._records[address] = after
        if not self._broken and not self._closed:
            self._queue.append(_Put(address, after, _NEVER))
            self._write_soon()
        return True

    def entries(self) -> Iterable[tuple[Address, Decision]]:
        """All records, ordered by address."""
        return sorted(self._records.items(), key=lambda entry: entry[0])

    def purge(
        self,
        *,
        environment: str | None = None,
        hardware: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> int:
        """Forget what matches every given part; how many went. Without environment, name and key
        the suspects (of that hardware, or all) are forgotten too."""
        if environment is name is key is None:
            known = {*self._gone, *self._lost}
            forgiven = {place for place in known if hardware in (None, place[0])}
            self._gone -= forgiven
            self._abandoned -= forgiven
            self._forgiven |= forgiven
            for place in forgiven & self._lost.keys():
                del self._lost[place]
            self._journal_soon()
        wanted = _Purge(environment, hardware, name, key)
        gone = [address for address in self._records if wanted.takes(address)]
        for address in gone:
            del self._records[address]
        if not self._broken and not self._closed:
            self._queue.append(wanted)
            self._write_soon()
        return len(gone)

    async def flush(self) -> None:
        """Wait until what was put is in the file. Never raises."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    def close(self) -> None:
        """End. What was put is still written, behind the caller's back."""
        if self._closed:
            return
        self._closed = True
        # In the file these starts are lost as the session's lock is let go.
        for place in self._started:
            self._lost.setdefault(place, set()).add(self._session)
        self._started.clear()
        if self._writer is None:
            self._leave()

    def _leave(self) -> None:
        if self._session_ticket:
            self._files.release(self._session_ticket)
            self._session_ticket = 0

    def _write_soon(self) -> None:
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._queue and not self._broken:
                await self._exchange()
        except Exception as error:  # storage never fails a tune
            self._give_up(str(error))
        finally:
            self._writer = None
            if self._closed:
                self._leave()

    async def _exchange(self) -> None:
        """Read, merge and write the document while no other tab can."""
        lock = await self._locked(self._file)
        if lock is None:
            return
        try:
            kind, _, text = str(await self._files.read(self._file)).partition(":")
            if kind == "error":
                self._give_up(text)
                return
            found = self._parse(text) if kind == "text" else {}
            if self._broken:
                return
            work, self._queue = self._queue, []
            for one in work:
                _apply(one, found)
            answer = str(await self._files.write(self._file, _format(found)))
            if answer != "ok:":
                self._give_up(answer.partition(":")[2])
                return
            self._take(found)
        finally:
            self._files.release(lock)

    async def _locked(self, file: str) -> int | None:
        answer = str(await self._files.acquire(f"webtune:{file}", self._timeout_ms))
        if answer.startswith("ok:"):
            return int(answer[3:])
        self._give_up(answer.partition(":")[2])
        return None

    def _take(self, found: dict[Address, Any]) -> None:
        """The file's records are what is known now, and what waits to be written on top."""
        known = {a: value for a, value in found.items() if isinstance(value, Decision)}
        for one in self._queue:
            _apply(one, known)
        self._records = known

    # ---- the document ------------------------------------------------------------------------

    def _parse(self, text: str) -> dict[Address, Any]:
        """Records by address; a record of a newer webtune stays as it was read, so that writing
        does not lose it. What cannot be read is left out, with a warning."""
        try:
            whole = json.loads(text)
            if whole["format"] != _FORMAT:
                raise KeyError("format")
            schema = whole["schema"]
            rows = [(Address(*(str(part) for part in row[:4])), row[4]) for row in whole["records"]]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            self._warn(f"webtune/{self._file} is empty, cut off or not webtune's: starting afresh")
            return {}
        if schema != SCHEMA:
            self._give_up(f"webtune/{self._file} is of another version (schema {schema!r})")
            return {}
        found: dict[Address, Any] = {}
        for address, value in rows:
            record = read(value)
            if not isinstance(record, Unreadable):
                found[address] = record
                continue
            self._warn(f"a pick of {address.name} cannot be read: {record.reason}")
            if isinstance(value, dict) and value.get("schema") != SCHEMA:
                found[address] = value
        return found

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warn(StoreWarning(f"webtune: {why}"))

    def _give_up(self, why: str) -> None:
        self._broken = why or "unknown"
        self._queue.clear()
        self._warn(f"picks are kept in memory only: {why}")

    # ---- the journal -------------------------------------------------------------------------

    def begin(self, hardware: str, candidate: str) -> None:
        """Note that a candidate is about to run. Written when it is not back very soon."""
        self._started[hardware, candidate] = False
        self._journal_soon()

    def end(self, hardware: str, candidate: str) -> None:
        """Note that it came back: its lost starts are forgotten, an abandoned one is not."""
        place = (hardware, candidate)
        if place not in self._started:
            return
        over = self._lost.pop(place, set())
        if self._started.pop(place):
            over.add(self._session)
        if over:
            self._over |= {(*place, session) for session in over}
            self._journal_soon()

    def abandon(self, hardware: str) -> None:
        """The device is given up: what began on this hardware will not come back."""
        lost = {place for place in self._started if place[0] == hardware}
        for place in lost:
            del self._started[place]
        self._gone |= lost
        self._abandoned |= lost
        self._journal_soon()

    def suspects(self, hardware: str) -> frozenset[str]:
        """Candidates that were abandoned, or were lost in too many tabs that are gone."""
        often = {place for place, tabs in self._lost.items() if len(tabs) >= LOST_STARTS}
        return frozenset(name for where, name in self._gone | often if where == hardware)

    def _journal_soon(self) -> None:
        if self._journalist is None and not self._broken and not self._closed:
            self._journalist = asyncio.ensure_future(self._keep_journal())

    async def _keep_journal(self) -> None:
        try:
            await asyncio.sleep(_JOURNAL_DELAY_S)
            while self._unwritten():
                lock = await self._locked(self._journal)
                if lock is None:
                    return
                try:
                    await self._write_journal()
                finally:
                    self._files.release(lock)
        except Exception as error:  # storage never fails a tune
            self._warn(f"the journal cannot be written: {error}")
        finally:
            self._journalist = None

    def _unwritten(self) -> bool:
        changed = self._over or self._forgiven or self._abandoned
        return bool(changed) or not all(self._started.values())

    async def _write_journal(self) -> None:
        rows = await self._journal_rows()
        over, self._over = self._over, set()
        forgiven, self._forgiven = self._forgiven, set()
        lost, self._abandoned = self._abandoned, set()
        rows = [
            row
            for row in rows
            if (row[0], row[1], row[2]) not in over and (row[0], row[1]) not in forgiven | lost
        ]
        rows.extend([*place, _GONE] for place in sorted(lost))
        for place, written in list(self._started.items()):
            if not written:
                rows.append([*place, self._session])
                self._started[place] = True
        answer = str(await self._files.write(self._journal, json.dumps(rows)))
        if answer != "ok:":
            self._give_up(answer.partition(":")[2])

    @property
    def _journal(self) -> str:
        return f"{self._namespace}.journal.json"

    async def _journal_rows(self) -> list[list[str]]:
        kind, _, text = str(await self._files.read(self._journal)).partition(":")
        try:
            rows = json.loads(text) if kind == "text" else []
            return [[str(part) for part in row] for row in rows if len(row) == 3]
        except (ValueError, TypeError):
            return []  # a journal that a dying tab cut off accuses nobody

    async def _read_journal(self) -> None:
        rows = await self._journal_rows()
        kind, _, text = str(await self._files.living(self._prefix)).partition(":")
        if not rows or kind != "text":
            return
        living = {name.removeprefix(self._prefix) for name in json.loads(text)}
        for hardware, candidate, session in rows:
            if session == _GONE:
                self._gone.add((hardware, candidate))
            elif session not in living:
                self._lost.setdefault((hardware, candidate), set()).add(session)


def _apply(one: _Put | _Purge, found: dict[Address, Any]) -> None:
    """Put: over what was known here it replaces; over what another tab wrote it merges."""
    if isinstance(one, _Purge):
        for address in [address for address in found if one.takes(address)]:
            del found[address]
        return
    there = found.get(one.address)
    if isinstance(there, Decision) and encode(there) != one.base:
        found[one.address] = merge(there, one.record)
    else:
        found[one.address] = one.record


def _format(found: dict[Address, Any]) -> str:
    rows = [
        [a.environment, a.hardware, a.name, a.key, document(v) if isinstance(v, Decision) else v]
        for a, v in sorted(found.items(), key=lambda entry: entry[0])
    ]
    return json.dumps({"format": _FORMAT, "schema": SCHEMA, "records": rows}, separators=(",", ":"))
