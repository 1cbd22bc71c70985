"""`webtune cache …`: what is remembered, without a device: listed, shown, moved, forgotten."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from webtune.errors import UsageError, WebtuneError, reason_of
from webtune.fingerprint.digests import canonical
from webtune.hosts.native import STORES, native_config
from webtune.report.format import counted, duration, spread
from webtune.report.table import Table, wrapped
from webtune.store.base import Address, Selector, Store
from webtune.store.bundle import Bundle
from webtune.store.decision import Decision, document
from webtune.strategies.drive import complete
from webtune.tuning.probes import ARITHMETIC

__all__ = ["PEAKS", "export", "forget", "import_", "listing", "merge", "path", "show"]

PEAKS = ARITHMETIC.name.rpartition(".")[0] + "."
"""The names of the probes that measure a device's peaks begin so."""

NO_MATCH = "no pick matches; `webtune cache list` shows all there are"

Found = list[tuple[Address, Decision]]


def _opened() -> Store:
    store = STORES.choose(None, native_config({}))
    complete(store.open())
    return store


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the options name: a kernel, a hardware (the start of its digest, or a part of its
    name), a key, an environment."""

    name: str | None
    key: str | None
    environment: str | None
    hardware: str | None

    @classmethod
    def of(cls, options: argparse.Namespace) -> _Wanted:
        """`UsageError` on two names, and on a key that is none."""
        word = getattr(options, "word", None)
        if None not in (word, options.name) and word != options.name:
            raise UsageError(f"two kernels are named, {word!r} and {options.name!r}; name one")
        return cls(word or options.name, _key(options.key), options.environment, options.hardware)

    def __bool__(self) -> bool:
        return any((self.name, self.key, self.environment, self.hardware))

    def fits(self, address: Address, record: Decision) -> bool:
        return (
            self.name in (None, address.name)
            and self.key in (None, address.key)
            and self.environment in (None, address.environment)
            and (
                not self.hardware
                or address.hardware.startswith(self.hardware)
                or self.hardware.lower() in record.device.lower()
            )
        )

    def among(self, store: Store) -> Found:
        return [entry for entry in store.entries() if self.fits(*entry)]

    def listed(self, store: Store, *, everything: bool) -> tuple[Found, int]:
        """What is to be shown, and how many peaks are held back: they are the device's own, and
        nobody's picks, so they are shown to those who ask for them."""
        found = self.among(store)
        if everything or (self.name or "").startswith(PEAKS):
            return found, 0
        picks = [entry for entry in found if not _is_peak(entry[0])]
        return picks, len(found) - len(picks)


def _key(text: str | None) -> str | None:
    """A key as it is stored, however it is spaced."""
    if text is None:
        return None
    try:
        return canonical(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--key {text!r} is no JSON ({error}); a key looks like '[1024,1024]' or "
            "'[[\"f32\",[1024]]]', as `webtune cache list` shows it, in quotes for the shell"
        ) from error


def _is_peak(address: Address) -> bool:
    return address.name.startswith(PEAKS)


def _told(entries: Iterable[Address]) -> str:
    """`2 picks`, and how many peaks beside them."""
    addresses = list(entries)
    peaks = sum(map(_is_peak, addresses))
    picks = counted(len(addresses) - peaks, "pick")
    return f"{picks} and {counted(peaks, 'measured peak')}" if peaks else picks


def _when(record: Decision) -> str:
    return datetime.fromtimestamp(record.created_s, UTC).strftime("%Y-%m-%d %H:%M")


def _plain(address: Address, record: Decision) -> dict[str, Any]:
    winner = record.winner
    return {
        "environment": address.environment,
        "hardware": address.hardware,
        "hardware_label": record.device,
        "kernel": address.name,
        "key": address.key,
        "winner": winner.name if winner else None,
        "winner_ns": winner.time_ns if winner else None,
        "interval_ns": list(winner.interval_ns) if winner and winner.interval_ns else None,
        "strategy": record.strategy,
        "candidates": len(record.candidates),
        "created_s": record.created_s,
    }


def listing(options: argparse.Namespace) -> int:
    """One line a pick, under the hardware that it is for."""
    store, wanted = _opened(), _Wanted.of(options)
    found, held_back = wanted.listed(store, everything=options.all)
    if options.json:
        print(json.dumps([_plain(*entry) for entry in found], indent=2))
        return 0
    for table in _tables(found):
        table.show()
        print()
    if found:
        counts = f"{_told(address for address, _ in found)} in {store.location}"
    else:
        counts = NO_MATCH if wanted else f"nothing is remembered in {store.location}"
    told = counts + _held_back(held_back)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(told)
    print("\n".join(wrapped(told, width, "  ")))
    return 0


def _held_back(peaks: int) -> str:
    return f"; {counted(peaks, 'measured peak')} of devices not shown (see --all)" if peaks else ""


