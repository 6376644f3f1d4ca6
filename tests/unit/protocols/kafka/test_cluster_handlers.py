"""The cluster as operators' tools ask about it: its quorum, directories and config resources."""

from collections.abc import Mapping

import pytest

from millstream.config import Config
from millstream.engine.gate import Everyone, Operation
from millstream.kafka_wire.apis.admin import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from millstream.kafka_wire.apis.configs import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from millstream.kafka_wire.apis.discovery import DescribeQuorumRequest, DescribeQuorumResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Session
from millstream.server.node import Node
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import STRANGER, ask

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
QUORUM_TOPIC = "__cluster_metadata"


class OnlyTests(Everyone):
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION


async def quorum(
    node: Node, topic: str = QUORUM_TOPIC, index: int = 0, *, version: int = 2
) -> DescribeQuorumResponse:
    topic_of = DescribeQuorumRequest.Topic
    part = topic_of.Partition(partition_index=index)
    request = DescribeQuorumRequest(topics=[topic_of(topic_name=topic, partitions=[part])])
    return await ask(node, request, DescribeQuorumResponse, version=version)


async def resources(
    node: Node, *kinds: int, version: int = 1, session: Session = SESSION
) -> ListConfigResourcesResponse:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    return await ask(node, request, ListConfigResourcesResponse, version=version, session=session)


def listed(answer: ListConfigResourcesResponse) -> set[tuple[int, str]]:
    assert answer.error_code == 0
    return {
        (resource.resource_type, resource.resource_name) for resource in answer.config_resources
    }


def test_the_quorum_is_this_node_at_the_end_of_its_control_log() -> None:
    async def story() -> None:
        async with running_node() as node:
            before = (await quorum(node)).topics[0].partitions[0]
            await node.topics.create(SESSION, "orders")
            answer = await quorum(node)

            (topic,) = answer.topics
            (part,) = topic.partitions
            (voter,) = part.current_voters
            assert (topic.topic_name, part.partition_index, part.error_code) == (QUORUM_TOPIC, 0, 0)
            assert (part.leader_id, voter.replica_id) == (1, 1)
            assert part.leader_epoch >= 1
            assert voter.log_end_offset == part.high_watermark == before.high_watermark + 1
            assert voter.last_caught_up_timestamp > 0
            assert part.observers == []
            (described,) = answer.nodes
            (listener,) = described.listeners
            assert (described.node_id, listener.host, listener.port) == (1, "localhost", 9092)

    run(story())


@pytest.mark.parametrize(("topic", "index"), [("orders", 0), (QUORUM_TOPIC, 1)])
def test_nothing_else_has_a_quorum(topic: str, index: int) -> None:
    async def story() -> None:
        async with running_node() as node:
            (part,) = (await quorum(node, topic, index, version=0)).topics[0].partitions

            assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story())


def test_every_resource_that_has_configs_is_listed() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            assert listed(await resources(node, TOPIC)) == {(TOPIC, "orders")}
            assert listed(await resources(node)) == {
                (TOPIC, "orders"),
                (BROKER, "1"),
                (BROKER_LOGGER, "1"),
            }
            assert listed(await resources(node, GROUP, CLIENT_METRICS)) == set()
            assert listed(await resources(node, version=0)) == set()
            assert (await resources(node, 3)).error_code == ErrorCode.UNSUPPORTED_VERSION

    run(story())


def test_strangers_are_not_told_of_resources() -> None:
    async def story() -> None:
        async with running_node(policy=OnlyTests()) as node:
            answer = await resources(node, BROKER, session=STRANGER)

            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert answer.config_resources == []

    run(story())


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        ("/data", {0: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        ("/data/", {0: ErrorCode.NONE}),
        ("/other", {0: ErrorCode.LOG_DIR_NOT_FOUND}),
    ],
)
def test_a_replica_can_be_moved_to_the_one_directory_only(
    path: str, codes: Mapping[int, ErrorCode]
) -> None:
    async def story() -> None:
        async with running_node(Config(data_dir="/data")) as node:
            await node.topics.create(SESSION, "orders")
            directory = AlterReplicaLogDirsRequest.Directory
            topic = directory.Topic(name="orders", partitions=list(codes))
            request = AlterReplicaLogDirsRequest(dirs=[directory(path=path, topics=[topic])])

            answer = await ask(node, request, AlterReplicaLogDirsResponse)

            (result,) = answer.results
            assert result.topic_name == "orders"
            assert {
                partition.partition_index: partition.error_code for partition in result.partitions
            } == codes

    run(story())
