"""The origin private file system and the Web Locks of a browser, as a stand-in for opfs.js."""

import asyncio
import itertools
import json

import pytest

from webtune.store.opfs import OpfsStore


class Browser:
    """Files and locks of one origin. `files` maps names to texts; `trouble` makes every access to
    files fail with its text; `locks` names the locks that are held."""

    def __init__(self, loop):
        self.loop = loop
        self.files = {}
        self.locks = {}
        self.trouble = ""
        self.written = []
        self.tabs = itertools.count()

    def tab(self, timeout_ms):
        """What opfs.js gives to one tab."""
        return Tab(self, next(self.tabs))

    def store(self, namespace="default"):
        """A store of a new tab, not opened."""
        return OpfsStore(namespace)

    def open(self, namespace="default"):
        """An open store of a new tab."""
        store = self.store(namespace)
        self.wait(store.open())
        return store

    def wait(self, work):
        """Run a coroutine to its end, and tasks meanwhile."""
        return self.loop.run_until_complete(work)

    def later(self, seconds=0.2):
        """Let tasks go on."""
        self.wait(asyncio.sleep(seconds))


class Tab:
    """The functions of opfs.js in one tab."""

    def __init__(self, browser, number):
        self.browser = browser
        self.number = number

    async def read(self, name):
        await asyncio.sleep(0)
        self._look()
        return self.browser.files.get(name)

    async def write(self, name, text):
        await asyncio.sleep(0)
        self._look()
        self.browser.files[name] = text
        self.browser.written.append(name)

    async def acquire(self, name):
        for _ in range(200):
            if name not in self.browser.locks.values():
                break
            await asyncio.sleep(0.001)
        else:
            raise RuntimeError("Error: another tab holds the lock")
        ticket = max(self.browser.locks, default=0) + 1
        self.browser.locks[ticket] = name
        return ticket

    def release(self, ticket):
        del self.browser.locks[ticket]

    async def holding(self, prefix):
        await asyncio.sleep(0)
        return json.dumps([name for name in self.browser.locks.values() if name.startswith(prefix)])

    def session(self):
        return f"session-{self.number}"

    def _look(self):
        if self.browser.trouble:
            raise RuntimeError(self.browser.trouble)


@pytest.fixture
def opfs(monkeypatch):
    """A browser whose tabs are made by `OpfsStore`, with an event loop of its own."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    browser = Browser(loop)
    monkeypatch.setattr("webtune.store.opfs.evaluate", lambda package, file: browser.tab)
    yield browser
    loop.run_until_complete(asyncio.sleep(0.1))
    asyncio.set_event_loop(None)
    loop.close()
