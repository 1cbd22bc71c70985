"""The settings of a tuner, called knobs: one table of them, their sources, and the usable values.

The sources are, by rising strength: the defaults, `pyproject.toml` (its table [tool.webtune]),
`webtune.toml`, environment variables (WEBTUNE_*) and arguments. Callers hand in the text of the
files; this module opens none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from webtune.errors import ConfigError, choices_text, did_you_mean

PREFIX = "WEBTUNE_"
RESERVED_PREFIXES = ("WEBTUNE_TEST_", "WEBTUNE_BUILD_")
"""Variables that tests and the build read. They are no knobs and are passed over here."""

BOOLEANS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("0", "false", "no", "off"), False
)
NOTHING = frozenset({"", "none", "default"})
VARIABLE = "environment variable"
WANTED = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting. `reader` names the parts of webtune that read it, and `doc` says what it does.

    A knob whose default is None may be None, and is text otherwise. `choices` lists the only
    values of a knob that has few.
    """

    name: str
    default: Any
    reader: str
    doc: str
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return PREFIX + self.name.upper()

    @property
    def optional(self) -> bool:
        """Whether None is one of its values."""
        return self.default is None

    @property
    def kind(self) -> type:
        """The type of its values: int, float, bool or str."""
        return str if self.default is None else type(self.default)

    def checked(self, given: Any, source: str) -> Any:
        """The value as the knob's type. Raises `ConfigError` for what the knob does not take."""
        if given is None and self.optional:
            return None
        number = isinstance(given, int) and not isinstance(given, bool)
        if self.kind is float and number:
            given = float(given)
        fits = isinstance(given, self.kind) and isinstance(given, bool) == (self.kind is bool)
        if not fits or (self.choices and given not in self.choices):
            raise self._refusal(given, source)
        return given

    def parsed(self, text: str) -> Any:
        """The value that the text of an environment variable stands for. Raises `ConfigError`."""
        plain = text.strip()
        if self.optional and plain.lower() in NOTHING:
            return None
        try:
            return BOOLEANS[plain.lower()] if self.kind is bool else self.kind(plain)
        except (KeyError, ValueError) as error:
            raise self._refusal(text, _told_source(VARIABLE, self.name)) from error

    def _refusal(self, given: Any, source: str) -> ConfigError:
        wanted = " | ".join(self.choices) or WANTED[self.kind]
        meant = did_you_mean(given, self.choices)
        text = f"{source}: {self.name} is {given!r}; it takes {wanted}"
        return ConfigError(f"{text}; {meant}" if meant else text)


