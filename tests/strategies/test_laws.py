"""What every strategy keeps, whatever a device says."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webtune.errors import Failure, FailureKind
from webtune.strategies import names

streams = st.lists(st.lists(st.integers(1, 10**7), min_size=1, max_size=8), min_size=1, max_size=6)
failures = st.dictionaries(
    st.integers(0, 5),
    st.tuples(
        st.integers(0, 12),
        st.sampled_from([kind for kind in FailureKind if kind is not FailureKind.SKIPPED]),
    ),
)
relaxed = settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def digests(count):
    return tuple(f"{97 * each % 101:04d}" for each in range(count))


@pytest.mark.parametrize("strategy", names())
@relaxed
@given(streams, failures, st.none() | st.integers(1, 10**7), st.integers(1, 6))
def test_an_outcome_is_consistent(play, strategy, given_streams, failing, limit_ns, split):
    count = len(given_streams)
    fails = {k: (n, Failure(kind, "invented")) for k, (n, kind) in failing.items() if k < count}
    batches = tuple(b for b in (tuple(range(split)), tuple(range(split, count))) if b)
    batches = tuple(tuple(e for e in batch if e < count) for batch in batches)
    played = play(strategy, given_streams, fails=fails, limit_ns=limit_ns, batches=batches)
    found = played.outcome
    assert [each.candidate for each in found.results] == list(range(count))
    assert found.launches == sum(played.launches(each) for each in range(count))
    assert found.winner not in found.ties
    assert 0 <= found.confidence <= 1
    if found.winner is None:
        assert all(each.failure for each in found.results)
        return
    won = found.results[found.winner]
    assert not won.eliminated
    if found.measured:
        assert won.failure is None
        assert found.interval.low_ns <= won.time_ns <= found.interval.high_ns
    else:
        assert won.failure.kind in (FailureKind.NOT_MEASURED, FailureKind.INVALID_SAMPLES)


@pytest.mark.parametrize("strategy", ["adaptive", "fixed"])
@relaxed
@given(streams, st.randoms())
def test_the_order_of_the_list_decides_nothing(play, strategy, given_streams, chance):
    count = len(given_streams)
    order = list(range(count))
    chance.shuffle(order)
    ranks = digests(count)
    one = play(strategy, given_streams, tie_order=ranks).outcome.winner
    other = play(
        strategy,
        [given_streams[each] for each in order],
        tie_order=tuple(ranks[each] for each in order),
    ).outcome.winner
    assert order[other] == one


@pytest.mark.parametrize("strategy", names())
@relaxed
@given(streams)
def test_every_candidate_is_warmed_up_before_its_first_sample_and_never_again(
    play, strategy, given_streams
):
    seen = set()
    for wanted in play(strategy, given_streams).rounds:
        for request in wanted.requests:
            assert (request.warmups > 0) is (request.candidate not in seen)
            seen.add(request.candidate)


@pytest.mark.parametrize("strategy", ["adaptive", "fixed"])
def test_candidates_known_to_be_far_behind_are_spared(play, strategy):
    known = {each: (base,) * 3 for each, base in enumerate([100_000, 101_000, 102_000, 400_000])}
    played = play(strategy, [100_000, 101_000, 102_000, 1_000, 99_000], prior_ns=known)
    assert played.launches(3) == 0
    assert played.outcome.winner == 4


@pytest.mark.parametrize("strategy", ["adaptive", "fixed"])
def test_one_added_to_many_known_takes_no_time_of_its_own(play, strategy):
    count = 16_000
    known = {each: (100_000 + 100 * each,) * 3 for each in range(count)}
    streams = [known[each][0] for each in range(count)] + [99_000]
    start = time.perf_counter()
    played = play(strategy, streams, prior_ns=known)
    assert time.perf_counter() - start < 3
    assert played.outcome.winner == count
    assert played.launches(count - 1) == 0
