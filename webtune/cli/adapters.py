"""`webtune adapters`: the adapters of this machine."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from webtune.cli.output import print_json
from webtune.gpu.native.adapters import adapters as found_adapters
from webtune.hosts.native import native_config
from webtune.report.table import Table


def adapters(options: argparse.Namespace) -> int:
    """List the adapters, the one that is used first."""
    found = found_adapters(native_config({}).wgpu)
    if options.json:
        print_json([asdict(adapter) for adapter in found])
        return 0
    if not found:
        print("no adapter was found; `webtune doctor` says what to do", file=sys.stderr)
        return 1
    rows = tuple(
        (str(i), one.device, one.kind, one.backend, one.driver, ", ".join(one.features) or "–")
        for i, one in enumerate(found)
    )
    note = "The first is used unless --adapter names a part of another's name."
    columns = (">", "adapter", "kind", "backend", "driver", "features")
    Table(columns, rows, notes=(note,), strong=frozenset({0})).show()
    return 0