def _tables(found: Found) -> Iterable[Table]:
    """One table for each hardware, and one for what was measured of itself."""

    def group(entry: tuple[Address, Decision]) -> tuple[str, str, bool]:
        address, record = entry
        return record.device, address.hardware, _is_peak(address)

    ordered = sorted(found, key=group)
    digests = {(label, digest) for label, digest, _ in map(group, ordered)}
    labels = [label for label, _ in digests]
    for (label, digest, peaks), entries in groupby(ordered, group):
        # Two drivers of one card may go by one name.
        told = f"{label} (hardware {digest[:8]})" if labels.count(label) > 1 else label
        yield _table(list(entries), f"peaks of {told}" if peaks else told, peaks=peaks)


def _table(entries: Found, title: str, *, peaks: bool) -> Table:
    apart = not peaks and any(address.environment != "default" for address, _ in entries)
    rows = []
    for address, record in entries:
        winner = record.winner
        rows.append(
            (
                address.name,
                address.key,
                winner.name if winner else "–",
                spread(winner.time_ns, winner.interval_ns) if winner else "–",
                *([address.environment] if apart else []),
                _when(record)[:10],
            )
        )
    environment = ["environment"] if apart else []
    columns = ("kernel", "key", "winner", ">time", *environment, "tuned")
    return Table(columns, tuple(rows), title=title)


def show(options: argparse.Namespace) -> int:
    """Everything that is remembered of the picks named."""
    store, wanted = _opened(), _Wanted.of(options)
    found, held_back = wanted.listed(store, everything=options.all)
    if not found:
        raise WebtuneError(NO_MATCH + _held_back(held_back))
    if options.json:
        documents = [{**_plain(*each), "record": document(each[1])} for each in found]
        print(json.dumps(documents, indent=2))
        return 0
    for address, record in found:
        _candidates(address, record).show()
        print()
    return 0


def _candidates(address: Address, record: Decision) -> Table:
    rows = tuple(
        (
            one.name,
            spread(one.time_ns, one.interval_ns),
            str(len(one.samples_ns)),
            one.status,
            one.reason,
        )
        for one in sorted(record.candidates, key=lambda c: (c.time_ns is None, c.time_ns or 0))
    )
    versions = ", ".join(f"{name} {version}" for name, version in record.versions)
    kind, quantum_ns = record.clock.kind, record.clock.quantum_ns
    plain = address.environment == "default" or _is_peak(address)
    environment = "" if plain else f" ({address.environment})"
    return Table(
        ("candidate", ">time", ">samples", "verdict", "why"),
        rows,
        title=f"{address.name} {address.key} on {record.device}{environment}",
        notes=(
            f"Tuned {_when(record)} UTC by {record.strategy} in {record.wall_s:.2f} s with "
            f"{counted(record.launches, 'launch')}; {kind} clock in steps of "
            f"{duration(quantum_ns)}; {versions}",
        ),
    )


def path(options: argparse.Namespace) -> int:
    """Where the picks lie."""
    print(_opened().location)
    return 0


def forget(options: argparse.Namespace) -> int:
    """Forget the picks named, or all of them."""
    store, wanted = _opened(), _Wanted.of(options)
    if not wanted and not options.all:
        raise UsageError("name what to forget (a kernel, --hardware, --key …), or say --all")
    if wanted and options.all:
        raise UsageError("--all forgets everything, whatever else is named; leave one of them out")
    found = [address for address, _ in wanted.among(store)]
    if not wanted:
        store.purge()
    elif wanted == _Wanted(None, None, None, wanted.hardware):
        # With the hardware go the candidates that were barred on it.
        for digest in {address.hardware for address in found} | {str(wanted.hardware)}:
            store.purge(Selector(hardware=digest))
    else:
        for each in found:
            store.purge(Selector.of(each))
    nothing = "nothing was remembered" if options.all else f"nothing was forgotten: {NO_MATCH}"
    print(f"{_told(found)} forgotten" if found else nothing)
    return 0


def export(options: argparse.Namespace) -> int:
    """Write the picks named as one JSON document."""
    wanted = _Wanted.of(options)
    found = wanted.among(_opened())
    if wanted and not found:
        print(f"webtune: {NO_MATCH}", file=sys.stderr)
    _write(Bundle(dict(found)), options.file)
    return 0


def import_(options: argparse.Namespace) -> int:
    """Merge documents into the store: more and newer evidence wins."""
    bundle = _read(options.files)
    changed = bundle.import_into(_opened())
    print(f"{_told(bundle.decisions)} read, {changed} changed here")
    return 0


def merge(options: argparse.Namespace) -> int:
    """Join documents into one; the store is not touched."""
    _write(_read(options.files), options.output)
    return 0


def _read(files: Iterable[str]) -> Bundle:
    whole = Bundle()
    for name in files:
        called = "standard input" if name == "-" else name
        # A bundle that is wrong, or is not there, is a wrong word of the command all the same.
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
            whole = whole.merge(Bundle.loads(text))
        except OSError as error:
            raise UsageError(f"{called} cannot be read: {reason_of(error)}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{called} is no bundle: it is not UTF-8 text") from error
        except UsageError as error:
            raise UsageError(f"{called}: {error}") from error
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
        raise UsageError(f"{name} cannot be written: {reason_of(error)}") from error
    print(f"{_told(bundle.decisions)} written to {name}")
