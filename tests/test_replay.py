"""The replay: the same trials for every protocol, honest counts, and answers that can be known."""

import gzip
import json
import random

import pytest

from webtune.errors import UsageError
from webtune.replay import PROTOCOLS, load, measure, table


def write(folder, name, samples):
    document = {
        "kernel": name,
        "device": "invented",
        "unit": "ms",
        "params": {"x": list(range(len(samples)))},
        "order": ["x"],
        "configs": [[each] for each in range(len(samples))],
        "samples": samples,
    }
    with gzip.open(folder / f"{name}.json.gz", "wt") as file:
        json.dump(document, file)


@pytest.fixture
def spaces(tmp_path):
    chance = random.Random(1)
    exact = [[1 + 0.05 * each] * 10 for each in range(80)]
    noisy = [
        [(1 + 0.002 * each) * (1 + abs(chance.gauss(0, 0.02))) for _ in range(32)]
        for each in range(80)
    ]
    chance.shuffle(exact)
    write(tmp_path, "exact", [*exact, None])
    write(tmp_path, "noisy", noisy)
    return tmp_path


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("order", ["resampled", "recorded"])
def test_no_protocol_errs_where_there_is_no_noise(spaces, protocol, order):
    found = measure(spaces, protocol, candidates=6, seeds=3, order=order)
    exact = found["spaces"][0]
    assert exact["space"] == "exact"
    assert exact["mean_regret"] == exact["p95_regret"] == 0


@pytest.mark.parametrize(
    ("protocol", "launches"),
    [("fixed", 13), ("seed-fixed", 13), ("median-10", 10), ("mean-7", 7), ("min-3", 3)],
)
def test_launches_count_warm_ups(spaces, protocol, launches):
    assert measure(spaces, protocol, candidates=4, seeds=2)["mean_launches"] == launches


def test_adaptive_spends_less_than_the_median_of_thirty(spaces):
    found = measure(spaces, "adaptive", seeds=5)
    assert 2 < found["mean_launches"] <= 20
    assert found["mean_regret"] < 0.02


def test_the_same_seeds_give_the_same_figures(spaces):
    once = measure(spaces, "adaptive", seeds=3, drift=0.1)
    assert measure(spaces, "adaptive", seeds=3, drift=0.1) == once
    assert once != measure(spaces, "adaptive", seeds=4, drift=0.1)


def test_a_common_ramp_changes_no_pick_without_noise(spaces):
    for protocol in ("adaptive", "fixed"):
        found = measure(spaces, protocol, seeds=3, drift=0.5)
        assert found["spaces"][0]["mean_regret"] == 0


def test_the_summary_is_over_all_trials(spaces):
    found = measure(spaces, "min-3", seeds=4)
    means = [each["mean_regret"] for each in found["spaces"]]
    assert found["mean_regret"] == pytest.approx(sum(means) / 2)
    assert {"mean_regret", "p95_regret", "mean_launches"} <= found["spaces"][1].keys()


def test_a_space_is_its_fastest_configurations_first_and_skips_failed_ones(spaces):
    space = load(spaces / "exact.json.gz")
    assert len(space.truth_ns) == 60
    assert list(space.truth_ns) == sorted(space.truth_ns)
    assert space.truth_ns[0] == 1_000_000
    assert space.name == "exact"


def test_small_spaces_take_the_candidates_they_have(tmp_path):
    write(tmp_path, "tiny", [[1.0, 1.1], [2.0]])
    assert measure(tmp_path, "adaptive", seeds=2)["mean_regret"] == 0


def test_the_table_has_a_line_a_space_and_one_for_all(spaces):
    found = measure(spaces, "fixed", candidates=3, seeds=1)
    lines = table([found]).plain().splitlines()
    assert len(lines) == 5
    assert "all spaces" in lines[-1]
    assert len(table([found, found]).plain().splitlines()) == 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": "median-11"},
        {"protocol": "fixed", "order": "sorted"},
        {"protocol": "fixed", "seeds": 0},
        {"protocol": "fixed", "candidates": 0},
    ],
)
def test_wrong_words_are_refused(spaces, wrong):
    with pytest.raises(UsageError):
        measure(spaces, **wrong)


def gzipped(samples):
    return gzip.compress(json.dumps({"samples": samples}).encode())


BROKEN = {
    "no gzip": b"no gzip",
    "cut short": gzipped([[1.0, 2.0]] * 99)[:-12],
    "damaged": gzipped([[1.0 + n, 2.0] for n in range(99)])[:40] + b"\xff" * 40,
    "not UTF-8": gzip.compress(b"\xff"),
    "too deep": gzip.compress(b"[" * 100_000),
    "infinite": gzipped([[float("inf")]]),
    "no number": gzipped([[float("nan")]]),
    "longer than an hour": gzipped([[1e300]]),
    "huge": gzip.compress(b'{"samples": [[1' + b"0" * 400 + b"]]}"),
    "zero": gzipped([[0.0]]),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_no_recorded_space_is_refused_by_its_name(tmp_path, kind):
    (tmp_path / "broken.json.gz").write_bytes(BROKEN[kind])
    with pytest.raises(UsageError, match="broken"):
        measure(tmp_path, "fixed")


def test_a_folder_without_spaces_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"json\.gz"):
        measure(tmp_path, "fixed")
