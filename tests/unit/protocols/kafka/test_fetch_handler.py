"""Fetch as clients ask for it: with and without sessions, by name and by id, behind and ahead."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from millstream.config import Config, Limits
from millstream.engine.partitions.slices import Want
from millstream.kafka_wire.apis.data import FetchRequest, FetchResponse
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_response
from millstream.kafka_wire.schema import NO_ID
from millstream.model import Acks, TopicPartition
from millstream.protocols.kafka.handlers.fetch import fetch
from millstream.server.node import Node
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import context_of

FETCH = APIS[1]
BY_NAME, BY_ID = 12, 17


class Client:
    """One client, whose requests all meet the same broker."""

    def __init__(self, node: Node, version: int = BY_NAME) -> None:
        self.header = RequestHeader(FETCH.key, version, 7)
        self.context = context_of(node, self.header, SESSION)
        self.session_id = 0
        self.epoch = 0

    async def fetch(self, *parts: FetchRequest.Topic, **fields: object) -> FetchResponse:
        """Go on with the session, or open it; the answer after a way over the wire."""
        asked = {"session_id": self.session_id, "session_epoch": self.epoch, "max_wait_ms": 0}
        request = FetchRequest(**{"min_bytes": 1, "topics": list(parts), **asked, **fields})  # type: ignore[arg-type]
        response = await fetch(self.context, request)
        chunks = encode_response(self.header, response)
        frame = b"".join(c.read() if hasattr(c, "read") else bytes(c) for c in chunks)
        _, read = decode_response(FETCH, self.header.api_version, frame[4:])
        assert isinstance(read, FetchResponse)
        self.session_id, self.epoch = read.session_id, self.epoch + 1
        return read


def orders(
    partition: int = 0, offset: int = 0, *, topic_id: UUID = NO_ID, **fields: Any
) -> FetchRequest.Topic:
    part = FetchRequest.Topic.Partition(
        partition=partition, fetch_offset=offset, partition_max_bytes=2**20, **fields
    )
    name = "orders" if topic_id == NO_ID else ""
    return FetchRequest.Topic(topic=name, topic_id=topic_id, partitions=[part])


def errors_of(response: FetchResponse) -> dict[int, int]:
    """Partition and error of everything that is listed."""
    assert response.error_code == 0
    return {p.partition_index: p.error_code for t in response.responses for p in t.partitions}


async def two_partitions(node: Node) -> UUID:
    topic = await node.topics.create(SESSION, "orders", partitions=2)
    return topic.topic_id


async def write(node: Node, partition: int = 0) -> None:
    target = TopicPartition("orders", partition)
    await node.partitions.append(SESSION, target, batch(b"a"), Acks.ALL)


def test_a_session_lists_what_changed_and_only_that() -> None:
    async def story() -> None:
        async with running_node() as node:
            await two_partitions(node)
            client = Client(node)

            assert errors_of(await client.fetch(orders(0), orders(1))) == {0: 0, 1: 0}
            assert client.session_id != 0
            assert errors_of(await client.fetch()) == {}
            await write(node, 1)
            answer = await client.fetch()
            assert errors_of(answer) == {1: 0}
            assert answer.responses[0].partitions[0].high_watermark == 1
            assert errors_of(await client.fetch(orders(1, 1))) == {}

    run(story())


def test_a_session_works_by_topic_id_and_survives_the_topics_end() -> None:
    async def story() -> None:
        async with running_node() as node:
            topic_id = await two_partitions(node)
            client = Client(node, BY_ID)
            await client.fetch(orders(0, topic_id=topic_id))

            await node.topics.delete(SESSION, "orders")

            assert errors_of(await client.fetch()) == {0: ErrorCode.UNKNOWN_TOPIC_ID}
            assert errors_of(await client.fetch()) == {0: ErrorCode.UNKNOWN_TOPIC_ID}

    run(story())


def test_a_request_without_a_session_gets_everything_and_none() -> None:
    async def story() -> None:
        async with running_node() as node:
            await two_partitions(node)
            client = Client(node)
            client.epoch = -1

            answer = await client.fetch(orders(1), orders(0))

            assert (answer.session_id, list(errors_of(answer))) == (0, [1, 0])

    run(story())


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (99, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 5, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_a_session_that_is_not_there_is_refused(
    session_id: int | None, epoch: int, code: ErrorCode
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await two_partitions(node)
            client = Client(node)
            await client.fetch(orders(0))
            if session_id is not None:
                client.session_id = session_id
            client.epoch = epoch

            answer = await client.fetch()

            assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])

    run(story())


def test_a_busy_partition_does_not_starve_those_behind_it() -> None:
    async def story() -> None:
        async with running_node() as node:
            await two_partitions(node)
            for partition in (0, 0, 0, 1):
                await write(node, partition)
            client = Client(node)

            first = await client.fetch(orders(0), orders(1), max_bytes=1)
            second = await client.fetch(orders(0, 1), max_bytes=1)

            served = [
                [p.partition_index for t in answer.responses for p in t.partitions if p.records[0]]  # type: ignore[index]
                for answer in (first, second)
            ]
            assert served == [[0], [1]]

    run(story())


def test_a_reader_whose_past_is_not_ours_is_told_where_they_part() -> None:
    async def story() -> None:
        async with running_node() as node:
            await two_partitions(node)
            await write(node)
            await write(node)
            epoch = node.partitions.leadership(SESSION, node.topics.describe(SESSION, "orders"))[0]

            for last_epoch, offset, is_shared in [
                (epoch.epoch, 1, True),
                (epoch.epoch + 3, 1, False),
                (epoch.epoch - 1, 1, False),
            ]:
                client = Client(node)
                answer = await client.fetch(
                    orders(0, offset, last_fetched_epoch=last_epoch), max_wait_ms=10_000
                )
                (part,) = answer.responses[0].partitions
                assert part.error_code == 0
                assert (part.diverging_epoch is None) == is_shared
                assert (part.records == [b""]) != is_shared
            assert asyncio.get_running_loop().time() < 5

    run(story())


def test_a_fetch_waits_no_longer_than_the_limit() -> None:
    async def story() -> None:
        limits = replace(Limits(), fetch_wait_ms_max=3_000)
        async with running_node(Config(limits=limits)) as node:
            await two_partitions(node)
            loop = asyncio.get_running_loop()
            started = loop.time()

            assert errors_of(await Client(node).fetch(orders(0), max_wait_ms=2**31 - 1)) == {0: 0}

            assert 3 <= loop.time() - started < 4

    run(story())


def test_who_asks_for_nothing_does_not_wait_for_it() -> None:
    async def story() -> None:
        async with running_node() as node:
            await two_partitions(node)
            client = Client(node)
            await client.fetch(orders(0))
            started = asyncio.get_running_loop().time()

            client.epoch = -1
            assert errors_of(await client.fetch(max_wait_ms=10_000)) == {}

            assert asyncio.get_running_loop().time() == started

    run(story())


def test_a_batch_is_read_where_it_lies() -> None:
    async def story() -> None:
        async with running_node() as node:
            await two_partitions(node)
            await write(node)
            client = Client(node)

            answer = await client.fetch(orders(0))

            (part,) = answer.responses[0].partitions
            (raw,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, 2**20)])
            assert raw.records is not None
            assert b"".join(map(bytes, part.records)) == raw.records.read()  # type: ignore[arg-type]

    run(story())


def test_a_view_is_fetched_by_its_own_id_and_counts_in_a_session() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            view = await node.topics.create(
                SESSION, "bad", settings={"view_of": "orders", "view_where": "value ~ 'bad'"}
            )
            await node.partitions.append(SESSION, ORDERS, batch(b"good", b"bad"), Acks.ALL)
            client = Client(node, BY_ID)

            first = await client.fetch(orders(topic_id=view.topic_id))
            await node.partitions.append(SESSION, ORDERS, batch(b"good"), Acks.ALL)
            second = await client.fetch(orders(offset=2, topic_id=view.topic_id))
            third = await client.fetch(orders(offset=3, topic_id=view.topic_id))

            (part,) = first.responses[0].partitions
            assert b"bad" in bytes((part.records or [b""])[0])  # type: ignore[arg-type]
            assert b"good" not in bytes((part.records or [b""])[0])  # type: ignore[arg-type]
            assert part.high_watermark == 2
            assert [response.partitions[0].high_watermark for response in second.responses] == [3]
            assert third.responses == []

    run(story())
