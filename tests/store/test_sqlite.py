"""The SQLite store with several processes, folders that refuse, and files that are broken."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from webtune.errors import StoreWarning
from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.base import Address
from webtune.store.decision import CandidateResult, Decision, encode
from webtune.store.folder import FILE_NAME
from webtune.store.sqlite import SqliteStore
from webtune.strategies.drive import complete

A = Address("default", "gpu-a", "saxpy", "[1024]")
UNPRIVILEGED = 65534

CHILD = """
import sys
from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.decision import CandidateResult, Decision
from webtune.store.base import Address
from webtune.store.sqlite import SqliteStore

def decision(samples):
    one = CandidateResult("id", "a", Params({}), "winner", 1000, None, (1000,) * samples)
    return Decision(
        "f", (one,), confidence=0.9, strategy="fixed", clock=Clock("wall", 1), device="gpu",
        created_s=1.0,
    )  # fmt: skip

store = SqliteStore(folder=sys.argv[1])
number = int(sys.argv[2])
"""


def decision(samples=3, created_s=1.0):
    one = CandidateResult("id", "a", Params({}), "winner", 1000, None, (1000,) * samples)
    return Decision(
        "f", (one,), confidence=0.9, strategy="fixed", clock=Clock("wall", 1), device="gpu",
        created_s=created_s,
    )  # fmt: skip


def child(body, folder, number=0):
    """Another process that runs `body` on a store in `folder`."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CHILD + body, str(folder), str(number)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def finish(process, code=0):
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return out


@contextmanager
def unprivileged():
    """Root may write everywhere; for the block it is nobody."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@contextmanager
def read_only_folder(*decisions):
    """A folder that can be read and not written, with a file of these decisions if any."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if decisions:
            store = SqliteStore(folder=folder)
            for address, each in decisions:
                store.put(address, each)
            store.close()
            (folder / FILE_NAME).chmod(0o444)
        folder.chmod(0o555)
        try:
            with unprivileged():
                yield folder
        finally:
            folder.chmod(0o755)


@contextmanager
def one_warning(part):
    """The block gives one StoreWarning, with this part in its text, however much is done in it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(each.message) for each in caught if issubclass(each.category, StoreWarning)]
    assert len(texts) == 1
    assert part in texts[0]


# ---- several processes -------------------------------------------------------------------------


def test_processes_that_begin_the_file_together_lose_nothing(tmp_path):
    body = """
for turn in range(20):
    assert store.put(Address("default", "gpu-a", f"set{number}", f"[{turn}]"), decision(3))
    store.absorb(Address("default", "gpu-a", "common", "[1]"), decision(number * 20 + turn))
store.close()
"""
    processes = [child(body, tmp_path / "new" / "folder", number) for number in range(6)]
    for process in processes:
        finish(process)
    store = SqliteStore(folder=tmp_path / "new" / "folder")
    assert len(list(store.entries())) == 6 * 20 + 1
    assert len(store.get(replace(A, name="common", key="[1]")).candidates[0].samples_ns) == 119
    store.close()


def test_a_process_sees_what_another_one_put_since(tmp_path):
    store = SqliteStore(folder=tmp_path)
    assert store.get(A) is None
    finish(
        child("store.put(Address('default', 'gpu-a', 'saxpy', '[1024]'), decision(7))", tmp_path)
    )
    assert store.get(A) == decision(7)
    store.close()


DIES = """
import os
store.begin("gpu-a", "came back")
store.end("gpu-a", "came back")
store.begin("gpu-a", "killer")
os._exit(9)
"""


def test_a_candidate_in_which_a_process_died_does_not_run_again(tmp_path):
    store = SqliteStore(folder=tmp_path)
    finish(child(DIES, tmp_path), code=9)
    assert store.suspects("gpu-a") == {"killer"}
    assert store.suspects("gpu-b") == frozenset()
    store.end("gpu-a", "killer")  # of a start that is not ours
    assert store.suspects("gpu-a") == {"killer"}
    assert store.purge() == 0
    assert store.suspects("gpu-a") == frozenset()
    store.close()


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_start_that_came_back_clears_the_deaths_before_it(tmp_path, deaths):
    for _ in range(deaths):
        finish(child(DIES, tmp_path), code=9)
    store = SqliteStore(folder=tmp_path)
    store.begin("gpu-a", "killer")
    store.end("gpu-a", "killer")
    assert store.suspects("gpu-a") == frozenset()
    store.close()


def test_an_end_leaves_the_starts_that_other_processes_still_run(tmp_path):
    body = """
