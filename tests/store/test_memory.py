"""What the stores without a file do beside the contract."""

import gc
import weakref

from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.base import Address
from webtune.store.decision import CandidateResult, Decision
from webtune.store.memory import MemoryStore, NoStore

A = Address("default", "gpu-a", "saxpy", "[1024]")
DECISION = Decision(
    "f", (CandidateResult("id", "a", Params({}), "winner", 1000, None, (1000,)),),
    confidence=0.9, strategy="fixed", clock=Clock("wall", 1),
)  # fmt: skip


def test_memory_tells_why_nothing_is_kept_for_longer():
    assert MemoryStore().location == "memory of this process"
    assert MemoryStore("the disk is full").location.endswith("(the disk is full)")


def test_memory_may_begin_with_decisions_and_leaves_the_callers_table_alone():
    given = {A: DECISION}
    store = MemoryStore(decisions=given)
    assert store.get(A) == DECISION
    assert store.purge() == 1
    assert given == {A: DECISION}


def test_each_store_of_memory_is_a_place_of_its_own_and_goes_with_its_owner():
    assert MemoryStore().scope is None
    store = MemoryStore()
    seen = weakref.ref(store)
    del store
    gc.collect()
    assert seen() is None


def test_no_store_keeps_no_start_however_often_it_is_lost():
    store = NoStore()
    for _ in range(3):
        store.begin("gpu", "c")
        store.close()
    store.begin("gpu", "c")
    store.abandon("gpu")
    assert store.suspects("gpu") == frozenset()
