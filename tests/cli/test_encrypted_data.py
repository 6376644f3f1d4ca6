"""`encryption`, `inspect`, `repair` and `doctor` over encrypted data, with and without its key."""

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.inspection import open_for_reading
from millstream.client import connect
from millstream.codec.batch import Header
from millstream.storage.sealing.batches import batch_headers
from tests.cli.conftest import Cli, environment
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_clients import produce_batch
from tests.unit.server.test_encryption import CANARY

BATCHES, BATCH, BAD = 6, 5, 2


class Home:
    """A node with encryption and its root key, on disk."""

    def __init__(self, path: Path) -> None:
        self.path, self.data = path, path / "data"
        self.cli = Cli(environment(path))
        self.made = self.cli.json("encryption", "key", str(path / "root.key"))
        self.key = f"file:{path / 'root.key'}"

    def process(self, **settings: str) -> BrokerProcess:
        encryption = {"ENCRYPTION__MODE": "on", "ENCRYPTION__KEY": self.key}
        return BrokerProcess(self.path, **encryption | settings)

    def log_files(self, topic: str = "orders") -> list[Path]:
        rows = self.cli.json("inspect", str(self.data), "--key", self.key)
        directory = next(row["directory"] for row in rows if row["topic"] == topic)
        return sorted((self.data / "logs" / directory).glob("*.log"))


def value(number: int) -> bytes:
    return CANARY + b"%d" % number


def status_of(home: Home, process: BrokerProcess) -> Any:
    return home.cli.json("encryption", "status", "--bootstrap", process.address)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A node that was stopped in order, after every verb of `encryption`."""
    home = Home(tmp_path)
    process = home.process()
    process.start()
    at = ("--bootstrap", process.address)
    try:
        with connect(process.address) as client:
            client.admin.create_topic("orders", partitions=1)
        for batch in range(BATCHES):
            records = [value(number) for number in range(batch * BATCH, (batch + 1) * BATCH)]
            produce_batch(process.address, "orders", *records)
        before = status_of(home, process)
        rotated = home.cli.json("encryption", "rotate", *at)
        wrapped = home.cli.json("encryption", "rotate", "--master", *at)
        rewritten = home.cli.json("encryption", "rewrite", *at)
        after = status_of(home, process)
        refused = home.cli.refusal("encryption", "rotate", "--root", *at)
        misused = home.cli.misuse("encryption", "rotate", "--root", "--master", *at)
    finally:
        process.stop()
    assert (before["mode"], before["check"], before["clear_bytes"]) == ("on", home.made["check"], 0)
    assert rotated["count"] == len(before["keys"])
    assert len(after["keys"]) == 2 * len(before["keys"]) == wrapped["count"]
    assert rewritten["count"] >= 1
    assert "protects the keyring already" in refused
    assert "not both" in misused
    return home


def batches(path: Path) -> list[tuple[int, Header]]:
    """Position and header of each batch of a segment."""
    file = open_for_reading(path)
    try:
        return list(batch_headers(file, file.size()))
    finally:
        file.close()


def flip(path: Path, batch: int) -> None:
    """Change one byte of a batch, by its number in the file."""
    data = bytearray(path.read_bytes())
    data[batches(path)[batch][0] + 90] ^= 1
    path.write_bytes(bytes(data))


def test_a_root_key_is_never_overwritten_and_is_its_owners_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)

    assert (tmp_path / "root.key").stat().st_mode & 0o777 == 0o600
    assert "never overwritten" in home.cli.refusal("encryption", "key", str(tmp_path / "root.key"))


def test_encrypted_data_is_inspected_and_repaired_offline(home: Home) -> None:
    cli, data, key = home.cli, str(home.data), ("--key", home.key)
    (home.path / "wrong.key").write_text("00" * 32)
    (home.path / "wrong.key").chmod(0o600)
    (segment,) = home.log_files()

    # Without a key: sizes, offsets and checksums, no names and no records, and nothing is wrong.
    blind = cli.json("inspect", data, "--verify")
    assert {row["topic"] for row in blind} == {None, "(control log)"}
    assert [row["problems"] for row in blind if row["problems"]] == []
    assert "pass its root key with --key" in cli.text("inspect", data)
    assert {row["kind"] for row in cli.json("inspect", str(segment))} == {"encrypted"}
    assert "is encrypted: pass its root key" in cli.refusal("inspect", str(segment), "--records")
    # With the wrong one: a refusal that names both.
    wrong = cli.refusal("inspect", data, "--key", f"file:{home.path / 'wrong.key'}")
    assert f"expected {home.made['check']}" in wrong
    assert "must be file:" in cli.misuse("inspect", data, "--key", "literal")
    # With the right one: everything.
    records = cli.json("inspect", str(segment), "--records", *key)
    assert [row["value"] for row in records] == [
        value(number).decode() for number in range(BATCHES * BATCH)
    ]

    flip(segment, BAD)
    bad = BAD * BATCH
    shown = json.loads(
        cli.run("inspect", data, "--verify", *key, "--output", "json", code=1).stdout
    )
    assert [row["topic"] for row in shown if row["problems"]] == ["orders"]
    place = ("repair", "--skip", f"orders/0@{bad}", "--yes", "--data-dir", data)
    assert "pass its root key" in cli.refusal(*place)
    assert cli.json(*place, *key)["base_offset"] == bad
    assert "every command can be applied" in cli.refusal(
        "repair", "--skip-command", "0", "--yes", "--data-dir", data, *key
    )
    process = home.process()
    process.start()
    try:
        at = ("--from", "earliest", "--bootstrap", process.address)
        values = cli.text("consume", "orders", *at).split()
    finally:
        process.stop()
    assert values == [
        value(number).decode()
        for number in range(BATCHES * BATCH)
        if not bad <= number < bad + BATCH
    ]


def test_a_batch_that_was_moved_is_found_by_who_has_the_key(home: Home) -> None:
    """Its checksum is right, and it is where no checksum looks: only its seal does not fit."""
    (segment,) = home.log_files()
    data = segment.read_bytes()
    (_, first), (at, second) = batches(segment)[:2]
    assert first.size == second.size
    moved = data[:8] + data[at + 8 : at + second.size] + data[at:]
    segment.write_bytes(moved)

    assert home.cli.json("inspect", str(segment))[0]["problem"] is None
    shown = home.cli.run(
        "inspect", str(segment), "--key", home.key, "--output", "json", code=1
    ).stdout
    assert "its seal does not fit" in json.loads(shown)[0]["problem"]


def test_a_doctor_tries_the_key(home: Home) -> None:
    def finding(**variables: str) -> dict[str, str]:
        cli = Cli(environment(home.path, **variables))
        shown = cli.run("doctor", "--data-dir", str(home.data), "--output", "json", code=1).stdout
        return next(check for check in json.loads(shown) if check["check"] == "encryption")

    assert finding()["verdict"] == "problem"
    settings = {"MILLSTREAM_ENCRYPTION__MODE": "on", "MILLSTREAM_ENCRYPTION__KEY": home.key}
    opened = finding(**settings)
    assert opened["verdict"] == "ok"
    assert home.made["check"] in opened["said"]