store.begin("gpu-a", "running")
print("begun", flush=True)
sys.stdin.readline()
os._exit(9)
"""
    processes = [child("import os" + body, tmp_path) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == "begun\n"
    store = SqliteStore(folder=tmp_path)
    store.begin("gpu-a", "running")
    store.end("gpu-a", "running")
    for process in processes:
        finish(process, code=9)
    assert store.suspects("gpu-a") == {"running"}
    store.close()


def test_a_name_that_no_file_can_hold_fails_alone(tmp_path):
    store = SqliteStore(folder=tmp_path)
    bad = replace(A, name="a\ud800")
    with one_warning("cannot be stored under its name"):
        assert not store.put(bad, decision())
        assert store.get(bad) is None
        assert not store.absorb(bad, decision())
    assert store.put(A, decision())
    assert store.location == str(tmp_path / FILE_NAME)
    store.close()
    again = SqliteStore(folder=tmp_path)
    assert list(again.entries()) == [(A, decision())]
    again.close()


@pytest.mark.parametrize("body", ["5", "x'ff00fe'", "'null'", "1.5"])
def test_a_body_of_any_type_is_a_miss_and_one_warning(tmp_path, body):
    store = SqliteStore(folder=tmp_path)
    store.put(A, decision())
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.execute(f"UPDATE decisions SET body = {body}")
    db.commit()
    db.close()
    with one_warning("cannot be read"):
        assert store.get(A) is None
        assert list(store.entries()) == []
    store.close()


def test_a_candidate_of_a_process_that_still_runs_it_is_no_suspect(tmp_path):
    body = """
store.begin("gpu-a", "running")
print("begun", flush=True)
sys.stdin.readline()
store.end("gpu-a", "running")
store.close()
"""
    process = child(body, tmp_path)
    assert process.stdout.readline() == "begun\n"
    store = SqliteStore(folder=tmp_path)
    assert store.suspects("gpu-a") == frozenset()
    store.abandon("gpu-a")
    assert store.suspects("gpu-a") == frozenset()
    finish(process)
    assert store.suspects("gpu-a") == frozenset()
    store.close()


def test_a_forked_child_has_its_own_connection(tmp_path):
    store = SqliteStore(folder=tmp_path)
    store.put(A, decision())
    body = """
import os
store.put(Address("default", "gpu-a", "saxpy", "[1024]"), decision(3))
pid = os.fork()
if pid == 0:
    ok = store.get(Address("default", "gpu-a", "saxpy", "[1024]")) is not None
    store.put(Address("default", "gpu-a", "saxpy", "[2]"), decision(3))
    store.close()
    os._exit(0 if ok else 1)
