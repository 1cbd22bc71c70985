"""Every failure, named by whose fault it is. This module imports nothing of webtune.

A candidate's failure is a value, a `Failure` of some `FailureKind`. All others are exceptions:

    Exception
    └── WebtuneError
        ├── UsageError (a ValueError)            the call cannot be served as it is written
        │   ├── SpaceError                       the parameter space
        │   ├── KernelError                      the kernel, its WGSL, its options
        │   ├── ArgumentError                    an argument
        │   ├── KeyUnserialisable                the key
        │   └── ConfigError                      a setting
        ├── FeatureUnavailable                   the device does not offer what is asked of it
        ├── HostUnavailable (a RuntimeError)     there is no WebGPU here, or no adapter
        ├── DeviceLost (a RuntimeError)          the device is gone
        ├── DeviceTimeout (a TimeoutError)       submitted work did not come back
        ├── LaunchError (a RuntimeError)         the device refused a program
        ├── TunerClosed (a RuntimeError)         the tuner was closed before
        ├── Reject                               raised by candidates that do not serve their inputs
        └── NoValidKernel (a RuntimeError)       every candidate failed
    UserWarning
    ├── StoreWarning                             decisions are not remembered, or cannot be read
    └── TuneWarning                              a tune in the background failed
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType


class FailureKind(StrEnum):
    """Why one candidate is out."""

    REJECTED = "rejected"
    """It does not serve these inputs; nothing ran, so it is never a fallback."""
    LAUNCH = "launch"
    """Its WGSL, its pipeline or its launch was refused by the device."""
    NOT_MEASURED = "not measured"
    """It ran, and the device gave no usable time for it."""
    INVALID_SAMPLES = "invalid samples"
    """Its times contradict each other or the wall clock."""
    WRONG_ANSWER = "wrong answer"
    """Its output differs from the reference."""
    TIMED_OUT = "timed out"
    """It did not come back in time, here or in an earlier process."""
    SKIPPED = "skipped"
    """It was never reached."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One candidate's failure, as data."""

    kind: FailureKind
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class WebtuneError(Exception):
    """Root of everything that webtune raises."""


class UsageError(WebtuneError, ValueError):
    """A call that cannot be served as written; the message says what to change."""


class SpaceError(UsageError):
    """A parameter space that is empty, or whose constraint raises."""


class KernelError(UsageError):
    """A kernel whose WGSL, parameters and launch do not fit together."""


class ArgumentError(UsageError):
    """An argument of the wrong kind, count, dtype or size."""


class KeyUnserialisable(UsageError):
    """A key that does not survive a round trip through JSON."""


class ConfigError(UsageError):
    """A setting that does not exist or cannot be read."""


class FeatureUnavailable(WebtuneError):
    """The device does not offer a feature or a limit that is asked of it."""


class HostUnavailable(WebtuneError, RuntimeError):
    """No WebGPU, no adapter, or a host's module used on another host."""


class DeviceLost(WebtuneError, RuntimeError):
    """The device is gone; what was pending on it has ended."""


class TunerClosed(WebtuneError, RuntimeError):
    """The tuner was closed; open another."""


class LaunchError(WebtuneError, RuntimeError):
    """The device refused a program: its compiler's or validator's message is the text."""


class DeviceTimeout(WebtuneError, TimeoutError):
    """Submitted work did not come back in time; the device is not to be trusted again."""


class Reject(WebtuneError):
    """Raised by a candidate that does not serve the inputs it is given."""


class NoValidKernel(WebtuneError, RuntimeError):
    """Every candidate failed. `failures` maps each candidate's name to its `Failure`."""

    def __init__(self, message: str, failures: dict[str, Failure]) -> None:
        super().__init__(message)
        self.failures = failures


def reason_of(error: BaseException) -> str:
    """Why the system refused, without the path and the number that its errors repeat."""
    return str(getattr(error, "strerror", None) or error)


def did_you_mean(given: object, names: Iterable[str]) -> str:
    """`did you mean 'fixed'?` where one of the names is near to what was given, else nothing: a
    suggestion that is far off would mislead."""
    near = difflib.get_close_matches(str(given), tuple(names), n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def choices_text(given: object, names: Iterable[str]) -> str:
    """All names that could have been given, after the one that was probably meant:
    `did you mean 'fixed'? There are adaptive, fixed`."""
    names = tuple(names)
    suggestion = did_you_mean(given, names)
    lead = f"{suggestion} There" if suggestion else "there"
    return f"{lead} are {', '.join(names)}"


def warn(warning: Warning) -> None:
    """Warn of the line that called into webtune, however deep inside the reason was met."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == __name__.partition(".")[0]


class StoreWarning(UserWarning):
    """Picks are not remembered, or a stored one could not be read. Given once a store."""


class TuneWarning(UserWarning):
    """A tune in the background failed; its outcome has the exception."""
