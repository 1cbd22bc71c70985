"""The state table of the crash journal, row by row, and what is suspect after it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtune.store.base import Selector
from webtune.store.journal import (
    LOST_STARTS,
    NEXT,
    NOBODY,
    Event,
    Journalled,
    Start,
    State,
    What,
    advance,
    suspects,
)

OWN, OTHER = "own session", "other session"

TABLE = """
event           running     closed      died    abandoned
begin           running     closed      died    abandoned
end             -           -           died    abandoned
forgive         running     -           -       abandoned
abandon         abandoned   closed      died    abandoned
close           closed      closed      died    abandoned
process_died    died        closed      died    abandoned
tab_gone        closed      closed      died    abandoned
purge           running     -           -       -
"""
HEAD, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [
    (What[row[0].upper()], State[state.upper()], cell)
    for row in ROWS
    for state, cell in zip(HEAD[1:], row[1:], strict=True)
]


def start(state=State.RUNNING, session=OWN, hardware="gpu", candidate="c"):
    return Start(hardware, candidate, session, state)


def happened(what, *starts):
    """The starts after an event of our session on this hardware and candidate."""
    return advance(starts, Event(what, "gpu", "c"), OWN)


def test_the_table_has_every_event_and_every_state():
    assert {(what, state) for what, state, _ in CELLS} == set(
        itertools.product(What, set(State) - {State.ENDED})
    )
    moves = sum(len(row) for row in NEXT.values())
    assert moves == sum(cell != state.name.lower() for _, state, cell in CELLS)


@pytest.mark.parametrize(("what", "state", "cell"), CELLS)
def test_a_start_moves_as_the_table_says(what, state, cell):
    left = {start.state.name.lower() for start in happened(what, start(state))}
    begun = {"running"} if what is What.BEGIN else set()
    assert left == {cell} - {"-"} | begun


@pytest.mark.parametrize("state", set(State) - {State.ENDED})
@pytest.mark.parametrize("what", [What.BEGIN, What.END, What.ABANDON, What.CLOSE])
def test_what_happens_in_a_session_leaves_the_starts_of_others(what, state):
    others = start(state, OTHER)
    assert happened(what, others) - {start()} == {others}


@pytest.mark.parametrize("what", What)
@pytest.mark.parametrize("elsewhere", [{"hardware": "other"}, {"candidate": "other"}])
def test_an_event_leaves_other_hardware_and_other_candidates(what, elsewhere):
    for state in set(State) - {State.ENDED}:
        there = start(state, **elsewhere)
        assert there in happened(what, there, start())


@pytest.mark.parametrize("own", [State.RUNNING, State.CLOSED])
def test_an_end_of_our_start_forgives_what_others_lost_but_not_what_they_run(own):
    kept = {start(State.RUNNING, OTHER), start(State.ABANDONED, NOBODY)}
    lost = {start(State.CLOSED, "one"), start(State.DIED, "two")}
    assert happened(What.END, start(own), *kept, *lost) == kept


def test_an_end_without_a_start_of_ours_forgives_nothing():
    lost = {start(State.CLOSED, "one"), start(State.DIED, "two")}
    assert happened(What.END, *lost) == lost


def test_an_end_after_the_device_was_abandoned_forgives_nothing():
    abandoned = happened(What.ABANDON, start())
    assert abandoned == {start(State.ABANDONED, NOBODY)}
    assert happened(What.END, *abandoned) == abandoned


def test_abandoning_the_same_candidate_again_adds_no_start():
    once = happened(What.ABANDON, start())
    assert happened(What.ABANDON, *happened(What.BEGIN, *once)) == once


def test_a_candidate_that_begins_twice_has_one_start():
    assert happened(What.BEGIN, *happened(What.BEGIN)) == {start()}


def test_every_closing_in_the_same_candidate_counts_once():
    starts = frozenset()
    for count in range(1, 5):
        starts = happened(What.CLOSE, *happened(What.BEGIN, *starts))
        assert len(starts) == count
        assert {each.state for each in starts} == {State.CLOSED}
        assert suspects(starts, "gpu") == ({"c"} if count >= LOST_STARTS else set())
    assert happened(What.END, *happened(What.BEGIN, *starts)) == frozenset()


def test_closed_starts_of_one_candidate_keep_apart_on_two_hardwares():
    starts = frozenset()
    for what, hardware in itertools.product([What.BEGIN, What.CLOSE] * 3, ["gpu", "other"]):
        starts = advance(starts, Event(what, hardware, "c"), OWN)
    starts = advance(starts, Event(What.PURGE, "other"), OWN)
    for what in (What.BEGIN, What.CLOSE):
        starts = happened(what, *starts)
    assert len(starts) == 4


@pytest.mark.parametrize(
    ("states", "suspect"),
    [
        ([State.RUNNING], False),
        ([State.RUNNING] * 3, False),
        ([State.CLOSED], False),
        ([State.CLOSED, State.RUNNING], False),
        ([State.CLOSED] * LOST_STARTS, True),
        ([State.DIED], True),
        ([State.ABANDONED], True),
    ],
)
def test_a_candidate_is_suspect_by_the_states_of_its_starts(states, suspect):
    starts = [start(state, f"session {number}") for number, state in enumerate(states)]
    assert suspects(starts, "gpu") == ({"c"} if suspect else set())
    assert suspects(starts, "other") == frozenset()


def test_closed_starts_of_two_candidates_are_counted_apart():
    starts = [start(State.CLOSED, OWN, candidate=candidate) for candidate in "ab"]
    assert suspects(starts, "gpu") == frozenset()


events = st.builds(
    Event,
    st.sampled_from([What.BEGIN, What.END, What.ABANDON, What.CLOSE, What.PURGE]),
    st.sampled_from(["gpu", "other"]),
    st.sampled_from("ab"),
)


@given(st.lists(st.tuples(events, st.sampled_from([OWN, OTHER])), max_size=20))
def test_a_session_has_at_most_one_start_of_a_candidate_whatever_happens(history):
    starts = frozenset()
    for event, session in history:
        starts = advance(starts, event, session)
        assert State.ENDED not in {each.state for each in starts}
        places = [(each.hardware, each.candidate, each.session) for each in starts]
        assert len(places) == len(set(places))


class Noted(Journalled):
    """A journal in a list: what reached it, by name."""

    def __init__(self):
        super().__init__()
        self.events = []

    def _note(self, event):
        self.events.append(event)

    def _starts(self, hardware):
        return [start(State.DIED)]


def test_a_start_ends_when_the_last_run_of_its_candidate_is_back():
    journal = Noted()
    journal.begin("gpu", "c")
    journal.begin("gpu", "c")
    journal.end("gpu", "c")
    assert {event.what for event in journal.events} == {What.BEGIN}
    journal.end("gpu", "c")
    assert journal.events[-1] == Event(What.END, "gpu", "c")


def test_after_a_device_is_abandoned_no_run_on_it_is_waited_for():
    journal = Noted()
    for hardware in ("gpu", "gpu", "other", "other"):
        journal.begin(hardware, "c")
    journal.abandon("gpu")
    assert journal.events[-1] == Event(What.ABANDON, "gpu")
    journal.end("gpu", "c")
    assert journal.events[-1] == Event(What.END, "gpu", "c")
    journal.end("other", "c")
    assert journal.events[-1] == Event(What.END, "gpu", "c")


@pytest.mark.parametrize(
    ("selector", "noted"),
    [
        (Selector(), [Event(What.PURGE)]),
        (Selector(hardware="gpu"), [Event(What.PURGE, "gpu")]),
        (Selector(hardware="gpu", name="saxpy"), []),
        (Selector(environment="default"), []),
    ],
)
def test_only_a_selector_of_whole_hardware_forgives(selector, noted):
    journal = Noted()
    journal._forgive(selector)
    assert journal.events == noted


def test_suspects_are_those_of_the_starts_that_are_loaded():
    assert Noted().suspects("gpu") == {"c"}
    assert Noted().suspects("other") == frozenset()
