"""Picks in OPFS: shared by tabs, whole after a tab died, and never in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webtune.testing.browser import PythonPage

Fresh = Callable[..., PythonPage]

HELPERS = """
import asyncio, json, warnings
from collections import Counter
from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.decision import CandidateResult, Decision
from webtune.errors import StoreWarning
from webtune.store.base import Address
from webtune.store.journal import State
from webtune.store.opfs import OpfsStore

def record(samples=3, created_s=1.0):
    one = CandidateResult("id", "a", Params({}), "winner", 1000, None, (1000,) * samples)
    return Decision("f", (one,), confidence=0.9, strategy="fixed", clock=Clock("wall", 1),
                    device="gpu", created_s=created_s)

def address(key):
    return Address("default", "gpu", "saxpy", json.dumps(key))

async def opened(namespace, **options):
    store = OpfsStore(namespace, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await store.open()
    return store, [str(w.message) for w in caught if issubclass(w.category, StoreWarning)]

async def overwrite(namespace, text):
    import js
    root = await js.navigator.storage.getDirectory()
    folder = await root.getDirectoryHandle("webtune", create=True)
    file = await folder.getFileHandle(namespace + ".json", create=True)
    writer = await file.createWritable()
    await writer.write(text)
    await writer.close()
"""


def run(page: PythonPage, body: str, **arguments: Any) -> Any:
    """Run `async def body(...)` inside, with the helpers above."""
    return page.run_source(HELPERS + body, "body", **arguments)


@pytest.fixture(scope="module")
def tabs(open_page: Fresh, shared: Callable[[str], PythonPage]) -> tuple[PythonPage, PythonPage]:
    """Two tabs that share their OPFS: the main thread of one, a worker of the other."""
    first = shared("314 main")
    return first, open_page("0.27.7", True, context=first.page.context)


PUT_MANY = """
async def body(namespace, who):
    store, told = await opened(namespace)
    for number in range(12):
        store.put(address([who, number]), record())
        await asyncio.sleep(0.002)
        if number % 3 == 0:
            await store.flush()
    await store.flush()
    store.close()
    return told
"""
LIST = """
async def body(namespace):
    store, told = await opened(namespace)
    found = [json.loads(a.key) for a, _ in store.entries()]
    store.close()
    return [found, told, store.location]
"""


def test_two_tabs_that_write_at_once_keep_all_their_picks(
    tabs: tuple[PythonPage, PythonPage],
) -> None:
    begin = """([source, who]) => { window.writing = window.inside_python.call(
      source, "body", JSON.stringify({ namespace: "two-tabs", who })); }"""
    for who, tab in enumerate(tabs):
        tab.page.evaluate(begin, [HELPERS + PUT_MANY, f"tab {who}"])
    for tab in tabs:
        assert '"value": []' in tab.page.evaluate("() => window.writing")
    found, told, _ = run(tabs[0], LIST, namespace="two-tabs")
    assert sorted(map(tuple, found)) == [(f"tab {t}", n) for t in (0, 1) for n in range(12)]
    assert told == []


def test_a_tab_sees_what_another_wrote_once_it_writes_itself(
    tabs: tuple[PythonPage, PythonPage],
) -> None:
    one, other = tabs
    run(one, "async def body():\n    global kept\n    kept, _ = await opened('seen')\n"
             "    import builtins; builtins.kept_store = kept")  # fmt: skip
    run(other, PUT_MANY, namespace="seen", who="other")
    seen = run(
        one,
        """
async def body():
    import builtins
    store = builtins.kept_store
    before = len(list(store.entries()))
    store.put(address("mine"), record())
    await store.flush()
    after = len(list(store.entries()))
    store.close()
    del builtins.kept_store
    return [before, after]
""",
    )
    assert seen == [0, 13]


BROKEN = {
    "empty": ("", "empty"),
    "truncated": ('{"format":"webtune picks","schema":1,"decisions":[["a"', "cut off"),
    "foreign": ('{"what": "ever"}', "not webtune's"),
    "no object": ("[1, 2]", "not webtune's"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_cannot_be_read_is_a_miss_and_one_warning(place: PythonPage, case: str) -> None:
    text, why = BROKEN[case]
    found = run(
        place,
        """
async def body(namespace, text):
    await overwrite(namespace, text)
    store, told = await opened(namespace)
    missed = store.get(address(1))
    store.put(address(1), record())
    await store.flush()
    store.close()
    again, told_again = await opened(namespace)
    return [missed, told, again.get(address(1)) == record(), told_again]
""",
        namespace=f"broken-{case.replace(' ', '-')}",
        text=text,
    )
    missed, told, there, told_again = found
    assert missed is None
    assert len(told) == 1
    assert why in told[0]
    assert there
    assert told_again == []


def test_a_document_of_a_newer_schema_is_a_miss_and_stays_as_it_is(main: PythonPage) -> None:
    told, missed, kept, location, after = run(
        main,
        """
async def body():
    text = '{"format":"webtune picks","schema":99,"decisions":[]}'
    await overwrite("newer", text)
    store, told = await opened("newer")
    missed = store.get(address(1))
    kept = store.put(address(1), record())
    await store.flush()
    here = store.get(address(1)) == record()
    files = store._files
    return [told, missed, [kept, here], store.location, str(await files.read("newer.json"))]
""",
    )
    assert len(told) == 1
    assert "schema 99" in told[0]
    assert missed is None
    assert kept == [False, True]
    assert "memory" in location
    assert '"schema":99' in after


def test_a_record_of_a_newer_schema_survives_the_writes_of_an_older_webtune(
    main: PythonPage,
) -> None:
    told, text = run(
        main,
        """
async def body():
    newer = {"schema": 99, "checksum": "c", "decision": {"new": True}}
    spoilt = {"schema": 2, "checksum": "c", "decision": {}}
    rows = [["e", "h", "n", "1", newer], ["e", "h", "n", "2", spoilt]]
    whole = {"format": "webtune picks", "schema": 1, "decisions": rows}
    await overwrite("mixed", json.dumps(whole))
    store, told = await opened("mixed")
    store.put(address(1), record())
    await store.flush()
    return [told, str(await store._files.read("mixed.json"))]
""",
    )
    assert len(told) == 1
    assert '"new":true' in text
    assert '"checksum":"c","decision":{}' not in text


NO_OPFS = {
    "refused": "() => Promise.reject(new DOMException('blocked', 'SecurityError'))",
    "absent": "undefined",
    "silent": "() => new Promise(() => 0)",
}


@pytest.mark.parametrize("case", NO_OPFS)
def test_without_opfs_picks_stay_in_memory_with_one_warning_and_nothing_hangs(
    place: PythonPage, case: str
) -> None:
    told, kept, here, location, took_s = run(
        place,
        """
async def body(replacement):
    import time
    from pyodide.code import run_js
    run_js("navigator.storage.getDirectory = " + replacement)
    began = time.monotonic()
    try:
        store, told = await opened("nowhere", timeout_ms=300)
        kept = store.put(address(1), record())
        store.begin("gpu", "c")
        await store.flush()
        here = store.get(address(1)) == record()
        store.close()
        return [told, kept, here, store.location, time.monotonic() - began]
    finally:
        run_js("delete navigator.storage.getDirectory")
""",
        replacement=NO_OPFS[case],
    )
    assert len(told) == 1
    assert kept is False
    assert here is True
    assert "memory" in location
    assert took_s < 5


def test_a_lock_that_another_tab_never_lets_go_ends_in_memory(main: PythonPage) -> None:
    told, here, location = run(
        main,
        '''
async def body():
    from pyodide.code import run_js
    run_js("""new Promise(held => navigator.locks.request("webtune:stuck.json", () =>
        new Promise(go => { globalThis.let_go = go; held(0); })))""")
    store, _ = await opened("stuck", timeout_ms=300)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.put(address(1), record())
        await store.flush()
    run_js("globalThis.let_go(0)")
    told = [str(w.message) for w in caught if issubclass(w.category, StoreWarning)]
    return [told, store.get(address(1)) == record(), store.location]
''',
    )
    assert len(told) == 1
    assert "another tab holds the lock" in told[0]
    assert here
    assert "memory" in location


def test_a_store_of_memory_hears_of_the_loss_only_once(main: PythonPage) -> None:
    told = run(
        main,
        """
async def body():
    await overwrite("once", "nonsense")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store = OpfsStore("once", timeout_ms=300)
        await store.open()
        store._give_up(RuntimeError("a second reason"))
        store._give_up(RuntimeError("a third"))
    return len([w for w in caught if issubclass(w.category, StoreWarning)])
""",
    )
    assert told == 1


WRITE_ON = """
async def body(namespace):
    store, _ = await opened(namespace)
    store.begin("gpu", "never back")
    await asyncio.sleep(0.3)
    number = 0
    while True:
        store.put(address(["dying", number]), record(samples=400))
        number += 1
        await asyncio.sleep(0.001)
"""


def test_a_tab_closed_while_it_writes_leaves_a_whole_file_and_its_start(
    open_page: Fresh, main: PythonPage
) -> None:
    run(main, PUT_MANY, namespace="dying", who="before")
    tab = open_page(context=main.page.context)
    tab.page.evaluate(
        """source => { window.inside_python.call(
          source, "body", JSON.stringify({ namespace: "dying" })); }""",
        HELPERS + WRITE_ON,
    )
    look = """
async def body(namespace):
    store, told = await opened(namespace)
    store.close()
    return [len(list(store.entries())), sorted(store.suspects("gpu")), told]
"""
    for _ in range(60):
        tab.page.wait_for_timeout(100)
        count, suspects, told = run(main, look, namespace="dying")
        assert told == []
        assert suspects == []
        if count > 30:
            break
    assert count > 30
    tab.page.close()
    for _ in range(50):  # its locks go a moment after it
        if run(main, LOOK, namespace="dying") == [[], [1]]:
            break
        main.page.wait_for_timeout(100)
    else:
        raise AssertionError("its start is not in the journal")
    count_after, suspects, told = run(main, look, namespace="dying")
    assert count_after >= count
    assert told == []
    assert suspects == []


BEGIN = """
async def body(namespace):
    store, _ = await opened(namespace)
    store.begin("gpu", "never back")
    await asyncio.sleep(0.5)
    return sorted(store.suspects("gpu"))
"""
COME_BACK = """
async def body(namespace):
    store, _ = await opened(namespace)
    store.begin("gpu", "never back")
    store.end("gpu", "never back")
    await asyncio.sleep(0.5)
    store.close()
    return sorted(store.suspects("gpu"))
"""
LOOK = """
async def body(namespace):
    store, _ = await opened(namespace)
    store.close()
    closed = [start.candidate for start in store._journal if start.state is State.CLOSED]
    return [sorted(store.suspects("gpu")), sorted(Counter(closed).values())]
"""


def test_one_closed_tab_accuses_nobody_two_do_and_an_end_clears_them(
    open_page: Fresh, main: PythonPage
) -> None:
    def die() -> None:
        tab = open_page(context=main.page.context)
        assert run(tab, BEGIN, namespace="deaths") == []
        tab.page.close()

    def seen(*wanted: Any) -> bool:
        for _ in range(50):  # its lock goes a moment after a tab
            if run(main, LOOK, namespace="deaths") == list(wanted):
                return True
            main.page.wait_for_timeout(100)
        return False

    die()
    assert seen([], [1])
    die()
    assert seen(["never back"], [2])
    assert run(main, COME_BACK, namespace="deaths") == []
    assert seen([], [])
    die()
    assert seen([], [1])
