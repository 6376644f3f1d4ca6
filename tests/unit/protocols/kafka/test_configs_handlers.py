"""Configs as Kafka clients describe and alter them."""

from dataclasses import fields
from typing import Any

import pytest

from millstream.config import Config, Limits
from millstream.control.commands import AlterTopic, encode
from millstream.engine.gate import Everyone, Operation
from millstream.engine.ledgers.ledger import Entry
from millstream.kafka_wire.apis.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Session
from millstream.protocols.kafka.handlers.broker_config_table import NODE_CONFIGS, RUN_TIME_SETTINGS
from millstream.protocols.kafka.handlers.config_table import (
    FIXED_CONFIGS,
    STORED_CONFIGS,
    TOPIC_CONFIGS,
    Inherited,
    Kind,
    TopicConfig,
    topic_entries,
)
from millstream.protocols.kafka.handlers.configs import Change
from millstream.server.node import Node
from millstream.settings import STORED_SETTINGS, CleanupPolicy, TopicSettings, with_overrides
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import STRANGER, ask

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = Change
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ALL_CONFIGS = TOPIC_CONFIGS.keys() | STORED_CONFIGS.keys() | FIXED_CONFIGS.keys()
INT64_MAX = str(2**63 - 1)
INT32_MAX, PAST_INT32 = str(2**31 - 1), str(2**31)
PAST_INT64 = str(2**63)
# The least and the greatest value that Apache Kafka 4.3.1 takes, then values that it refuses: all
# of them tried on its own LogConfig.validate. Millstream takes segments below 1 MiB as well.
KAFKA_RANGES = {
    "cleanup.policy": ("", "compact, delete", "burn"),
    "compression.gzip.level": ("-1", "9", "0", "10", "-2"),
    "compression.lz4.level": ("1", "17", "0", "18"),
    "compression.type": ("producer", "uncompressed", "brotli"),
    "compression.zstd.level": ("-131072", "22", "-131073", "23"),
    "delete.retention.ms": ("0", INT64_MAX, "-1", PAST_INT64),
    "file.delete.delay.ms": ("0", INT64_MAX, "-1", PAST_INT64),
    "flush.messages": ("1", INT64_MAX, "0", PAST_INT64),
    "flush.ms": ("0", INT64_MAX, "never", "-1", PAST_INT64),
    "follower.replication.throttled.replicas": ("", "0:1,12:3", "0"),
    "index.interval.bytes": ("0", INT32_MAX, "-1", PAST_INT32),
    "leader.replication.throttled.replicas": ("*", "0:1", "*,0:1"),
    "local.retention.bytes": ("-2", INT64_MAX, "-3", PAST_INT64),
    "local.retention.ms": ("-2", INT64_MAX, "-3", PAST_INT64),
    "max.compaction.lag.ms": ("1", INT64_MAX, "0", PAST_INT64),
    "max.message.bytes": ("0", INT32_MAX, "-1", PAST_INT32),
    "message.timestamp.after.max.ms": ("0", INT64_MAX, "-1", PAST_INT64),
    "message.timestamp.before.max.ms": ("0", INT64_MAX, "-1", PAST_INT64),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "Noon"),
    "min.cleanable.dirty.ratio": ("0", "1", "-0.1", "1.1"),
    "min.compaction.lag.ms": ("0", INT64_MAX, "-1", PAST_INT64),
    "min.insync.replicas": ("1", INT32_MAX, "0", PAST_INT32),
    "preallocate": ("true", "FALSE", "maybe"),
    "remote.log.copy.disable": ("true", "false", "1"),
    "remote.log.delete.on.disable": ("true", "false", ""),
    "remote.storage.enable": ("false", "false", "true"),  # Without tiered storage.
    "retention.bytes": (str(-(2**63)), INT64_MAX, PAST_INT64),
    "retention.ms": ("-1", INT64_MAX, "-2", PAST_INT64),
    "segment.bytes": (str(2**20), INT32_MAX, PAST_INT32),
    "segment.index.bytes": ("4", INT32_MAX, "3", PAST_INT32),
    "segment.jitter.ms": ("0", INT64_MAX, "-1", PAST_INT64),
    "segment.ms": ("1", INT64_MAX, "0", PAST_INT64),
    "unclean.leader.election.enable": ("true", "false", "yes"),
}

