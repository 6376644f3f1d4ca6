"""Settings of a node at run time: carried out, or refused with a reason, by Kafka's names."""

import asyncio
from dataclasses import replace

import pytest

from millstream.config import Config, Limits
from millstream.control.resources import TUNABLES
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.protocols.kafka.handlers.broker_config_table import NODE_CONFIGS, RUN_TIME_SETTINGS
from millstream.protocols.kafka.handlers.config_table import TopicConfig
from millstream.security.settings import ListenerSettings, Security
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.test_configs_handlers import (
    BROKER,
    DELETE,
    SET,
    change,
    described,
)

# All that Apache Kafka 4.3.1 changes at run time: DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS.
KAFKA_DYNAMIC = [
    "background.threads",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "config.providers",
    "cordoned.log.dirs",
    "follower.fetch.last.tiered.offset.enable",
    "follower.replication.throttled.rate",
    "group.consumer.assignment.interval.ms",
    "group.coordinator.cached.buffer.max.bytes",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
    "leader.replication.throttled.rate",
    "listener.security.protocol.map",
    "listeners",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.threads",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.type",
    "log.preallocate",
    "log.retention.bytes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "message.max.bytes",
    "metric.reporters",
    "min.insync.replicas",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "principal.builder.class",
    "producer.id.expiration.ms",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.mechanism.inter.broker.protocol",
    "share.coordinator.cached.buffer.max.bytes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.key.password",
    "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "transaction.partition.verification.enable",
    "unclean.leader.election.enable",
]
CARRIED_OUT = [TopicConfig.config(setting) for setting in TUNABLES]


def test_what_kafka_changes_at_run_time_is_changed_or_refused_with_a_reason() -> None:
    async def story() -> None:
        async with running_node() as node:
            for name in KAFKA_DYNAMIC:
                if name in RUN_TIME_SETTINGS:
                    continue
                result = await change(node, "1", (SET, name, "1"), kind=BROKER)
                assert result.error_code == ErrorCode.INVALID_REQUEST, name
                words = result.error_message or ""
                assert words.startswith(f"{name} cannot be altered here. ")
                assert len(words) > len(f"{name} cannot be altered here. ") + 20
                taken_back = await change(node, "1", (DELETE, name, None), kind=BROKER)
                assert taken_back.error_code == 0

    run(story())


@pytest.mark.parametrize("name", CARRIED_OUT)
def test_a_setting_of_the_node_is_shown_with_its_source_and_survives_a_restart(name: str) -> None:
    files = CrashingFiles()

    async def shown() -> tuple[str | None, int, bool]:
        async with running_node(files=files) as node:
            entry = (await described(node, "1", BROKER))[name]
            return entry.value, entry.config_source, entry.read_only

    async def story() -> None:
        before = await shown()
        async with running_node(files=files) as node:
            default = await change(node, "", (SET, name, "3000000"), kind=BROKER)
            assert (default.error_code, default.error_message) == (0, None)
        assert await shown() == ("3000000", 3, False)
        async with running_node(files=files) as node:
            mine = await change(node, "1", (SET, name, "2000000"), kind=BROKER)
            assert (mine.error_code, mine.error_message) == (0, None)
            tunable = TUNABLES[TopicConfig.setting(name)]
            section = getattr(node.running_config.current, tunable.section)
            assert getattr(section, tunable.name) == 2_000_000
        assert await shown() == ("2000000", 2, False)
        async with running_node(files=files) as node:
            for resource in ("1", ""):
                taken_back = await change(node, resource, (DELETE, name, None), kind=BROKER)
                assert taken_back.error_code == 0
            refused = await change(node, "1", (SET, name, "-1"), kind=BROKER)
            assert refused.error_code == ErrorCode.INVALID_CONFIG
            assert (refused.error_message or "").startswith(f"{name} = '-1' is not a whole number")
        assert await shown() == before
        assert before[1] == 5

    run(story())


def test_no_value_above_what_the_machine_allows_is_taken() -> None:
    files = CrashingFiles()

    async def story() -> None:
        async with running_node(files=files) as node:
            await change(node, "1", (SET, "max.connections", "20000"), kind=BROKER)
        # Started again where fewer files may be opened: the setting stays, as far as it fits.
        async with running_node(files=files) as node:
            node.running_config.bound("max_connections", 500, "raise the limit of open files")
            assert node.running_config.current.limits.connections_max == 500

            refused = await change(node, "1", (SET, "max.connections", "501"), kind=BROKER)
            fitting = await change(node, "1", (SET, "max.connections", "499"), kind=BROKER)

            assert refused.error_code == ErrorCode.INVALID_CONFIG
            assert refused.error_message == (
                "max.connections = 501 is more than 500: raise the limit of open files"
            )
            assert fitting.error_code == 0
            assert node.running_config.current.limits.connections_max == 499

    run(story())


def test_the_scrubber_is_turned_on_slowed_and_turned_off_as_it_runs() -> None:
    async def story() -> None:
        off = Config(limits=Limits(scrub_bytes_per_second=0))
        async with running_node(off, files=CrashingFiles()) as node:
            state = node.hub.scrubber.state

            async def passes_in(seconds: int) -> bool:
                before = node.hub.scrubber.state.last_full_pass_ms
                await asyncio.sleep(seconds)
                return node.hub.scrubber.state.last_full_pass_ms > before

            assert not await passes_in(600)
            assert state.last_full_pass_ms == -1
            await change(node, "1", (SET, "scrub.bytes.per.second", "1000"), kind=BROKER)
            assert await passes_in(1)
            assert not await passes_in(300)
            await change(node, "1", (SET, "scrub.interval.ms", "1000"), kind=BROKER)
            assert await passes_in(2)
            await change(node, "1", (SET, "scrub.bytes.per.second", "0"), kind=BROKER)
            assert not await passes_in(300)

    run(story())


def test_security_is_shown_as_it_is() -> None:
    flat = Config(
        port=9092,
        security=Security(
            protocol="sasl_tls",
            mechanisms=("SCRAM-SHA-512",),
            session_ms_max=60_000,
            super_users=("User:root", "Role:ops"),
        ),
    )
    named = replace(
        flat,
        listener={
            "inside": ListenerSettings(port=9093, protocols=("kafka",), security="plaintext"),
            "outside": ListenerSettings(host="10.0.0.1", port=9094, protocols=("kafka", "flymq")),
            "web": ListenerSettings(port=9095, protocols=("http",)),
        },
    )

    def shown(name: str, config: Config) -> object:
        return NODE_CONFIGS[name].read(config)

    assert shown("listeners", Config(port=9092)) == "PLAINTEXT://127.0.0.1:9092"
    assert shown("listeners", flat) == "SASL_SSL://127.0.0.1:9092"
    assert shown("listeners", named) == "INSIDE://127.0.0.1:9093,OUTSIDE://10.0.0.1:9094"
    protocols = "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL"
    assert shown("listener.security.protocol.map", named) == protocols
    assert shown("connections.max.reauth.ms", flat) == 60_000
    assert shown("sasl.enabled.mechanisms", flat) == "SCRAM-SHA-512"
    assert shown("super.users", flat) == "User:root;Role:ops"
    assert shown("allow.everyone.if.no.acl.found", flat) is False
