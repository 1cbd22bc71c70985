"""`webtune replay measure`: a protocol on recorded spaces."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_replay_measures_a_protocol_on_recorded_spaces(
    webtune: Run, document: Any, tmp_path: Path
) -> None:
    runs = [[1.0 + place / 100 + (turn % 3) / 1000 for turn in range(9)] for place in range(80)]
    with gzip.open(tmp_path / "made.json.gz", "wt") as file:
        json.dump({"unit": "ms", "samples": runs}, file)
    words = ("replay", "measure", "--spaces", ".", "--protocol", "min-3", "--seeds", "5")
    found = document(webtune(*words, "--json"))
    assert (found["mean_regret"], found["mean_launches"]) == (0.0, 3.0)
    assert [space["space"] for space in found["spaces"]] == ["made"]
    assert re.search(r"min-3 +made +0\.000 ", webtune(*words).stdout)