Described = DescribeConfigsResponse.Result.Config


class OnlyTests(Everyone):
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION


async def describe(
    node: Node,
    name: str,
    kind: int = TOPIC,
    *,
    keys: list[str] | None = None,
    version: int = 4,
    session: Session = SESSION,
    **options: bool,
) -> DescribeConfigsResponse.Result:
    resource = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], **options)
    answer = await ask(node, request, DescribeConfigsResponse, version=version, session=session)
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def described(
    node: Node, name: str, kind: int = TOPIC, **options: Any
) -> dict[str, Described]:
    result = await describe(node, name, kind, **options)
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


async def alter(
    node: Node,
    name: str,
    configs: list[tuple[str, str | None]],
    *,
    kind: int = TOPIC,
    validate_only: bool = False,
    session: Session = SESSION,
) -> AlterConfigsResponse.Result:
    resource = AlterConfigsRequest.Resource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterConfigsRequest.Resource.Config(name=k, value=v) for k, v in configs],
    )
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await ask(node, request, AlterConfigsResponse, session=session)).responses
    return result


async def change(
    node: Node,
    name: str,
    *changes: tuple[int, str, str | None],
    kind: int = TOPIC,
    validate_only: bool = False,
    session: Session = SESSION,
) -> IncrementalAlterConfigsResponse.Result:
    resource_of = IncrementalAlterConfigsRequest.Resource
    resource = resource_of(
        resource_type=kind,
        resource_name=name,
        configs=[
            resource_of.Config(name=key, config_operation=operation, value=value)
            for operation, key, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = await ask(node, request, IncrementalAlterConfigsResponse, session=session)
    (result,) = answer.responses
    return result


# -- the tables --------------------------------------------------------------------------------


def test_every_topic_setting_has_a_config_and_every_config_a_setting() -> None:
    settings = {field.name for field in fields(TopicSettings)}

    assert {TopicConfig.setting(name) for name in TOPIC_CONFIGS} == settings
    assert {TopicConfig.setting(name) for name in STORED_CONFIGS} == STORED_SETTINGS.keys()
    assert len(ALL_CONFIGS) == len(TOPIC_CONFIGS) + len(STORED_CONFIGS) + len(FIXED_CONFIGS)


def test_a_described_value_is_one_that_can_be_set() -> None:
    shown = {
        TopicConfig.setting(entry.name): entry.value
        for entry in topic_entries({}, Inherited(TopicSettings(), TopicSettings(), {}, {}))
        if entry.name in TOPIC_CONFIGS
    }

    assert with_overrides(TopicSettings(), shown) == TopicSettings()  # type: ignore[arg-type]


# -- describe ----------------------------------------------------------------------------------


def test_a_topic_shows_every_config_and_who_set_it() -> None:
    async def story() -> None:
        defaults = TopicSettings(retention_ms=1000, segment_ms=2000)
        async with running_node(Config(topic_defaults=defaults)) as node:
            settings = {"retention_ms": "7", "cleanup_policy": "delete, compact"}
            await node.topics.create(SESSION, "orders", settings=settings)

            configs = await described(node, "orders")

            assert set(configs) == ALL_CONFIGS
            shown = {name: (config.value, config.config_source) for name, config in configs.items()}
            assert shown["retention.ms"] == ("7", 1)
            assert shown["cleanup.policy"] == ("compact,delete", 1)
            assert shown["segment.ms"] == ("2000", 4)
            assert shown["min.cleanable.dirty.ratio"] == ("0.5", 5)
            assert shown["compression.type"] == ("producer", 5)
            assert configs["remote.storage.enable"].value == "false"
            assert configs["remote.storage.enable"].read_only
            assert shown["unclean.leader.election.enable"] == ("false", 5)
            assert not configs["retention.ms"].read_only
            assert not any(item.is_sensitive for item in configs.values())

    run(story())


def test_synonyms_lead_from_the_value_that_holds_to_the_default() -> None:
    async def story() -> None:
        async with running_node(Config(topic_defaults=TopicSettings(retention_ms=1000))) as node:
            await node.topics.create(SESSION, "orders", settings={"retention_ms": "7"})

            configs = await described(node, "orders", include_synonyms=True)
            without = await described(node, "orders")

            retention = [(s.name, s.value, s.source) for s in configs["retention.ms"].synonyms]
            assert retention == [
                ("retention.ms", "7", 1),
                ("log.retention.ms", "1000", 4),
                ("log.retention.ms", "604800000", 5),
            ]
            segment = [(s.name, s.source) for s in configs["segment.ms"].synonyms]
            assert segment == [("log.roll.ms", 5)]
            assert all(not config.synonyms for config in without.values())

    run(story())


def test_types_and_documentation_come_when_they_are_asked_for() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            configs = await described(node, "orders", include_documentation=True)
            without = await described(node, "orders")

            assert configs["cleanup.policy"].config_type == Kind.LIST
            assert configs["retention.ms"].config_type == Kind.LONG
            assert configs["preallocate"].config_type == Kind.BOOLEAN
            assert all(item.documentation for item in configs.values())
            assert all(config.documentation is None for config in without.values())

    run(story())


@pytest.mark.parametrize("version", range(1, 5))
def test_configs_are_described_in_every_version(version: int) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            result = await describe(node, "orders", version=version, keys=["retention.ms"])

            assert [config.value for config in result.configs] == ["604800000"]

    run(story())


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["retention.ms", "colour"], {"retention.ms"}),
        (["colour"], set()),
        ([], ALL_CONFIGS),
    ],
)
def test_only_configs_that_are_asked_for_are_described(keys: list[str], names: set[str]) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            result = await describe(node, "orders", keys=keys)

            assert {config.name for config in result.configs} == names

    run(story())


