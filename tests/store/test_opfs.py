"""The store of a browser over stand-ins for its files and locks: order, tabs and failures."""

import asyncio
import json
import warnings

import pytest

from webtune.errors import ConfigError, HostUnavailable, StoreWarning
from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.base import Address, Selector
from webtune.store.decision import CandidateResult, Decision
from webtune.store.journal import NOBODY
from webtune.store.opfs import OpfsStore

A = Address("default", "gpu", "saxpy", "[1]")
B = Address("default", "gpu", "saxpy", "[2]")
JOURNAL = "default.journal.json"


def decision(samples=3):
    one = CandidateResult("id", "a", Params({}), "winner", 1000, None, (1000,) * samples)
    return Decision("f", (one,), confidence=0.9, strategy="fixed", clock=Clock("wall", 1))


@pytest.fixture
def told():
    """Gives the texts of the StoreWarnings so far."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(w.message) for w in caught if issubclass(w.category, StoreWarning)]


def journal(opfs):
    """The rows of the journal's file."""
    return json.loads(opfs.files.get(JOURNAL, "[]"))


def test_elsewhere_the_store_says_that_it_needs_pyodide():
    with pytest.raises(HostUnavailable, match="the OPFS store needs Pyodide"):
        OpfsStore()
    with pytest.raises(ConfigError, match="no namespace"):
        OpfsStore("../elsewhere")


# ---- the document --------------------------------------------------------------------------


def test_picks_come_back_in_the_next_tab(opfs):
    one = opfs.open()
    assert one.put(A, decision())
    assert one.lasting
    opfs.wait(one.flush())
    assert opfs.open().get(A) == decision()
    assert one.location == "OPFS: webtune/default.json"


def test_what_several_puts_leave_is_written_at_once(opfs):
    store = opfs.open()
    for samples in (1, 2, 3):
        store.put(A, decision(samples))
    opfs.wait(store.flush())
    assert opfs.written == ["default.json"]
    assert opfs.open().get(A) == decision(3)


def test_two_tabs_that_write_at_once_keep_the_picks_of_both(opfs):
    one, other = opfs.open(), opfs.open()
    one.put(A, decision())
    other.put(B, decision())
    opfs.wait(one.flush())
    opfs.wait(other.flush())
    assert dict(opfs.open().entries()) == {A: decision(), B: decision()}


def test_a_put_merges_with_what_another_tab_wrote_and_a_later_one_replaces_it(opfs):
    one, other = opfs.open(), opfs.open()
    one.put(A, decision(9))
    opfs.wait(one.flush())
    other.put(A, decision(3))
    assert other.get(A) == decision(3)
    opfs.wait(other.flush())
    assert other.get(A) == decision(9)
    other.put(A, decision(1))
    opfs.wait(other.flush())
    assert opfs.open().get(A) == decision(1)


def test_what_is_put_while_a_write_is_under_way_is_written_too(opfs):
    store = opfs.open()
    store.put(A, decision())
    opfs.later(0)
    store.put(B, decision())
    assert set(dict(store.entries())) == {A, B}
    opfs.wait(store.flush())
    assert set(dict(store.entries())) == set(dict(opfs.open().entries())) == {A, B}


def test_a_purge_reaches_picks_that_this_tab_never_saw(opfs):
    one, other = opfs.open(), opfs.open()
    one.put(A, decision())
    opfs.wait(one.flush())
    assert other.purge(Selector(name="saxpy")) == 0
    opfs.wait(other.flush())
    assert list(opfs.open().entries()) == []


def test_a_store_that_was_closed_still_writes_what_was_put_and_no_more(opfs):
    store = opfs.open()
    assert store.put(A, decision())
    store.close()
    assert not store.put(B, decision())
    opfs.wait(store.flush())
    assert dict(opfs.open().entries()) == {A: decision()}


def test_stores_of_one_namespace_are_one_place_and_those_in_memory_are_not(opfs, told):
    assert opfs.open().scope == opfs.open().scope
    assert opfs.open().scope != opfs.open("other").scope
    opfs.trouble = "blocked"
    assert opfs.open().scope != opfs.open().scope
    assert len(told()) == 2


# ---- what may go wrong ---------------------------------------------------------------------


@pytest.mark.parametrize("when", ["opening", "writing"])
def test_files_that_fail_mean_one_warning_and_memory(opfs, told, when):
    store = opfs.store()
    if when == "opening":
        opfs.trouble = "blocked"
    opfs.wait(store.open())
    opfs.trouble = "blocked"
    assert store.put(A, decision()) == (when == "writing")
    opfs.wait(store.flush())
    store.begin("gpu", "c")
    opfs.later()
    assert not store.put(B, decision())
    assert store.get(A) == store.get(B) == decision()
    assert not store.lasting
    assert "blocked" in store.location
    assert len(told()) == 1


