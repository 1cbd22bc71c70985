"""The picks that the options of `webtune cache …` select in the store of this machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass

from webtune.errors import UsageError
from webtune.fingerprint.digests import canonical
from webtune.hosts.native import STORES, native_config
from webtune.report.format import counted
from webtune.store.base import Address, Store
from webtune.store.decision import Decision
from webtune.strategies.drive import complete
from webtune.tuning.probes import ARITHMETIC

Picks = list[tuple[Address, Decision]]

_PEAKS = ARITHMETIC.name.rpartition(".")[0] + "."
"""The names of the probes that measure a device's peaks begin so."""


def open_store() -> Store:
    """The store that the settings name."""
    store = STORES.choose(None, native_config({}))
    complete(store.open())
    return store


def is_peak(address: Address) -> bool:
    """Whether this is a measured peak of a device, which is stored as a pick, but is no user's."""
    return address.name.startswith(_PEAKS)


def counts_text(addresses: Iterable[Address]) -> str:
    """How many picks, and how many measured peaks beside them: `2 picks and 1 measured peak`."""
    peaks = [is_peak(address) for address in addresses]
    picks = counted(peaks.count(False), "pick")
    return f"{picks} and {counted(peaks.count(True), 'measured peak')}" if any(peaks) else picks


@dataclass(frozen=True, slots=True)
class Selection:
    """What the options name. `hardware` is the start of a digest, or a part of a name."""

    name: str | None = None
    key: str | None = None
    environment: str | None = None
    hardware: str | None = None

    @classmethod
    def of(cls, options: argparse.Namespace) -> Selection:
        """Raises `UsageError` for two different kernels, and for a key that is no JSON."""
        word = getattr(options, "word", None)
        if None not in (word, options.name) and word != options.name:
            raise UsageError(f"two kernels are named, {word!r} and {options.name!r}; name one")
        return cls(word or options.name, _key(options.key), options.environment, options.hardware)

    def __bool__(self) -> bool:
        return self != Selection()

    def fits(self, address: Address, decision: Decision) -> bool:
        """Whether a pick is among those that are named."""
        return (
            self.name in (None, address.name)
            and self.key in (None, address.key)
            and self.environment in (None, address.environment)
            and (
                not self.hardware
                or address.hardware.startswith(self.hardware)
                or self.hardware.lower() in decision.device.lower()
            )
        )

    def among(self, store: Store) -> Picks:
        """The picks of a store that are named."""
        return [pick for pick in store.entries() if self.fits(*pick)]

    def shown(self, store: Store, *, peaks: bool) -> tuple[Picks, str]:
        """The picks to show, and a text on what is not shown: measured peaks are shown only where
        they are asked for, with `peaks` or by name."""
        found = self.among(store)
        if peaks or (self.name or "").startswith(_PEAKS):
            return found, ""
        picks = [pick for pick in found if not is_peak(pick[0])]
        hidden = counted(len(found) - len(picks), "measured peak")
        note = f"; {hidden} of devices not shown (see --all)"
        return picks, note if len(found) > len(picks) else ""


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