def test_a_node_shows_how_it_is_configured_and_what_can_be_altered() -> None:
    async def story() -> None:
        config = Config(
            default_partitions=6,
            auto_create_topics=False,
            limits=Limits(frame_bytes_max=5000),
            topic_defaults=TopicSettings(cleanup_policy=CleanupPolicy.COMPACT),
        )
        async with running_node(config) as node:
            configs = await described(node, "1", BROKER)

            names = {row.node_name for row in TOPIC_CONFIGS.values()}
            assert set(configs) == NODE_CONFIGS.keys() | names | {"advertised.listeners"}
            shown = {name: (config.value, config.config_source) for name, config in configs.items()}
            assert shown["node.id"] == ("1", 5)
            assert shown["advertised.listeners"] == ("PLAINTEXT://localhost:9092", 4)
            assert shown["listeners"] == ("PLAINTEXT://127.0.0.1:9092", 5)
            assert shown["controller.quorum.voters"] == ("1@127.0.0.1:9092", 5)
            assert shown["broker.rack"] == (None, 5)
            assert shown["num.partitions"] == ("6", 4)
            assert shown["auto.create.topics.enable"] == ("false", 4)
            assert shown["socket.request.max.bytes"] == ("5000", 4)
            assert shown["offsets.retention.minutes"] == (str(7 * 24 * 60), 5)
            assert shown["log.cleanup.policy"] == ("compact", 4)
            assert shown["message.max.bytes"] == ("1048588", 5)
            writable = {name for name, config in configs.items() if not config.read_only}
            assert writable == RUN_TIME_SETTINGS.keys() & (names | NODE_CONFIGS.keys())
            assert "view.of" not in writable

    run(story())


