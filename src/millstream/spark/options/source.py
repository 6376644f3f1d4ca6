"""Reads the options of the source.

Pure. Names, defaults and precedence are those of Spark's Kafka connector. Invariant: no option is
accepted and ignored. An unknown name is an error that proposes the nearest known one, and an option
that means nothing for this kind of query is an error too.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from millstream.kafka_client.settings import ClientSettings
from millstream.names import DLQ_TOPIC_SUFFIX
from millstream.spark.errors import InvalidOption
from millstream.spark.options.kafka import PREFIX, client_settings, nearest, positive
from millstream.spark.options.places import (
    Assigned,
    Committed,
    Pattern,
    Place,
    Subscription,
    Topics,
    choice,
    ending,
    starting,
    subscription,
)
from millstream.spark.options.subjects import Subjects
from millstream.spark.options.values import REGISTRY_OPTIONS, ValueOptions, value_options

# Of a stream, unless an option says otherwise. A query that needs long for its records gets more of
# them for a trigger, and so more tasks.
RECORDS_PER_TASK_MIN = 4_000


class OnError(Enum):
    FAIL = "fail"
    NULL = "null"
    DLQ = "dlq"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of one query."""

    client: ClientSettings
    group: str
    # Groups that remember which dead letters are written: the first is written to. The others are
    # names that an earlier version gave it, read where the first remembers nothing.
    letter_groups: tuple[str, ...]
    subscription: Subscription
    starting: Place
    ending: Place
    is_latest_without_match: bool  # startingOffsetsByTimestampStrategy
    fails_on_data_loss: bool
    offsets_max: int | None
    offsets_min: int | None
    trigger_delay_ms_max: int
    bytes_max: int | None
    partitions_min: int | None
    partition_records_max: int | None
    partition_records_min: int  # Smaller ranges of a stream share a task.
    poll_ms_max: int
    lookup_tries: int
    lookup_interval_ms: int
    metadata_ttl_ms: int
    values: ValueOptions | None  # None: they stay bytes.
    on_error: OnError
    broker_filter: str | None  # Which records the broker sends at all.


