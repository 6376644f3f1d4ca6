"""A node in a process of its own, for what only a whole process shows: memory and restarts.

    python -m benchmarks.node_process fill DIR BYTES clean|kill
    python -m benchmarks.node_process partitions DIR COUNT
    python -m benchmarks.node_process open DIR

Prints one JSON object.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config
from millstream.model import Acks, Session, TopicPartition, user_principal
from millstream.server.node import Node, build_node, running
from millstream.server.system.real_ports import real_ports

SESSION = Session(principal=user_principal("bench"))
BATCH_BYTES = 64 * 1024
IN_FLIGHT = 16


def batch_of(size: int) -> bytes:
    """A batch of about `size` bytes: records of 1 KiB, as a client sends them."""
    now_ms = int(time.time() * 1000)
    value = os.urandom(1000)
    return encode_batch([Record(at, now_ms, b"key", value) for at in range(max(1, size // 1024))])


def rss_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


async def fill(node: Node, size: int) -> None:
    await node.topics.create(SESSION, "bench")
    target, data = TopicPartition("bench", 0), batch_of(BATCH_BYTES)
    waiting: list[object] = []
    for _ in range(size // len(data)):
        waiting.append(node.partitions.append(SESSION, target, data, Acks.ALL))
        if len(waiting) >= IN_FLIGHT:
            await asyncio.gather(*waiting)  # type: ignore[call-overload]
            waiting.clear()
    await asyncio.gather(*waiting)  # type: ignore[call-overload]


async def main() -> None:
    action, directory, *arguments = sys.argv[1:]
    config = Config(data_dir=directory)
    started = time.perf_counter()
    async with running(build_node(config, real_ports(config))) as node:
        ready_s = time.perf_counter() - started
        match action:
            case "fill":
                await fill(node, int(arguments[0]))
                if arguments[1] == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
            case "partitions":
                await node.topics.create(SESSION, "many", partitions=int(arguments[0]))
                data = batch_of(1024)
                for partition in range(int(arguments[0])):
                    target = TopicPartition("many", partition)
                    await node.partitions.append(SESSION, target, data, Acks.LEADER)
            case "open":
                pass
        print(json.dumps({"ready_s": ready_s, "rss_bytes": rss_bytes()}))


if __name__ == "__main__":
    asyncio.run(main())
