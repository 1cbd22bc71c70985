"""Events of several tunes are told as those of one."""

from __future__ import annotations

from webtune.measure.progress_events import JoinedEvents, ProgressEvent


def test_candidates_and_launches_count_on_from_tune_to_tune() -> None:
    told: list[ProgressEvent] = []
    joined = JoinedEvents(told.append)
    joined(ProgressEvent("sampled", 0, "a", 2, 500))
    joined(ProgressEvent("failed", 2, "c", 5))
    joined.next(3)
    joined(ProgressEvent("sampled", 1, "b", 4, 700))
    assert [(event.candidate, event.launches) for event in told] == [(0, 2), (2, 5), (4, 9)]
    assert [(event.kind, event.duration_ns) for event in told][2] == ("sampled", 700)