_BOTH = (
    "subscribe",
    "subscribePattern",
    "assign",
    "subscribeSubjects",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsetsFallback",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "valueFormat",
    "valueSchema",
    "valueMessage",
    *REGISTRY_OPTIONS,
    "onError",
    "brokerFilter",
)
_BATCH = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minRecordsPerPartition",
)
_NOT_YET = {
    "path": "a topic is no path; use the option subscribe",
    "topic": "it names where to write; what to read is named by subscribe",
    "group.id": "use kafka.group.id or groupIdPrefix",
}
_SPLITS = ("minPartitions", "maxRecordsPerPartition")
_KNOWN = (*_BOTH, *_BATCH, *_STREAM)
_VALUES = ("valueFormat", "valueSchema", "valueMessage")
_FLAGS = {"true": True, "false": False}
_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|m|h|d)\s*")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def source_options(raw: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Check the options of a query; raise `InvalidOption` with one sentence for the first mistake.

    The names may be in any case, as Spark hands them over in lower case.
    """
    options = {name.lower(): text for name, text in raw.items()}
    _check_names(options, is_streaming=is_streaming)
    number = _Numbers(options)
    start = starting(options, is_streaming=is_streaming)
    if isinstance(start, Committed) and "kafka.group.id" not in options:
        raise InvalidOption("startingOffsets is committed: name the group with kafka.group.id")
    subscribed = subscription(options)
    group, letter_groups = _groups(options, subscribed, is_streaming=is_streaming)
    offsets_min = number.positive("minOffsetsPerTrigger")
    offsets_max = number.positive("maxOffsetsPerTrigger")
    if offsets_min is None and "maxtriggerdelay" in options:
        raise InvalidOption("maxTriggerDelay means nothing without minOffsetsPerTrigger")
    if offsets_min and offsets_max and offsets_min > offsets_max:
        raise InvalidOption(
            f"minOffsetsPerTrigger is {offsets_min}, more than maxOffsetsPerTrigger {offsets_max}"
        )
    return SourceOptions(
        client=client_settings(options, client_id=group),
        group=group,
        letter_groups=letter_groups,
        subscription=subscribed,
        starting=start,
        ending=ending(options),
        is_latest_without_match=choice(
            options, "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, "error"
        ),
        fails_on_data_loss=choice(options, "failOnDataLoss", _FLAGS, "true"),
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        trigger_delay_ms_max=_duration_ms("maxTriggerDelay", options.get("maxtriggerdelay", "15m")),
        bytes_max=number.positive("maxBytesPerTrigger"),
        partitions_min=number.positive("minPartitions"),
        partition_records_max=number.positive("maxRecordsPerPartition"),
        partition_records_min=_records_min(options, number),
        poll_ms_max=number.positive("kafkaConsumer.pollTimeoutMs") or 120_000,
        lookup_tries=number.positive("fetchOffset.numRetries") or 3,
        lookup_interval_ms=number.whole("fetchOffset.retryIntervalMs", 10),
        metadata_ttl_ms=number.whole("partition.metadata.cache.ttl.ms", -1),
        values=value_options(options),
        on_error=_on_error(options),
        broker_filter=_broker_filter(options, subscribed),
    )


def _records_min(options: Mapping[str, str], number: "_Numbers") -> int:
    records_min = number.positive("minRecordsPerPartition")
    splits = [name for name in _SPLITS if name.lower() in options]
    if records_min is not None and splits:
        raise InvalidOption(
            f"minRecordsPerPartition can't be used with {splits[0]}: one puts partitions of topics "
            "together, the other cuts them"
        )
    if splits:
        return 1
    return RECORDS_PER_TASK_MIN if records_min is None else records_min


def includes_headers(raw: Mapping[str, str]) -> bool:
    """Whether rows have a column of headers; known before the kind of query is."""
    options = {name.lower(): text for name, text in raw.items()}
    return choice(options, "includeHeaders", _FLAGS, "false")


def value_format(raw: Mapping[str, str]) -> ValueOptions | None:
    """The format of values, or None if they stay bytes. Known before the kind of query."""
    return value_options({name.lower(): text for name, text in raw.items()})


# -- names -----------------------------------------------------------------------------------------


def _check_names(options: Mapping[str, str], *, is_streaming: bool) -> None:
    refused = {name.lower(): (name, why) for name, why in _NOT_YET.items()}
    known = {name.lower(): name for name in _KNOWN}
    for name in options:
        if name in refused:
            option, why = refused[name]
            raise InvalidOption(f"option {option} is not supported in the source: {why}")
        if name.startswith(PREFIX):
            continue  # `client_settings` checks these.
        if name not in known:
            raise InvalidOption(f"there is no option {name}; {nearest(name, _KNOWN)}")
        if is_streaming and known[name] in _BATCH:
            raise InvalidOption(f"{known[name]} is not supported in streaming queries")
        if not is_streaming and known[name] in _STREAM:
            raise InvalidOption(f"{known[name]} is only for streaming queries")


# -- values ----------------------------------------------------------------------------------------


class _Numbers:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def positive(self, name: str) -> int | None:
        text = self._options.get(name.lower())
        return None if text is None else positive(name, text)

    def whole(self, name: str, default: int) -> int:
        try:
            return int(self._options.get(name.lower(), default))
        except ValueError:
            text = self._options[name.lower()]
            raise InvalidOption(f"{name} is {text!r}, expected a whole number") from None


def _groups(
    options: Mapping[str, str], subscribed: Subscription, *, is_streaming: bool
) -> tuple[str, tuple[str, ...]]:
    """The consumer group of the query, and those that remember its dead letters.

    The default group is named by what is read alone, so that lag keeps its name when a limit or a
    schema changes. Which values are bad depends on the schema: dead letters are remembered by it.
    """
    named = options.get("kafka.group.id", "").strip()
    if named:
        return named, (named + DLQ_TOPIC_SUFFIX,)
    default = "spark-kafka-source" if is_streaming else "spark-kafka-relation"
    prefix = options.get("groupidprefix", default).strip()
    group = f"{prefix}-{_digest([*_canonical(subscribed), options.get('brokerfilter')])}"
    named_schema = [options.get(name.lower()) for name in _VALUES]
    values = _digest([*named_schema, *_registered_schema(options)])
    # Before, all options but how brokers are reached were in the name.
    own = {name: text for name, text in options.items() if not name.startswith(PREFIX)}
    former = f"{prefix}-{_digest(sorted(own.items()))}"
    return group, (f"{group}-{values}{DLQ_TOPIC_SUFFIX}", former + DLQ_TOPIC_SUFFIX)


def _registered_schema(options: Mapping[str, str]) -> list[str]:
    """Which schema of a registry is read; empty without one: older groups keep their name."""
    values = value_options(options)
    registry = None if values is None else values.registry
    return [] if registry is None else [registry.url, registry.subject, registry.version]


def _canonical(subscribed: Subscription) -> list[object]:
    """The subscription in one form: the order of topics and blanks between them do not count."""
    match subscribed:
        case Topics(names):
            return ["topics", sorted(names)]
        case Pattern(expression):
            return ["pattern", expression]
        case Assigned(partitions):
            return ["partitions", [str(target) for target in partitions]]
        case Subjects(patterns):
            return ["subjects", sorted(patterns)]
        case other:
            assert_never(other)


def _digest(text: object) -> str:
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()[:12]


def _on_error(options: Mapping[str, str]) -> OnError:
    if "onerror" in options and value_options(options) is None:
        raise InvalidOption("onError means nothing without valueFormat")
    on_error = choice(options, "onError", {choice.value: choice for choice in OnError}, "fail")
    splits = [name for name in _SPLITS if name.lower() in options]
    if on_error is OnError.DLQ and splits:
        # How far a partition's records were decoded is one number: one task at a time counts it.
        raise InvalidOption(
            f"onError dlq can't be used with {splits[0]}: a partition is read by one task then, "
            "so that each record is put aside once"
        )
    return on_error


def _broker_filter(options: Mapping[str, str], subscribed: Subscription) -> str | None:
    text = options.get("brokerfilter")
    if text is not None and not text.strip():
        raise InvalidOption("brokerFilter is empty, expected a filter such as value ~ 'ERROR'")
    if not isinstance(subscribed, Subjects):
        return text
    return subscribed.where if text is None else f"({subscribed.where}) and ({text})"


def _duration_ms(name: str, text: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    if match is None:
        raise InvalidOption(f"{name} is {text!r}, expected a time such as 15m, 30s or 500ms")
    return int(match[1]) * _UNIT_MS[match[2]]
