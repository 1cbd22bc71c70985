"""webtune measures the ways in which a WGSL compute kernel can be written on the device that is
really there, remembers the fastest for each problem, and runs it."""

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
from webtune.hosts.auto import open_tuner, open_tuner_async
from webtune.kernel.anchor import anchor
from webtune.kernel.arguments import Buffer
from webtune.kernel.candidates import Group
from webtune.kernel.kernel import Kernel
from webtune.kernel.recorder import Recorder
from webtune.kernel.space import Params, Space, ceil_div, grid
from webtune.kernel.tunable_set import TunableSet
from webtune.kernel.work import Work
from webtune.measure.check import AllClose
from webtune.report.report import TuneReport
from webtune.store.decision import CandidateResult, Decision
from webtune.tuner import Tuner, gather
from webtune.tuning.call import environment
from webtune.tuning.gather import Gather, Gathered, GatherState
from webtune.tuning.pick_cache import Compiled, Hit, Miss, Pending

__version__ = "0.1.0"

__all__ = [
    "AllClose",
    "ArgumentError",
    "Buffer",
    "CandidateResult",
    "Compiled",
    "ConfigError",
    "Decision",
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
