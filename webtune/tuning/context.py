"""What the parts of a tuner share: its device, its store, its host, its settings, its observer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from webtune.config import Config
from webtune.gpu.base import Device
from webtune.measure.progress_events import ProgressEvent
from webtune.store.base import Store
from webtune.store.decision import Decision
from webtune.tuning.call import Call
from webtune.tuning.host import Host

ProgressListener = Callable[[ProgressEvent], None]
"""Gets the events of a tune while it runs."""


class Observer:
    """Is told what a tuner does; by itself it does nothing with it. Nothing that an observer
    raises may undo a tune, so implementations catch their own failures."""

    def began(self, call: Call, strategy: str) -> None:
        """A tune begins."""

    def decided(self, call: Call, decision: Decision, *, stored: bool) -> None:
        """A tune ended with a decision, which may name no winner. `stored` says whether it will
        outlive this process."""

    def failed(self, call: Call, error: Exception) -> None:
        """A tune ended without a decision."""

    def launch_failed(self, call: Call, candidate: str, error: Exception) -> None:
        """A pick (by its name) could not be launched, and another candidate ran."""


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of a tuner, opened by a host."""

    device: Device
    store: Store
    host: Host
    config: Config
    observer: Observer = field(default_factory=Observer)

    @property
    def hardware(self) -> str:
        """The digest of the device's identity."""
        return self.device.identity.digest


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What a caller asks of one tune. `strategy` None takes the configured one, else the host's.
    `fresh` measures even where a decision is known. `awaiting` says that the caller awaits, so
    that the event loop gets a turn between launches where a call could also wait."""

    progress: ProgressListener | None = None
    strategy: str | None = None
    fresh: bool = False
    awaiting: bool = False
