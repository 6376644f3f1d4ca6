"""What a topic can be told: retention, segments, compaction, sizes, timestamps, what it shows.

Owns the settings, their defaults, their bounds and the reading of them from text. The same object
travels from the control ledger to the log; each layer reads the fields it carries out. Names are
Kafka's with `_` for `.`, so that the Kafka protocol needs no table. Settings of Kafka that mean
nothing here are in `STORED_SETTINGS`: checked by Kafka's rules, kept and shown, without effect.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, NamedTuple

from millstream.errors import InvalidSetting

UNLIMITED = -1
_DAY_MS = 24 * 60 * 60 * 1000
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class CleanupPolicy(Enum):
    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_AND_DELETE = "compact,delete"
    NONE = ""  # All records are kept (KIP-1161).

    @property
    def compacts(self) -> bool:
        # By identity: a set of enum members costs 0.4 us, and each append asks twice.
        return self is CleanupPolicy.COMPACT or self is CleanupPolicy.COMPACT_AND_DELETE

    @property
    def deletes(self) -> bool:
        return self is CleanupPolicy.DELETE or self is CleanupPolicy.COMPACT_AND_DELETE


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
    # Used where the broker compresses. Gzip: -1 is zlib's default; lz4: 9 is the fast compressor.
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_validation_type: ValidationType = ValidationType.HEADER
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = _INT64_MAX
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _INT64_MAX
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
        if self.compression_gzip_level == 0:
            raise InvalidSetting("compression_gzip_level = 0 is not -1 or in 1 to 9")


BOUNDS: dict[str, tuple[float, float]] = {
    "retention_ms": (UNLIMITED, _INT64_MAX),
    "retention_bytes": (-_INT64_MAX - 1, _INT64_MAX),
    "segment_bytes": (1024, _INT32_MAX),
    "segment_ms": (1, _INT64_MAX),
    "index_interval_bytes": (0, _INT32_MAX),
    "max_message_bytes": (0, _INT32_MAX),
    "compression_gzip_level": (-1, 9),
    "compression_lz4_level": (1, 17),
    "compression_zstd_level": (-131_072, 22),
    "message_timestamp_before_max_ms": (0, _INT64_MAX),
    "message_timestamp_after_max_ms": (0, _INT64_MAX),
    "delete_retention_ms": (0, _INT64_MAX),
    "min_compaction_lag_ms": (0, _INT64_MAX),
    "max_compaction_lag_ms": (1, _INT64_MAX),
    "min_cleanable_dirty_ratio": (0.0, 1.0),
    "min_insync_replicas": (1, _INT32_MAX),
    "message_ttl_ms": (UNLIMITED, _INT64_MAX),
    "message_id_window_ms": (0, 7 * _DAY_MS),
    "message_id_count_max": (0, 10_000_000),
}


def check_boolean(text: str) -> None:
    """Raise `ValueError` unless Kafka reads `text` as true or false."""
    if text.strip().lower() not in {"true", "false"}:
        raise ValueError("true or false")


def check_replicas(text: str) -> None:
    """Raise `ValueError` unless `text` names replicas as partition:node, or all with *."""
    replicas = [part.strip() for part in text.split(",")] if text.strip() else []
    if replicas != ["*"] and not all(re.fullmatch(r"[0-9]+:[0-9]+", one) for one in replicas):
        raise ValueError("'*' or a list of partition:node")


def whole_number(low: int, high: int) -> Callable[[str], None]:
    """A check that raises `ValueError` unless its text is a whole number from `low` to `high`."""

    def check(text: str) -> None:
        expected = f"a whole number in {low} to {high}"
        try:
            is_inside = low <= int(text) <= high
        except ValueError:
            raise ValueError(expected) from None
        if not is_inside:
            raise ValueError(expected)

    return check


class StoredSetting(NamedTuple):
    """A setting that is checked, kept and shown. `reason` says why it has no effect."""

    default: str
    check: Callable[[str], None]
    reason: str


_SYNCED = "When records are synced is said by the node's durability."
_LOCAL = "Nothing is tiered: all records are local."
_THROTTLED = "Replication is not throttled."

STORED_SETTINGS: dict[str, StoredSetting] = {
    "unclean_leader_election_enable": StoredSetting(
        "false", check_boolean, "Only a replica that has all committed records ever leads."
    ),
    "preallocate": StoredSetting("false", check_boolean, "Files grow with what is written."),
    "flush_messages": StoredSetting(str(_INT64_MAX), whole_number(1, _INT64_MAX), _SYNCED),
    "flush_ms": StoredSetting(str(_INT64_MAX), whole_number(0, _INT64_MAX), _SYNCED),
    "file_delete_delay_ms": StoredSetting(
        "60000", whole_number(0, _INT64_MAX), "A deleted file stays readable to its readers."
    ),
    "segment_jitter_ms": StoredSetting(
        "0", whole_number(0, _INT64_MAX), "Segments end without a random delay."
    ),
    "segment_index_bytes": StoredSetting(
        "10485760", whole_number(4, _INT32_MAX), "Indexes take the space that their entries need."
    ),
    "local_retention_ms": StoredSetting("-2", whole_number(-2, _INT64_MAX), _LOCAL),
    "local_retention_bytes": StoredSetting("-2", whole_number(-2, _INT64_MAX), _LOCAL),
    "remote_log_copy_disable": StoredSetting("false", check_boolean, _LOCAL),
    "remote_log_delete_on_disable": StoredSetting("false", check_boolean, _LOCAL),
    "leader_replication_throttled_replicas": StoredSetting("", check_replicas, _THROTTLED),
    "follower_replication_throttled_replicas": StoredSetting("", check_replicas, _THROTTLED),
}

_FIELDS = {field.name: field.type for field in fields(TopicSettings)}


def with_overrides(base: TopicSettings, overrides: dict[str, str]) -> TopicSettings:
    """Lay text values over `base`; raise `InvalidSetting` that names the key and what it takes."""
    values = {name: _parse(name, text) for name, text in overrides.items()}
    return replace(base, **{name: values[name] for name in values if name in _FIELDS})


def check_together(settings: TopicSettings) -> None:
    """Raise `InvalidSetting` for two values that are valid alone and not together."""
    low, high = settings.min_compaction_lag_ms, settings.max_compaction_lag_ms
    if low > high:
        raise InvalidSetting(
            f"min_compaction_lag_ms = {low} is more than max_compaction_lag_ms = {high}"
        )


def effective_settings(
    base: TopicSettings, overrides: dict[str, str]
) -> tuple[TopicSettings, list[str]]:
    """Lay committed overrides over `base` and return it with a sentence for each that does not fit.

    Never raises: overrides in the control log were valid when they were written, perhaps by another
    version with other rules. A number out of bounds counts as the nearest bound, any other misfit
    as the default.
    """
    try:
        return with_overrides(base, overrides), []
    except InvalidSetting:
        pass
    settings, problems = base, []
    for name, text in overrides.items():
        if name in STORED_SETTINGS:
            continue  # Without effect, whatever it says.
        if name not in _FIELDS:
            problems.append(f"this version has no setting {name!r}; it is not carried out")
            continue
        try:
            value = _parse(name, text)
            low, high = BOUNDS.get(name, (value, value))
            nearest = min(max(value, low), high)
            settings = replace(settings, **{name: nearest})
        except InvalidSetting as problem:
            problems.append(f"{problem}; the default is used")
            continue
        if nearest != value:
            problems.append(f"{name} = {value} is not in {low} to {high}; {nearest} is used")
    return settings, problems


def _parse(name: str, text: str) -> Any:  # One of the field types of TopicSettings.
    if name in STORED_SETTINGS:
        return _checked(name, text)
    kind = _FIELDS.get(name)
    if kind is None:
        known = ", ".join([*_FIELDS, *STORED_SETTINGS])
        raise InvalidSetting(f"there is no topic setting {name!r}; there are {known}")
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


def _checked(name: str, text: str) -> str:
    try:
        STORED_SETTINGS[name].check(text)
    except ValueError as expected:
        raise InvalidSetting(f"{name} = {text!r} is not {expected}") from None
    return text.strip()
