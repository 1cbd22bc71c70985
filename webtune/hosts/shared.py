"""What both hosts do to open a tuner: read the arguments, choose the store, put the parts
together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webtune.config import Config
from webtune.gpu.base import Device
from webtune.report.decision_log import DecisionSink, open_sink
from webtune.report.log import Logger
from webtune.store.base import Store, checked_store
from webtune.store.bundle import Bundle, Layered
from webtune.store.memory import MemoryStore, NoStore
from webtune.tuner import Tuner
from webtune.tuning.context import Context
from webtune.tuning.host import Host


def own_version() -> tuple[str, str]:
    """webtune and its version, for decisions."""
    return "webtune", str(getattr(sys.modules.get("webtune"), "__version__", "unknown"))


@dataclass(frozen=True, slots=True)
class Opening:
    """What a caller asked of a tuner, understood before a device is opened."""

    config: Config
    store: Store
    sink: DecisionSink | None

    def tuner(self, device: Device, host: Host) -> Tuner:
        """The tuner on a device. The store must be open."""
        observer = Logger(self.config.log, self.sink)
        return Tuner(Context(device, self.store, host, self.config, observer))


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a host: `named(name)` gives the one that lies under a name or in a folder,
    `default(config)` that of a caller who named none. `choices` says for people what a name is."""

    named: Callable[[str | os.PathLike[str]], Store]
    default: Callable[[Config], Store]
    choices: str

    def choose(self, store: Any, config: Config) -> Store:
        """None or "auto": the default; "memory"; "none"; a name; or a store object. Raises
        `UsageError` for what is no store."""
        wanted = config.store if store is None else store
        if not isinstance(wanted, str | os.PathLike):
            return checked_store(wanted, f"None, 'memory', 'none', {self.choices}")
        if wanted == "auto":
            return self.default(config)
        if wanted == "memory":
            return MemoryStore()
        return NoStore() if wanted == "none" else self.named(wanted)


def prepare(
    stores: Stores,
    configure: Callable[[dict[str, Any]], Config],
    store: Any,
    bundle: Any,
    settings: dict[str, Any],
) -> Opening:
    """Read the arguments of `open_tuner`; `configure` gives the configuration for settings. Raises
    `UsageError` and `ConfigError`."""
    sink = settings.pop("decision_log") if callable(settings.get("decision_log")) else None
    shipped = None if bundle is None else Bundle.given(bundle)
    config = configure(settings)
    chosen = stores.choose(store, config)
    if shipped is not None:
        chosen = Layered(chosen, shipped)
    return Opening(config, chosen, open_sink(sink or config.decision_log))
