"""The archive for a person who helps: what is in it, and what never is."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.security.redaction import HIDDEN, Pseudonyms, redact, redact_text
from tests.cli.conftest import NOBODY, Cli, environment
from tests.support.broker_process import BrokerProcess

RECORD = "a-value-that-belongs-to-a-customer"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), LISTENERS="kafka,http")
    process.start()
    yield process
    process.stop()


def parts_of(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            member.name.removeprefix("millstream-support/"): file.read().decode()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }


def test_the_bundle_of_a_running_node_has_its_facts_and_no_record(
    cli: Cli, broker: BrokerProcess, tmp_path: Path
) -> None:
    cli.run("topic", "create", "orders.private")
    cli.run("produce", "orders.private", RECORD, "--key", "customer-17")
    cli.run("consume", "orders.private", "--group", "billing-team")
    settings, log = tmp_path / "node.toml", tmp_path / "node.log"
    settings.write_text('node_id = 7\n[encryption]\nkey = "env:FIRST"\n')
    log.write_text("sasl.password=hunter2 Authorization: Basic dXNlcjpwYXNzd29yZA==\n" * 3)
    flags = [
        *("--config", str(settings), "--data-dir", str(broker.config.data_dir)),
        *("--log", str(log), "--url", f"http://127.0.0.1:{broker.config.http_port}"),
    ]

    made = cli.json("support-bundle", str(tmp_path / "open.tar.gz"), *flags)
    cli.run("support-bundle", str(tmp_path / "closed.tar.gz"), *flags, "--anonymous")

    assert made["missing"] == []
    assert (tmp_path / "open.tar.gz").stat().st_mode & 0o077 == 0
    parts = parts_of(tmp_path / "open.tar.gz")
    assert set(parts) == {
        *("README.txt", "about.json", "cluster.json", "config.json", "damage.json", "files.txt"),
        *("groups.json", "logs/node.log", "machine.json", "metrics.txt", "storage.json"),
        "topics.json",
    }
    everything = "\n".join(parts.values())
    for secret in (RECORD, "customer-17", "hunter2", "dXNlcjpwYXNzd29yZA"):
        assert secret not in everything
    assert "orders.private" in parts["topics.json"]
    assert json.loads(parts["config.json"])["node_id"]["value"] == 7
    assert "millstream_" in parts["metrics.txt"]
    assert "/00000000000000000000.log" in parts["files.txt"]
    hidden = "\n".join(parts_of(tmp_path / "closed.tar.gz").values())
    assert "orders.private" not in hidden
    assert "billing-team" not in hidden
    assert "__consumer_offsets" in hidden


def test_a_node_that_is_down_has_a_bundle_too(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    flags = ("--bootstrap", NOBODY, "--data-dir", str(tmp_path / "none"))
    cli = Cli(environment(tmp_path))

    made = cli.json("support-bundle", str(file), *flags, "--url", f"http://{NOBODY}")

    assert made["missing"] == ["broker", "files.txt", "metrics.txt"]
    parts = parts_of(file)
    assert "about.json" in parts
    assert NOBODY in parts["broker.missing"]
    assert "exists" in cli.refusal("support-bundle", str(file), *flags)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("sasl.password=hunter2 x", f"sasl.password={HIDDEN} x"),
        ('{"api_key": "abc", "n": 1}', f'{{"api_key": {HIDDEN}, "n": 1}}'),
        ("Authorization: Bearer abcdefgh12345", f"Authorization: Bearer {HIDDEN}"),
        ("at https://ann:secret@host/x", f"at https://{HIDDEN}@host/x"),
        ("-----BEGIN PRIVATE KEY-----\nabc", HIDDEN),
        ("topic=orders offset=7", "topic=orders offset=7"),
    ],
)
def test_texts_lose_their_secrets_and_nothing_else(text: str, redacted: str) -> None:
    assert redact_text(text) == redacted


@given(st.text(min_size=6, alphabet="abcdefghijklmnopqrstuvwxyz0123456789"))
def test_a_value_whose_name_is_a_secret_is_hidden_wherever_it_stands(value: str) -> None:
    shown = redact({"a": [{"db_password": value}], "tokens": [value], "name": "kept"})

    assert shown == {"a": [{"db_password": HIDDEN}], "tokens": [HIDDEN], "name": "kept"}


def test_a_pseudonym_is_the_same_everywhere_and_leaves_longer_words_alone() -> None:
    names = Pseudonyms(b"salt")
    names.learn("topic", ["orders", "orders-dlq", "__audit"])

    first = names.apply("orders orders-dlq reorders __audit orders")

    words = first.split()
    assert words[0] == words[4] != words[1]
    assert words[2:4] == ["reorders", "__audit"]
    assert "orders-dlq" not in first