def test_no_config_was_set_for_all_nodes_while_they_ran() -> None:
    async def story() -> None:
        async with running_node() as node:
            result = await describe(node, "", BROKER)

            assert (result.error_code, result.configs) == (0, [])

    run(story())


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", UNKNOWN),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (0, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_configs_says_so(kind: int, name: str, code: ErrorCode) -> None:
    async def story() -> None:
        async with running_node() as node:
            result = await describe(node, name, kind)

            assert (result.error_code, result.configs) == (code, [])
            assert result.error_message

    run(story())


def test_strangers_neither_see_nor_alter_configs() -> None:
    async def story() -> None:
        async with running_node(policy=OnlyTests()) as node:
            await node.topics.create(SESSION, "orders")

            topic = await describe(node, "orders", session=STRANGER)
            broker = await describe(node, "1", BROKER, session=STRANGER)
            altered = await alter(node, "orders", [("retention.ms", "1")], session=STRANGER)
            changed = await change(node, "orders", (SET, "retention.ms", "1"), session=STRANGER)

            assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert broker.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert altered.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert changed.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert node.topics.describe(SESSION, "orders").overrides == {}

    run(story())


# -- every config of Kafka's topics ---------------------------------------------------------------


@pytest.mark.parametrize("name", KAFKA_RANGES)
def test_a_topic_takes_every_value_that_kafka_takes(name: str) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            low, high, *beyond = KAFKA_RANGES[name]

            for value in (low, high):
                result = await change(node, "orders", (SET, name, value))
                assert (result.error_code, result.error_message) == (0, None)
                shown = (await described(node, "orders"))[name]
                assert shown.value in {value, value.lower(), f"{value}.0", value.replace(" ", "")}
            for value in beyond:
                result = await change(node, "orders", (SET, name, value))
                assert result.error_code == ErrorCode.INVALID_CONFIG, value
                words = result.error_message or ""
                assert name in words or name.replace(".", "_") in words
            taken_back = await change(node, "orders", (DELETE, name, None))

            assert taken_back.error_code == 0
            assert node.topics.describe(SESSION, "orders").overrides == {}

    run(story())


def test_a_setting_without_effect_says_so() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings={"preallocate": "true"})

            configs = await described(node, "orders", include_documentation=True)

            assert (configs["preallocate"].value, configs["preallocate"].config_source) == (
                "true",
                1,
            )
            documentation = configs["preallocate"].documentation or ""
            assert documentation.startswith("Stored, no effect.")

    run(story())


def test_lags_of_compaction_that_contradict_each_other_are_refused() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings={"min_compaction_lag_ms": "10"})

            result = await change(node, "orders", (SET, "max.compaction.lag.ms", "9"))

            assert result.error_code == ErrorCode.INVALID_CONFIG

    run(story())


def test_taking_back_what_is_not_set_is_done_at_once() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings={"segment_ms": "2"})

            # As MirrorMaker 2 does: a value where it is not Kafka's default, else DELETE.
            deleted = [(DELETE, name, None) for name in KAFKA_RANGES if name != "retention.ms"]
            result = await change(
                node, "orders", (SET, "retention.ms", "7"), (DELETE, "colour", None), *deleted
            )

            assert (result.error_code, result.error_message) == (0, None)
            assert node.topics.describe(SESSION, "orders").overrides == {"retention_ms": "7"}

    run(story())


def test_a_setting_of_another_version_is_shown_and_can_be_taken_back() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            command = AlterTopic(name="orders", changes={"tea_ms": "5", "segment_bytes": "1"})
            await node._controller._ledger.propose([Entry(None, encode(command))])

            entries = topic_entries(
                node.topics.describe(SESSION, "orders").overrides,
                Inherited(TopicSettings(), TopicSettings(), {}, {}),
            )
            shown = {entry.name: entry.value for entry in entries}
            result = await change(
                node, "orders", (DELETE, "tea.ms", None), (DELETE, "segment.bytes", None)
            )

            assert (shown["tea.ms"], shown["segment.bytes"]) == ("5", "1024")
            assert (result.error_code, result.error_message) == (0, None)
            assert node.topics.describe(SESSION, "orders").overrides == {}

    run(story())


