"""Committed offsets as Kafka's clients ask for them, in transactions and by topic id too."""

import asyncio
from uuid import UUID

import pytest

from millstream.engine.gate import Everyone, Operation
from millstream.engine.groups.views import Commit
from millstream.internal_topics.groups import Protocol
from millstream.kafka_wire.apis.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millstream.kafka_wire.apis.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.schema import NO_ID
from millstream.model import NO_PRODUCER, Producer, Session, TopicPartition
from millstream.server.node import Node
from tests.support.groups import GROUP, Consumer, running_groups
from tests.support.nodes import ORDERS, SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import STRANGER, ask

STRANGE_ID = UUID(int=99)
FAILURES = [(3, ErrorCode.ILLEGAL_GENERATION), (-1, ErrorCode.NONE)]


async def transaction(node: Node, transactional_id: str = "app") -> Producer:
    """Open a transaction that has the group's offsets in it."""
    init = node.transactions.init
    producer = await init(SESSION, transactional_id, timeout_ms=60_000, expected=NO_PRODUCER)
    await node.transactions.add_offsets(SESSION, transactional_id, producer, GROUP)
    return producer


async def txn_commit(
    node: Node, producer: Producer, offset: int, *, version: int = 3, generation: int = -1
) -> ErrorCode:
    topic = TxnOffsetCommitRequest.Topic(
        name="orders",
        partitions=[
            TxnOffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=offset)
        ],
    )
    request = TxnOffsetCommitRequest(
        transactional_id="app",
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=generation,
        topics=[topic],
    )
    answer = await ask(node, request, TxnOffsetCommitResponse, version=version)
    ((part,),) = [topic.partitions for topic in answer.topics]
    return ErrorCode(part.error_code)


async def fetch(node: Node, *, version: int, require_stable: bool = False) -> tuple[int, ErrorCode]:
    single, many = OffsetFetchRequest.Topic, OffsetFetchRequest.Group.Topic
    request = OffsetFetchRequest(
        group_id=GROUP,
        topics=[single(name="orders", partition_indexes=[0])],
        groups=[
            OffsetFetchRequest.Group(
                group_id=GROUP,
                topics=[many(name="orders", topic_id=orders_id(node), partition_indexes=[0])],
            )
        ],
        require_stable=require_stable,
    )
    answer = await ask(node, request, OffsetFetchResponse, version=version)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    ((part,),) = [topic.partitions for topic in topics]
    return part.committed_offset, ErrorCode(part.error_code)


def orders_id(node: Node) -> UUID:
    return node.topics.describe(SESSION, "orders").topic_id


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(("commits", "expected"), [(True, 9), (False, 5)])
def test_a_producer_commits_offsets_in_its_transaction(
    version: int, commits: bool, expected: int
) -> None:
    async def story() -> None:
        async with running_groups() as node:
            await node.groups.commit_offsets(SESSION, GROUP, {ORDERS: Commit(5)})
            producer = await transaction(node)

            code = await txn_commit(node, producer, 9, version=version)
            before = await fetch(node, version=9)
            await node.transactions.end(SESSION, "app", producer, commits=commits)
            async with asyncio.timeout(10):
                while (await fetch(node, version=9, require_stable=True))[1] is not ErrorCode.NONE:
                    await asyncio.sleep(0.01)  # Its marker is on its way.

            assert code is ErrorCode.NONE
            assert before == (5, ErrorCode.NONE)
            assert await fetch(node, version=9) == (expected, ErrorCode.NONE)

    run(story())


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_who_requires_stable_offsets_is_told_to_wait(version: int) -> None:
    async def story() -> None:
        async with running_groups() as node:
            await txn_commit(node, await transaction(node), 9)

            stable = await fetch(node, version=version, require_stable=True)
            anyhow = await fetch(node, version=version)

            assert stable == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert anyhow == (-1, ErrorCode.NONE)

    run(story())


def test_a_transaction_that_does_not_have_the_offsets_is_refused() -> None:
    async def story() -> None:
        async with running_groups() as node:
            init = node.transactions.init
            producer = await init(SESSION, "app", timeout_ms=60_000, expected=NO_PRODUCER)

            without = await txn_commit(node, producer, 9)
            await node.transactions.add_offsets(SESSION, "app", producer, GROUP)
            stranger = await txn_commit(node, Producer(producer.producer_id + 1, 0), 9)

            assert without is not ErrorCode.NONE
            assert stranger is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert await fetch(node, version=9, require_stable=True) == (-1, ErrorCode.NONE)

    run(story())


