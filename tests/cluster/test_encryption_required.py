"""`encryption require`: no node that writes in clear, or with another key of the name, gets in."""

from pathlib import Path

import pytest

from tests.cli.test_encrypted_data import Home, status_of


def join(home: Home, token: str, name: str, settings: str) -> str:
    """The refusal of a newcomer with these settings."""
    config = home.path / f"{name}.toml"
    config.write_text(f'data_dir = "{home.path / name}"\npeer_port = 0\n{settings}')
    return home.cli.refusal("cluster", "join", token, "--config", str(config))


def test_a_cluster_that_requires_encryption_takes_no_node_without_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    other = tmp_path / "other.key"
    home.cli.json("encryption", "key", str(other))
    process = home.process()
    process.start()
    at = ("--bootstrap", process.address)
    try:
        assert not status_of(home, process)["is_required"]
        home.cli.json("encryption", "require", *at)
        assert status_of(home, process)["is_required"]
        token = home.cli.json("cluster", "invite", *at)["token"]

        in_clear = join(home, token, "clear", "")
        with_another = join(
            home, token, "another", f'[encryption]\nmode = "on"\nkey = "file:{other}"\n'
        )
    finally:
        process.stop()

    assert "this cluster requires encryption at rest" in in_clear
    assert 'key "main" here is not that of node 1' in with_another
    assert not (tmp_path / "clear" / "cluster.key").exists()
    with pytest.raises(RuntimeError, match="requires encryption at rest"):
        home.process(ENCRYPTION__MODE="read").start()
    process.start()
    try:
        home.cli.json("encryption", "require", "--lift", "--bootstrap", process.address)
    finally:
        process.stop()
