"""`webtune replay measure`: what a measuring protocol costs and misses, on recorded timings."""

from __future__ import annotations

import argparse
from pathlib import Path

from webtune import replay
from webtune.cli.output import print_json
from webtune.errors import UsageError


def measure(options: argparse.Namespace) -> int:
    """Run the trials and print regret and launches."""
    spaces = Path(options.spaces)
    if not spaces.exists():
        raise UsageError(f"{spaces} does not exist; --spaces takes a folder of recorded spaces")
    found = replay.measure(
        spaces,
        options.protocol,
        candidates=options.candidates,
        seeds=options.seeds,
        order=options.order,
        drift=options.drift,
    )
    if options.json:
        print_json(found)
    else:
        replay.table([found]).show()
    return 0
