"""Knobs: their sources by strength, their types, and the usable values that readers get."""

import math

import pytest

from webtune.config import Config, knobs, resolve
from webtune.errors import ConfigError

PYPROJECT = """
[project]
name = "app"
[tool.webtune]
max_samples = 5
min_samples = 2
timeout_s = 9
log = "full"
"""


def test_defaults_are_the_documented_numbers():
    config = resolve()
    assert config == Config()
    assert (config.min_samples, config.max_samples) == (3, 10)
    assert (config.short_circuit_samples, config.speed_factor) == (2, 1.5)
    assert (config.max_submit_ns, config.min_quanta, config.timeout_s) == (250_000_000, 20, 30.0)


def test_a_stronger_source_wins_knob_by_knob():
    config = resolve(
        pyproject=PYPROJECT,
        webtune_toml="max_samples = 6\nmin_samples = 4\nspeed_factor = 2\n",
        environ={"WEBTUNE_MAX_SAMPLES": "7", "WEBTUNE_MIN_SAMPLES": "5", "PATH": "/bin"},
        arguments={"max_samples": 8},
    )
    assert config.max_samples == 8
    assert config.min_samples == 5
    assert config.speed_factor == 2.0
    assert config.timeout_s == 9.0
    assert config.log == "full"


def test_a_pyproject_without_our_table_changes_nothing():
    assert resolve(pyproject='[tool.other]\nmax_samples = 5\n[project]\nname = "x"') == Config()


@pytest.mark.parametrize(
    ("sources", "place"),
    [
        ({"arguments": {"max_sample": 3}}, "argument"),
        ({"environ": {"WEBTUNE_MAX_SAMPLE": "3"}}, "environment variable WEBTUNE_MAX_SAMPLE"),
        ({"webtune_toml": "max_sample = 3"}, "webtune.toml"),
        ({"pyproject": "[tool.webtune]\nmax_sample = 3"}, "pyproject.toml"),
    ],
)
def test_an_unknown_knob_names_its_source_and_the_nearest_knob(sources, place):
    with pytest.raises(ConfigError, match=rf"{place}: .*'max_sample'.*'max_samples'"):
        resolve(**sources)


def test_a_variable_that_no_knob_reads_is_named_and_nothing_far_off_is_suggested():
    with pytest.raises(ConfigError, match=r"WEBTUNE_FOO: .*'foo'; there are strategy, ") as caught:
        resolve(environ={"WEBTUNE_FOO": "1"})
    assert "did you mean" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"WEBTUNE_LOG: log is 'ful'.*did you mean 'full'"):
        resolve(environ={"WEBTUNE_LOG": "ful"})


@pytest.mark.parametrize(
    ("sources", "place"),
    [
        ({"arguments": {"strategy": "fixd"}}, "argument"),
        ({"environ": {"WEBTUNE_STRATEGY": "fixd"}}, "environment variable WEBTUNE_STRATEGY"),
        ({"webtune_toml": 'strategy = "fixd"'}, "webtune.toml"),
        ({"pyproject": '[tool.webtune]\nstrategy = "fixd"'}, "pyproject.toml"),
    ],
)
def test_a_strategy_that_there_is_not_is_refused_where_it_was_named(sources, place):
    known = ("adaptive", "fixed")
    with pytest.raises(ConfigError, match=rf"^{place}: .*'fixd'.*adaptive \| fixed.*'fixed'"):
        resolve(**sources, strategies=known)
    assert resolve(arguments={"strategy": "fixed"}, strategies=known).strategy == "fixed"
    assert resolve(arguments={"strategy": None}, strategies=known).strategy is None


def test_variables_of_tests_and_build_are_no_knobs():
    assert resolve(environ={"WEBTUNE_TEST_BROWSER": "x", "WEBTUNE_BUILD_X": "y"}) == Config()


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_samples": "many"},
        {"max_samples": 3.5},
        {"max_samples": True},
        {"short_circuit": 1},
        {"timeout_s": "30"},
        {"log": "loud"},
        {"environment": None},
        {"cache_dir": 7},
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(arguments):
    (name,) = arguments
    with pytest.raises(ConfigError, match=name):
        Config(**arguments)
    with pytest.raises(ConfigError, match=f"argument: {name}"):
        resolve(arguments=arguments)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("WEBTUNE_MAX_SAMPLES", "ten"),
        ("WEBTUNE_TIMEOUT_S", ""),
        ("WEBTUNE_SHORT_CIRCUIT", "perhaps"),
        ("WEBTUNE_LOG", "loud"),
    ],
)
def test_a_variable_that_cannot_be_read_is_refused_by_name(variable, text):
    with pytest.raises(ConfigError, match="environment variable"):
        resolve(environ={variable: text})


def test_variables_are_read_by_the_type_of_their_knob():
    config = resolve(
        environ={
            "WEBTUNE_SHORT_CIRCUIT": "off",
            "WEBTUNE_SPEED_FACTOR": " 1.25 ",
            "WEBTUNE_STRATEGY": "none",
            "WEBTUNE_CACHE_DIR": "caches",
            "WEBTUNE_LOG": "disabled",
        }
    )
    assert config.short_circuit is False
    assert config.speed_factor == 1.25
    assert config.strategy is None
    assert config.cache_dir == "caches"
    assert config.log == "disabled"


def test_a_broken_file_is_named():
    with pytest.raises(ConfigError, match=r"webtune\.toml is not valid TOML"):
        resolve(webtune_toml="max_samples = = 3")
    with pytest.raises(ConfigError, match=r"tool\.webtune"):
        resolve(pyproject="[tool]\nwebtune = 3")


def test_numbers_are_moved_into_their_usable_range_where_they_are_read():
    config = Config(min_samples=0, max_samples=-4, short_circuit_samples=0, speed_factor=0.5)
    assert config.min_samples == 0
    assert config.usable_min_samples == 1
    assert config.usable_max_samples == 1
    assert config.usable_confirmations == 1
    assert config.usable_speed_factor == 1.0
    assert Config(min_samples=12).usable_max_samples == 12


def test_a_submit_stays_where_a_watchdog_does_not_see_it():
    assert Config(max_submit_ms=60_000).max_submit_ns == 1_000_000_000
    assert Config(max_submit_ms=0).max_submit_ns == 1_000_000
    assert Config(min_span_us=1e9, max_submit_ms=10).min_span_ns == 5_000_000


def test_no_float_breaks_a_usable_value():
    for bad in (math.nan, math.inf, -math.inf):
        config = Config(
            speed_factor=bad,
            max_submit_ms=bad,
            min_span_us=bad,
            timeout_s=bad,
            compute_threshold=bad,
            memory_threshold=bad,
        )
        assert config.usable_speed_factor >= 1.0
        assert 1_000_000 <= config.max_submit_ns <= 1_000_000_000
        assert 0 <= config.min_span_ns <= config.max_submit_ns
        assert 0.1 <= config.usable_timeout_s <= 86400
        assert 0 < config.usable_compute_threshold <= 1
        assert 0 < config.usable_memory_threshold <= 1


def test_every_knob_names_its_reader_and_takes_its_own_default():
    table = knobs()
    assert len({knob.name for knob in table}) == len(table)
    for knob in table:
        assert knob.reader
        assert knob.doc
        assert Config(**{knob.name: knob.default}) == Config()
        assert knob.variable == f"WEBTUNE_{knob.name.upper()}"


def test_a_changed_copy_leaves_the_original():
    config = Config()
    assert config.but(max_samples=20).max_samples == 20
    assert config.max_samples == 10
    with pytest.raises(ConfigError, match="'log'"):
        config.but(logs="full")
