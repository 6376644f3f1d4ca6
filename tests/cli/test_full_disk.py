"""A disk that is full, as an operator meets it: told at once, by every command, and over by itself.

The disk is a small file system in memory, which only root may mount.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.client import TimedOut, Undelivered, connect
from tests.support.broker_process import BrokerProcess

MILLSTREAM = Path(sys.executable).parent / "millstream"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
TOLD_SECONDS_MAX = 5.0
# What a command needs to start and to end, on a busy machine.
MARGIN_SECONDS = 5.0
DISK_MIB = 24


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "data"  # Where the broker's data is, and not its log.
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(disk)]
    mounted = subprocess.run(mounting, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here: only root may, where it is allowed")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def run(broker: BrokerProcess, *arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
    started = time.monotonic()
    result = subprocess.run(
        [MILLSTREAM, *arguments, "--bootstrap", broker.address],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )
    return result, time.monotonic() - started


def test_a_full_disk_is_told_by_every_command_and_recovers_by_itself(
    small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = BrokerProcess(tmp_path)
    large = tmp_path / "large"
    large.write_text("x" * 200_000, encoding="ascii")
    broker.start()
    filling = small_disk / "filling"
    try:
        assert run(broker, "produce", "orders", "before")[0].returncode == 0
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        filling.write_bytes(bytes(max(0, free - 64 * 1024)))

        bench, bench_s = run(broker, "bench", "--count", "40000", "--topic", "orders")
        produce, produce_s = run(broker, "produce", "orders", "--file", str(large))
        health, _ = run(broker, "health")
        doctor, _ = run(broker, "doctor", "--data-dir", str(small_disk))

        with connect(broker.address) as client, client.producer() as producer:
            producer.send("orders", b"x" * 200_000)
            with pytest.raises(TimedOut, match="is full: orders-0 take no records"):
                producer.flush(TOLD_SECONDS_MAX)
            producer.give_up()
            with pytest.raises(Undelivered):
                producer.flush()

        for result in (bench, produce, doctor):
            assert result.returncode == 1, result
        assert "is full: orders-0 take no records" in bench.stderr, bench
        assert bench_s < TOLD_SECONDS_MAX + MARGIN_SECONDS
        assert "is full: orders-0 take no records" in produce.stderr, produce
        assert produce_s < TOLD_SECONDS_MAX + MARGIN_SECONDS
        assert health.returncode == 1
        assert "disk full" in health.stdout
        assert "orders-0" in health.stdout
        assert "is full" in doctor.stdout
        assert "disk full partition=orders-0" in broker.log
        assert any("records wait: the disk" in line for line in caplog.messages)

        filling.unlink()
        deadline = time.monotonic() + 10
        while run(broker, "health")[0].returncode:
            assert time.monotonic() < deadline
        assert run(broker, "produce", "orders", "after")[0].returncode == 0
        assert "the disk has space again" in broker.log
    finally:
        broker.stop()
