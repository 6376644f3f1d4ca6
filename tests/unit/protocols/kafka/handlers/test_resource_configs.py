"""Configs of nodes, groups, client metrics and loggers, changed while the node runs."""

import logging

import pytest

from millstream.config import Config, Limits
from millstream.engine.gate import Everyone, Operation
from millstream.errors import BatchTooLarge
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Acks, Session
from millstream.settings import TopicSettings
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import STRANGER
from tests.unit.protocols.kafka.test_cluster_handlers import listed, resources
from tests.unit.protocols.kafka.test_configs_handlers import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    alter,
    change,
    describe,
    described,
)

LEADER_RATE = "leader.replication.throttled.rate"


class OnlyTests(Everyone):
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION


# -- nodes -------------------------------------------------------------------------------------


def test_a_default_of_topics_changes_while_the_node_runs() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"a" * 500), Acks.ALL)

            result = await change(node, "1", (SET, "message.max.bytes", "300"), kind=BROKER)
            with pytest.raises(BatchTooLarge):
                await node.partitions.append(SESSION, ORDERS, batch(b"a" * 500), Acks.ALL)
            shown = (await described(node, "orders"))["max.message.bytes"]
            taken_back = await change(node, "1", (DELETE, "message.max.bytes", None), kind=BROKER)
            await node.partitions.append(SESSION, ORDERS, batch(b"a" * 500), Acks.ALL)

            assert (result.error_code, result.error_message) == (0, None)
            assert (shown.value, shown.config_source) == ("300", 2)
            assert taken_back.error_code == 0

    run(story())


def test_the_setting_of_a_node_wins_over_that_of_all_and_a_topic_over_both() -> None:
    async def story() -> None:
        config = Config(topic_defaults=TopicSettings(retention_ms=4))
        async with running_node(config) as node:
            await node.topics.create(SESSION, "orders", settings={"retention_ms": "1"})
            await change(node, "", (SET, "log.retention.ms", "3"), kind=BROKER)
            await change(node, "1", (SET, "log.retention.ms", "2"), kind=BROKER)

            topic = (await described(node, "orders", include_synonyms=True))["retention.ms"]
            broker = (await described(node, "1", BROKER))["log.retention.ms"]
            every = await described(node, "", BROKER)

            layers = [(synonym.name, synonym.value, synonym.source) for synonym in topic.synonyms]
            assert layers == [
                ("retention.ms", "1", 1),
                ("log.retention.ms", "2", 2),
                ("log.retention.ms", "3", 3),
                ("log.retention.ms", "4", 4),
                ("log.retention.ms", str(7 * 24 * 60 * 60 * 1000), 5),
            ]
            assert (broker.value, broker.config_source, broker.read_only) == ("2", 2, False)
            assert {name: config.config_source for name, config in every.items()} == {
                "log.retention.ms": 3
            }

    run(story())


def test_settings_of_a_node_survive_a_restart() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders")
            await change(node, "", (SET, "message.max.bytes", "300"), kind=BROKER)

        async with running_node(files=files) as node:
            with pytest.raises(BatchTooLarge):
                await node.partitions.append(SESSION, ORDERS, batch(b"a" * 500), Acks.ALL)
            created = await node.topics.create(SESSION, "fresh")

            assert created.overrides == {}
            assert (await described(node, "fresh"))["max.message.bytes"].config_source == 3

    run(story())


