"""Configuration: later sources win, and what is wrong is named with its place."""

from pathlib import Path

import pytest

from millstream.config import Config
from millstream.config_sources import load, load_with_origins
from millstream.errors import StartupError
from millstream.settings import CleanupPolicy


def test_the_defaults_run_a_broker() -> None:
    config = load(environment={})

    assert config == Config()
    assert config.durability == "sync"
    assert config.voters == {1}


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("port = 1\nflux_port = 1\nclassic_port = 1\n[limits]\nread_bytes_max = 5\n")
    environment = {"MILLSTREAM_FLUX_PORT": "2", "MILLSTREAM_CLASSIC_PORT": "2"}

    config = load(path=str(file), environment=environment, flags={"classic_port": 3, "port": None})

    assert (config.port, config.flux_port, config.classic_port) == (1, 2, 3)
    assert config.limits.read_bytes_max == 5


def test_json_files_are_read_too(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    file.write_text('{"topic_defaults": {"cleanup_policy": "compact"}}')

    config = load(environment={"MILLSTREAM_CONFIG": str(file)})

    assert config.topic_defaults.cleanup_policy is CleanupPolicy.COMPACT


def test_a_nested_key_is_reached_from_the_environment() -> None:
    config = load(environment={"MILLSTREAM_TIMING__TICK_MS": "7", "MILLSTREAM_NODES": "1,2,3"})

    assert config.timing.tick_ms == 7
    assert config.voters == {1, 2, 3}


def test_the_bootstrap_address_of_clients_is_not_a_setting_of_the_node() -> None:
    assert load(environment={"MILLSTREAM_BOOTSTRAP": "localhost:9092"}) == Config()


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("MILLSTREAM_PROT", "1", "there is no key 'prot'"),
        ("MILLSTREAM_LIMITS__SPEED", "1", "there is no key 'limits.speed'"),
        ("MILLSTREAM_PORT", "many", "port = 'many' is not a whole number"),
        ("MILLSTREAM_PORT", "70000", "port = 70000 is not in 0 to 65535"),
        ("MILLSTREAM_STORAGE", "tape", "storage = 'tape' is not one of disk, memory"),
        ("MILLSTREAM_NODE_ID", "-4", "node_id = -4 is negative"),
        ("MILLSTREAM_NODE_ID", "1048576", "node_id = 1048576 is above 1048575"),
        ("MILLSTREAM_NODES", "1,x", "nodes"),
        ("MILLSTREAM_FLUX__SUB_ORDER", "any", "flux.sub_order = 'any' is not one of code, readme"),
        ("MILLSTREAM_FLUX__FLOW_BURST", "0", "flux.flow_burst = 0 is less than 1"),
        ("MILLSTREAM_FLUX__MAX_RETRIES", "-1", "flux.max_retries = -1 is less than 0"),
        ("MILLSTREAM_FLUX__FLOW_SLOW_THRESHOLD", "2", "flux.flow_slow_threshold = 2.0"),
        ("MILLSTREAM_TOPIC_DEFAULTS__SEGMENT_BYTES", "1", "segment_bytes = 1 is not in 1024"),
    ],
)
def test_a_bad_value_names_its_key_and_its_source(variable: str, text: str, expected: str) -> None:
    with pytest.raises(StartupError) as raised:
        load(environment={variable: text})

    assert "the environment" in str(raised.value)
    assert expected in str(raised.value)


def test_a_node_must_be_among_its_nodes() -> None:
    with pytest.raises(StartupError, match="node_id = 9 is not among"):
        load(environment={}, flags={"node_id": 9, "nodes": [1, 2, 3]})


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gone.toml", None, "cannot read the configuration file"),
        ("bad.toml", "port = ", "is not valid"),
        ("bad.json", "{", "is not valid"),
        ("list.json", "[1]", "must hold a table"),
        ("unknown.toml", "colour = 1", "no key 'colour'"),
    ],
)
def test_a_bad_file_is_one_sentence(
    tmp_path: Path, name: str, text: str | None, expected: str
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)

    with pytest.raises(StartupError, match=expected):
        load(path=str(file), environment={})


def test_the_earlier_name_of_a_setting_still_works_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "node.toml"
    path.write_text('doors = ["kafka"]')

    from_file, origins = load_with_origins(path=str(path), environment={})
    from_variable = load(environment={"MILLSTREAM_DOORS": "kafka,flux"})

    assert from_file.listeners == ("kafka",)
    assert origins["listeners"] == f"file {path}"
    assert from_variable.listeners == ("kafka", "flux")
    assert caplog.messages == [
        f"file {path}: the setting 'doors' is now 'listeners'; rename it",
        "environment MILLSTREAM_DOORS: the setting 'doors' is now 'listeners'; rename it",
    ]


def test_earlier_names_of_settings_in_tables_still_work() -> None:
    config = load(
        environment={
            "MILLSTREAM_DEFERRED_PARTITIONS": "3",
            "MILLSTREAM_LIMITS__DEFERRED_MS_MAX": "1000",
            "MILLSTREAM_LIMITS__DEFERRED_RECORDS_MAX": "10",
            "MILLSTREAM_LIMITS__GROUPS_MAX": "7",
        }
    )

    assert config.delayed_partitions == 3
    assert config.limits.delay_ms_max == 1000
    assert config.limits.delayed_records_max == 10
    assert config.limits.groups_max == 7


def test_a_setting_under_both_of_its_names_is_refused() -> None:
    environment = {"MILLSTREAM_DOORS": "kafka", "MILLSTREAM_LISTENERS": "flux"}

    with pytest.raises(StartupError, match="'doors' is the earlier name of 'listeners'"):
        load(environment=environment)
