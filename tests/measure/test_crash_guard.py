"""What is noted of candidates that are on a device for the first time."""

from __future__ import annotations

from typing import Any

from webtune.measure.crash_guard import CrashGuard


def test_what_came_back_is_blamed_for_nothing(journal: Any) -> None:
    journal.guard.begin("a")
    assert journal.open == {"a"}
    journal.guard.end("a")
    assert journal.open == journal.suspects == set()


def test_whatever_was_begun_and_did_not_come_back_is_suspect(journal: Any) -> None:
    journal.guard.begin("a")
    journal.guard.end("a", came_back=False)
    assert journal.suspects == {"a"}


def test_without_a_store_nothing_is_noted() -> None:
    guard = CrashGuard()
    guard.begin("a")
    guard.end("a", came_back=False)
    assert guard.suspects == frozenset()
