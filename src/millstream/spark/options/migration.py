"""Every option of Spark's Kafka connector and every setting of Kafka's Java clients, and what
becomes of each here.

Pure. One table for the code that checks names, for docs/spark/migrating.md and for the tests, which
hold it against the names that the connector and kafka-clients really have. Invariant: a setting
that would change which rows are read or written, or who may read them, is never ignored.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Treatment(Enum):
    SAME = "same"
    NO_EFFECT = "accepted without effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """`note` is the reason of a refusal, or what there is to know."""

    name: str
    treatment: Treatment
    note: str = ""


def _rows(treatment: Treatment, notes: dict[str, str]) -> tuple[Setting, ...]:
    return tuple(
        Setting(name=name, treatment=treatment, note=note)
        for names, note in notes.items()
        for name in names.split()
    )


_DRIVER_DECIDES = "Spark assigns partitions; no consumer joins a group"
_JAVA_CLASS = "it names Java classes, and there is no Java here"
_KERBEROS = "Kerberos is not supported: use SCRAM, OAUTHBEARER or certificates"
_ASSERTION = "tokens are asked for with a client's secret, or read from a file"
_BROKER_CHECKS = "the broker checks tokens"
_METRICS = "Spark's progress and the broker have figures"

# -- options of the connector ----------------------------------------------------------------------

SOURCE_OPTIONS: tuple[Setting, ...] = _rows(
    Treatment.SAME,
    {
        "subscribe subscribePattern assign": "",
        "startingOffsets": "also takes committed: the offsets of kafka.group.id",
        "startingTimestamp startingOffsetsByTimestamp startingOffsetsByTimestampStrategy": "",
        "endingOffsets endingTimestamp endingOffsetsByTimestamp": "",
        "maxOffsetsPerTrigger minOffsetsPerTrigger": "from Spark 4.2 on",
        "maxTriggerDelay": "",
        "minPartitions maxRecordsPerPartition": "refused with onError=dlq: one task reads a "
        "partition then",
        "failOnDataLoss": "with false, a topic that was created anew is read from its start; the "
        "connector skips what it has",
        "includeHeaders": "the column is never null: empty if there are no headers",
        "groupIdPrefix": "the group shows the lag of the query, and depends on the subscription "
        "alone",
        "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs": "",
        "partition.metadata.cache.ttl.ms": "",
    },
)
SINK_OPTIONS: tuple[Setting, ...] = _rows(
    Treatment.SAME,
    {"topic": "", "includeHeaders": "default true"},
)

# -- settings of kafka-clients ---------------------------------------------------------------------

CONNECTION: tuple[Setting, ...] = (
    *_rows(
        Treatment.SAME,
        {
            "bootstrap.servers client.id": "",
            "request.timeout.ms retry.backoff.ms": "",
            "security.protocol": "",
            "sasl.mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER; GSSAPI is refused",
            "sasl.jaas.config": "username and password, or clientId, clientSecret and scope",
            "sasl.oauthbearer.token.endpoint.url": "https://..., or file:///path of a token",
            "sasl.oauthbearer.scope sasl.oauthbearer.client.credentials.client.id "
            "sasl.oauthbearer.client.credentials.client.secret": "",
            "sasl.login.callback.handler.class": "only Kafka's own handler of OAUTHBEARER",
            "ssl.truststore.type ssl.keystore.type": "PEM only",
            "ssl.truststore.location ssl.keystore.location": "PEM files; convert Java key stores "
            "with keytool and openssl",
            "ssl.truststore.certificates ssl.keystore.certificate.chain ssl.keystore.key "
            "ssl.key.password": "",
            "ssl.endpoint.identification.algorithm": "",
        },
    ),
    *_rows(
        Treatment.NO_EFFECT,
        {
            "client.dns.lookup": "all addresses of a host are tried",
            "config.providers": "${file:...} and ${directory:...} are always resolved",
            "connections.max.idle.ms socket.connection.setup.timeout.ms "
            "socket.connection.setup.timeout.max.ms": "connections are opened when they are needed",
            "reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.max.ms": "kafka."
            "retry.backoff.ms is the wait before each attempt",
            "metadata.max.age.ms": "partition.metadata.cache.ttl.ms says how often the driver asks",
            "metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms": "the bootstrap "
            "servers are always tried again",
            "receive.buffer.bytes send.buffer.bytes": "the system sizes them",
            "enable.metrics.push metric.reporters metrics.num.samples metrics.recording.level "
            "metrics.sample.window.ms auto.include.jmx.reporter": _METRICS,
            "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms "
            "sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms": "a token is asked for "
            "within kafka.request.timeout.ms",
            "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds "
            "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter": "every connection "
            "asks for a token if the last one is about to expire",
            "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience "
            "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms "
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms "
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
            "sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.validator.class "
            "sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name": _BROKER_CHECKS,
            "sasl.oauthbearer.header.urlencode": "id and secret are always encoded, as RFC 6749 "
            "says",
            "ssl.enabled.protocols ssl.protocol": "TLS 1.2 and newer, the newest that both know",
            "ssl.keystore.password ssl.truststore.password": "PEM files have none; "
            "kafka.ssl.key.password is that of the key",
            "ssl.keymanager.algorithm ssl.trustmanager.algorithm ssl.provider "
            "ssl.secure.random.implementation security.providers": "they choose parts of Java",
        },
    ),
    *_rows(
        Treatment.REFUSED,
        {
            "interceptor.classes": "interceptors are Java classes and may change what Spark counts",
            "sasl.client.callback.handler.class sasl.login.class sasl.oauthbearer."
            "jwt.retriever.class ssl.engine.factory.class": _JAVA_CLASS,
            "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin "
            "sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter "
            "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
            "sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud "
            "sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss "
            "sasl.oauthbearer.assertion.claim.jti.include "
            "sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub "
            "sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file "
            "sasl.oauthbearer.assertion.private.key.passphrase "
            "sasl.oauthbearer.assertion.template.file": _ASSERTION,
            "ssl.cipher.suites": "to ignore it would allow what it forbids; limit them at the "
            "broker",
        },
    ),
)

CONSUMER: tuple[Setting, ...] = (
    *_rows(
        Treatment.SAME,
        {
            "group.id": "also names the group that shows the lag",
            "isolation.level": "default read_committed: records of open and aborted transactions "
            "are not read",
            "max.partition.fetch.bytes": "default 4 MiB",
            "fetch.max.wait.ms default.api.timeout.ms": "",
        },
    ),
    *_rows(
        Treatment.NO_EFFECT,
        {
            "allow.auto.create.topics": "a read creates no topic",
            "auto.commit.interval.ms": "offsets are committed with each trigger",
            "check.crcs": "checksums are always verified",
            "client.rack": "the leader of a partition is read",
            "fetch.max.bytes fetch.min.bytes": "kafka.max.partition.fetch.bytes is the size of a "
            "response: a task reads one partition",
            "group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms "
            "max.poll.interval.ms max.poll.records session.timeout.ms "
            "partition.assignment.strategy share.acknowledgement.mode share.acquire.mode": (
                _DRIVER_DECIDES
            ),
            "internal.throw.on.fetch.stable.offset.unsupported": "it is internal to Java's client",
        },
    ),
    *_rows(
        Treatment.REFUSED,
        {
            "auto.offset.reset": "where a query starts is said by startingOffsets",
            "enable.auto.commit": "Spark decides when offsets are committed",
            "exclude.internal.topics": "which topics are read is said by subscribe or "
            "subscribePattern",
            "key.deserializer": "keys are bytes; deserialize them with DataFrame operations",
            "value.deserializer": "values are bytes; use valueFormat or DataFrame operations",
        },
    ),
)

PRODUCER: tuple[Setting, ...] = (
    *_rows(
        Treatment.SAME,
        {
            "batch.size": "default 524288",
            "compression.type": "",
            "delivery.timeout.ms transaction.timeout.ms": "",
            "max.in.flight.requests.per.connection": "at most 5",
        },
    ),
    *_rows(
        Treatment.NO_EFFECT,
        {
            "acks enable.idempotence": "always all, always true: rows are durable, and once",
            "buffer.memory linger.ms max.block.ms max.request.size": "a task has all of its rows; "
            "kafka.batch.size is the size of a batch",
            "compression.gzip.level compression.lz4.level compression.zstd.level": "each codec has "
            "its usual level",
            "metadata.max.idle.ms": "a task asks for what it writes to",
            "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms": "rows "
            "without a key take partitions in turn",
            "retries": "kafka.delivery.timeout.ms says how long a write is tried again",
            "transaction.two.phase.commit.enable": "the broker ends the transactions of a batch as "
            "one",
        },
    ),
    *_rows(
        Treatment.REFUSED,
        {
            "key.serializer value.serializer": "keys and values are bytes or text; serialize them "
            "with DataFrame operations",
            "partitioner.class": "partitioners are Java classes; use the column partition",
            "partitioner.ignore.keys": "rows of one key would go to several partitions; leave the "
            "column key out, or use the column partition",
            "transactional.id": "the sink names its transactions itself; use transactionalIdPrefix",
        },
    ),
)


def by_name(settings: Iterable[Setting]) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


# A program often has one dict of settings for its source and its sink: those of the other are
# accepted, whatever they say.
SOURCE_SETTINGS = by_name((*CONNECTION, *CONSUMER))
SINK_SETTINGS = by_name((*CONNECTION, *PRODUCER))


def of_the_other(name: str, *, is_sink: bool) -> bool:
    """Whether it is a setting of the other kind of client alone, which this one never reads."""
    own, other = (SINK_SETTINGS, CONSUMER) if is_sink else (SOURCE_SETTINGS, PRODUCER)
    return name not in own and name in by_name(other)