assert os.waitpid(pid, 0)[1] == 0
store.put(Address("default", "gpu-a", "saxpy", "[3]"), decision(3))
assert len(list(store.entries())) == 3
store.close()
"""
    finish(child(body, tmp_path))
    assert len(list(store.entries())) == 3
    store.close()


# ---- folders and files that refuse -------------------------------------------------------------


def test_a_read_only_folder_means_one_warning_and_memory():
    with read_only_folder() as folder:
        store = SqliteStore(folder=folder)
        with one_warning("not remembered"):
            complete(store.open())
            assert not store.put(A, decision())
            assert store.get(A) == decision()
            store.begin("gpu-a", "c")
            store.close()
        assert "memory" in store.location
        assert list(folder.iterdir()) == []


def test_picks_in_a_read_only_folder_are_still_used():
    with read_only_folder((A, decision(5))) as folder:
        store = SqliteStore(folder=folder)
        with one_warning("cannot be used"):
            assert store.get(A) == decision(5)
        assert not store.put(A, decision(7))
        assert store.get(A) == decision(7)
        store.close()


def test_a_folder_that_cannot_be_made_means_one_warning_and_memory(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = SqliteStore(folder=tmp_path / "file" / "cache")
    with one_warning("WEBTUNE_CACHE_DIR"):
        assert store.get(A) is None
        assert not store.put(A, decision())
    assert store.get(A) == decision()
    store.close()


def test_a_system_without_a_home_means_one_warning_and_memory(monkeypatch):
    def none():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("webtune.store.database.user_folder", none)
    store = SqliteStore()
    assert "home" in store.location
    with one_warning("home directory"):
        assert not store.put(A, decision())
    assert store.get(A) == decision()


@pytest.mark.parametrize("content", [b"this is no database at all, " * 50, b"\0" * 4096])
def test_a_file_that_is_no_database_is_set_aside_with_one_warning(tmp_path, content):
    path = tmp_path / FILE_NAME
    path.write_bytes(content)
    store = SqliteStore(folder=tmp_path)
    with one_warning("damaged"):
        assert store.get(A) is None
        assert store.put(A, decision())
    store.close()
    (aside,) = tmp_path.glob(f"{FILE_NAME}.damaged-*")
    assert aside.read_bytes() == content
    again = SqliteStore(folder=tmp_path)
    assert again.get(A) == decision()
    again.close()


def test_one_damaged_byte_costs_one_record(tmp_path):
    other = Address("default", "gpu-a", "saxpy", "[2048]")
    store = SqliteStore(folder=tmp_path)
    store.put(A, replace(decision(), device="the damaged one"))
    store.put(other, decision())
    store.close()
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.execute(
        "UPDATE decisions SET body = CAST(replace(CAST(body AS BLOB), CAST('damaged' AS BLOB), "
        "x'64E16D61676564') AS TEXT) WHERE key = ?",
        (A.key,),
    )
    db.commit()
    db.close()
    store = SqliteStore(folder=tmp_path)
    with one_warning("cannot be read"):
        assert store.get(A) is None
    assert store.get(other) == decision()
    assert [address for address, _ in store.entries()] == [other]
    assert store.put(A, decision())
    assert store.get(A) == decision()
    store.close()


def test_a_file_that_breaks_in_the_middle_is_set_aside_and_the_tune_goes_on(tmp_path):
    store = SqliteStore(folder=tmp_path)
    for number in range(200):
        store.put(replace(A, key=f"[{number}]"), decision(50))
    store.close()
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    again = SqliteStore(folder=tmp_path)
    with one_warning("damaged"):
        assert again.get(A) is None
    assert again.put(A, decision())
    assert again.get(A) == decision()
    again.close()


def test_an_empty_file_is_a_new_one(tmp_path):
    (tmp_path / FILE_NAME).touch()
    store = SqliteStore(folder=tmp_path)
    assert store.get(A) is None
    assert store.put(A, decision())
    store.close()


def test_a_file_of_a_newer_webtune_is_left_as_it_is(tmp_path):
    path = tmp_path / FILE_NAME
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE decisions (all_new TEXT)")
    db.execute("PRAGMA user_version = 99")
    db.commit()
    db.close()
    before = path.read_bytes()
    store = SqliteStore(folder=tmp_path)
    with one_warning("newer webtune"):
        assert not store.put(A, decision())
    assert store.get(A) == decision()
    store.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "body", ["", "{}", encode(decision())[:-9], encode(decision()).replace("1000", "1001")]
)
def test_a_record_that_cannot_be_read_is_a_miss_and_one_warning(tmp_path, body):
    store = SqliteStore(folder=tmp_path)
    store.put(A, decision())
    store.put(replace(A, key="[2]"), decision())
    store.close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("UPDATE decisions SET body = ? WHERE key = ?", (body, A.key))
    db.close()
    store = SqliteStore(folder=tmp_path)
    with one_warning("measured again"):
        assert store.get(A) is None
        assert store.get(A) is None
        assert [address.key for address, _ in store.entries()] == ["[2]"]
    assert store.put(A, decision(9))
    assert store.get(A) == decision(9)
    store.close()


def test_a_record_that_json_cannot_hold_is_not_stored_and_breaks_nothing(tmp_path):
    store = SqliteStore(folder=tmp_path)
    with one_warning("cannot be stored"):
        assert not store.put(A, replace(decision(), confidence=float("nan")))
    assert store.put(A, decision())
    store.close()


def test_a_file_that_another_process_keeps_locked_costs_one_warning(tmp_path):
    store = SqliteStore(folder=tmp_path, busy_s=0.05)
    store.put(A, decision())
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with one_warning("locked"):
        assert not store.put(A, decision(9))
        assert store.get(A) == decision(9)
    other.execute("ROLLBACK")
    other.close()
    store.close()


# ---- use ---------------------------------------------------------------------------------------


def test_picks_outlive_the_store(tmp_path):
    store = SqliteStore(tmp_path / "any.db")
    assert store.put(A, decision())
    assert store.location == str(tmp_path / "any.db")
    store.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = SqliteStore(tmp_path / "any.db")
        assert again.get(A) == decision()
        again.close()


def test_nothing_is_made_on_the_disk_before_the_first_use(tmp_path):
    store = SqliteStore(folder=tmp_path / "later")
    assert store.location.endswith(FILE_NAME)
    store.close()
    assert not (tmp_path / "later").exists()


def test_a_store_that_was_closed_opens_again(tmp_path):
    store = SqliteStore(folder=tmp_path)
    store.put(A, decision())
    store.close()
    assert store.get(A) == decision()
    store.close()


def test_a_start_in_a_state_of_a_later_webtune_counts_as_a_closed_one(tmp_path):
    store = SqliteStore(folder=tmp_path)
    store.begin("gpu-a", "c")
    for count, barred in ((1, frozenset()), (2, {"c"})):
        db = sqlite3.connect(tmp_path / FILE_NAME)
        db.execute("UPDATE journal SET dead = 7, owner = ? WHERE dead = 0", (f"later {count}",))
        db.commit()
        db.close()
        assert store.suspects("gpu-a") == barred
        store.begin("gpu-a", "c")
    store.close()
