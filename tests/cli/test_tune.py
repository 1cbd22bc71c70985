"""`webtune tune`: one document or a table, from the device or from the store."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import jsonschema

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


def test_tune_prints_one_document_and_the_second_run_answers_from_the_store(
    webtune: Run, document: Any, small: tuple[str, ...]
) -> None:
    first = document(webtune(*small, "--json"))
    second = document(webtune(*small, "--json"))
    for whole in (first, second):
        jsonschema.validate(whole, TUNED)
    (tuned,), (kept,) = first["results"], second["results"]
    assert (tuned["source"], kept["source"]) == ("tuned", "store")
    assert (tuned["kernel"], tuned["size"]) == ("saxpy", [4096])
    same = ("key", "winner", "winner_ns", "interval_ns", "candidates", "wall_s", "strategy")
    assert [tuned[name] for name in same] == [kept[name] for name in same]
    assert tuned["measured"] + tuned["rejected"] + tuned["failed"] <= tuned["candidates"]
    assert tuned["winner_ns"] <= tuned["slowest_ns"]


def test_fresh_measures_what_is_remembered(
    webtune: Run, document: Any, small: tuple[str, ...]
) -> None:
    document(webtune(*small, "--json"))
    again = document(webtune(*small, "--json", "--fresh"))
    assert again["results"][0]["source"] == "tuned"


def test_the_table_says_where_each_answer_came_from(webtune: Run, small: tuple[str, ...]) -> None:
    first, second = webtune(*small), webtune(*small)
    assert re.search(r"saxpy\s+4096\s.*GB/s.*tuned in \d", first.stdout)
    assert re.search(r"saxpy\s+4096\s.*\sstore$", second.stdout, re.MULTILINE)
    assert "1 tuned in" in first.stdout
    assert "1 answered from the store, nothing measured" in second.stdout
    assert "tuning" in first.stderr
    assert second.stderr == ""


def test_explain_lists_every_candidate(webtune: Run, small: tuple[str, ...]) -> None:
    done = webtune(*small, "--explain", "--quiet")
    assert done.stderr == ""
    (count,) = re.findall(r"^(\d+) candidates: ", done.stdout, re.MULTILINE)
    rows = done.stdout.partition("\n--")[2].partition(f"\n{count} candidates")[0].splitlines()[1:]
    assert len(rows) == int(count)
    assert rows[0].split("  ")[-1].strip() == "winner" or " winner" in rows[0]


def test_strategy_and_several_sizes_are_taken(webtune: Run, document: Any) -> None:
    words = ("tune", "saxpy", "--size", "1024", "--size", "2048", "--strategy", "fixed", "--json")
    results = document(webtune(*words))["results"]
    assert [entry["size"] for entry in results] == [[1024], [2048]]
    assert {entry["strategy"] for entry in results} == {"fixed"}


def test_the_roofline_is_measured_once_and_shown_in_tables(webtune: Run, document: Any) -> None:
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
