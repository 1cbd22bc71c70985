"""The command as people run it: in a process of its own, on a real adapter, with its own cache."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NUMBER = {"type": "number", "exclusiveMinimum": 0}
COUNT = {"type": "integer", "minimum": 0}
TUNED = {
    "type": "object",
    "required": ["device", "results"],
    "properties": {
        "device": {
            "type": "object",
            "required": ["label", "digest", "facts", "features", "clock", "store"],
        },
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": [
                    "kernel", "key", "size", "winner", "winner_ns", "interval_ns", "default_ns",
                    "slowest_ns", "candidates", "measured", "rejected", "failed", "source",
                    "strategy", "wall_s", "gflops", "gbs", "ties",
                ],
                "properties": {
                    "kernel": {"type": "string"},
                    "key": {"type": "string"},
                    "size": {"type": "array", "items": {"type": "integer", "minimum": 1}},
                    "winner": {"type": "object"},
                    "winner_ns": {"type": "integer", "minimum": 1},
                    "interval_ns": {"type": "array", "minItems": 2, "maxItems": 2},
                    "default_ns": {"anyOf": [NUMBER, {"type": "null"}]},
                    "slowest_ns": NUMBER,
                    "candidates": COUNT,
                    "measured": COUNT,
                    "rejected": COUNT,
                    "failed": COUNT,
                    "source": {"enum": ["tuned", "store"]},
                    "strategy": {"type": "string", "minLength": 1},
                    "wall_s": NUMBER,
                    "gbs": NUMBER,
                    "ties": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}  # fmt: skip


@pytest.fixture
def webtune(python: Any, cache_dir: Path) -> Run:
    """Runs `python -m webtune WORDS…` with a cache of this test alone."""

    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = python("-m", "webtune", *words, **env)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def one_line(text: str) -> str:
    assert text.count("\n") == 1, text
    return text


SMALL = ("tune", "saxpy", "--size", "4096")


def test_tune_prints_one_document_and_the_second_run_answers_from_the_store(webtune: Run) -> None:
    first = document(webtune(*SMALL, "--json"))
    second = document(webtune(*SMALL, "--json"))
    for whole in (first, second):
        jsonschema.validate(whole, TUNED)
    (tuned,), (kept,) = first["results"], second["results"]
    assert (tuned["source"], kept["source"]) == ("tuned", "store")
    assert (tuned["kernel"], tuned["size"]) == ("saxpy", [4096])
    same = ("key", "winner", "winner_ns", "interval_ns", "candidates", "wall_s", "strategy")
    assert [tuned[name] for name in same] == [kept[name] for name in same]
    assert tuned["measured"] + tuned["rejected"] + tuned["failed"] <= tuned["candidates"]
    assert tuned["winner_ns"] <= tuned["slowest_ns"]


def test_fresh_measures_what_is_remembered(webtune: Run) -> None:
    document(webtune(*SMALL, "--json"))
    again = document(webtune(*SMALL, "--json", "--fresh"))
    assert again["results"][0]["source"] == "tuned"


def test_the_table_says_where_each_answer_came_from(webtune: Run) -> None:
    first, second = webtune(*SMALL), webtune(*SMALL)
    assert re.search(r"saxpy\s+4096\s.*GB/s.*tuned in \d", first.stdout)
    assert re.search(r"saxpy\s+4096\s.*\sstore$", second.stdout, re.MULTILINE)
    assert "1 tuned in" in first.stdout
    assert "1 answered from the store, nothing measured" in second.stdout
    assert "tuning" in first.stderr
    assert second.stderr == ""


def test_explain_lists_every_candidate(webtune: Run) -> None:
    done = webtune(*SMALL, "--explain", "--quiet")
    assert done.stderr == ""
    (count,) = re.findall(r"^(\d+) candidates: ", done.stdout, re.MULTILINE)
    rows = done.stdout.partition("\n--")[2].partition(f"\n{count} candidates")[0].splitlines()[1:]
    assert len(rows) == int(count)
    assert rows[0].split("  ")[-1].strip() == "winner" or " winner" in rows[0]


def test_strategy_and_several_sizes_are_taken(webtune: Run) -> None:
    words = ("tune", "saxpy", "--size", "1024", "--size", "2048", "--strategy", "fixed", "--json")
    results = document(webtune(*words))["results"]
    assert [entry["size"] for entry in results] == [[1024], [2048]]
    assert {entry["strategy"] for entry in results} == {"fixed"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tune", "sexpy"), "no bundled kernel 'sexpy'"),
        (("tune", "saxpy", "--size", "12x34"), "is no size of saxpy"),
        (("tune", "saxpy", "--size", "0"), "is no size of saxpy"),
        (("tune", "saxpy", "--size", "huge"), "no size 'huge'"),
        (("tune", "saxpy", "--strategy", "guess"), "guess"),
        (("tune", "--sise", "1"), "unrecognized arguments"),
        (("tunes",), "invalid choice"),
        (("cache", "purge"), "--all"),
        (("replay", "measure", "--spaces", "nowhere", "--protocol", "fixed"), "does not exist"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_status_2(
    webtune: Run, words: tuple[str, ...], says: str
) -> None:
    done = webtune(*words)
    assert done.returncode == 2
    assert says in one_line(done.stderr)


def test_an_adapter_that_is_not_there_is_one_line_with_those_that_are(webtune: Run) -> None:
    done = webtune("tune", "saxpy", "--adapter", "no such card")
    assert done.returncode == 1
    assert "no such card" in one_line(done.stderr)


def test_no_command_prints_help_and_fails(webtune: Run) -> None:
    done = webtune()
    assert done.returncode == 2
    assert "doctor" in done.stderr


def test_version_is_the_packages(webtune: Run) -> None:
    import webtune as package

    assert webtune("--version").stdout == f"webtune {package.__version__}\n"


def test_doctor_finds_nothing_broken_where_tuning_works(webtune: Run, cache_dir: Path) -> None:
    whole = document(webtune("doctor", "--json"))
    findings = {each["topic"]: each for each in whole["findings"]}
    assert not [each for each in findings.values() if each["broken"]]
    assert "right" in findings["computes"]["text"]
    assert "quantum" in findings["clock"]["text"]
    assert str(cache_dir) in findings["store"]["text"]
    text = webtune("doctor").stdout
    assert all(topic in text for topic in findings)
    assert text.endswith("nothing is broken\n")
    assert max(map(len, text.splitlines())) <= max(100, len(str(cache_dir)) + 60)


DOCTOR = {
    "type": "object",
    "required": [
        "ok", "problems", "adapter", "hardware", "features", "limits", "clock", "store", "findings",
    ],
    "properties": {
        "ok": {"const": True},
        "problems": {"maxItems": 0},
        "adapter": {"type": "object", "required": ["label", "software"]},
        "hardware": {"type": "string", "minLength": 8},
        "features": {"type": "array", "items": {"type": "string"}},
        "limits": {"type": "object", "minProperties": 3, "additionalProperties": COUNT},
        "clock": {
            "type": "object",
            "required": ["kind", "quantum_ns", "period_ns"],
            "properties": {
                "kind": {"enum": ["timestamp", "wall"]},
                "quantum_ns": NUMBER,
                "period_ns": NUMBER,
            },
        },
        "store": {
            "type": "object",
            "required": ["location", "writable", "picks"],
            "properties": {"writable": {"const": True}, "picks": COUNT},
        },
    },
}  # fmt: skip


def test_doctor_tells_programs_the_verdict_and_numbers(webtune: Run, cache_dir: Path) -> None:
    jsonschema.validate(document(webtune("doctor", "--json")), DOCTOR)
    blocked = cache_dir.with_name("blocked")
    blocked.write_text("a file where the folder should be")
    done = webtune("doctor", "--json", WEBTUNE_CACHE_DIR=str(blocked))
    whole = json.loads(done.stdout)
    assert (done.returncode, whole["ok"], whole["store"]["writable"]) == (1, False, False)
    assert [problem.partition(":")[0] for problem in whole["problems"]] == ["store"]


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_doctor_says_what_to_do_where_the_cache_cannot_be_written(
    webtune: Run, cache_dir: Path
) -> None:
    cache_dir.write_text("a file where the folder should be")
    done = webtune("doctor")
    assert done.returncode == 1
    assert done.stdout.count("WEBTUNE_CACHE_DIR") == 1
    assert done.stdout.count("File exists") == 1
    assert "Errno" not in done.stdout
    assert done.stdout.endswith("1 broken\n")


def test_doctor_says_what_to_do_without_an_adapter(webtune: Run) -> None:
    nothing = webtune("doctor", VK_ICD_FILENAMES="none", VK_DRIVER_FILES="none")
    if nothing.returncode == 1:  # another backend may have an adapter all the same
        assert "→ install the driver" in words_of(nothing.stdout)


def test_doctor_says_which_adapters_there_are_where_none_has_that_name(webtune: Run) -> None:
    (first, *_) = document(webtune("adapters", "--json"))
    for done in (
        webtune("doctor", "--adapter", "no such card"),
        webtune("doctor", WEBTUNE_ADAPTER="no such card"),
    ):
        assert done.returncode == 1
        assert first["device"] in words_of(done.stdout)
        assert "→ name a part of one of these with --adapter" in words_of(done.stdout)
        assert "install" not in done.stdout


def test_doctor_tells_a_setting_that_does_not_exist(webtune: Run) -> None:
    done = webtune("doctor", WEBTUNE_STRATEGI="fixed")
    assert done.returncode == 1
    said = words_of(done.stdout)
    assert re.search(r"✗ settings .*WEBTUNE_STRATEGI: .*did you mean 'strategy'", said)
    far = webtune("doctor", WEBTUNE_FOO="1")
    assert "WEBTUNE_FOO" in far.stdout
    assert "did you mean" not in far.stdout


def test_a_strategy_that_there_is_not_is_told_by_doctor_and_tune_even_when_remembered(
    webtune: Run, tmp_path: Path
) -> None:
    document(webtune(*SMALL, "--json"))
    named = webtune(*SMALL, "--strategy", "fixd")
    assert named.returncode == 2
    assert "did you mean 'fixed'" in one_line(named.stderr)
    (tmp_path / "webtune.toml").write_text('strategy = "fixd"\n')
    looked = webtune("doctor")
    assert looked.returncode == 1
    assert "✗ settings webtune.toml: strategy is 'fixd'" in words_of(looked.stdout)
    assert webtune(*SMALL).returncode == 2


def test_doctor_tells_which_package_is_missing(webtune: Run) -> None:
    done = webtune("doctor", WEBTUNE_WGPU="no_such_package")
    assert done.returncode == 1
    assert "no_such_package is not installed" in words_of(done.stdout)


def test_adapters_lists_the_one_that_tunes_first(webtune: Run) -> None:
    listed = document(webtune("adapters", "--json"))
    used = document(webtune(*SMALL, "--json"))["device"]["facts"]
    assert listed[0]["device"] == used["device"]
    assert listed[0]["device"] in webtune("adapters").stdout


def test_cache_lists_shows_and_forgets(webtune: Run, cache_dir: Path) -> None:
    assert document(webtune("cache", "list", "--json")) == []
    assert "nothing is remembered in" in one_line(webtune("cache", "list").stdout)
    tuned = document(webtune(*SMALL, "--json"))["results"][0]
    (entry,) = document(webtune("cache", "list", "--json"))
    assert (entry["kernel"], entry["key"]) == ("saxpy", tuned["key"])
    assert entry["winner_ns"] == tuned["winner_ns"]
    assert "1 pick in" in webtune("cache", "list").stdout
    assert "no pick matches" in one_line(webtune("cache", "list", "matmul").stdout)
    shown = webtune("cache", "show", "--kernel", "saxpy").stdout
    assert shown.count("winner") == 1
    assert "Tuned" in shown
    assert webtune("cache", "show", "saxpy").stdout == shown
    assert webtune("cache", "path").stdout.strip().startswith(str(cache_dir))
    nothing = webtune("cache", "purge", "matmul")
    assert nothing.returncode == 0
    assert "nothing was forgotten: no pick matches; `webtune cache list`" in nothing.stdout
    assert "1 pick forgotten" in webtune("cache", "purge", "--all").stdout
    assert "nothing was remembered" in webtune("cache", "purge", "--all").stdout
    assert document(webtune("cache", "list", "--json")) == []


def test_a_key_is_what_it_says_however_it_is_spaced(webtune: Run) -> None:
    document(webtune(*SMALL, "--json"))
    spaced = ("--key", "[ 4096\n]")
    assert len(document(webtune("cache", "list", "--json", *spaced))) == 1
    assert len(document(webtune("cache", "show", "--json", *spaced))) == 1
    assert '"key": "[4096]"' in webtune("cache", "export", *spaced).stdout
    assert document(webtune("cache", "list", "--json", "--key", "[4096.0]")) == []
    for words in (("list",), ("show",), ("purge",), ("export",)):
        done = webtune("cache", *words, "--key", "[f32")
        assert done.returncode == 2
        assert "a key looks like '[1024,1024]'" in one_line(done.stderr)
    assert "1 pick forgotten" in webtune("cache", "purge", *spaced).stdout


def test_the_list_says_the_hardware_once_and_the_environment_where_it_tells_picks_apart(
    webtune: Run,
) -> None:
    label = document(webtune(*SMALL, "--json"))["device"]["label"]
    document(webtune("tune", "saxpy", "--size", "1024", "--json"))
    listed = webtune("cache", "list").stdout
    assert listed.count(label) == 1
    assert listed.startswith(f"{label}\n")
    assert "environment" not in listed
    document(webtune(*SMALL, "--json", WEBTUNE_ENVIRONMENT="quiet"))
    told = webtune("cache", "list").stdout
    assert "environment" in told.splitlines()[1]
    assert "quiet" in told
    assert "3 picks in" in told


def test_two_names_of_a_kernel_are_one_too_many(webtune: Run) -> None:
    done = webtune("cache", "list", "saxpy", "--kernel", "matmul")
    assert done.returncode == 2
    assert "name one" in one_line(done.stderr)


def test_showing_what_is_not_there_fails_in_one_line(webtune: Run) -> None:
    done = webtune("cache", "show", "--kernel", "saxpy")
    assert done.returncode == 1
    assert "cache list" in one_line(done.stderr)


def test_picks_travel_through_a_file(webtune: Run, tmp_path: Path) -> None:
    document(webtune(*SMALL, "--json"))
    assert webtune("cache", "export", "picks.json").returncode == 0
    elsewhere = {"WEBTUNE_CACHE_DIR": str(tmp_path / "elsewhere")}
    assert "1 pick read, 1 changed" in webtune("cache", "import", "picks.json", **elsewhere).stdout
    assert "1 pick read, 0 changed" in webtune("cache", "import", "picks.json", **elsewhere).stdout
    there = document(webtune(*SMALL, "--json", **elsewhere))
    assert there["results"][0]["source"] == "store"
    merged = webtune("cache", "merge", "picks.json", "picks.json").stdout
    assert merged == (tmp_path / "picks.json").read_text()


def test_replay_measures_a_protocol_on_recorded_spaces(webtune: Run, tmp_path: Path) -> None:
    runs = [[1.0 + place / 100 + (turn % 3) / 1000 for turn in range(9)] for place in range(80)]
    with gzip.open(tmp_path / "made.json.gz", "wt") as file:
        json.dump({"unit": "ms", "samples": runs}, file)
    words = ("replay", "measure", "--spaces", ".", "--protocol", "min-3", "--seeds", "5")
    found = document(webtune(*words, "--json"))
    assert (found["mean_regret"], found["mean_launches"]) == (0.0, 3.0)
    assert [space["space"] for space in found["spaces"]] == ["made"]
    assert re.search(r"min-3 +made +0\.000 ", webtune(*words).stdout)


@pytest.mark.parametrize("word", ["import", "merge"])
def test_a_file_that_is_no_export_or_not_there_is_named_in_one_line(
    webtune: Run, tmp_path: Path, word: str
) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, says in (
        ("broken.json", "bundle"),
        ("other.json", "no bundle of webtune"),
        ("binary", "UTF-8"),
        ("missing.json", "cannot be read: No such file"),
    ):
        done = webtune("cache", word, name)
        assert done.returncode == 2
        assert says in one_line(done.stderr)
        assert done.stderr.count(name) == 1
        assert "Errno" not in done.stderr


def test_the_roofline_is_measured_once_and_shown_in_tables(webtune: Run) -> None:
    looked = webtune("doctor", "--roofline")
    assert looked.returncode == 0, looked.stderr
    assert "GFLOP/s" in looked.stdout
    assert "roofline: tuning" in looked.stderr  # it takes seconds, and says what it does
    again = webtune("doctor", "--roofline", "--json")
    assert again.stderr == ""
    numbers = document(again)["roofline"]
    assert set(numbers) == {"flops_per_s", "bytes_per_s", "launch_ns", "ladder"}
    assert all(value > 0 for name, value in numbers.items() if name != "ladder")
    assert [rung["working_set_bytes"] for rung in numbers["ladder"]] == [1 << 18, 1 << 22, 1 << 25]
    assert all(rung["bytes_per_s"] > 0 for rung in numbers["ladder"])
    told = webtune("tune", "saxpy", "--size", "small", "--roofline", "--json")
    assert told.returncode == 0, told.stderr
    (result,) = json.loads(told.stdout)["results"]
    assert 0 < result["roofline"] < 20
    listed = webtune("cache", "list").stdout
    assert "webtune.peak" not in listed
    assert re.search(r"1 pick in .*; \d measured peaks of devices not shown", listed)
    everything = webtune("cache", "list", "--all").stdout
    assert "peaks of " in everything
    assert "webtune.peak.memory" in everything
    assert "1 pick and" in everything
    (store,) = [
        e for e in document(webtune("doctor", "--json"))["findings"] if e["topic"] == "store"
    ]
    assert ": 1 pick, 1 for this hardware" in store["text"]