def test_throttles_are_cleared_though_none_is_set() -> None:
    async def story() -> None:
        async with running_node() as node:
            # As kafka-reassign-partitions --verify does, after --execute --throttle.
            names = [LEADER_RATE, "follower.replication.throttled.rate"]
            cleared = [(DELETE, name, None) for name in names]

            before = await change(node, "1", *cleared, kind=BROKER)
            throttled = await change(node, "1", (SET, LEADER_RATE, "1000"), kind=BROKER)
            shown = (await described(node, "1", BROKER, include_documentation=True))[LEADER_RATE]
            after = await change(node, "1", *cleared, kind=BROKER)

            assert [before.error_code, throttled.error_code, after.error_code] == [0, 0, 0]
            assert (shown.value, shown.config_source) == ("1000", 2)
            assert (shown.documentation or "").startswith("Stored, no effect.")
            assert LEADER_RATE not in await described(node, "1", BROKER)

    run(story())


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("num.partitions", "3", ErrorCode.INVALID_REQUEST),
        ("advertised.listeners", "PLAINTEXT://here:1", ErrorCode.INVALID_REQUEST),
        ("colour", "red", ErrorCode.INVALID_CONFIG),
        ("view.of", "orders", ErrorCode.INVALID_CONFIG),
        ("log.retention.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("log.retention.ms", "-2", ErrorCode.INVALID_CONFIG),
        (LEADER_RATE, "-1", ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_a_node_cannot_change_is_named(name: str, value: str, code: ErrorCode) -> None:
    async def story() -> None:
        async with running_node() as node:
            result = await change(node, "1", (SET, name, value), kind=BROKER)

            words = result.error_message or ""
            assert result.error_code == code
            assert name in words
            assert (await describe(node, "", BROKER)).configs == []

    run(story())


def test_replacing_the_settings_of_a_node_unsets_the_others() -> None:
    async def story() -> None:
        async with running_node() as node:
            await change(node, "1", (SET, "log.segment.bytes", "4096"), kind=BROKER)

            await alter(node, "1", [("log.cleanup.policy", "compact")], kind=BROKER)
            added = await change(node, "1", (APPEND, "log.cleanup.policy", "delete"), kind=BROKER)

            shown = await described(node, "1", BROKER)
            assert added.error_code == 0
            assert shown["log.cleanup.policy"].value == "compact,delete"
            assert shown["log.segment.bytes"].config_source == 5

    run(story())


def test_validating_a_change_of_a_node_changes_nothing() -> None:
    async def story() -> None:
        async with running_node() as node:
            change_one = (SET, "log.retention.ms", "1")
            result = await change(node, "1", change_one, kind=BROKER, validate_only=True)

            assert result.error_code == 0
            assert (await described(node, "1", BROKER))["log.retention.ms"].config_source == 5

    run(story())


# -- groups ------------------------------------------------------------------------------------


def test_a_group_has_timeouts_of_its_own() -> None:
    async def story() -> None:
        async with running_node() as node:
            session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
            before = await described(node, "readers", GROUP)
            result = await change(
                node, "readers", (SET, session, "60000"), (SET, interval, "7000"), kind=GROUP
            )
            after = await described(node, "readers", GROUP)

            assert (before[session].value, before[session].config_source) == ("45000", 5)
            assert (result.error_code, result.error_message) == (0, None)
            assert (after[session].value, after[session].config_source) == ("60000", 8)
            assert listed(await resources(node, GROUP)) == {(GROUP, "readers")}
            await change(node, "readers", (DELETE, session, None), kind=GROUP)
            await change(node, "readers", (DELETE, interval, None), kind=GROUP)
            assert listed(await resources(node, GROUP)) == set()

    run(story())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "5000"),  # Not more than the heartbeats' interval.
        ("consumer.session.timeout.ms", "never"),
        ("consumer.heartbeat.interval.ms", "0"),
        ("consumer.heartbeat.interval.ms", "45000"),
        ("share.session.timeout.ms", "45000"),
        ("retention.ms", "1"),
    ],
)
def test_what_a_group_cannot_have_is_named(name: str, value: str) -> None:
    async def story() -> None:
        async with running_node() as node:
            result = await change(node, "readers", (SET, name, value), kind=GROUP)

            assert result.error_code == ErrorCode.INVALID_CONFIG
            assert name.replace(".", "_") in (result.error_message or "").replace(".", "_")

    run(story())


# -- client metrics ----------------------------------------------------------------------------


