"""`webtune doctor` and `webtune adapters`: what is found, and what to do about it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NUMBER = {"type": "number", "exclusiveMinimum": 0}


COUNT = {"type": "integer", "minimum": 0}


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


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_doctor_finds_nothing_broken_where_tuning_works(
    webtune: Run, document: Any, cache_dir: Path
) -> None:
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


def test_doctor_tells_programs_the_verdict_and_numbers(
    webtune: Run, document: Any, cache_dir: Path
) -> None:
    jsonschema.validate(document(webtune("doctor", "--json")), DOCTOR)
    blocked = cache_dir.with_name("blocked")
    blocked.write_text("a file where the folder should be")
    done = webtune("doctor", "--json", WEBTUNE_CACHE_DIR=str(blocked))
    whole = json.loads(done.stdout)
    assert (done.returncode, whole["ok"], whole["store"]["writable"]) == (1, False, False)
    assert [problem.partition(":")[0] for problem in whole["problems"]] == ["store"]


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


def test_doctor_says_which_adapters_there_are_where_none_has_that_name(
    webtune: Run, document: Any
) -> None:
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
    webtune: Run, document: Any, one_line: Any, small: tuple[str, ...], tmp_path: Path
) -> None:
    document(webtune(*small, "--json"))
    named = webtune(*small, "--strategy", "fixd")
    assert named.returncode == 2
    assert "did you mean 'fixed'" in one_line(named.stderr)
    (tmp_path / "webtune.toml").write_text('strategy = "fixd"\n')
    looked = webtune("doctor")
    assert looked.returncode == 1
    assert "✗ settings webtune.toml: strategy is 'fixd'" in words_of(looked.stdout)
    assert webtune(*small).returncode == 2


def test_doctor_tells_which_package_is_missing(webtune: Run) -> None:
    done = webtune("doctor", WEBTUNE_WGPU="no_such_package")
    assert done.returncode == 1
    assert "no_such_package is not installed" in words_of(done.stdout)


def test_adapters_lists_the_one_that_tunes_first(
    webtune: Run, document: Any, small: tuple[str, ...]
) -> None:
    listed = document(webtune("adapters", "--json"))
    used = document(webtune(*small, "--json"))["device"]["facts"]
    assert listed[0]["device"] == used["device"]
    assert listed[0]["device"] in webtune("adapters").stdout