def _knob(default: Any, reader: str, doc: str, *choices: str) -> Any:
    """A field of `Config` that documents itself."""
    return field(default=default, metadata={"reader": reader, "doc": doc, "choices": choices})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of a tuner. Raises `ConfigError` on a value of the wrong type.

    A number outside of its usable range is no error: webtune reads it through the properties
    below, which give the nearest usable number.
    """

    # ---- which strategy, and the numbers of the strategies, each with those that read it
    strategy: str | None = _knob(
        None,
        "tuner",
        "name of the strategy; none takes the host's default: adaptive natively, fixed in browsers",
    )
    min_samples: int = _knob(
        3, "seed-adaptive", "samples before a candidate can be eliminated or stop"
    )
    max_samples: int = _knob(10, "seed-adaptive, seed-fixed", "most samples taken of one candidate")
    speed_factor: float = _knob(
        1.5,
        "seed-adaptive",
        "a candidate whose best is this many times the leader's best is eliminated",
    )
    short_circuit: bool = _knob(
        True,
        "adaptive, fixed, seed-adaptive, seed-fixed",
        "stop at a candidate close enough to the device's measured peak",
    )
    short_circuit_samples: int = _knob(
        2, "adaptive, seed-adaptive", "samples that must land under the limit to confirm it"
    )

    # ---- measuring
    max_submit_ms: float = _knob(
        250.0, "bench", "longest submit that a sample may ask of the device"
    )
    min_quanta: int = _knob(20, "bench", "quanta of the clock that a sample spans at least")
    min_span_us: float = _knob(
        100.0, "bench", "shortest span of a sample, so that it outweighs its overhead"
    )
    timeout_s: float = _knob(
        30.0, "device", "wait for submitted work before the device is given up"
    )
    compile_parallelism: int = _knob(8, "device, gather", "pipelines compiled at the same time")

    # ---- roofline
    compute_threshold: float = _knob(
        0.7, "bounds", "fraction of the measured peak arithmetic that is close enough to stop"
    )
    memory_threshold: float = _knob(
        0.8, "bounds", "fraction of the measured peak bandwidth that is close enough to stop"
    )

    # ---- keys, memory and reports
    anchor_level: str = _knob(
        "balanced",
        "anchor",
        "how coarsely wt.anchor buckets shapes",
        *("minimal", "balanced", "extensive", "full"),
    )
    environment: str = _knob(
        "default", "store", "which set of picks to use; a switch empties memory"
    )
    store: str = _knob(
        "auto",
        "hosts",
        "where picks are remembered: auto is SQLite natively and OPFS in browsers",
        *("auto", "memory", "none"),
    )
    adapter: str | None = _knob(
        None, "hosts", "part of the name of the adapter to use; none takes the best"
    )
    wgpu: str | None = _knob(
        None,
        "hosts",
        "package with wgpu-py's API to use natively, such as wgpudawn; none takes wgpu",
    )
    cache_dir: str | None = _knob(
        None, "store", "folder of the native store; none is the user's cache folder"
    )
    log: str = _knob(
        "minimal", "tuner", "what is logged of a tune", *("disabled", "minimal", "full")
    )
    decision_log: str | None = _knob(
        None, "tuner", "file that gets one JSON line a decision; stderr is the error stream"
    )

    def __post_init__(self) -> None:
        for knob in knobs():
            value = knob.checked(getattr(self, knob.name), "argument")
            object.__setattr__(self, knob.name, value)

    # ---- usable values
    @property
    def usable_min_samples(self) -> int:
        """`min_samples`, at least 1."""
        return max(1, self.min_samples)

    @property
    def usable_max_samples(self) -> int:
        """`max_samples`, at least the usable `min_samples`."""
        return max(self.usable_min_samples, self.max_samples)

    @property
    def usable_confirmations(self) -> int:
        """`short_circuit_samples`, at least 1."""
        return max(1, self.short_circuit_samples)

    @property
    def usable_speed_factor(self) -> float:
        """`speed_factor`, at least 1.0."""
        return _clamped(self.speed_factor, 1.0, math.inf)

    @property
    def usable_compute_threshold(self) -> float:
        """`compute_threshold`, between 0.01 and 1."""
        return _clamped(self.compute_threshold, 0.01, 1.0)

    @property
    def usable_memory_threshold(self) -> float:
        """`memory_threshold`, between 0.01 and 1."""
        return _clamped(self.memory_threshold, 0.01, 1.0)

    @property
    def usable_parallelism(self) -> int:
        """`compile_parallelism`, between 1 and 256."""
        return max(1, min(256, self.compile_parallelism))

    @property
    def usable_min_quanta(self) -> int:
        """`min_quanta`, at least 1."""
        return max(1, self.min_quanta)

    @property
    def max_submit_ns(self) -> int:
        """`max_submit_ms` in ns, between 1 ms and 1 s: a GPU is reset after 2 s on some systems."""
        return round(_clamped(self.max_submit_ms, 1.0, 1000.0) * 1e6)

    @property
    def min_span_ns(self) -> int:
        """`min_span_us` in ns, between 0 and half of the longest submit."""
        return min(round(_clamped(self.min_span_us, 0.0, 1e6) * 1e3), self.max_submit_ns // 2)

    @property
    def usable_timeout_s(self) -> float:
        """`timeout_s`, between 0.1 s and a day."""
        return _clamped(self.timeout_s, 0.1, 86400.0)

    def but(self, **changes: Any) -> Config:
        """A copy with other values. Raises `ConfigError` for a setting that does not exist."""
        _by_name(changes, "argument")
        return replace(self, **changes)


def _clamped(value: float, low: float, high: float) -> float:
    # A NaN compares as false everywhere and would pass through min and max unseen.
    return low if math.isnan(value) else min(high, max(low, value))


def knobs() -> tuple[Knob, ...]:
    """The table of all knobs, in the order of the fields."""
    return tuple(Knob(knob.name, knob.default, **knob.metadata) for knob in fields(Config))


def resolve(
    *,
    pyproject: str = "",
    webtune_toml: str = "",
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    strategies: Sequence[str] = (),
) -> Config:
    """The configuration that its sources make together; a later parameter wins over an earlier.

    - `pyproject`, `webtune_toml`: the texts of those files, empty where there is none.
    - `environ`: environment variables, of which only those that start with WEBTUNE_ are read.
    - `strategies`: the names that `strategy` may have; without them any name is taken.

    Raises `ConfigError` on text that is no TOML, on a setting that does not exist (with the one
    that was probably meant), and on a value that a setting does not take.
    """
    tool = _toml(pyproject, "pyproject.toml").get("tool", {})
    table = tool.get("webtune", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ConfigError("tool.webtune in pyproject.toml is not a table; write [tool.webtune]")
    merged: dict[str, Any] = {}
    for source, values in (
        ("pyproject.toml", table),
        ("webtune.toml", _toml(webtune_toml, "webtune.toml")),
        (VARIABLE, _variables(environ or {})),
        ("argument", arguments or {}),
    ):
        by_name = _by_name(values, source)
        by_name["strategy"] = replace(by_name["strategy"], choices=tuple(strategies))
        for name, given in values.items():
            merged[name] = by_name[name].checked(given, _told_source(source, name))
    return Config(**merged)


def _told_source(source: str, name: str) -> str:
    """Where a setting was given, so that its user finds it: a variable by its name."""
    return f"{source} {PREFIX}{name.upper()}" if source == VARIABLE else source


def _toml(text: str, source: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from error


def _variables(environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings among the environment's variables by name; names are not checked here."""
    by_name = _by_name((), VARIABLE)
    found: dict[str, Any] = {}
    for variable, text in environ.items():
        if variable.startswith(PREFIX) and not variable.startswith(RESERVED_PREFIXES):
            name = variable.removeprefix(PREFIX).lower()
            found[name] = by_name[name].parsed(text) if name in by_name else text
    return found


def _by_name(names: Iterable[str], source: str) -> dict[str, Knob]:
    """All knobs by name. Raises `ConfigError` unless each of `names` is one of them."""
    by_name = {knob.name: knob for knob in knobs()}
    for name in names:
        if name not in by_name:
            meant = did_you_mean(name, by_name) or choices_text(name, by_name)
            raise ConfigError(
                f"{_told_source(source, name)}: there is no setting {name!r}; {meant}"
            )
    return by_name