def test_client_metrics_are_stored_and_listed() -> None:
    async def story() -> None:
        async with running_node() as node:
            result = await change(
                node,
                "all",
                (SET, "metrics", "org.apache.kafka.consumer."),
                (SET, "interval.ms", "1000"),
                (SET, "match", "client_software_name=apache.*"),
                kind=METRICS,
            )
            await change(
                node, "all", (APPEND, "metrics", "org.apache.kafka.producer."), kind=METRICS
            )
            shown = await described(node, "all", METRICS, include_documentation=True)
            nothing = await describe(node, "none", METRICS)

            assert result.error_code == 0
            both = "org.apache.kafka.consumer.,org.apache.kafka.producer."
            assert (shown["metrics"].value, shown["metrics"].config_source) == (both, 7)
            assert (shown["metrics"].documentation or "").startswith("Stored, no effect.")
            assert nothing.configs == []
            assert listed(await resources(node, METRICS)) == {(METRICS, "all")}
            assert listed(await resources(node, version=0)) == {(METRICS, "all")}
            refused = await change(node, "all", (SET, "match", "colour=red"), kind=METRICS)
            assert refused.error_code == ErrorCode.INVALID_CONFIG

    run(story())


def test_there_may_be_so_many_resources_with_settings() -> None:
    async def story() -> None:
        async with running_node(Config(limits=Limits(config_resources_max=1))) as node:
            first = await change(node, "a", (SET, "interval.ms", "1000"), kind=METRICS)
            second = await change(node, "b", (SET, "interval.ms", "1000"), kind=METRICS)
            again = await change(node, "a", (SET, "interval.ms", "2000"), kind=METRICS)

            assert (first.error_code, again.error_code) == (0, 0)
            assert second.error_code == ErrorCode.INVALID_REQUEST

    run(story())


# -- loggers -----------------------------------------------------------------------------------


def test_the_level_of_a_logger_changes_while_the_node_runs() -> None:
    logger = logging.getLogger("millstream.tests.loggers")

    async def story() -> None:
        async with running_node() as node:
            result = await change(node, "1", (SET, logger.name, "TRACE"), kind=LOGGER)
            level = logger.level
            shown = (await described(node, "1", LOGGER))[logger.name]
            taken_back = await change(node, "1", (DELETE, logger.name, None), kind=LOGGER)

            assert (result.error_code, taken_back.error_code) == (0, 0)
            assert (level, shown.value, shown.config_source) == (logging.DEBUG, "DEBUG", 6)
            assert logger.level == logging.NOTSET

    run(story())


@pytest.mark.parametrize(
    ("operation", "name", "value"),
    [
        (SET, "millstream.no.such.logger", "DEBUG"),
        (SET, "root", "LOUD"),
        (DELETE, "root", None),
        (SUBTRACT, "root", "DEBUG"),
    ],
)
def test_a_logger_that_is_not_there_is_not_made(
    operation: int, name: str, value: str | None
) -> None:
    async def story() -> None:
        async with running_node() as node:
            result = await change(node, "1", (operation, name, value), kind=LOGGER)

            assert result.error_code == ErrorCode.INVALID_CONFIG
            assert "millstream.no.such.logger" not in logging.root.manager.loggerDict

    run(story())


# -- rights ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"), [(BROKER, "1"), (BROKER, ""), (LOGGER, "1"), (METRICS, "all"), (GROUP, "g")]
)
def test_strangers_neither_see_nor_alter_resources(kind: int, name: str) -> None:
    async def story() -> None:
        async with running_node(policy=OnlyTests()) as node:
            seen = await describe(node, name, kind, session=STRANGER)
            changed = await change(
                node, name, (SET, "log.retention.ms", "1"), kind=kind, session=STRANGER
            )

            code = (
                ErrorCode.GROUP_AUTHORIZATION_FAILED
                if kind == GROUP
                else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
            assert (seen.error_code, changed.error_code) == (code, code)

    run(story())