def test_a_lock_that_another_tab_never_lets_go_ends_in_memory(opfs, told):
    store = opfs.open()
    opfs.locks[999] = "webtune:default.json"
    store.put(A, decision())
    opfs.wait(store.flush())
    assert store.get(A) == decision()
    assert "another tab holds the lock" in store.location
    assert len(told()) == 1
    assert opfs.files == {}


def test_the_lock_is_let_go_whatever_happens(opfs, told):
    store = opfs.open()
    opfs.trouble = "blocked"
    store.put(A, decision())
    opfs.wait(store.flush())
    assert not [name for name in opfs.locks.values() if "session" not in name]
    assert len(told()) == 1


def test_a_document_of_another_version_stays_as_it_is(opfs, told):
    text = '{"format": "webtune picks", "schema": 99, "decisions": []}'
    opfs.files["default.json"] = text
    store = opfs.open()
    assert not store.put(A, decision())
    opfs.wait(store.flush())
    assert opfs.files["default.json"] == text
    assert "schema 99" in told()[0]


def test_a_document_that_changes_its_version_under_a_tab_is_left_alone(opfs, told):
    store = opfs.open()
    text = '{"format": "webtune picks", "schema": 99, "decisions": []}'
    opfs.files["default.json"] = text
    store.put(A, decision())
    opfs.wait(store.flush())
    assert opfs.files["default.json"] == text
    assert store.get(A) == decision()
    assert len(told()) == 1


# ---- the journal ---------------------------------------------------------------------------


def test_a_candidate_that_is_back_soon_is_not_worth_a_write(opfs):
    store = opfs.open()
    store.begin("gpu", "c")
    store.end("gpu", "c")
    opfs.later()
    assert opfs.written == []


def test_a_start_is_written_once_it_takes_long_and_struck_out_when_it_is_back(opfs):
    store = opfs.open()
    store.begin("gpu", "slow")
    opfs.later()
    assert journal(opfs) == [["gpu", "slow", store.session]]
    store.end("gpu", "slow")
    opfs.later()
    assert journal(opfs) == []


def test_an_end_while_its_start_is_being_written_reaches_the_file(opfs):
    store = opfs.open()
    store.begin("gpu", "c")

    async def end_in_the_middle():
        while store.session not in opfs.files.get(JOURNAL, ""):
            await asyncio.sleep(0)
        store.end("gpu", "c")

    opfs.wait(end_in_the_middle())
    opfs.later()
    assert journal(opfs) == []
    assert store.suspects("gpu") == frozenset()


def test_an_abandoned_start_bars_its_candidate_in_every_later_tab_until_it_is_purged(opfs):
    store = opfs.open()
    store.begin("gpu", "c")
    store.abandon("gpu")
    opfs.later()
    assert journal(opfs) == [["gpu", "c", NOBODY]]
    later = opfs.open()
    assert later.suspects("gpu") == {"c"}
    later.begin("gpu", "c")
    later.end("gpu", "c")
    opfs.later()
    assert opfs.open().suspects("gpu") == {"c"}
    later.purge(Selector(hardware="gpu"))
    opfs.later()
    assert opfs.open().suspects("gpu") == frozenset()


def test_a_start_of_a_living_tab_is_no_suspect_and_two_tabs_that_are_gone_are(opfs):
    tabs = [opfs.open() for _ in range(3)]
    for tab in tabs:
        tab.begin("gpu", "c")
    opfs.later()
    assert opfs.open().suspects("gpu") == frozenset()
    tabs[0].close()
    assert opfs.open().suspects("gpu") == frozenset()
    tabs[1].close()
    last = opfs.open()
    assert last.suspects("gpu") == {"c"}
    last.begin("gpu", "c")
    last.end("gpu", "c")
    opfs.later()
    assert journal(opfs) == [["gpu", "c", tabs[2].session]]


def test_a_tab_holds_its_session_until_what_was_put_is_written(opfs):
    store = opfs.open()
    session = f"webtune:session:default:{store.session}"
    store.put(A, decision())
    store.close()
    assert session in opfs.locks.values()
    opfs.wait(store.flush())
    opfs.later(0)
    assert session not in opfs.locks.values()


@pytest.mark.parametrize("text", ["", "nonsense", "7", "{}", '[["gpu", "c"]]', '{"a": 1}', "[1]"])
def test_a_journal_that_was_cut_off_accuses_nobody_and_is_written_anew(opfs, text):
    opfs.files[JOURNAL] = text
    store = opfs.open()
    assert store.suspects("gpu") == frozenset()
    store.begin("gpu", "c")
    store.abandon("gpu")
    opfs.later()
    assert journal(opfs) == [["gpu", "c", NOBODY]]
