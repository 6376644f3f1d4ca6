"""A real process on a real disk, killed with -9 while it writes, again and again."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from millstream.config import Config
from millstream.engine.partitions.slices import Want
from millstream.model import Session, user_principal
from millstream.server.node import build_node, running
from millstream.server.system.real_ports import real_ports
from tests.support.nodes import ORDERS, values_of

LIVES = 6
SESSION = Session(principal=user_principal("test"))


def write_until_killed(directory: Path, seconds: float) -> list[tuple[int, bytes]]:
    """Let a writer live for a while; return what it said was acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.writer_process", str(directory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("ready"), first
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    *lines, torn = process.stdout.read().split("\n")
    process.wait()
    process.stdout.close()
    assert torn is not None  # The last line may have been cut in the pipe; it does not count.
    return [(int(offset), value.encode()) for offset, value in map(str.split, lines)]


async def read_everything(directory: Path) -> list[bytes | None]:
    config = Config(data_dir=str(directory))
    async with running(build_node(config, real_ports(config))) as node:
        health = node.partitions.health(SESSION, ORDERS)
        values: list[bytes | None] = []
        while len(values) < health.high_watermark:
            (part,) = await node.partitions.read(SESSION, [Want(ORDERS, len(values), 2**20)])
            assert part.error is None
            values += values_of(part)
        assert health.log.end_offset == health.high_watermark == len(values)
        return values


@pytest.mark.timeout(180)
def test_nothing_acknowledged_is_lost_by_kill_nine(tmp_path: Path) -> None:
    random = Random(1)
    acknowledged: dict[int, bytes] = {}

    for _ in range(LIVES):
        fresh = write_until_killed(tmp_path / "data", random.uniform(0.05, 0.6))
        assert not acknowledged.keys() & dict(fresh).keys(), "an offset was given twice"
        acknowledged |= dict(fresh)
        values = asyncio.run(read_everything(tmp_path / "data"))
        lost = {o: v for o, v in acknowledged.items() if o >= len(values) or values[o] != v}

        assert lost == {}
        assert len(set(values)) == len(values), "a record is there twice"
    assert len(acknowledged) > 100
