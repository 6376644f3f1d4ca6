"""A record in an internal topic that cannot be decoded is named, counted and skipped."""

import asyncio
import logging

import pytest

from millstream.codec.batch import read_header
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.engine.groups.views import Commit
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.ledgers.shards import SKIPPED_NAMED_MAX
from millstream.engine.push.shard import find_open
from millstream.errors import InvalidRequest
from millstream.internal_topics.groups import GroupKey, OffsetKey, encode_key
from millstream.metrics import UNREADABLE_RECORDS
from millstream.model import Acks
from millstream.names import AUDIT_TOPIC, INTERNAL_TOPICS
from millstream.replication.replica import Replica
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.queues import batch_of, message
from tests.support.virtual_loop import run

NOT_UTF8 = encode_key(GroupKey("g")).replace(b"g", b"\xff")
TOO_DEEP = b"\x91" * 100_000 + b"\x00"
# msgspec calls none of the first two by its own name.
UNREADABLE = [
    (NOT_UTF8, b""),
    (encode_key(OffsetKey("g", "orders", 0)), TOO_DEEP),
    (b"garbage", b"x"),
    (None, None),
]


async def prepare(node: Node) -> None:
    """Have every internal topic, with a group, a transactional id, a delayed record in them."""
    await node.topics.create(SESSION, "orders")
    await node.partitions.append(SESSION, ORDERS, batch(b"a", b"b"), Acks.ALL)
    await node.groups.commit_offsets(
        SESSION, "billing", {ORDERS: Commit(offset=1, leader_epoch=-1, metadata="")}
    )
    await node.transactions.init(SESSION, "mover", timeout_ms=60_000)
    far = batch_of(message(b"far", delay_ms=600_000))
    await node.partitions.append(SESSION, ORDERS, far, Acks.ALL)
    await find_open(node._engine.push.shards, "pager")


def append(replica: Replica, key: bytes | None, value: bytes | None) -> None:
    data = encode_batch([Record(0, 0, key, value)])
    replica.append(data, read_header(data))


def internal(node: Node) -> list[Replica]:
    topics = [t for t in node.topics.list(SESSION) if t.name.startswith("__")]
    return [node.hub.find(t.log(at)) for t in topics for at in range(t.partition_count)]


def test_unreadable_records_are_named_and_counted_and_the_shards_load(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles()

    async def poison() -> int:
        async with running_node(files=files) as node:
            await prepare(node)
            replicas = internal(node)
            for replica in replicas:
                for key, value in UNREADABLE:
                    append(replica, key, value)
            await asyncio.sleep(1)
            return len(replicas) * len(UNREADABLE)

    async def use() -> float:
        async with running_node(files=files) as node:
            await asyncio.sleep(2)
            committed = await node.groups.fetch_offsets(SESSION, "billing", [ORDERS])
            assert committed[ORDERS].offset == 1  # type: ignore[union-attr]
            await node.transactions.init(SESSION, "mover", timeout_ms=60_000)
            assert node._engine.delayed_scheduler.delayed_count == 1
            await find_open(node._engine.push.shards, "pager")
            return node.metrics.total(UNREADABLE_RECORDS)

    count = run(poison())
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert run(use()) == count

    for topic in INTERNAL_TOPICS - {AUDIT_TOPIC}:  # Which no state follows from.
        assert f"cannot be read topic={topic} partition=" in caplog.text
    assert "offset=" in caplog.text
    assert len(UNREADABLE) <= SKIPPED_NAMED_MAX


def test_what_could_not_be_read_again_is_not_written() -> None:
    async def story() -> None:
        async with running_node() as node:
            await prepare(node)
            coordinator = await node._engine.group_coordinators.find("billing")
            before = coordinator.ledger.written_offset
            for key, value in UNREADABLE:
                with pytest.raises(InvalidRequest, match="could not be read again"):
                    coordinator.ledger.write([Entry(key, value)])
            assert coordinator.ledger.written_offset == before

    run(story())
