"""Directories that earlier Millstreams wrote are opened, whole, and written on.

The archives are named by the commit or the release that wrote them, by `tools/data_directory.py`.
Each holds an orderly stop, and behind it a life that was killed.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tools.data_directory import ARCHIVES, GROUP, GROUP_OFFSET, PARTITIONS, RECORDS

from millstream.client import Client, connect
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT

NAMES = sorted(path.name.removesuffix(".tar.gz") for path in ARCHIVES.glob("*.tar.gz"))
OLDEST = "0eb8a3b"


@pytest.fixture(params=NAMES)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    with tarfile.open(ARCHIVES / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    process = BrokerProcess(tmp_path)
    process.start()
    yield process
    process.stop()


def read(address: str, topic: str, partition: int) -> list[tuple[str | None, str]]:
    """Keys and values that were committed, to the end of the partition."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "test", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    records: list[tuple[str | None, str]] = []
    try:
        while (message := consumer.poll(30)) is not None:
            error, key, value = message.error(), message.key(), message.value()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return records
            assert value is not None
            records.append((key.decode() if key else None, value.decode()))
        raise AssertionError(f"silence after {len(records)} records")
    finally:
        consumer.close()


def test_all_that_was_written_is_served_and_more_is_taken(broker: BrokerProcess) -> None:
    address = broker.address
    for partition in range(PARTITIONS):
        last = [(None, "last")] if partition == 1 else []
        expected = [(None, f"plain {number}") for number in range(RECORDS)]
        assert read(address, "plain", partition) == [*expected, *last]
    newest = dict(read(address, "compacted", 0))
    assert newest == {f"key {n % 5}": f"value {n}" for n in range(RECORDS - 5, RECORDS)}
    assert read(address, "transactional", 0) == [(None, "kept")]
    with connect(address) as client:
        waiting = [each.topic for each in client.delayed.list("delayed").records]
        _check_state(client)
        client.produce("plain", "new", partition=0)
    # It was due six days after it was written.
    assert waiting == ["delayed"] or read(address, "delayed", 0) == [(None, "later")]
    assert read(address, "plain", 0)[-1] == (None, "new")


def _check_state(client: Client) -> None:
    offsets = {
        (part.topic, part.partition): part.committed_offset
        for part in client.admin.group_lag(GROUP)
    }
    assert offsets["plain", 0] == GROUP_OFFSET
    assert client.damage.list().damaged == ()


def test_no_archive_goes_away() -> None:
    assert OLDEST in NAMES
    text = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in NAMES), "docs/upgrade.md names every archive"
