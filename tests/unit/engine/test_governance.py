"""Rules of a cluster about topics, and quotas of changes and connections."""

import asyncio

import pytest

from millstream.config import Config
from millstream.control.quotas import DEFAULT, Entity
from millstream.errors import InvalidRequest, InvalidSetting, PolicyViolation, QuotaExceeded
from millstream.kafka_wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse
from millstream.server.net.admission import Admission, Unwelcome
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import ask

RULED = Config(required_topic_settings=("purpose", "min.insync.replicas"))
BOTH = {"purpose": "orders of the shop", "min_insync_replicas": "1"}


def test_a_topic_without_its_required_settings_is_not_made() -> None:
    async def scenario() -> None:
        async with running_node(RULED) as node:
            with pytest.raises(PolicyViolation, match="'orders' needs the setting purpose"):
                await node.topics.create(SESSION, "orders")
            with pytest.raises(PolicyViolation, match=r"needs the setting min\.insync\.replicas"):
                await node.topics.create(SESSION, "orders", settings={"purpose": "x"})
            answer = await ask(node, create("orders"), CreateTopicsResponse)
            assert answer.topics[0].error_code == 44
            assert node.topics.list(SESSION) == []

            await node.topics.create(SESSION, "orders", settings=BOTH)
            await node.groups.coordinator_of(SESSION, "g")  # The broker's own topics are free.

    run(scenario())


def test_a_rule_about_an_unknown_setting_keeps_a_node_from_starting() -> None:
    with pytest.raises(ValueError, match="there is no topic setting 'reason'"):
        Config(required_topic_settings=("reason",))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("tags", "PII"),
        ("tags", "a,,b"),
        ("tags", "x" * 33),
        ("tags", ",".join(f"t{at}" for at in range(17))),
        ("purpose", "x" * 1_025),
    ],
)
def test_tags_and_purpose_have_bounds(setting: str, value: str) -> None:
    async def scenario() -> None:
        async with running_node() as node:
            with pytest.raises(InvalidSetting, match=setting):
                await node.topics.create(SESSION, "orders", settings={setting: value})
            tagged = {"tags": "pii, gold", "purpose": "x" * 1_024}
            made = await node.topics.create(SESSION, "orders", settings=tagged)
            assert made.overrides == tagged

    run(scenario())


def create(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def test_changes_of_partitions_are_limited_by_the_second() -> None:
    async def scenario() -> None:
        async with running_node() as node:
            user = Entity(SESSION.principal.name, None)
            await node.client_quotas.alter(SESSION, user, {"controller_mutation_rate": 2.0})
            await node.topics.create(SESSION, "large", partitions=10)  # May overdraw, once.
            with pytest.raises(QuotaExceeded) as refused:
                await node.topics.create(SESSION, "small")
            assert 3_000 < refused.value.throttle_ms <= 4_000
            with pytest.raises(QuotaExceeded):
                await node.topics.delete(SESSION, "large")
            with pytest.raises(QuotaExceeded):
                await node.topics.add_partitions(SESSION, "large", total=11)
            assert [topic.name for topic in node.topics.list(SESSION)] == ["large"]
            await asyncio.sleep(refused.value.throttle_ms / 1000)
            await node.topics.create(SESSION, "small")

    run(scenario())


def test_new_kafka_clients_are_told_to_wait_and_old_ones_wait_here() -> None:
    async def scenario() -> None:
        async with running_node() as node:
            await node.client_quotas.alter(
                SESSION, Entity(DEFAULT, None), {"controller_mutation_rate": 1.0}
            )
            await ask(node, create("first", 5), CreateTopicsResponse)
            refused = await ask(node, create("second"), CreateTopicsResponse, version=6)
            began = asyncio.get_running_loop().time()
            waited = await ask(node, create("second"), CreateTopicsResponse, version=5)
            took_s = asyncio.get_running_loop().time() - began

            assert refused.topics[0].error_code == 89
            assert refused.throttle_time_ms > 0
            assert waited.topics[0].error_code == 0
            assert waited.throttle_time_ms > 0
            assert took_s > 3

    run(scenario())


def test_connections_of_an_address_are_limited_by_the_second() -> None:
    async def scenario() -> None:
        async with running_node() as node:
            address = Entity(None, None, "10.0.0.7")
            await node.client_quotas.alter(SESSION, address, {"connection_creation_rate": 3.0})
            admission = Admission(node.config.limits, node.metrics, usage=node.usage)
            for _ in range(3):
                admission.enter_address("10.0.0.7", "kafka")
            with pytest.raises(Unwelcome, match="faster than its quota"):
                admission.enter_address("10.0.0.7", "kafka")
            admission.enter_address("10.0.0.8", "kafka")
            await asyncio.sleep(1)
            admission.enter_address("10.0.0.7", "kafka")

    run(scenario())


@pytest.mark.parametrize(
    ("entity", "changes", "sentence"),
    [
        (Entity("ann", None, "10.0.0.7"), {"connection_creation_rate": 1.0}, "for nothing else"),
        (Entity(None, None, "nonsense"), {"connection_creation_rate": 1.0}, "no ip address"),
        (Entity(None, None, "10.0.0.7"), {"producer_byte_rate": 1.0}, "is not limited here"),
        (Entity("ann", None), {"connection_creation_rate": 1.0}, "is not limited here"),
        (Entity("ann", None), {"controller_mutation_rate": 0.0}, "above 0"),
        (Entity(None, None, DEFAULT), {"connection_creation_rate": 1.5}, "whole number"),
    ],
)
def test_quotas_that_mean_nothing_are_refused(
    entity: Entity, changes: dict[str, float], sentence: str
) -> None:
    async def scenario() -> None:
        async with running_node() as node:
            with pytest.raises(InvalidRequest, match=sentence):
                await node.client_quotas.alter(SESSION, entity, changes)

    run(scenario())
