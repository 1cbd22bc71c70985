"""`webtune cache …`: list, show, move and forget remembered picks. No device is opened."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from webtune.cli.output import print_json, print_wrapped
from webtune.cli.picks import Picks, Selection, counts_text, is_peak, open_store
from webtune.errors import UsageError, WebtuneError, reason_of
from webtune.report.format import counted, duration, spread
from webtune.report.table import Table
from webtune.store.base import Address, Selector
from webtune.store.bundle import Bundle
from webtune.store.decision import Decision, document

NO_MATCH = "no pick matches; `webtune cache list` shows all there are"


def list_picks(options: argparse.Namespace) -> int:
    """Print one line a pick, under the hardware that it is for."""
    store, selection = open_store(), Selection.of(options)
    found, hidden = selection.shown(store, peaks=options.all)
    if options.json:
        print_json([_plain(*pick) for pick in found])
        return 0
    for table in _tables(found):
        table.show()
        print()
    if found:
        text = f"{counts_text(address for address, _ in found)} in {store.location}"
    else:
        text = NO_MATCH if selection else f"nothing is remembered in {store.location}"
    print_wrapped(text + hidden, "  ")
    return 0


def show_picks(options: argparse.Namespace) -> int:
    """Print everything that is remembered of the picks named."""
    found, hidden = Selection.of(options).shown(open_store(), peaks=options.all)
    if not found:
        raise WebtuneError(NO_MATCH + hidden)
    if options.json:
        print_json([{**_plain(*pick), "decision": document(pick[1])} for pick in found])
        return 0
    for pick in found:
        _candidates(*pick).show()
        print()
    return 0


def print_path(options: argparse.Namespace) -> int:
    """Print where the picks lie."""
    print(open_store().location)
    return 0


def purge(options: argparse.Namespace) -> int:
    """Forget the picks named, or all of them."""
    store, selection = open_store(), Selection.of(options)
    if not selection and not options.all:
        raise UsageError("name what to forget (a kernel, --hardware, --key …), or say --all")
    if selection and options.all:
        raise UsageError("--all forgets everything, whatever else is named; leave one of them out")
    found = [address for address, _ in selection.among(store)]
    if not selection:
        store.purge()
    elif selection == Selection(hardware=selection.hardware):
        # With the hardware go the candidates that were barred on it.
        for digest in {address.hardware for address in found} | {str(selection.hardware)}:
            store.purge(Selector(hardware=digest))
    else:
        for address in found:
            store.purge(Selector.of(address))
    nothing = "nothing was remembered" if options.all else f"nothing was forgotten: {NO_MATCH}"
    print(f"{counts_text(found)} forgotten" if found else nothing)
    return 0


def export_picks(options: argparse.Namespace) -> int:
    """Write the picks named as one JSON document."""
    selection = Selection.of(options)
    found = selection.among(open_store())
    if selection and not found:
        print(f"webtune: {NO_MATCH}", file=sys.stderr)
    _write(Bundle(dict(found)), options.file)
    return 0


def import_picks(options: argparse.Namespace) -> int:
    """Merge documents into the store: more and newer evidence wins."""
    bundle = _read(options.files)
    changed = bundle.import_into(open_store())
    print(f"{counts_text(bundle.decisions)} read, {changed} changed here")
    return 0


def merge_bundles(options: argparse.Namespace) -> int:
    """Join documents into one; the store is not touched."""
    _write(_read(options.files), options.output)
    return 0


# -- documents ------------------------------------------------------------------------------------


def _read(files: Iterable[str]) -> Bundle:
    """All documents as one. What is wrong with one is a wrong word of the command: `UsageError`."""
    whole = Bundle()
    for file in files:
        name = "standard input" if file == "-" else file
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
            whole = whole.merge(Bundle.loads(text))
        except OSError as error:
            raise UsageError(f"{name} cannot be read: {reason_of(error)}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{name} is no bundle: it is not UTF-8 text") from error
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
    for sentence in whole.unreadable:
        print(f"webtune: passed over: {sentence}", file=sys.stderr)
    return whole


def _write(bundle: Bundle, file: str) -> None:
    text = bundle.dumps()
    if file == "-":
        sys.stdout.write(text)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {reason_of(error)}") from error
    print(f"{counts_text(bundle.decisions)} written to {file}")


# -- what is shown of a pick ----------------------------------------------------------------------


def _plain(address: Address, decision: Decision) -> dict[str, Any]:
    winner = decision.winner
    return {
        "environment": address.environment,
        "hardware": address.hardware,
        "hardware_label": decision.device,
        "kernel": address.name,
        "key": address.key,
        "winner": winner.name if winner else None,
        "winner_ns": winner.time_ns if winner else None,
        "interval_ns": list(winner.interval_ns) if winner and winner.interval_ns else None,
        "strategy": decision.strategy,
        "candidates": len(decision.candidates),
        "created_s": decision.created_s,
    }


def _tables(picks: Picks) -> Iterable[Table]:
    """One table for each hardware, and one for its measured peaks."""

    def group(pick: tuple[Address, Decision]) -> tuple[str, str, bool]:
        address, decision = pick
        return decision.device, address.hardware, is_peak(address)

    ordered = sorted(picks, key=group)
    labels = [label for label, _ in {group(pick)[:2] for pick in ordered}]
    for (label, digest, peaks), members in groupby(ordered, group):
        # Two drivers of one device may go by one name.
        title = f"{label} (hardware {digest[:8]})" if labels.count(label) > 1 else label
        yield _table(list(members), f"peaks of {title}" if peaks else title, peaks=peaks)


def _table(picks: Picks, title: str, *, peaks: bool) -> Table:
    apart = not peaks and any(address.environment != "default" for address, _ in picks)
    rows = tuple(_row(address, decision, apart=apart) for address, decision in picks)
    environment = ["environment"] if apart else []
    columns = ("kernel", "key", "winner", ">time", *environment, "tuned")
    return Table(columns, rows, title=title)


def _row(address: Address, decision: Decision, *, apart: bool) -> tuple[str, ...]:
    winner = decision.winner
    return (
        address.name,
        address.key,
        winner.name if winner else "–",
        spread(winner.time_ns, winner.interval_ns) if winner else "–",
        *([address.environment] if apart else []),
        _when(decision)[:10],
    )


def _candidates(address: Address, decision: Decision) -> Table:
    rows = tuple(
        (
            candidate.name,
            spread(candidate.time_ns, candidate.interval_ns),
            str(len(candidate.samples_ns)),
            candidate.status,
            candidate.reason,
        )
        for candidate in sorted(
            decision.candidates, key=lambda c: (c.time_ns is None, c.time_ns or 0)
        )
    )
    versions = ", ".join(f"{name} {version}" for name, version in decision.versions)
    clock = decision.clock
    plain = address.environment == "default" or is_peak(address)
    environment = "" if plain else f" ({address.environment})"
    return Table(
        ("candidate", ">time", ">samples", "verdict", "why"),
        rows,
        title=f"{address.name} {address.key} on {decision.device}{environment}",
        notes=(
            f"Tuned {_when(decision)} UTC by {decision.strategy} in {decision.wall_s:.2f} s with "
            f"{counted(decision.launches, 'launch')}; {clock.kind} clock in steps of "
            f"{duration(clock.quantum_ns)}; {versions}",
        ),
    )


def _when(decision: Decision) -> str:
    return datetime.fromtimestamp(decision.created_s, UTC).strftime("%Y-%m-%d %H:%M")
