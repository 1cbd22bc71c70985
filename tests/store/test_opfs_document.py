"""The document that tabs share: what a text means, and whose change wins."""

import json

import pytest

from webtune.gpu.base import Clock
from webtune.kernel.space import Params
from webtune.store.base import Address, Selector
from webtune.store.decision import SCHEMA, CandidateResult, Decision, encode
from webtune.store.opfs_document import Put, VersionError, apply, dumps, loads, readable

A = Address("default", "gpu-a", "saxpy", "[1024]")
B = Address("default", "gpu-b", "saxpy", "[1024]")
NEWER = {"schema": 99, "checksum": "c", "decision": {"new": True}}


def decision(samples=3):
    one = CandidateResult("id", "a", Params({}), "winner", 1000, None, (1000,) * samples)
    return Decision("f", (one,), confidence=0.9, strategy="fixed", clock=Clock("wall", 1))


def with_rows(*rows):
    return json.dumps(json.loads(dumps({})) | {"decisions": rows})


def test_values_come_back_from_their_text():
    values = {B: decision(), A: NEWER}
    assert loads(dumps(values))[0] == values
    assert loads(dumps({A: decision()})) == ({A: decision()}, "")
    assert dumps({A: decision(), B: decision()}) == dumps({B: decision(), A: decision()})


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "[1, 2]", "7", "null", "{}", '{"format": "other", "schema": 1}', "[" * 99_999,
     dumps({A: decision()})[:-9], with_rows([1]), with_rows("a"), with_rows(5)],
)  # fmt: skip
def test_a_text_that_is_no_document_means_an_empty_one_and_is_told(text):
    values, fault = loads(text)
    assert values == {}
    assert "starting afresh" in fault


def test_a_document_of_another_version_is_refused_with_its_schema():
    text = json.dumps({"format": "webtune picks", "schema": 99, "everything": "else"})
    with pytest.raises(VersionError, match="schema 99"):
        loads(text)


def test_an_entry_that_cannot_be_read_is_left_out_unless_a_newer_webtune_wrote_it():
    spoilt = {"schema": SCHEMA, "checksum": "c", "decision": {}}
    older = {"schema": SCHEMA - 1, "checksum": "c", "decision": {}}
    values, fault = loads(with_rows([*"abcd", spoilt], [*"ijkl", older], [*"efgh", NEWER]))
    assert values == {Address(*"efgh"): NEWER}
    assert "a pick of c that cannot be read" in fault
    assert readable(values) == {}


@pytest.mark.parametrize(
    ("there", "base", "left"),
    [
        (None, "", 3),  # nothing there
        (9, encode(decision(9)), 3),  # what this tab knew is replaced
        (9, "", 9),  # another tab wrote more
        (1, "", 3),  # another tab wrote less
        (9, encode(decision(5)), 9),  # another tab replaced what this one knew
        (9, None, 9),  # always merged
        (1, None, 3),
    ],
)
def test_a_put_replaces_what_its_tab_knew_and_merges_with_what_another_wrote(there, base, left):
    values = {} if there is None else {A: decision(there)}
    apply(Put(A, decision(3), base), values)
    assert values == {A: decision(left)}


def test_a_put_replaces_what_no_one_here_can_read():
    values = {A: NEWER}
    apply(Put(A, decision(), ""), values)
    assert values == {A: decision()}


def test_a_purge_takes_out_what_its_selector_takes_readable_or_not():
    values = {A: NEWER, B: decision()}
    apply(Selector(hardware="gpu-a"), values)
    assert values == {B: decision()}
    apply(Selector(), values)
    assert values == {}
