"""One node of a cluster as a process of its own, with a port for the tests instead of listeners.

    python -m tests.cluster.node '{"node": 1, "nodes": [1, 2, 3], "data_dir": ..., "peers": ...}'

The port takes one JSON object a line, and answers with one: `create`, `append`, `read`, `find`,
`fetch`, `state`, `confirm`. So a test speaks to this very node, whatever it leads.
"""

import asyncio
import base64
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from millstream.codec.records import decode_all
from millstream.config import Config
from millstream.engine.partitions.slices import Latest, Want
from millstream.errors import RequestError
from millstream.model import (
    Acks,
    LogId,
    NodeId,
    PeerIdentity,
    Session,
    TopicPartition,
    user_principal,
)
from millstream.server.node import Node, build_node
from millstream.server.system.real_ports import SystemClock, real_ports

# As a client of Kafka: its requests are not passed on to the leader.
SESSION = Session(principal=user_principal("cluster test"), protocol="kafka")
KEY = b"0123456789abcdef0123456789abcdef"
APPEND_S_MAX = 2.0
READ_BYTES = 2**20
LINE_BYTES_MAX = 64 * 2**20


class ShiftedClock(SystemClock):
    """A wall clock that is wrong."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


class Control:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._acts: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "create": self._create,
            "append": self._append,
            "read": self._read,
            "find": self._find,
            "fetch": self._fetch,
            "state": self._state,
            "confirm": self._confirm,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                request = json.loads(line)
                try:
                    answer = await self._acts[request["do"]](request)
                except RequestError as problem:
                    answer = {"error": type(problem).__name__, "text": str(problem)}
                except TimeoutError:
                    answer = {"error": "TimeoutError"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(APPEND_S_MAX):
            await self._node.topics.create(
                SESSION, request["topic"], partitions=request["partitions"], replicas=3
            )
        return {}

    async def _append(self, request: dict[str, Any]) -> dict[str, Any]:
        target = TopicPartition(request["topic"], request["partition"])
        data = base64.b64decode(request["data"])
        async with asyncio.timeout(APPEND_S_MAX):
            appended = await self._node.partitions.append(SESSION, target, data, Acks.ALL)
        return {"offset": appended.base_offset}

    async def _read(self, request: dict[str, Any]) -> dict[str, Any]:
        """All that this replica knows to be committed."""
        replica = self._node.hub.find(self._log_of(request))
        values: list[tuple[int, str]] = []
        start, end = replica.log.start_offset, replica.high_watermark
        while start < end:
            part = replica.log.read(start, bytes_max=READ_BYTES, end_offset=end)
            if part is None:
                break
            data, at = part.read(), 0
            while at < len(data):
                records = decode_all(data, at, decompressed_bytes_max=READ_BYTES)
                values += [(each.offset, (each.value or b"").decode()) for each in records]
                at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            start = part.end_offset
        return {"values": values}

    async def _find(self, request: dict[str, Any]) -> dict[str, Any]:
        """The end of a partition, as ListOffsets asks for it."""
        target = TopicPartition(request["topic"], request["partition"])
        async with asyncio.timeout(APPEND_S_MAX):
            place = await self._node.partitions.find(SESSION, target, Latest())
        return {"offset": -1 if place is None else place.offset}

    async def _fetch(self, request: dict[str, Any]) -> dict[str, Any]:
        """A fetch at an offset, without a wait: its bytes and the high watermark."""
        target = TopicPartition(request["topic"], request["partition"])
        want = Want(target, request["offset"], READ_BYTES)
        [part] = await self._node.partitions.read(SESSION, [want])
        if part.error is not None:
            raise part.error
        return {"bytes": part.size, "high_watermark": part.high_watermark}

    async def _confirm(self, request: dict[str, Any]) -> dict[str, Any]:
        """A confirmed read of the high watermark."""
        hub = self._node.hub
        replica = hub.find(self._log_of(request))
        async with asyncio.timeout(APPEND_S_MAX):
            is_confirmed = await hub.links.confirmed(replica)
        return {"is_confirmed": is_confirmed, "high_watermark": replica.high_watermark}

    async def _state(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "logs": {
                str(log_id): {
                    "role": replica.core.role.value,
                    "epoch": replica.core.epoch,
                    "leader": replica.leader,
                    "last": replica.consensus_log.last,
                    "high_watermark": replica.high_watermark,
                    "is_quiesced": replica.group_links is not None
                    and replica.group_links.is_quiesced,
                    "failure": str(replica.failure or ""),
                }
                for log_id, replica in self._node.hub.replicas.items()
            },
            "ticking": self._node.hub.ticker.count,
        }

    def _log_of(self, request: dict[str, Any]) -> LogId:
        topic = self._node.topics.describe(SESSION, request["topic"])
        return topic.log(request["partition"])


async def main(options: dict[str, Any]) -> None:
    me = NodeId(options["node"])
    alone = Config(node_id=me, data_dir=options["data_dir"])
    ports = replace(real_ports(alone), clock=ShiftedClock(options["clock_ahead_ms"]))
    node = build_node(replace(alone, nodes=tuple(options["nodes"])), ports)
    ports.links.set_peers({NodeId(int(n)): address for n, address in options["peers"].items()})
    identity = PeerIdentity(
        node_id=me, cluster_id="test", directory_id=UUID(int=me), generation=0, key=KEY
    )
    await ports.links.start(identity, options["listen"])
    host, _, port = options["control"].rpartition(":")
    control = Control(node)
    await asyncio.start_server(control.serve, host, int(port), limit=LINE_BYTES_MAX)
    await node.run()


if __name__ == "__main__":
    import uvloop

    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
    uvloop.run(main(json.loads(sys.argv[1])))
