"""Every knob in one frozen value. Fields keep what was asked; readers get usable numbers.

Sources by rising strength: defaults, `pyproject.toml` ([tool.webtune]), `webtune.toml`,
environment variables (WEBTUNE_*), arguments. Their text is handed in: nothing here opens a file.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from webtune.errors import ConfigError

__all__ = ["Config", "Knob", "knobs", "resolve"]

PREFIX = "WEBTUNE_"
RESERVED_PREFIXES = ("WEBTUNE_TEST_", "WEBTUNE_BUILD_")
"""Variables that tests and the build read; they are no knobs and are passed over here."""

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})
NOTHING = frozenset({"", "none", "default"})

VARIABLE = "environment variable"

Kind = Literal["int", "float", "bool", "str"]


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting, for documentation: `reader` names the part that reads it."""

    name: str
    kind: Kind
    default: Any
    optional: bool
    choices: tuple[str, ...]
    reader: str
    doc: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.name.upper()


def knob(
    default: Any,
    reader: str,
    doc: str,
    *,
    kind: Kind,
    optional: bool = False,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field of `Config` that documents itself."""
    meta = {"reader": reader, "doc": doc, "kind": kind, "optional": optional, "choices": choices}
    return field(default=default, metadata=meta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All knobs of a tuner. Raises `ConfigError` on a value of the wrong type.

    A number outside its usable range is no error: the properties below, which everything reads
    through, move it to the nearest usable one.
    """

    # ---- which strategy, and the numbers of the strategies -------------------------------
    strategy: str | None = knob(
        None,
        "tuner",
        "name of the strategy; none takes the host's default: adaptive natively, fixed in browsers",
        kind="str",
        optional=True,
    )
    min_samples: int = knob(
        3, "seed-adaptive", "samples before a candidate can be eliminated or stop", kind="int"
    )
    max_samples: int = knob(
        10, "seed-adaptive, seed-fixed", "most samples taken of one candidate", kind="int"
    )
    speed_factor: float = knob(
        1.5,
        "seed-adaptive",
        "a candidate whose best is this many times the leader's best is eliminated",
        kind="float",
    )
    short_circuit: bool = knob(
        True,
        "adaptive, fixed, seed-adaptive, seed-fixed",
        "stop at a candidate close enough to the device's measured peak",
        kind="bool",
    )
    short_circuit_samples: int = knob(
        2,
        "adaptive, seed-adaptive",
        "samples that must land under the limit to confirm it",
        kind="int",
    )
    # Knobs of further strategies go here, each with the strategies that read it.

    # ---- measuring -----------------------------------------------------------------------
    max_submit_ms: float = knob(
        250.0, "bench", "longest submit that a sample may ask of the device", kind="float"
    )
    min_quanta: int = knob(
        20, "bench", "quanta of the clock that a sample spans at least", kind="int"
    )
    min_span_us: float = knob(
        100.0, "bench", "shortest span of a sample, so that it outweighs its overhead", kind="float"
    )
    timeout_s: float = knob(
        30.0, "device", "wait for submitted work before the device is given up", kind="float"
    )
    compile_parallelism: int = knob(
        8, "device, gather", "pipelines compiled at the same time", kind="int"
    )

    # ---- roofline ------------------------------------------------------------------------
    compute_threshold: float = knob(
        0.7,
        "bounds",
        "fraction of the measured peak arithmetic that is close enough to stop",
        kind="float",
    )
    memory_threshold: float = knob(
        0.8,
        "bounds",
        "fraction of the measured peak bandwidth that is close enough to stop",
        kind="float",
    )

    # ---- keys, memory and reports --------------------------------------------------------
    anchor_level: str = knob(
        "balanced",
        "anchor",
        "how coarsely wt.anchor buckets shapes",
        kind="str",
        choices=("minimal", "balanced", "extensive", "full"),
    )
    environment: str = knob(
        "default", "store", "which set of picks to use; a switch empties memory", kind="str"
    )
    store: str = knob(
        "auto",
        "hosts",
        "where picks are remembered: auto is SQLite natively and OPFS in browsers",
        kind="str",
        choices=("auto", "memory", "none"),
    )
    adapter: str | None = knob(
        None,
        "hosts",
        "part of the name of the adapter to use; none takes the best",
        kind="str",
        optional=True,
    )
    wgpu: str | None = knob(
        None,
        "hosts",
        "package with wgpu-py's API to use natively, such as wgpudawn; none takes wgpu",
        kind="str",
        optional=True,
    )
    cache_dir: str | None = knob(
        None,
        "store",
        "folder of the native store; none is the user's cache folder",
        kind="str",
        optional=True,
    )
    log: str = knob(
        "minimal",
        "tuner",
        "what is logged of a tune",
        kind="str",
        choices=("disabled", "minimal", "full"),
    )
    record: str | None = knob(
        None,
        "tuner",
        "file that gets one JSON line a decision; stderr is the error stream",
        kind="str",
        optional=True,
    )

    def __post_init__(self) -> None:
        for each in knobs():
            given = getattr(self, each.name)
            object.__setattr__(self, each.name, _typed(each, given, "argument"))

    # ---- usable values -------------------------------------------------------------------
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
        """A copy with other values. Raises `ConfigError` on an unknown knob."""
        _known(changes, "argument")
        return replace(self, **changes)


def _clamped(value: float, low: float, high: float) -> float:
    # A NaN compares as false everywhere and would pass through min and max unseen.
    return low if math.isnan(value) else min(high, max(low, value))


def knobs() -> tuple[Knob, ...]:
    """Every knob, in the order of the fields."""
    return tuple(Knob(name=f.name, default=f.default, **f.metadata) for f in fields(Config))


def resolve(
    *,
    pyproject: str = "",
    webtune_toml: str = "",
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    strategies: Sequence[str] = (),
) -> Config:
    """The configuration out of its sources; a later parameter wins over an earlier one.

    `pyproject` and `webtune_toml` are the texts of those files, empty where there is none.
    `environ` may hold everything: only names that start with WEBTUNE_ are read. `strategies` are
    the names that `strategy` may have, which nothing here knows; without them any is taken. Raises
    `ConfigError` on text that is no TOML, an unknown knob (one that is near is named) or a value
    that the knob does not take.
    """
    merged: dict[str, Any] = {}
    tool = _toml(pyproject, "pyproject.toml").get("tool", {})
    table = tool.get("webtune", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ConfigError("tool.webtune in pyproject.toml is not a table; write [tool.webtune]")
    for source, values in (
        ("pyproject.toml", table),
        ("webtune.toml", _toml(webtune_toml, "webtune.toml")),
        (VARIABLE, _variables(environ or {})),
        ("argument", arguments or {}),
    ):
        by_name = _known(values, source)
        by_name["strategy"] = replace(by_name["strategy"], choices=tuple(strategies))
        merged |= {
            name: _typed(by_name[name], given, _place(source, name))
            for name, given in values.items()
        }
    return Config(**merged)


def _place(source: str, name: str) -> str:
    """Where a setting was given, so that it is found again."""
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
    by_name = {each.name: each for each in knobs()}
    found: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable.startswith(RESERVED_PREFIXES):
            continue
        name = variable.removeprefix(PREFIX).lower()
        known = by_name.get(name)
        found[name] = text if known is None else _parsed(known, text)
    return found


def _parsed(known: Knob, text: str) -> Any:
    plain = text.strip()
    if known.optional and plain.lower() in NOTHING:
        return None
    try:
        if known.kind == "int":
            return int(plain)
        if known.kind == "float":
            return float(plain)
    except ValueError as error:
        raise _wrong(known, text, _place(VARIABLE, known.name)) from error
    if known.kind == "bool":
        if plain.lower() not in TRUE | FALSE:
            raise _wrong(known, text, _place(VARIABLE, known.name))
        return plain.lower() in TRUE
    return plain


def _known(names: Iterable[str], source: str) -> dict[str, Knob]:
    by_name = {each.name: each for each in knobs()}
    for name in names:
        if name not in by_name:
            raise ConfigError(
                f"{_place(source, name)}: there is no setting {name!r}; {_meant(name, by_name)}"
            )
    return by_name


def _meant(given: Any, names: Iterable[str]) -> str:
    """What was probably meant, or else all there is: a guess that is far off only misleads."""
    names = tuple(names)
    near = difflib.get_close_matches(str(given), names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


def _typed(known: Knob, given: Any, source: str) -> Any:
    if given is None and known.optional:
        return None
    if known.kind == "float" and isinstance(given, int) and not isinstance(given, bool):
        given = float(given)
    wanted = {"int": int, "float": float, "bool": bool, "str": str}[known.kind]
    if not isinstance(given, wanted) or (known.kind == "int" and isinstance(given, bool)):
        raise _wrong(known, given, source)
    if known.choices and given not in known.choices:
        raise _wrong(known, given, source)
    return given


def _wrong(known: Knob, given: Any, source: str) -> ConfigError:
    wanted = (
        " | ".join(known.choices)
        or {
            "int": "a whole number",
            "float": "a number",
            "bool": "true or false",
            "str": "text",
        }[known.kind]
    )
    near = difflib.get_close_matches(str(given), known.choices, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return ConfigError(f"{source}: {known.name} is {given!r}; it takes {wanted}{meant}")
