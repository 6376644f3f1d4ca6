"""Reads the options of the sink: those of Spark's Kafka connector, and ours.

Pure. Invariants: no option is accepted and ignored; a guarantee that the user asked for is never
lowered in silence.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

from millstream.codec.compression import Codec
from millstream.kafka_client.settings import ClientSettings
from millstream.spark.errors import InvalidOption
from millstream.spark.options.kafka import PREFIX, client_settings, nearest, positive
from millstream.spark.options.places import choice

log = logging.getLogger(__name__)

# A batch may be as large as brokers take by default, less what compression may add.
BATCH_BYTES = 512 * 1024
IN_FLIGHT_MAX = 5  # Of one partition: brokers remember as many batches of a producer.
TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000  # The longest that brokers allow by default.
DELIVERY_TIMEOUT_MS = 120_000
# The columns that ask the broker for something.
DELIVER_AT, TTL_MS = "deliverAt", "ttlMs"


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The checked options of one query.

    A streaming query is known by `transactional_id_prefix`, or else by what lies in `checkpoint`.
    """

    client: ClientSettings
    topic: str | None
    transactional_id_prefix: str | None
    checkpoint: str | None
    batch_id: int | None  # Of a batch query that is one batch of a stream.
    guarantee: Guarantee
    assumes_deterministic_tasks: bool
    writes_headers: bool
    codec: Codec
    batch_bytes_max: int
    in_flight_max: int
    transaction_timeout_ms: int


_OPTIONS = (
    "topic",
    "includeHeaders",
    "deliveryGuarantee",
    "transactionalIdPrefix",
    "batchId",
    "assumeDeterministicTasks",
)
_FORMER_NAME = "allowNonDeterministic"  # Of assumeDeterministicTasks; it said the opposite.
# Spark hands these over with the user's own.
_SPARKS_OWN = ("checkpointLocation", "queryName")
_NO_OPTIONS = {
    DELIVER_AT: "each row has its own; use a column of this name",
    TTL_MS: "each row has its own; use a column of this name",
    "path": "a topic is no path; use the option topic",
}
_NUMBERS = ("batch.size", "transaction.timeout.ms", "delivery.timeout.ms")
_PRODUCER = (
    *_NUMBERS,
    "compression.type",
    "max.in.flight.requests.per.connection",
)
_FLAGS = {"true": True, "false": False}


def sink_options(raw: Mapping[str, str], *, is_streaming: bool) -> SinkOptions:
    """Check the options of a query; raise `InvalidOption` with one sentence for the first mistake.

    The names may be in any case, as Spark hands them over in lower case.
    """
    options = {name.lower(): text for name, text in raw.items()}
    _check_names(options)
    guarantee = choice(
        options,
        "deliveryGuarantee",
        {guarantee.value: guarantee for guarantee in Guarantee},
        Guarantee.EXACTLY_ONCE.value,
    )
    # Never the name of a query or of a sink: several queries may share one.
    prefix = options.get("transactionalidprefix", "").strip() or None
    checkpoint = options.get("checkpointlocation", "").strip() or None
    has_identity = prefix is not None or checkpoint is not None
    if is_streaming and not has_identity and guarantee is Guarantee.EXACTLY_ONCE:
        raise InvalidOption(
            "an exactly-once sink needs an identity that lasts: set the option checkpointLocation "
            "on the query itself, or transactionalIdPrefix"
        )
    batch_id = _batch_id(options, prefix, is_streaming=is_streaming)
    topic = options.get("topic", "").strip()
    if "topic" in options and not topic:
        raise InvalidOption("option topic is empty")
    return SinkOptions(
        client=_client(options),
        topic=topic or None,
        transactional_id_prefix=prefix,
        checkpoint=checkpoint if is_streaming else None,
        batch_id=batch_id,
        guarantee=guarantee,
        assumes_deterministic_tasks=_assumes_deterministic_tasks(options),
        writes_headers=choice(options, "includeHeaders", _FLAGS, "true"),
        codec=_codec(options),
        batch_bytes_max=_number(options, "batch.size", BATCH_BYTES),
        in_flight_max=_in_flight_max(options),
        transaction_timeout_ms=_number(options, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
    )


def _batch_id(options: Mapping[str, str], prefix: str | None, *, is_streaming: bool) -> int | None:
    """The number of a batch query that may be run again, as in `foreachBatch`."""
    text = options.get("batchid")
    if is_streaming:
        if text is not None:
            raise InvalidOption(
                "option batchId is only for batch queries: a stream numbers its batches itself"
            )
        return None
    if (text is None) != (prefix is None):
        missing = "transactionalIdPrefix" if prefix is None else "batchId"
        raise InvalidOption(
            f"option {missing} is missing: a batch query is written once by transactionalIdPrefix, "
            "a name that lasts, together with batchId, a number that grows; "
            "millstream.spark.write_once sets both"
        )
    if text is None:
        return None
    try:
        batch_id = int(text)
    except ValueError:
        batch_id = -1
    if batch_id < 0:
        raise InvalidOption(f"option batchId is {text!r}, expected a whole number from 0 on")
    return batch_id


def _check_names(options: Mapping[str, str]) -> None:
    refused = {name.lower(): (name, why) for name, why in _NO_OPTIONS.items()}
    known = {name.lower() for name in (*_OPTIONS, *_SPARKS_OWN, _FORMER_NAME)}
    for name in options:
        if name in refused:
            option, why = refused[name]
            raise InvalidOption(f"option {option} is not supported in the sink: {why}")
        if not name.startswith(PREFIX) and name not in known:
            raise InvalidOption(f"there is no option {name} in the sink; {nearest(name, _OPTIONS)}")


def _assumes_deterministic_tasks(options: Mapping[str, str]) -> bool:
    name = "assumeDeterministicTasks"
    if _FORMER_NAME.lower() in options:
        if name.lower() in options:
            raise InvalidOption(f"{_FORMER_NAME} is the former name of {name}: set only {name}")
        _warn_of_former_name()
        name = _FORMER_NAME
    return choice(options, name, _FLAGS, "false")


@cache  # Spark asks for a writer twice in each batch.
def _warn_of_former_name() -> None:
    log.warning("option %s is now called assumeDeterministicTasks", _FORMER_NAME)


def _client(options: Mapping[str, str]) -> ClientSettings:
    own = {PREFIX + name for name in _PRODUCER}
    shared = {name: text for name, text in options.items() if name not in own}
    client = client_settings(shared, client_id="millstream-spark-sink", is_sink=True)
    return replace(client, patience_ms=_number(options, "delivery.timeout.ms", DELIVERY_TIMEOUT_MS))


def _codec(options: Mapping[str, str]) -> Codec:
    codecs = {codec.name.lower(): codec for codec in Codec}
    return choice(options, f"{PREFIX}compression.type", codecs, "none")


def _in_flight_max(options: Mapping[str, str]) -> int:
    count = _number(options, "max.in.flight.requests.per.connection", IN_FLIGHT_MAX)
    if count > IN_FLIGHT_MAX:
        raise InvalidOption(
            f"{PREFIX}max.in.flight.requests.per.connection is {count}, an idempotent producer has "
            f"at most {IN_FLIGHT_MAX}"
        )
    return count


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(PREFIX + name)
    return default if text is None else positive(PREFIX + name, text)
