"""Writes a small data directory with the Millstream of a checkout, and packs it for the tests.

    python -m tools.data_directory CHECKOUT NAME

makes `tests/golden/data_directories/NAME.tar.gz`, which `tests/crash/test_old_directories.py` opens
with the Millstream of today. Each release adds one; none is ever replaced or removed.
"""

import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ARCHIVES = Path(__file__).parent.parent / "tests" / "golden" / "data_directories"
RECORDS = 60
PARTITIONS = 2
GROUP, GROUP_OFFSET = "readers", 7
DELAY_MS = 6 * 24 * 3600 * 1000
WAIT_S = 30
PROGRAM = "from millstream.cli.main import main; main()"


def main() -> None:
    checkout, name = Path(sys.argv[1]).resolve(), sys.argv[2]
    with TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        _lived(checkout, data, _fill, is_killed=False)
        _lived(checkout, data, _touch, is_killed=True)
        ARCHIVES.mkdir(exist_ok=True)
        target = ARCHIVES / f"{name}.tar.gz"
        with tarfile.open(target, "w:gz") as archive:
            archive.add(data, "data", filter=_anonymous)
    sys.stdout.write(f"{target}: {target.stat().st_size} bytes\n")


def _lived(checkout: Path, data: Path, work: object, *, is_killed: bool) -> None:
    """One life of the checkout's broker, ended in order or by a kill."""
    assert callable(work)
    ports = [f"--{kind}port=0" for kind in ("", "flux-", "classic-", "http-")]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", "--data-dir", str(data), *ports],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"kafka=(\S+:\d+)", line)
        assert match is not None, line
        work(match[1])
        if not is_killed:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)
    finally:
        process.kill()
        process.communicate()


def _fill(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    small = {"segment.bytes": "1024"}
    topics = [
        NewTopic("plain", PARTITIONS, config=small),
        NewTopic("compacted", 1, config={**small, "cleanup.policy": "compact"}),
        NewTopic("transactional", 1),
        NewTopic("delayed", 1),
    ]
    for done in admin.create_topics(topics).values():
        done.result(WAIT_S)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce("plain", f"plain {number}", partition=partition, headers={"n": "1"})
        producer.produce("compacted", f"value {number}", key=f"key {number % 5}")
        producer.flush(WAIT_S)
    _send(address, "delayed", 0, "later", headers={"ms-delay-ms": str(DELAY_MS)})
    _transactions(address)
    _commit(address)


def _transactions(address: str) -> None:
    """One that was committed, and one that was aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "billing"})
    producer.init_transactions(WAIT_S)
    for value, ends in (
        ("kept", producer.commit_transaction),
        ("lost", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.produce("transactional", value)
        producer.flush(WAIT_S)
        ends(WAIT_S)


def _commit(address: str) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP})
    try:
        consumer.commit(offsets=[TopicPartition("plain", 0, GROUP_OFFSET)], asynchronous=False)
    finally:
        consumer.close()


def _touch(address: str) -> None:
    """A record of a life that ends by a kill."""
    _send(address, "plain", 1, "last")


def _send(
    address: str, topic: str, partition: int, value: str, headers: dict[str, str] | None = None
) -> None:
    """Returns when the record is acknowledged."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    producer.produce(
        topic,
        value,
        partition=partition,
        headers=list((headers or {}).items()),
        on_delivery=delivered,
    )
    producer.flush(WAIT_S)
    assert not failed, failed


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without the owner; the reserve is zeros that a start makes again."""
    if member.name.endswith("/reserve"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
