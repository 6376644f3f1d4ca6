"""Finding one's way as Kafka clients ask for it."""

import asyncio
from uuid import UUID

import pytest

from millstream.kafka_wire.apis.discovery import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.protocols.kafka.handlers import discovery
from millstream.protocols.kafka.handlers.discovery import leader_answer
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import ask


def test_replicas_that_may_lead_are_an_empty_list_and_not_null() -> None:
    """Java's admin client takes the null that the schema allows for a list, and fails."""

    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", partitions=2)
            expected = [DescribeTopicPartitionsRequest.Topic(name="orders")]

            answer = await ask(
                node,
                DescribeTopicPartitionsRequest(topics=expected),
                DescribeTopicPartitionsResponse,
            )

            (topic,) = answer.topics
            assert [partition.eligible_leader_replicas for partition in topic.partitions] == [
                [],
                [],
            ]
            assert [partition.last_known_elr for partition in topic.partitions] == [[], []]

    run(story())


@pytest.mark.parametrize("name", [None, ""], ids=["none", "empty"])
def test_a_topic_is_found_by_its_id_whatever_stands_for_its_name(name: str | None) -> None:
    """Java's consumers ask so for the topics that a pattern of theirs was found to name."""

    async def story() -> None:
        async with running_node() as node:
            topic = await node.topics.create(SESSION, "orders")
            request = MetadataRequest.Topic(topic_id=topic.topic_id, name=name)
            absent = MetadataRequest.Topic(topic_id=UUID(int=7), name=name)

            answer = await ask(node, MetadataRequest(topics=[request, absent]), MetadataResponse)

            assert [(topic.error_code, topic.name) for topic in answer.topics] == [
                (ErrorCode.NONE, "orders"),
                (ErrorCode.UNKNOWN_TOPIC_ID, None),
            ]

    run(story())


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "all"])
def test_metadata_of_many_partitions_leaves_turns_to_other_tasks(
    is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "STEP_PARTITIONS", 8)

    async def story() -> None:
        async with running_node() as node:
            names = [f"t{number}" for number in range(4)]
            for name in names:
                await node.topics.create(SESSION, name, partitions=8)
            wants = [MetadataRequest.Topic(name=name) for name in names]

            async def turns_of(request: MetadataRequest) -> int:
                """The turns that another task has until the answer is there."""
                asking = asyncio.create_task(ask(node, request, MetadataResponse))
                turns = 0
                while not asking.done():
                    await asyncio.sleep(0)
                    turns += 1
                shown = [topic for topic in asking.result().topics if topic.name in names]
                assert {len(topic.partitions) for topic in shown} == {8}
                return turns

            few = await turns_of(MetadataRequest(topics=wants[:1]))
            many = await turns_of(MetadataRequest(topics=wants if is_named else None))

            assert many >= few + len(names) - 1

    run(story())


@pytest.mark.parametrize(
    ("leader", "is_reached", "is_named", "expected"),
    [
        (2, True, True, (2, ErrorCode.NONE)),
        (2, True, False, (2, ErrorCode.NONE)),
        (2, False, True, (-1, ErrorCode.LISTENER_NOT_FOUND)),
        (2, False, False, (-1, ErrorCode.LEADER_NOT_AVAILABLE)),
        (None, False, True, (-1, ErrorCode.LEADER_NOT_AVAILABLE)),
    ],
)
def test_a_leader_without_the_listener_of_the_client_is_none(
    leader: int | None, is_reached: bool, is_named: bool, expected: tuple[int, ErrorCode]
) -> None:
    assert leader_answer(leader, is_reached=is_reached, is_named=is_named) == expected
