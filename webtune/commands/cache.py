"""`webtune cache …`: what is remembered, without a device: listed, shown, moved, forgotten."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from webtune.core.records import Record, document
from webtune.drive import complete
from webtune.errors import UsageError, WebtuneError
from webtune.hosts.native_tuner import choose_store, native_config
from webtune.report import Table, duration, spread
from webtune.store.base import Address, Store
from webtune.store.bundle import Bundle

__all__ = ["export", "forget", "import_", "listing", "merge", "path", "show"]

Found = list[tuple[Address, Record]]


def _opened() -> Store:
    store = choose_store(None, native_config({}))
    complete(store.open())
    return store


def _matching(store: Store, options: argparse.Namespace) -> Found:
    """What the options name: a kernel, a hardware (the start of its digest, or a part of its
    name), a key, an environment."""

    def fits(address: Address, record: Record) -> bool:
        hardware = options.hardware
        return (
            options.name in (None, address.name)
            and options.key in (None, address.key)
            and options.environment in (None, address.environment)
            and (
                not hardware
                or address.hardware.startswith(hardware)
                or hardware.lower() in record.hardware_label.lower()
            )
        )

    return [(address, record) for address, record in store.entries() if fits(address, record)]


def _winner(record: Record) -> Any:
    return next((one for one in record.candidates if one.id == record.winner), None)


def _when(record: Record) -> str:
    return datetime.fromtimestamp(record.created_s, UTC).strftime("%Y-%m-%d %H:%M")


def _plain(address: Address, record: Record) -> dict[str, Any]:
    winner = _winner(record)
    return {
        "environment": address.environment,
        "hardware": address.hardware,
        "hardware_label": record.hardware_label,
        "kernel": address.name,
        "key": address.key,
        "winner": winner.name if winner else None,
        "winner_ns": winner.time_ns if winner else None,
        "interval_ns": list(record.interval_ns) if record.interval_ns else None,
        "strategy": record.strategy,
        "candidates": len(record.candidates),
        "created_s": record.created_s,
    }


def listing(options: argparse.Namespace) -> int:
    """One line a pick."""
    store = _opened()
    found = _matching(store, options)
    if options.json:
        print(json.dumps([_plain(*entry) for entry in found], indent=2))
        return 0
    rows = []
    for address, record in found:
        winner = _winner(record)
        rows.append(
            (
                address.name,
                address.key,
                winner.name if winner else "–",
                spread(winner.time_ns if winner else None, record.interval_ns),
                record.hardware_label,
                address.environment,
                _when(record),
            )
        )
    columns = ("kernel", "key", "winner", ">time", "hardware", "environment", "tuned (UTC)")
    Table(columns, tuple(rows), notes=(f"{len(rows)} picks in {store.location}",)).show()
    return 0


def show(options: argparse.Namespace) -> int:
    """Everything that is remembered of the picks named."""
    store = _opened()
    found = _matching(store, options)
    if not found:
        raise WebtuneError("no pick matches; `webtune cache list` shows all there are")
    if options.json:
        documents = [{**_plain(*each), "record": document(each[1])} for each in found]
        print(json.dumps(documents, indent=2))
        return 0
    for address, record in found:
        _candidates(address, record).show()
        print()
    return 0


def _candidates(address: Address, record: Record) -> Table:
    rows = tuple(
        (
            one.name,
            spread(one.time_ns, one.interval_ns),
            str(len(one.samples_ns)),
            _verdict(one, record),
            one.reason,
        )
        for one in sorted(record.candidates, key=lambda c: (c.time_ns is None, c.time_ns or 0))
    )
    versions = ", ".join(f"{name} {version}" for name, version in record.versions)
    kind, quantum_ns, _ = record.clock
    return Table(
        ("candidate", ">time", ">samples", "verdict", "why"),
        rows,
        title=f"{address.name} {address.key} on {record.hardware_label} ({address.environment})",
        notes=(
            f"Tuned {_when(record)} UTC by {record.strategy} in {record.wall_s:.2f} s, "
            f"{record.launches} launches, {kind} clock in steps of {duration(quantum_ns)}; "
            f"{versions}",
        ),
    )


def _verdict(one: Any, record: Record) -> str:
    if one.id == record.winner:
        return "winner"
    if one.id in record.ties:
        return "tie"
    return one.failure or ("eliminated" if one.eliminated else "slower" if one.time_ns else "–")


def path(options: argparse.Namespace) -> int:
    """Where the picks lie."""
    print(_opened().location)
    return 0


def forget(options: argparse.Namespace) -> int:
    """Forget the picks named, or all of them."""
    store = _opened()
    named = any((options.name, options.key, options.environment, options.hardware))
    if not named:
        if not options.all:
            raise UsageError("name what to forget (--kernel, --hardware, --key …), or say --all")
        gone = store.purge()
    else:
        gone = sum(
            store.purge(
                environment=address.environment,
                hardware=address.hardware,
                name=address.name,
                key=address.key,
            )
            for address, _ in _matching(store, options)
        )
    print(f"{gone} picks forgotten")
    return 0


def export(options: argparse.Namespace) -> int:
    """Write the picks named as one JSON document."""
    found = _matching(_opened(), options)
    _write(Bundle(dict(found)), options.file)
    return 0


def import_(options: argparse.Namespace) -> int:
    """Merge documents into the store: more and newer evidence wins."""
    bundle = _read(options.files)
    changed = bundle.import_into(_opened())
    print(f"{len(bundle.records)} picks read, {changed} changed here")
    return 0


def merge(options: argparse.Namespace) -> int:
    """Join documents into one; the store is not touched."""
    _write(_read(options.files), options.output)
    return 0


def _read(files: Iterable[str]) -> Bundle:
    whole = Bundle()
    for name in files:
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WebtuneError(f"{name} cannot be read: {error}") from error
        whole = whole.merge(Bundle.loads(text))
    for sentence in whole.unreadable:
        print(f"webtune: passed over: {sentence}", file=sys.stderr)
    return whole


def _write(bundle: Bundle, name: str) -> None:
    text = bundle.dumps()
    if name == "-":
        sys.stdout.write(text)
        return
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise WebtuneError(f"{name} cannot be written: {error}") from error
    print(f"{len(bundle.records)} picks written to {name}")
