"""What a topic can be told: retention, segments, compaction, sizes, timestamps, what it shows.

Owns the settings, their defaults, their bounds and the reading of them from text. The same object
travels from the control ledger to the log; each layer reads the fields it carries out. Names are
Kafka's with `_` for `.`, so that the Kafka door needs no table.
"""

from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

from millstream.errors import InvalidSetting

UNLIMITED = -1
_DAY_MS = 24 * 60 * 60 * 1000
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class CleanupPolicy(Enum):
    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_AND_DELETE = "compact,delete"

    @property
    def compacts(self) -> bool:
        return self is not CleanupPolicy.DELETE

    @property
    def deletes(self) -> bool:
        return self is not CleanupPolicy.COMPACT


class TimestampType(Enum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CompressionType(Enum):
    PRODUCER = "producer"  # As the producer sent it.
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Switch(Enum):
    OFF = "off"
    ON = "on"


class ValidationType(Enum):
    HEADER = "header"  # Header and checksum: a few microseconds a batch.
    RECORDS = "records"  # Every record as well: a few microseconds a record.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Every setting of a topic, with the default that holds where nothing is said."""

    cleanup_policy: CleanupPolicy = CleanupPolicy.DELETE
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = UNLIMITED
    segment_bytes: int = 2**30
    segment_ms: int = 7 * _DAY_MS
    index_interval_bytes: int = 4096
    max_message_bytes: int = 2**20 + 12
    compression_type: CompressionType = CompressionType.PRODUCER
    message_validation_type: ValidationType = ValidationType.HEADER
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = _INT64_MAX
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    min_cleanable_dirty_ratio: float = 0.5
    min_insync_replicas: int = 1
    # A record is shown to nobody once it is that old, and its space is reclaimed.
    message_ttl_ms: int = UNLIMITED
    # Whether records may bring a shorter time to live in a header. Looking costs a little.
    message_ttl_headers: Switch = Switch.OFF
    # Whether records may ask for something by header. Looking costs most where they are compressed.
    message_queue_headers: Switch = Switch.ON
    # Records with an id that the topic has seen within this time and count are taken once.
    message_id_window_ms: int = 5 * 60 * 1000
    message_id_count_max: int = 100_000
    # A view shows those records of another topic that its filter takes, and has none of its own.
    view_of: str = ""
    view_where: str = ""

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidSetting(f"{name} = {value} is not in {low} to {high}")


BOUNDS: dict[str, tuple[float, float]] = {
    "retention_ms": (UNLIMITED, _INT64_MAX),
    "retention_bytes": (UNLIMITED, _INT64_MAX),
    "segment_bytes": (1024, _INT32_MAX),
    "segment_ms": (1, _INT64_MAX),
    "index_interval_bytes": (64, _INT32_MAX),
    "max_message_bytes": (0, _INT32_MAX),
    "message_timestamp_before_max_ms": (0, _INT64_MAX),
    "message_timestamp_after_max_ms": (0, _INT64_MAX),
    "delete_retention_ms": (0, _INT64_MAX),
    "min_compaction_lag_ms": (0, _INT64_MAX),
    "min_cleanable_dirty_ratio": (0.0, 1.0),
    "min_insync_replicas": (1, _INT32_MAX),
    "message_ttl_ms": (UNLIMITED, _INT64_MAX),
    "message_id_window_ms": (0, 7 * _DAY_MS),
    "message_id_count_max": (0, 10_000_000),
}

_FIELDS = {field.name: field.type for field in fields(TopicSettings)}


def with_overrides(base: TopicSettings, overrides: dict[str, str]) -> TopicSettings:
    """Lay text values over `base`; raise `InvalidSetting` that names the key and what it takes."""
    return replace(base, **{name: _parse(name, text) for name, text in overrides.items()})


def _parse(name: str, text: str) -> Any:  # One of the field types of TopicSettings.
    kind = _FIELDS.get(name)
    if kind is None:
        raise InvalidSetting(f"there is no topic setting {name!r}; there are {', '.join(_FIELDS)}")
    if isinstance(kind, type) and issubclass(kind, Enum):
        # Kafka users write the two policies in either order.
        wanted = ",".join(sorted(part.strip() for part in text.split(",")))
        for member in kind:
            if member.value == wanted:
                return member
        raise InvalidSetting(f"{name} = {text!r} is not one of {[m.value for m in kind]}")
    if kind is str:
        return text
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise InvalidSetting(f"{name} = {text!r} is not {expected}") from None