# -- alter, all at once ------------------------------------------------------------------------


def test_altering_replaces_everything_that_was_set() -> None:
    async def story() -> None:
        async with running_node() as node:
            settings = {"retention_ms": "1", "segment_ms": "2"}
            await node.topics.create(SESSION, "orders", settings=settings)

            result = await alter(node, "orders", [("segment.ms", "3"), ("segment.bytes", "4096")])
            overrides = node.topics.describe(SESSION, "orders").overrides
            emptied = await alter(node, "orders", [])

            assert (result.error_code, result.error_message) == (0, None)
            assert overrides == {"segment_ms": "3", "segment_bytes": "4096"}
            assert emptied.error_code == 0
            assert node.topics.describe(SESSION, "orders").overrides == {}

    run(story())


def test_validating_an_alteration_changes_nothing() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings={"retention_ms": "1"})

            replaced = await alter(node, "orders", [("segment.ms", "3")], validate_only=True)
            changed = await change(node, "orders", (SET, "segment.ms", "3"), validate_only=True)
            refused = await change(node, "orders", (SET, "segment.ms", "x"), validate_only=True)

            assert (replaced.error_code, changed.error_code) == (0, 0)
            assert refused.error_code == ErrorCode.INVALID_CONFIG
            assert node.topics.describe(SESSION, "orders").overrides == {"retention_ms": "1"}

    run(story())


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, row in FIXED_CONFIGS.items() for value in row.values],
)
def test_a_config_that_says_what_is_done_anyway_is_taken_and_not_kept(
    name: str, value: str
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            replaced = await alter(node, "orders", [(name, value.upper())])
            changed = await change(node, "orders", (SET, name, f" {value}"))
            taken_back = await change(node, "orders", (DELETE, name, None))

            outcomes = [replaced.error_code, changed.error_code, taken_back.error_code]
            assert outcomes == [0, 0, 0]
            assert node.topics.describe(SESSION, "orders").overrides == {}

    run(story())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.downconversion.enable", "true"),
        ("remote.storage.enable", "true"),
        ("colour", "red"),
        ("retention_ms", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", None),
        ("preallocate", None),
        ("cleanup.policy", "burn"),
        ("segment.bytes", "1"),
    ],
)
def test_a_refusal_names_the_config_and_changes_nothing(name: str, value: str | None) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings={"segment_ms": "2"})

            replaced = await alter(node, "orders", [("retention.bytes", "1"), (name, value)])
            changed = await change(
                node, "orders", (SET, "retention.bytes", "1"), (SET, name, value)
            )

            for result in (replaced, changed):
                assert result.error_code == ErrorCode.INVALID_CONFIG
                words = result.error_message or ""
                assert name in words or name.replace(".", "_") in words
            assert node.topics.describe(SESSION, "orders").overrides == {"segment_ms": "2"}

    run(story())


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", UNKNOWN),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (3, "odd", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_altered_says_so(kind: int, name: str, code: ErrorCode) -> None:
    async def story() -> None:
        async with running_node() as node:
            emptied = await alter(node, name, [], kind=kind)
            changed = await change(node, name, kind=kind)

            for result in (emptied, changed):
                assert (result.error_code, bool(result.error_message)) == (code, True)

    run(story())


def test_a_config_is_given_once() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            replaced = await alter(node, "orders", [("segment.ms", "1"), ("segment.ms", "2")])
            changed = await change(
                node, "orders", (SET, "segment.ms", "1"), (DELETE, "segment.ms", None)
            )

            assert replaced.error_code == ErrorCode.INVALID_REQUEST
            assert changed.error_code == ErrorCode.INVALID_REQUEST
            assert node.topics.describe(SESSION, "orders").overrides == {}

    run(story())


