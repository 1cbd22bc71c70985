"""webtune measures the ways in which a WGSL compute kernel can be written on the device that is
really there, remembers the fastest for each problem, and runs it."""

from webtune.buffers import Buffer
from webtune.check import AllClose
from webtune.core.anchor import anchor
from webtune.core.model import Compiled, Hit, Miss, Pending
from webtune.core.work import Work
from webtune.errors import (
    ArgumentError,
    ConfigError,
    DeviceLost,
    DeviceTimeout,
    Failure,
    FailureKind,
    FeatureUnavailable,
    HostUnavailable,
    KernelError,
    KeyUnserialisable,
    LaunchError,
    NoValidKernel,
    Reject,
    SpaceError,
    StoreWarning,
    TunerClosed,
    TuneWarning,
    UsageError,
    WebtuneError,
)
from webtune.gather import Gather, Gathered, GatherState, gather
from webtune.hosts.auto import open_tuner, open_tuner_async
from webtune.kernel import Kernel
from webtune.problem import environment
from webtune.recorder import Recorder
from webtune.results import CandidateReport, TuneReport
from webtune.space import Params, Space, ceil_div, grid
from webtune.tunable import Group, TunableSet
from webtune.tuner import Tuner

__version__ = "0.1.0"

__all__ = [
    "AllClose",
    "ArgumentError",
    "Buffer",
    "CandidateReport",
    "Compiled",
    "ConfigError",
    "DeviceLost",
    "DeviceTimeout",
    "Failure",
    "FailureKind",
    "FeatureUnavailable",
    "Gather",
    "GatherState",
    "Gathered",
    "Group",
    "Hit",
    "HostUnavailable",
    "Kernel",
    "KernelError",
    "KeyUnserialisable",
    "LaunchError",
    "Miss",
    "NoValidKernel",
    "Params",
    "Pending",
    "Recorder",
    "Reject",
    "Space",
    "SpaceError",
    "StoreWarning",
    "TunableSet",
    "TuneReport",
    "TuneWarning",
    "Tuner",
    "TunerClosed",
    "UsageError",
    "WebtuneError",
    "Work",
    "anchor",
    "ceil_div",
    "environment",
    "gather",
    "grid",
    "open_tuner",
    "open_tuner_async",
]
