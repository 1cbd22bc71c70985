"""Picks in a browser: one JSON document a namespace, and its journal, shared by the tabs.

A write replaces a file when it is complete, so a tab that dies while writing loses that write and
nothing else. What cannot be read is a miss and one warning. Without OPFS there is memory and one
warning. Every wait has a time-out, so nothing hangs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from webtune.errors import ConfigError, HostUnavailable, StoreWarning, warn
from webtune.gpu.browser.javascript import evaluate
from webtune.store.base import EVERYTHING, Address, Selector
from webtune.store.decision import Decision, encode
from webtune.store.journal import NOBODY, Event, Start, What, advance
from webtune.store.memory import MemoryStore
from webtune.store.opfs_document import (
    Change,
    Put,
    Values,
    VersionError,
    apply,
    dumps,
    loads,
    readable,
)

TIMEOUT_MS = 5_000
JOURNAL_DELAY_S = 0.05
"""A candidate that is back by then is not worth a write."""

Item = TypeVar("Item")


@dataclass
class SharedFile(Generic[Item]):
    """A file that tabs change in turn, behind the caller's back.

    `change` makes the file's new text of its old one (None where there is no file) and of the
    changes that it takes out of `waiting`. `failed` is told why the file cannot be written. All
    that comes within `delay_s` seconds is written at once, if it is still `needed` then.
    """

    files: Any
    name: str
    change: Callable[[str | None], Awaitable[str]]
    failed: Callable[[Exception], None]
    delay_s: float = 0.0
    needed: Callable[[], bool] = lambda: True
    waiting: list[Item] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def write_soon(self, item: Item) -> None:
        """Have one more change written."""
        self.waiting.append(item)
        if self.task is None:
            self.task = asyncio.ensure_future(self._write_all())

    async def _write_all(self) -> None:
        try:
            await asyncio.sleep(self.delay_s)
            while self.waiting and self.needed():
                ticket = await self.files.acquire(f"webtune:{self.name}")
                try:
                    text = await self.change(await self.files.read(self.name))
                    await self.files.write(self.name, text)
                finally:
                    self.files.release(ticket)
        except Exception as error:  # storage never fails a tune
            self.failed(error)
        finally:
            self.waiting.clear()
            self.task = None


class OpfsStore(MemoryStore):
    """Decisions in the origin private file system, shared by the tabs and workers of an origin.

    It answers from memory and writes behind the caller's back. A tab holds a lock named after its
    session as long as it lives: starts of a session without a lock are lost.
    """

    def __init__(self, namespace: str = "default", *, timeout_ms: int = TIMEOUT_MS) -> None:
        """`namespace` names the document; `timeout_ms` bounds every wait for the browser.

        Raises `ConfigError` where it is no plain name and `HostUnavailable` outside Pyodide.
        """
        super().__init__()
        if not re.fullmatch(r"[\w.-]{1,64}", namespace):
            raise ConfigError(
                f"{namespace!r} is no namespace: use up to 64 letters, digits, '.', '-' and '_'"
            )
        try:
            self._files = evaluate("webtune.store", "opfs.js")(timeout_ms)
        except HostUnavailable as error:
            raise HostUnavailable("the OPFS store needs Pyodide in a web page or worker") from error
        self.session = str(self._files.session())
        self._namespace = namespace
        shared = partial(SharedFile, self._files, failed=self._give_up)
        self._document: SharedFile[Change] = shared(f"{namespace}.json", self._new_document)
        self._events: SharedFile[Event] = shared(
            f"{namespace}.journal.json",
            self._new_journal,
            delay_s=JOURNAL_DELAY_S,
            needed=lambda: _rows(self._journal) != _rows(self._written),
        )
        self._written: frozenset[Start] = frozenset()
        self._ticket: int | None = None
        self._broken = "not opened"
        self._closed = False
        self._warned = False

    @property
    def location(self) -> str:
        """Where the document lies, or why picks are not remembered."""
        if self._broken:
            return f"memory ({self._broken})"
        return f"OPFS: webtune/{self._document.name}"

    @property
    def scope(self) -> str:
        return f"opfs:memory:{self.session}" if self._broken else f"opfs:{self._namespace}"

    @property
    def lasting(self) -> bool:
        return not self._broken

    async def open(self) -> None:
        try:
            text = await self._files.read(self._document.name)
            self._broken = ""
            self._decisions = readable(self._values(text))
        except VersionError as error:
            self._give_up(error)
        except Exception as error:
            self._give_up(error)
            return
        with suppress(Exception):  # a journal that cannot be read accuses nobody
            text = await self._files.read(self._events.name)
            self._journal = self._written = await self._starts_in(text)
        with suppress(Exception):
            self._ticket = await self._files.acquire(self._lock_name(self.session))

    def put(self, address: Address, decision: Decision) -> bool:
        """See `Store.put`; the decision is on its way to the file when this returns True."""
        before = self.get(address)
        super().put(address, decision)
        base = encode(before) if before else ""
        return self._write_soon(self._document, Put(address, decision, base))

    def absorb(self, address: Address, decision: Decision) -> bool:
        differs = super().absorb(address, decision)
        if differs:
            self._write_soon(self._document, Put(address, self._decisions[address], None))
        return differs

    def purge(self, selector: Selector = EVERYTHING) -> int:
        self._write_soon(self._document, selector)
        return super().purge(selector)

    async def flush(self) -> None:
        while self._document.task is not None:
            await asyncio.wait([self._document.task])

    def close(self) -> None:
        """End. What was put is still written, behind the caller's back."""
        if self._closed:
            return
        super().close()
        self._closed = True
        if self._document.task is None:
            self._end_session()
        else:
            self._document.task.add_done_callback(lambda task: self._end_session())

    def _end_session(self) -> None:
        """From now on the starts of this tab that did not end are lost."""
        if self._ticket is not None:
            self._files.release(self._ticket)
            self._ticket = None

    def _note(self, event: Event) -> None:
        before = self._journal
        super()._note(event)
        if self._journal != before:
            self._write_soon(self._events, event)

    def _write_soon(self, file: SharedFile[Item], item: Item) -> bool:
        if self._broken or self._closed:
            return False
        file.write_soon(item)
        return True

    # ---- what the files say ------------------------------------------------------------------

    async def _new_document(self, text: str | None) -> str:
        values = self._values(text)
        while self._document.waiting:
            apply(self._document.waiting.pop(0), values)
        self._decisions = readable(values)
        return dumps(values)

    def _values(self, text: str | None) -> Values:
        """The values in the document; tells what of it cannot be read. Raises `VersionError`."""
        values, fault = ({}, "") if text is None else loads(text)
        if fault:
            self._warn(f"webtune/{self._document.name} {fault}")
        return values

    async def _new_journal(self, text: str | None) -> str:
        starts = await self._starts_in(text)
        while self._events.waiting:
            starts = advance(starts, self._events.waiting.pop(0), self.session)
        self._journal = self._written = starts
        return json.dumps(_rows(starts))

    async def _starts_in(self, text: str | None) -> frozenset[Start]:
        """The starts in the journal's file, each as the session that it belongs to left it."""
        try:
            rows = json.loads(text or "[]")
            starts = [Start(str(row[0]), str(row[1]), str(row[2])) for row in rows if len(row) == 3]
        except (ValueError, TypeError, LookupError):
            starts = []  # a tab that died cut it off
        held = json.loads(await self._files.holding(self._lock_name(""))) if starts else []
        living = {self.session, *(name.rpartition(":")[2] for name in held)}

        def found(start: Start) -> Start:
            if start.session == NOBODY:
                return start.after(What.ABANDON)
            return start if start.session in living else start.after(What.TAB_GONE)

        return frozenset(map(found, starts))

    def _lock_name(self, session: str) -> str:
        return f"webtune:session:{self._namespace}:{session}"

    # ---- what may go wrong -------------------------------------------------------------------

    def _give_up(self, why: Exception) -> None:
        self._broken = str(why) or type(why).__name__
        self._document.waiting.clear()
        self._warn(f"picks are kept in memory only: {self._broken}")

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warn(StoreWarning(f"webtune: {why}"))


def _rows(starts: Iterable[Start]) -> list[tuple[str, str, str]]:
    """What the file has of starts; what became of a session is found out while reading."""
    return sorted((start.hardware, start.candidate, start.session) for start in starts)
