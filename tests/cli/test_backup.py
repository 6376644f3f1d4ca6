"""A backup of a running broker, killed backups, changed backups, and the restored broker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from millstream.client import connect
from millstream.engine.checkpoints.checkpoint import CHECKPOINT
from millstream.storage.files.disk import DiskFiles
from tests.cli.conftest import Cli, environment
from tests.support.broker_process import BrokerProcess

TOPIC = "orders"
WAIT_S_MAX = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path)
    process.start()
    yield process
    process.kill()


@pytest.fixture
def cli(tmp_path: Path, broker: BrokerProcess) -> Cli:
    return Cli(environment(tmp_path, MILLSTREAM_BOOTSTRAP=broker.address))


def write(address: str, numbers: range, *, bytes_each: int = 10) -> None:
    with connect(address) as client, client.producer() as producer:
        for number in numbers:
            producer.send(TOPIC, f"{number:0{bytes_each}}", key=str(number % 7))


def read(cli: Cli, address: str) -> list[int]:
    shown = cli.text("consume", TOPIC, "--from", "earliest", "--bootstrap", address)
    return sorted(map(int, shown.split()))


def restored(cli: Cli, backup: Path, directory: Path) -> BrokerProcess:
    cli.run("restore", str(backup), str(directory / "data"))
    return BrokerProcess(directory)


def test_a_restored_broker_serves_all_records_groups_and_users(
    broker: BrokerProcess, cli: Cli, tmp_path: Path
) -> None:
    cli.run("topic", "create", TOPIC, "--partitions", "3")
    write(broker.address, range(500))
    cli.run("consume", TOPIC, "--group", "readers", "--from", "earliest", "--count", "500")
    backup = tmp_path / "backup"

    made = cli.json("backup", str(backup))
    write(broker.address, range(500, 600))  # Behind the moment: not in the backup.

    assert made["problems"] == []
    assert made["logs"] >= 4
    checked = cli.json("restore", str(backup), "--check")
    assert checked["cluster_id"] == made["cluster_id"]
    (tmp_path / "other").mkdir()
    other = restored(cli, backup, tmp_path / "other")
    other.start()
    try:
        assert read(cli, other.address) == list(range(500))
        there = Cli(environment(tmp_path, MILLSTREAM_BOOTSTRAP=other.address))
        assert there.json("health")["status"] == "healthy"
        assert there.json("health")["cluster_id"] != made["cluster_id"]
        lag = there.json("group", "lag", "readers")
        assert sum(row["lag"] for row in lag["partitions"]) == 0
        write(other.address, range(500, 510))
        assert read(cli, other.address) == list(range(510))
    finally:
        other.stop()
    assert read(cli, broker.address) == list(range(600))


def test_a_stopped_broker_is_backed_up_by_its_directory(
    broker: BrokerProcess, cli: Cli, tmp_path: Path
) -> None:
    cli.run("topic", "create", TOPIC)
    write(broker.address, range(50))
    broker.stop()

    cli.run("backup", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "data"))

    (tmp_path / "other").mkdir()
    other = restored(cli, tmp_path / "backup", tmp_path / "other")
    other.start()
    try:
        assert read(cli, other.address) == list(range(50))
    finally:
        other.stop()


def test_what_cannot_be_backed_up_or_restored_is_one_sentence(
    broker: BrokerProcess, cli: Cli, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    cli.run("topic", "create", TOPIC)
    write(broker.address, range(50))
    cli.run("backup", str(backup))

    assert "exists" in cli.refusal("backup", str(backup))
    assert "is no backup" in cli.refusal("restore", str(tmp_path), "--check")
    assert "is not empty" in cli.refusal("restore", str(backup), str(tmp_path / "data"))
    assert "not a data directory" in cli.refusal(
        "backup", str(tmp_path / "b"), "--data-dir", str(tmp_path / "nowhere")
    )
    assert "--check" in cli.misuse("restore", str(backup))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lock = DiskFiles(elsewhere).lock("lock")  # As another running node would hold it.
    lost = cli.refusal("backup", str(tmp_path / "b"), "--data-dir", str(elsewhere))
    lock.close()
    assert "run this on the node's machine" in lost

    segment = next(
        path for path in (backup / "files").rglob("*.log") if b"0000000049" in path.read_bytes()
    )
    sound = segment.read_bytes()
    segment.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    assert "has changed since the backup" in cli.refusal("restore", str(backup), "--check")
    target = tmp_path / "part"
    assert "has changed since" in cli.refusal("restore", str(backup), str(target))
    assert not (target / "millstream.json").exists()
    segment.unlink()
    assert "is missing" in cli.refusal("restore", str(backup), "--check")
    segment.write_bytes(sound)
    manifest = backup / "backup.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"node_id": 1', '"node_id": 2'))
    assert "is damaged" in cli.refusal("restore", str(backup), "--check")
    newer = json.loads(text)
    newer["backup"]["format"] = 2
    manifest.write_text(json.dumps(newer))
    assert "has format 2" in cli.refusal("restore", str(backup), "--check")
    newer["backup"]["format"] = 1
    newer["backup"]["files"]["../../escape"] = {"size": 1, "crc32c": "0"}
    manifest.write_text(json.dumps(newer))
    assert "is damaged" in cli.refusal("restore", str(backup), "--check")


def test_a_backup_that_is_killed_leaves_no_backup_and_the_next_one_is_whole(
    broker: BrokerProcess, cli: Cli, tmp_path: Path
) -> None:
    cli.run("topic", "create", TOPIC, "--partitions", "2")
    write(broker.address, range(20_000), bytes_each=1_000)
    backup = tmp_path / "backup"
    program = "from millstream.cli.main import main; main()"
    variables = {**os.environ, "MILLSTREAM_BOOTSTRAP": broker.address}
    partial = tmp_path / "backup.partial"
    for copied_bytes in (1, 5_000_000, 15_000_000):
        process = subprocess.Popen(
            [sys.executable, "-c", program, "backup", str(backup)],
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + WAIT_S_MAX
        while process.poll() is None and _size(partial) < copied_bytes:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not backup.exists() or process.returncode == 0
        if backup.exists():
            break  # It was faster than this test, and is whole.
        assert (tmp_path / "data" / CHECKPOINT).exists()
        assert "is no backup" in cli.refusal("restore", str(partial), "--check")

    if not backup.exists():
        assert cli.json("backup", str(backup))["problems"] == []
    assert not (tmp_path / "data" / CHECKPOINT).exists()
    assert not partial.exists()
    (tmp_path / "other").mkdir()
    other = restored(cli, backup, tmp_path / "other")
    other.start()
    try:
        assert read(cli, other.address) == list(range(20_000))
    finally:
        other.stop()


def _size(directory: Path) -> int:
    """The bytes of all files below it, which come and go meanwhile."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).stat().st_size
    return total
