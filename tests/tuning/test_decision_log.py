"""One JSON line a decision, of the published shape, to a file, to stderr or to a function."""

from __future__ import annotations

import contextlib
import json
import logging

import jsonschema
import pytest

import webtune as wt
from webtune.report.decision_log import schema
from webtune.testing import Faults, Pace, ScriptedClock, ScriptedDevice

TIMES = {"a": 5_000, "b": 1_000, "c": 2_000}


def valid(document):
    validator = jsonschema.Draft202012Validator(schema())
    validator.validate(json.loads(json.dumps(document, allow_nan=False)))
    return document


def test_the_schema_itself_is_valid_and_closed():
    jsonschema.Draft202012Validator.check_schema(schema())
    assert set(schema()["required"]) == set(schema()["properties"])
    assert schema()["additionalProperties"] is False


def test_a_decision_tells_what_was_tried_measured_and_decided(make, opened):
    lines = []
    faults = Faults(compile={"c": "no such type"})
    device = ScriptedDevice(TIMES, faults=faults)
    tuner = opened(device, decision_log=lines.append)
    slow = wt.Group("slow", priority=-1)
    ops = make("abcd", groups={"d": {slow: 0}})
    report = tuner.tune(ops, tuner.empty(4, "u32"))
    [line] = [valid(each) for each in lines]
    assert line["kernel"] == "job"
    assert line["key"] == [["u32", [4]]]
    assert line["batches"] == [[0, 1, 2]]
    results = {result["name"]: result for result in line["candidates"]}
    assert len(results["a"]["samples_ns"]) >= 1
    assert results["c"]["status"] == "launch"
    assert results["c"]["reason"] == "no such type"
    assert "priority -1" in results["d"]["reason"]
    assert line["winner"] == report.winner.name == "b"
    assert line["strategy"] == "adaptive"
    assert line["hardware"] == device.identity.digest
    assert line["fingerprint"] == ops.validity
    assert line["launches"] == report.decision.launches
    assert dict(line["versions"])["webtune"] == wt.__version__
    assert any(event["candidate"] == 2 for event in line["events"])


def test_checks_and_their_mismatches_are_in_the_line(make, opened):
    lines = []
    device = ScriptedDevice(TIMES, faults=Faults(wrong=["b"]), effect=lambda v, d: None)
    tuner = opened(device, decision_log=lines.append)
    tuner.tune(make("abc", check=wt.AllClose(), restore=["y"]), tuner.empty(4, "u32"))
    [line] = [valid(each) for each in lines]
    assert line["checked"] is True
    results = {result["name"]: result for result in line["candidates"]}
    assert results["b"]["status"] == "wrong answer"
    assert results["b"]["reason"]


@pytest.mark.parametrize(
    "device",
    [
        {"clock": ScriptedClock(zero_every=1)},
        {"faults": Faults(compile=dict.fromkeys("abc", "no"))},
        {"clock": ScriptedClock(kind="wall", jitter_ns=10)},
        {"clock": ScriptedClock(quantum_ns=65_536), "pace": Pace(noise=0.02)},
    ],
    ids=["unmeasured", "all failed", "by the wall", "coarse clock"],
)
@pytest.mark.parametrize("strategy", ["fixed", "adaptive", "seed-fixed", "seed-adaptive"])
def test_every_kind_of_decision_has_the_published_shape(make, opened, device, strategy):
    lines = []
    tuner = opened(ScriptedDevice(TIMES, **device), decision_log=lines.append, strategy=strategy)
    with contextlib.suppress(wt.NoValidKernel):
        tuner.tune(make("abc"), tuner.empty(4, "u32"))
    [line] = [valid(each) for each in lines]
    assert (line["winner"] is None) == ("faults" in device)
    assert line["measured"] == bool(sum(len(result["samples_ns"]) for result in line["candidates"]))
    assert line["strategy"] == strategy


def test_lines_are_appended_to_a_file(make, opened, tmp_path):
    path = tmp_path / "decisions.jsonl"
    for name in ("one", "two"):
        tuner = opened(ScriptedDevice(TIMES), decision_log=str(path))
        tuner.tune(make("abc", name=name), tuner.empty(4, "u32"))
    lines = [valid(json.loads(line)) for line in path.read_text().splitlines()]
    assert [line["kernel"] for line in lines] == ["one", "two"]


def test_lines_go_to_stderr_where_it_is_named(make, opened, capfd):
    tuner = opened(ScriptedDevice(TIMES), decision_log="stderr", log="disabled")
    tuner.tune(make("abc"), tuner.empty(4, "u32"))
    out, err = capfd.readouterr()
    assert out == ""
    valid(json.loads(err))


def test_a_key_that_was_known_writes_no_line(make, opened):
    lines = []
    tuner = opened(ScriptedDevice(TIMES), decision_log=lines.append)
    y = tuner.empty(4, "u32")
    for _ in range(3):
        tuner.run(make("abc"), y)
    assert len(lines) == 1


def test_a_sink_that_fails_warns_and_undoes_nothing(make, opened):
    def full(document):
        raise OSError("no space left")

    tuner = opened(ScriptedDevice(TIMES), decision_log=full)
    y = tuner.empty(4, "u32")
    with pytest.warns(wt.TuneWarning, match="no space left"):
        assert tuner.run(make("abc"), y) == wt.Hit(1)
    assert tuner.lookup(make("abc"), y) == wt.Hit(1)
    assert len(list(tuner.store.entries())) == 1


def test_a_sink_that_cannot_be_opened_is_told_at_once(opened, tmp_path):
    with pytest.raises(wt.UsageError, match="cannot be written"):
        opened(ScriptedDevice(), decision_log=str(tmp_path / "nowhere" / "log.jsonl"))


def test_files_are_weaker_than_the_environment_and_that_than_arguments(
    make, opened, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    def strategy_of(**settings):
        tuner = opened(ScriptedDevice(TIMES), **settings)
        return tuner.tune(make("abc"), tuner.empty(4, "u32")).decision.strategy

    assert strategy_of() == "adaptive"
    (tmp_path / "pyproject.toml").write_text('[tool.webtune]\nstrategy = "seed-fixed"\n')
    assert strategy_of() == "seed-fixed"
    (tmp_path / "webtune.toml").write_text('strategy = "seed-adaptive"\n')
    assert strategy_of() == "seed-adaptive"
    monkeypatch.setenv("WEBTUNE_STRATEGY", "fixed")
    assert strategy_of() == "fixed"
    assert strategy_of(strategy="adaptive") == "adaptive"


@pytest.mark.parametrize(("level", "lines"), [("disabled", 0), ("minimal", 2)])
def test_the_log_level_says_how_much_is_told(make, opened, caplog, level, lines):
    tuner = opened(ScriptedDevice(TIMES), log=level)
    with caplog.at_level(logging.INFO, "webtune"):
        tuner.tune(make("abc"), tuner.empty(4, "u32"))
    assert len(caplog.messages) == lines


def test_the_full_log_names_every_candidate(make, opened, caplog):
    tuner = opened(ScriptedDevice(TIMES), log="full")
    with caplog.at_level(logging.INFO, "webtune"):
        tuner.tune(make("abc"), tuner.empty(4, "u32"))
    told = "\n".join(caplog.messages)
    assert all(f"\n{name} " in told for name in "abc")
