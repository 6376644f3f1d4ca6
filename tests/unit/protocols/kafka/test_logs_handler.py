"""Figures of logs over the wire."""

from millstream.kafka_wire.apis.millstream import DescribeLogsRequest, DescribeLogsResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.server.node import Node
from tests.support.deliveries import make_topic, publish
from tests.support.nodes import running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import ask


async def logs(node: Node, topic: str = "orders") -> DescribeLogsResponse:
    return await ask(node, DescribeLogsRequest(topic=topic), DescribeLogsResponse)


def test_every_log_of_a_topic_is_told() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node, partitions=2)
            await publish(node, b"a", b"b", b"c", b"d")

            answer = await logs(node)

            assert answer.error_code == ErrorCode.NONE
            assert [partition.partition for partition in answer.partitions] == [0, 1]
            assert sum(partition.high_watermark for partition in answer.partitions) == 4
            for partition in answer.partitions:
                assert partition.low_watermark == 0
                assert (
                    partition.high_watermark == partition.last_stable_offset == partition.end_offset
                )
                assert (partition.leader_id, partition.index_gaps) == (node.config.node_id, 0)
                assert (partition.size_bytes > 0) is (partition.end_offset > 0)

    run(story())


def test_a_topic_that_is_not_there_has_no_logs() -> None:
    async def story() -> None:
        async with running_node() as node:
            assert (await logs(node)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story())