def test_a_topic_is_altered_once_in_a_request_and_the_others_are_altered() -> None:
    async def story() -> None:
        async with running_node() as node:
            resource_of = AlterConfigsRequest.Resource
            names = ["a", "b", "a"]
            for name in sorted(set(names)):
                await node.topics.create(SESSION, name)
            config = resource_of.Config(name="segment.ms", value="5")

            request = AlterConfigsRequest(
                resources=[
                    resource_of(resource_type=TOPIC, resource_name=name, configs=[config])
                    for name in names
                ]
            )
            answer = await ask(node, request, AlterConfigsResponse)

            assert [
                (response.resource_name, response.error_code) for response in answer.responses
            ] == [
                ("a", ErrorCode.INVALID_REQUEST),
                ("b", 0),
            ]
            assert node.topics.describe(SESSION, "a").overrides == {}
            assert node.topics.describe(SESSION, "b").overrides == {"segment_ms": "5"}

    run(story())


# -- alter, one by one -------------------------------------------------------------------------


def test_a_change_leaves_alone_what_it_does_not_name() -> None:
    async def story() -> None:
        async with running_node() as node:
            settings = {"retention_ms": "1", "segment_ms": "2"}
            await node.topics.create(SESSION, "orders", settings=settings)

            result = await change(
                node, "orders", (SET, "segment.bytes", "4096"), (DELETE, "retention.ms", None)
            )

            assert (result.error_code, result.error_message) == (0, None)
            overrides = node.topics.describe(SESSION, "orders").overrides
            assert overrides == {"segment_ms": "2", "segment_bytes": "4096"}

    run(story())


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        ({}, APPEND, "compact", CleanupPolicy.COMPACT_AND_DELETE),
        ({}, APPEND, "delete", CleanupPolicy.DELETE),
        ({}, APPEND, "compact, delete", CleanupPolicy.COMPACT_AND_DELETE),
        ({"cleanup_policy": "compact"}, APPEND, "delete", CleanupPolicy.COMPACT_AND_DELETE),
        ({"cleanup_policy": "compact,delete"}, SUBTRACT, "delete", CleanupPolicy.COMPACT),
        ({}, SUBTRACT, "compact", CleanupPolicy.DELETE),
    ],
)
def test_policies_are_added_to_and_taken_from_the_list(
    before: dict[str, str], operation: int, value: str, after: CleanupPolicy
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings=before)

            result = await change(node, "orders", (operation, "cleanup.policy", value))

            topic = node.topics.describe(SESSION, "orders")
            assert result.error_code == 0
            assert topic.settings(TopicSettings()).cleanup_policy is after

    run(story())


@pytest.mark.parametrize(
    ("operation", "name", "value", "code"),
    [
        (APPEND, "cleanup.policy", "burn", ErrorCode.INVALID_CONFIG),
        (APPEND, "cleanup.policy", None, ErrorCode.INVALID_CONFIG),
        (APPEND, "retention.ms", "1", ErrorCode.INVALID_CONFIG),
        (SUBTRACT, "compression.type", "zstd", ErrorCode.INVALID_CONFIG),
        (APPEND, "leader.replication.throttled.replicas", "0", ErrorCode.INVALID_CONFIG),
        (APPEND, "colour", "red", ErrorCode.INVALID_CONFIG),
        (4, "retention.ms", "1", ErrorCode.INVALID_REQUEST),
        (-1, "retention.ms", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(
    operation: int, name: str, value: str | None, code: ErrorCode
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            result = await change(node, "orders", (operation, name, value))

            assert (result.error_code, bool(result.error_message)) == (code, True)
            assert node.topics.describe(SESSION, "orders").overrides == {}

    run(story())
