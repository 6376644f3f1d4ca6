"""aiokafka asks about the cluster, changes it, and comes to it by different ways."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from tests.interop.aiokafka.clients import administering, consuming, produce, take
from tests.interop.conftest import PARTITIONS
from tests.interop.forwarder import forwarding
from tests.interop.samples import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    needs,
    samples,
)
from tests.support.broker_process import BrokerProcess


def test_topics_are_listed_and_described(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> tuple[list[str], list[dict[str, Any]]]:
        await produce(broker.address, topic, samples())
        async with administering(broker.address) as admin:
            return await admin.list_topics(), await admin.describe_topics([topic])

    listed, described = asyncio.run(scenario())

    assert topic in listed
    assert len(described[0]["partitions"]) == PARTITIONS
    assert {item["leader"] for item in described[0]["partitions"]} == {1}


def test_the_cluster_is_one_node_at_the_dialled_address(broker: BrokerProcess) -> None:
    async def scenario() -> dict[str, Any]:
        async with administering(broker.address) as admin:
            return await admin.describe_cluster()

    cluster = asyncio.run(scenario())

    nodes = [(node["node_id"], node["host"], node["port"]) for node in cluster["brokers"]]
    assert nodes == [(1, broker.host, broker.port)]
    assert cluster["controller_id"] == 1


def test_a_group_is_listed_and_described_with_its_offsets(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async def scenario() -> tuple[Any, Any, Any]:
        await produce(broker.address, topic, samples())
        async with (
            consuming(broker.address, topic, group_id=group, client_id="reader") as consumer,
            administering(broker.address) as admin,
        ):
            await take(consumer, len(samples()))
            await consumer.commit()
            return (
                await admin.list_consumer_groups(),
                await admin.describe_consumer_groups([group]),
                await admin.list_consumer_group_offsets(group),
            )

    listed, described, offsets = asyncio.run(scenario())

    assert (group, "consumer") in listed
    error, group_id, state, kind, _, members, *_ = described[0].groups[0]
    assert (error, group_id, state, kind) == (0, group, "Stable", "consumer")
    assert [member[1] for member in members] == ["reader"]
    at = {(place.topic, place.partition): end.offset for place, end in offsets.items()}
    assert at[topic, 0] == len(samples())


@needs(CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS)
def test_a_topic_is_created_grown_and_deleted(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> tuple[list[int], list[type[Exception]]]:
        async with administering(broker.address) as admin:

            async def count() -> int:
                return len((await admin.describe_topics([topic]))[0]["partitions"])

            await admin.create_topics([NewTopic(topic, 2, 1)])
            counts = [await count()]
            again = await admin.create_topics([NewTopic(topic, 2, 1)])
            await admin.create_partitions({topic: NewPartitions(4)})
            counts.append(await count())
            await admin.delete_topics([topic])
            gone = await admin.delete_topics([topic])
        refused = [again.topic_errors[0][1], gone.topic_error_codes[0][1]]
        return counts, [for_code(code) for code in refused]

    counts, refused = asyncio.run(scenario())

    assert counts == [2, 4]
    assert refused == [TopicAlreadyExistsError, UnknownTopicOrPartitionError]


@needs(CREATE_TOPICS, DESCRIBE_CONFIGS)
def test_settings_of_a_topic_are_described(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> Any:
        async with administering(broker.address) as admin:
            settings = {"cleanup.policy": "compact"}
            await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=settings)])
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            before = await admin.describe_configs([resource])
            # AlterConfigs: all of them at once, also those that have no effect here.
            replaced = {"compression.zstd.level": "19", "preallocate": "true", "flush.ms": "1000"}
            altered = ConfigResource(ConfigResourceType.TOPIC, topic, configs=replaced)
            await admin.alter_configs([altered])
            return before + await admin.describe_configs([resource])

    before, after = (
        {entry[0]: entry[1] for entry in answer.resources[0][4]}
        for answer in asyncio.run(scenario())
    )

    assert before["cleanup.policy"] == "compact"
    assert before["retention.ms"] == str(7 * 24 * 60 * 60 * 1000)
    assert after["cleanup.policy"] == "delete"
    assert (after["compression.zstd.level"], after["preallocate"]) == ("19", "true")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_name_and_an_address_both_lead_to_the_broker(
    broker: BrokerProcess, topic: str, group: str, host: str
) -> None:
    address = f"{host}:{broker.port}"

    async def scenario() -> list[Any]:
        await produce(address, topic, samples())
        async with consuming(address, topic, group_id=group) as consumer:
            return await take(consumer, len(samples()))

    assert len(asyncio.run(scenario())) == len(samples())


def test_a_client_behind_a_port_forward_stays_behind_it(tmp_path: Path) -> None:
    async def scenario(address: str) -> tuple[list[Any], dict[str, Any]]:
        await produce(address, "orders", samples())
        async with (
            consuming(address, "orders", group_id="readers") as consumer,
            administering(address) as admin,
        ):
            return await take(consumer, len(samples())), await admin.describe_cluster()

    with forwarding() as forwarder:
        broker = BrokerProcess(
            tmp_path,
            ADVERTISED_HOST="127.0.0.1",
            ADVERTISED_PORT=forwarder.port,
            TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100,
        )
        broker.start()
        forwarder.target_port = broker.port
        try:
            taken, cluster = asyncio.run(scenario(f"127.0.0.1:{forwarder.port}"))
        finally:
            broker.kill()

    assert len(taken) == len(samples())
    assert [node["port"] for node in cluster["brokers"]] == [forwarder.port]
