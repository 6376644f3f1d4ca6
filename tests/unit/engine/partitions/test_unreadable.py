"""A partition whose files cannot be read: it gives up leading, and everybody is told so."""

import asyncio
import errno
import logging

import pytest

from millstream.engine.partitions.slices import AtTime, Want
from millstream.errors import RequestError, StorageError, StorageUnavailable
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.metrics import FAILED_REPLICAS
from millstream.model import Acks
from millstream.server.node import Node
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import NOW_MS, ORDERS, SESSION, batch, running_node, values_of
from tests.support.virtual_loop import run


async def filled(node: Node) -> None:
    await node.topics.create(SESSION, "orders")
    for value in (b"a", b"b"):
        await node.partitions.append(SESSION, ORDERS, batch(value), Acks.ALL)
    await node.topics.create(SESSION, "other")


async def read(node: Node, topic: str = "orders") -> RequestError | None:
    """As a client does: ask for a slice, and send its bytes."""
    target = ORDERS._replace(topic=topic)
    (part,) = await node.partitions.read(SESSION, [Want(target, 0, 2**20)])
    if part.error is None:
        values_of(part)
    return part.error


def failed_count(node: Node) -> float:
    return next(s.value for s in node.metrics.samples() if s.metric is FAILED_REPLICAS)


def test_after_a_read_that_failed_for_good_the_partition_is_led_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = CrashingFiles()

    async def story() -> None:
        async with running_node(files=files) as node:
            await filled(node)
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            files.fail_reads(".log")

            # The reply has begun when its bytes are read: that connection can only be closed.
            with pytest.raises(StorageError, match=r"0{20}\.log"):
                await read(node)
            with caplog.at_level(logging.ERROR):
                problem = await read(node)

            assert isinstance(problem, StorageUnavailable)
            assert code_for(problem) is ErrorCode.KAFKA_STORAGE_ERROR
            assert not replica.is_leader
            assert replica.leader is None
            assert "topic=orders partition=0" in caplog.text
            assert "00000000000000000000.log" in caplog.text
            assert failed_count(node) == 1
            with pytest.raises(StorageUnavailable):
                node.partitions.append(SESSION, ORDERS, batch(b"c"), Acks.ALL)
            files.heal()

    run(story())


def test_a_search_that_fails_for_good_is_answered_and_ends_the_leadership() -> None:
    files = CrashingFiles()

    async def story() -> None:
        async with running_node(files=files) as node:
            await filled(node)
            files.fail_reads(".log")

            with pytest.raises(StorageUnavailable):
                await node.partitions.find(SESSION, ORDERS, AtTime(NOW_MS - 1))

            assert failed_count(node) == 1
            files.heal()

    run(story())


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM])
def test_a_read_that_lacked_resources_ends_nothing(error: int) -> None:
    files = CrashingFiles()

    async def story() -> None:
        async with running_node(files=files) as node:
            await filled(node)
            files.fail_reads(".log", error=error)
            with pytest.raises(StorageError):
                await read(node)
            files.heal()

            assert await read(node) is None
            assert failed_count(node) == 0
            await node.partitions.append(SESSION, ORDERS, batch(b"c"), Acks.ALL)

    run(story())


def test_other_partitions_are_served_as_before() -> None:
    files = CrashingFiles()

    async def story() -> None:
        async with running_node(files=files) as node:
            await filled(node)
            log_id = node.topics.describe(SESSION, "orders").log(0)
            files.fail_reads(f"{log_id}/{0:020d}.log")
            with pytest.raises(StorageError):
                await read(node)
            await read(node)
            await asyncio.sleep(1)

            other = ORDERS._replace(topic="other")
            await node.partitions.append(SESSION, other, batch(b"x"), Acks.ALL)
            assert await read(node, "other") is None
            files.heal()

    run(story())
