"""`millstream inspect`: what is on disk, offline, and nothing of it is changed."""

import asyncio
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from millstream import Broker, BrokerConfig
from millstream.client import connect
from millstream.config import Limits
from millstream.embedding import NewRecord
from millstream.replication import scrubbing
from millstream.settings import TopicSettings
from tests.cli.conftest import Cli, environment
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a node that was stopped in order."""
    home = tmp_path_factory.mktemp("node")
    process = BrokerProcess(home)
    process.start()
    with connect(process.address) as client:
        client.admin.create_topic("orders", partitions=1)
        with client.producer() as producer:
            for number in range(10):
                producer.send("orders", f"v{number}", key=f"k{number}", headers={"h": "x"})
        with client.transaction("mover") as transaction:
            transaction.send("orders", b"\xff")
        # A stop seals the last segment of a log only where it is larger than 64 KiB.
        client.admin.create_topic("pictures", partitions=1)
        with client.producer() as producer:
            for _ in range(4):
                producer.send("pictures", os.urandom(30_000))
    process.stop()
    return home / "data"


@pytest.fixture
def inspector(tmp_path: Path) -> Cli:
    return Cli(environment(tmp_path))


def log_directory(data: Path, inspector: Cli, topic: str = "orders") -> Path:
    shown = inspector.json("inspect", str(data))
    return data / "logs" / next(row["directory"] for row in shown if row["topic"] == topic)


def digest(directory: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_logs_are_shown_with_their_topics(data: Path, inspector: Cli) -> None:
    before = digest(data)

    shown = {(row["topic"], row["partition"]): row for row in inspector.json("inspect", str(data))}

    assert shown["orders", 0]["end_offset"] == 12  # Ten, one in a transaction, its marker.
    assert shown["orders", 0]["problems"] == []
    assert ("(control log)", 0) in shown
    assert "orders" in inspector.text("inspect", str(data), "--verify")
    assert digest(data) == before


def test_segments_batches_and_records_are_shown(data: Path, inspector: Cli) -> None:
    directory = log_directory(data, inspector)
    (segment,) = inspector.json("inspect", str(directory), "--verify")
    file = str(directory / segment["file"])

    batches = inspector.json("inspect", file)
    records = inspector.json("inspect", file, "--records")

    assert sum(batch["records"] for batch in batches) == len(records) == 12
    assert batches[-1]["kind"] == "control+transactional"
    assert (records[0]["key"], records[0]["value"]) == ("k0", "v0")
    assert records[0]["headers"] == [["h", "x"]]
    assert records[10]["value"] == "0xff"
    assert len(inspector.json("inspect", file, "--records", "--count", "3")) == 3


def test_indexes_and_producers_are_shown(data: Path, inspector: Cli) -> None:
    directory = log_directory(data, inspector, "pictures")
    (index,) = directory.glob("*.index")
    (producers,) = directory.glob("*.producers")

    shown = inspector.json("inspect", str(index))

    assert shown["proof"]["end_offset"] == 4
    assert shown["entries"][0]["position"] == 0
    assert "end offset" in inspector.text("inspect", str(index))
    assert len(inspector.json("inspect", str(producers))) >= 1


def test_damage_is_a_finding(data: Path, inspector: Cli, tmp_path: Path) -> None:
    (whole,) = log_directory(data, inspector).glob("*.log")
    torn = tmp_path / "torn" / whole.name
    torn.parent.mkdir()
    torn.write_bytes(whole.read_bytes()[:-5])
    bent = tmp_path / "bent" / whole.name
    bent.parent.mkdir()
    bent.write_bytes(bytes([*whole.read_bytes()[:-1], whole.read_bytes()[-1] ^ 1]))

    shown = json.loads(
        inspector.run("inspect", str(torn.parent), "--output", "json", code=1).stdout
    )
    verified = inspector.run("inspect", str(bent.parent), "--verify", code=1).stdout

    assert "reaches beyond" in shown[0]["problem"]
    assert "checksum" in verified
    assert "checksum" in inspector.run("inspect", str(bent), code=1).stdout
    assert "checksum" in inspector.refusal("inspect", str(bent), "--records")
    assert "reaches beyond" in inspector.refusal("inspect", str(torn))


def test_what_is_no_log_is_refused(inspector: Cli, tmp_path: Path) -> None:
    other = tmp_path / "thesis.txt"
    other.write_text("chapter 1")

    assert "there is no" in inspector.refusal("inspect", str(tmp_path / "gone"))
    assert "none of a data directory" in inspector.refusal("inspect", str(other))
    assert "--records needs a .log file" in inspector.misuse("inspect", str(other), "--records")
    (tmp_path / "1.index").write_text("not an index")
    assert "cut short" in inspector.refusal("inspect", str(tmp_path / "1.index"))


def test_the_scrubbers_progress_is_shown_running_and_stopped(
    tmp_path: Path, inspector: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first pass begins when all segments are written, and saves its place at every step.
    monkeypatch.setattr(scrubbing, "START_S", 2.0)
    monkeypatch.setattr(scrubbing, "SAVE_S", 0.0)
    data = tmp_path / "data"
    config = BrokerConfig(
        data_dir=str(data),
        port=0,
        topic_defaults=TopicSettings(segment_bytes=1024),
        limits=Limits(scrub_bytes_per_second=4_000),
    )

    def has_saved() -> bool:
        return (data / "scrub").exists()

    async def story() -> str:
        async with Broker(config) as broker:
            await broker.topics.create("orders")
            for number in range(10):
                await broker.partitions.append("orders", 0, [NewRecord(b"%0800d" % number)])
            while not has_saved():
                await asyncio.sleep(0.01)
            running = inspector.text("inspect", str(data))
            while not inspector.json("inspect", f"{data}/scrub")["is_complete"]:
                await asyncio.sleep(0.1)
        return running

    running = asyncio.run(story())

    assert "last full scrub  none yet" in running
    assert re.search(r"this scrub +\d{3,4} of \d{4,5} bytes since .*, now at orders/0@", running)
    done = inspector.json("inspect", f"{data}/scrub")
    assert done["last_full_pass_ms"] is not None
    assert done["pass_bytes"] >= 9 * 800
    stopped = inspector.text("inspect", str(data))
    assert re.search(r"last full scrub +20\d\d-", stopped)
    assert "this scrub" not in stopped


def test_a_node_that_never_scrubbed_says_so(data: Path, inspector: Cli) -> None:
    assert "scrubber: nothing is saved yet" in inspector.text("inspect", str(data))


def test_a_damaged_scrub_file_is_named(data: Path, inspector: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    (copy / "scrub").write_bytes(b"00000000 {}")

    assert "fails its checksum" in inspector.text("inspect", str(copy))
    assert "fails its checksum" in inspector.run("inspect", str(copy / "scrub"), code=1).stdout