def test_from_v5_on_the_first_commit_adds_the_offsets_to_the_transaction() -> None:
    async def story() -> None:
        async with running_groups() as node:
            init = node.transactions.init
            producer = await init(SESSION, "app", timeout_ms=60_000, expected=NO_PRODUCER)

            assert await txn_commit(node, producer, 9, version=5) is ErrorCode.NONE
            _, code = await fetch(node, version=9, require_stable=True)
            assert code is ErrorCode.UNSTABLE_OFFSET_COMMIT

    run(story())


@pytest.mark.parametrize(("generation", "code"), FAILURES)
def test_a_generation_of_no_group_is_told_in_a_word_that_producers_know(
    generation: int, code: ErrorCode
) -> None:
    async def story() -> None:
        async with running_groups() as node:
            producer = await transaction(node)

            assert await txn_commit(node, producer, 9, generation=generation) is code

    run(story())


# -- topic ids -------------------------------------------------------------------------------------


def commit_request(name: str = "", topic_id: UUID = NO_ID, offset: int = 5) -> OffsetCommitRequest:
    part = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.Topic(name=name, topic_id=topic_id, partitions=[part])
    return OffsetCommitRequest(group_id=GROUP, topics=[topic])


def test_offsets_are_committed_and_fetched_by_topic_id() -> None:
    async def story() -> None:
        async with running_groups() as node:
            request = commit_request(topic_id=orders_id(node))

            answer = await ask(node, request, OffsetCommitResponse, version=10)

            (topic,) = answer.topics
            assert (topic.topic_id, topic.partitions[0].error_code) == (orders_id(node), 0)
            assert await fetch(node, version=10) == (5, ErrorCode.NONE)
            assert await fetch(node, version=9) == (5, ErrorCode.NONE)

    run(story())


def test_ids_that_are_no_topics_are_answered_one_by_one() -> None:
    async def story() -> None:
        async with running_groups() as node:
            committed = await ask(
                node, commit_request(topic_id=STRANGE_ID), OffsetCommitResponse, version=10
            )
            topics = [
                OffsetFetchRequest.Group.Topic(topic_id=UUID(int=n), partition_indexes=[0, 1])
                for n in (98, 99)
            ]
            group = OffsetFetchRequest.Group(group_id=GROUP, topics=topics)
            fetched = await ask(
                node, OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version=10
            )

            (topic,) = committed.topics
            assert topic.topic_id == STRANGE_ID
            assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
            collected = {topic.topic_id: topic.partitions for topic in fetched.groups[0].topics}
            assert set(collected) == {UUID(int=98), UUID(int=99)}
            codes = {part.error_code for parts in collected.values() for part in parts}
            assert codes == {ErrorCode.UNKNOWN_TOPIC_ID}

    run(story())


class OnlyFriends(Everyone):
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION or not resource.startswith("topic:")


def test_an_id_of_a_topic_that_must_not_be_seen_is_as_good_as_unknown() -> None:
    async def story() -> None:
        async with running_groups(policy=OnlyFriends()) as node:
            request = commit_request(topic_id=orders_id(node))

            answer = await ask(node, request, OffsetCommitResponse, version=10, session=STRANGER)

            assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(story())


def test_all_offsets_are_told_by_id_short_of_topics_that_are_gone() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await node.topics.create(SESSION, "gone")
            gone = TopicPartition("gone", 0)
            await node.groups.commit_offsets(SESSION, GROUP, {ORDERS: Commit(5), gone: Commit(6)})
            await node.topics.delete(SESSION, "gone")

            group = OffsetFetchRequest.Group(group_id=GROUP, topics=None)
            answer = await ask(
                node, OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version=10
            )

            (topic,) = answer.groups[0].topics
            assert topic.topic_id == orders_id(node)
            assert [part.committed_offset for part in topic.partitions] == [5]

    run(story())


# -- deleting --------------------------------------------------------------------------------------


def test_offsets_are_deleted_topic_by_topic_while_members_read_others() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await node.topics.create(SESSION, "other")
            other = TopicPartition("other", 0)
            await node.groups.commit_offsets(SESSION, GROUP, {ORDERS: Commit(1), other: Commit(2)})
            member = Consumer(node.groups)
            metadata = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"
            member.protocols = (Protocol("range", metadata),)
            await member.enter()

            topics = [
                OffsetDeleteRequest.Topic(
                    name=name,
                    partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=0)],
                )
                for name in ("orders", "other")
            ]
            request = OffsetDeleteRequest(group_id=GROUP, topics=topics)
            answer = await ask(node, request, OffsetDeleteResponse)

            assert answer.error_code == ErrorCode.NONE
            assert [topic.partitions[0].error_code for topic in answer.topics] == [
                ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                ErrorCode.NONE,
            ]

    run(story())
