"""`webtune cache …`: picks listed, shown, moved and forgotten without a device."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_cache_lists_shows_and_forgets(
    webtune: Run, document: Any, one_line: Any, small: tuple[str, ...], cache_dir: Path
) -> None:
    assert document(webtune("cache", "list", "--json")) == []
    assert "nothing is remembered in" in one_line(webtune("cache", "list").stdout)
    tuned = document(webtune(*small, "--json"))["results"][0]
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


def test_a_key_is_what_it_says_however_it_is_spaced(
    webtune: Run, document: Any, one_line: Any, small: tuple[str, ...]
) -> None:
    document(webtune(*small, "--json"))
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
    document: Any,
    small: tuple[str, ...],
) -> None:
    label = document(webtune(*small, "--json"))["device"]["label"]
    document(webtune("tune", "saxpy", "--size", "1024", "--json"))
    listed = webtune("cache", "list").stdout
    assert listed.count(label) == 1
    assert listed.startswith(f"{label}\n")
    assert "environment" not in listed
    document(webtune(*small, "--json", WEBTUNE_ENVIRONMENT="quiet"))
    told = webtune("cache", "list").stdout
    assert "environment" in told.splitlines()[1]
    assert "quiet" in told
    assert "3 picks in" in told


def test_two_names_of_a_kernel_are_one_too_many(webtune: Run, one_line: Any) -> None:
    done = webtune("cache", "list", "saxpy", "--kernel", "matmul")
    assert done.returncode == 2
    assert "name one" in one_line(done.stderr)


def test_showing_what_is_not_there_fails_in_one_line(webtune: Run, one_line: Any) -> None:
    done = webtune("cache", "show", "--kernel", "saxpy")
    assert done.returncode == 1
    assert "cache list" in one_line(done.stderr)


def test_picks_travel_through_a_file(
    webtune: Run, document: Any, small: tuple[str, ...], tmp_path: Path
) -> None:
    document(webtune(*small, "--json"))
    assert webtune("cache", "export", "picks.json").returncode == 0
    elsewhere = {"WEBTUNE_CACHE_DIR": str(tmp_path / "elsewhere")}
    assert "1 pick read, 1 changed" in webtune("cache", "import", "picks.json", **elsewhere).stdout
    assert "1 pick read, 0 changed" in webtune("cache", "import", "picks.json", **elsewhere).stdout
    there = document(webtune(*small, "--json", **elsewhere))
    assert there["results"][0]["source"] == "store"
    merged = webtune("cache", "merge", "picks.json", "picks.json").stdout
    assert merged == (tmp_path / "picks.json").read_text()


@pytest.mark.parametrize("word", ["import", "merge"])
def test_a_file_that_is_no_export_or_not_there_is_named_in_one_line(
    webtune: Run, one_line: Any, tmp_path: Path, word: str
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
