"""The values that flow between a strategy and whoever measures for it.

A strategy gets a `Problem`, yields `Round`s, is sent their `Reading`s, and returns an `Outcome`.
All of them are frozen. Times are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from webtune.errors import Failure

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """What to do with one candidate in a round: so many warm-ups, then so many samples.

    A warm-up is a launch whose time is thrown away (the first one of a candidate compiles,
    checks its answer and calibrates its repetitions). A sample is one launch: one timed pass.
    """

    candidate: int
    warmups: int = 0
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Round:
    """What to measure now. Samples of its requests are taken interleaved (one of each
    candidate, then the next of each) and resolve together."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the device said about one request of a round, in the order of the round's requests.

    `durations_ns` are positive times of one execution of the candidate, in the order taken.
    A failure disqualifies the candidate whatever else the reading holds; the harness has already
    retaken what was transient. `launches` counts all launches spent, warm-ups included.
    """

    candidate: int
    durations_ns: tuple[int, ...] = ()
    failure: Failure | None = None
    launches: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something a strategy decided, for people: `kind` is a short term, `text` a sentence."""

    kind: str
    text: str
    candidate: int | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval of a time, in ns, at `level` (0…1)."""

    low_ns: int
    high_ns: int
    level: float = 0.95


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of one candidate when a tune ends.

    `samples_ns` holds every sample in the order taken. `time_ns` is the strategy's estimate of
    its time, None when it has none. `failure` says why it is out; `eliminated` says that it was
    measured and given up as too slow.
    """

    candidate: int
    samples_ns: tuple[int, ...] = ()
    time_ns: int | None = None
    interval: Interval | None = None
    failure: Failure | None = None
    eliminated: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Who won and why. The winner is the strategy's: no later step ranks the results again.

    `winner` is None when no candidate could be taken. `measured` is False when the winner
    executed but was not measured: it is then remembered in memory only. `ties` are the
    candidates that the evidence cannot tell from the winner, the winner excluded; `confidence`
    (0…1) is how sure it is that no other candidate is faster by more than the tie margin.
    """

    winner: int | None
    results: tuple[Result, ...]
    measured: bool = True
    interval: Interval | None = None
    ties: tuple[int, ...] = ()
    confidence: float = 0.0
    tie_rule: str = ""
    events: tuple[Event, ...] = ()
    strategy: str = ""
    launches: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """All that a strategy may know before it starts.

    `batches` are the plan's batches in order, each a tuple of candidate indices; a strategy goes
    on to the next batch only when nothing of this one was measured. `patience` maps a candidate
    to the (group name, patience) pairs of its groups that have one. `limit_ns` is the time that is
    close enough to the device's peak to stop at. `prior_ns` holds samples that an earlier tune
    took of candidates whose source has not changed (a partial re-tune); a strategy may spare those
    that the evidence leaves far behind. `tie_order` ranks candidates for the tie rule (a
    digest of each candidate's content, so the order of the list never decides). `never` says why
    a candidate is in no batch.
    """

    batches: tuple[tuple[int, ...], ...]
    count: int
    limit_ns: int | None = None
    patience: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    prior_ns: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    tie_order: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    never: Mapping[int, str] = field(default_factory=dict)


Rounds = Generator[Round, Sequence[Reading], T]
"""A part of a strategy: it yields rounds, is sent their readings, and returns a `T`."""

StrategyRun = Rounds[Outcome]
Strategy = Callable[..., StrategyRun]
"""Called as `strategy(problem, config)`; gives the generator that a driver runs."""
