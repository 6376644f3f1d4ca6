"""Settings of a topic: retention, segments, compaction, sizes, timestamps, views.

Owns their defaults, meanings and bounds, and parses them from text. The control log stores the
overrides of a topic; each layer below reads the fields that it applies. Names are Kafka's with `_`
for `.`; settings that Kafka does not have begin with `message_`, `schema_`, `view_` or `index_`, or
are `owner`, `tags`, `purpose` and `mask_paths`.
Settings of Kafka that mean nothing here are in `STORED_SETTINGS`: checked by Kafka's rules, kept
and shown, no effect.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_args

from millstream.errors import InvalidSetting
from millstream.names import MESSAGE_ID_HEADER, TTL_HEADER

T = TypeVar("T")

UNLIMITED = -1
_MEANING = "meaning"  # The key in the metadata of a field.
_OF = "of"  # The key for the dataclass of each table in a table of tables.
NAME = "NAME"  # Stands for the name of a table that users choose.
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


class SchemaCheck(Enum):
    OFF = "off"
    ID = "id"  # A live version of the subject has the schema that the record names.
    FULL = "full"  # The bytes are a value of that schema as well.


class SchemaAction(Enum):
    REJECT = "reject"
    DEAD_LETTER = "dead-letter"
    WARN = "warn"


class Unframed(Enum):
    REJECT = "reject"
    ACCEPT = "accept"


class SubjectStrategy(Enum):
    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic-record"


def setting(default: T, meaning: str) -> T:
    """A field of a dataclass of settings: its default, and its meaning for documents and tools."""
    return field(default=default, metadata={_MEANING: meaning})


def tables(kind: type[T], meaning: str) -> Mapping[str, T]:
    """A field for tables whose names users choose, such as `[listener.NAME]`."""
    # Any: `field` returns what the annotation says.
    made: Any = field(
        default_factory=lambda: MappingProxyType({}), metadata={_MEANING: meaning, _OF: kind}
    )
    return made  # type: ignore[no-any-return]


def meanings(kind: type, prefix: str = "") -> dict[str, str]:
    """The meaning of each setting of a dataclass, and of those in it, by dotted key."""
    texts: dict[str, str] = {}
    for part in fields(kind):
        inner = table_of(part.type)
        if (named := part.metadata.get(_OF)) is not None:
            texts |= meanings(named, f"{prefix}{part.name}.{NAME}.")
        elif inner is not None:
            texts |= meanings(inner, f"{prefix}{part.name}.")
        else:
            texts[prefix + part.name] = part.metadata[_MEANING]
    return texts


def table_of(annotation: object) -> type | None:
    """The dataclass that a field holds, or may hold; None for a plain value."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and is_dataclass(kind) and _is_table(kind):
            return kind
    return None


def _is_table(kind: type) -> bool:
    return all(_MEANING in part.metadata or table_of(part.type) for part in fields(kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Every setting of a topic, with its default and its meaning."""

    cleanup_policy: CleanupPolicy = setting(
        CleanupPolicy.DELETE, "Whether old records are deleted, compacted by key, or both."
    )
    retention_ms: int = setting(
        7 * _DAY_MS, "How old records may grow before they are deleted; -1: ever."
    )
    retention_bytes: int = setting(UNLIMITED, "How large a partition may grow; -1: without end.")
    segment_bytes: int = setting(2**30, "How large a file of records may grow.")
    segment_ms: int = setting(7 * _DAY_MS, "How long a file of records takes new ones.")
    index_interval_bytes: int = setting(4096, "How many bytes lie between two index entries.")
    max_message_bytes: int = setting(2**20 + 12, "How large a batch of records may be.")
    compression_type: CompressionType = setting(
        CompressionType.PRODUCER, "The codec that records are kept in; producer: as sent."
    )
    # Used where the broker compresses. Gzip: -1 is zlib's default; lz4: 9 is the fast compressor.
    compression_gzip_level: int = setting(-1, "The level where the broker compresses with gzip.")
    compression_lz4_level: int = setting(9, "The level where the broker compresses with lz4.")
    compression_zstd_level: int = setting(3, "The level where the broker compresses with zstd.")
    message_validation_type: ValidationType = setting(
        ValidationType.HEADER,
        "What of a batch is checked: header, or records as well. Millstream's own.",
    )
    message_timestamp_type: TimestampType = setting(
        TimestampType.CREATE_TIME, "Whose clock stamps records."
    )
    message_timestamp_before_max_ms: int = setting(
        _INT64_MAX, "How far behind the broker's clock a timestamp may be."
    )
    message_timestamp_after_max_ms: int = setting(
        60 * 60 * 1000, "How far ahead of the broker's clock a timestamp may be."
    )
    delete_retention_ms: int = setting(_DAY_MS, "How long compaction keeps a tombstone.")
    min_compaction_lag_ms: int = setting(0, "How long a record is safe from compaction.")
    max_compaction_lag_ms: int = setting(
        _INT64_MAX, "How long a record may wait for compaction, however little of the log is new."
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5, "How much of a log is new when it is compacted again."
    )
    min_insync_replicas: int = setting(1, "How many replicas must be in step for acks=all.")
    # A record that old is not returned to any reader, and its space is reclaimed.
    message_ttl_ms: int = setting(
        UNLIMITED, "The age at which a record is no longer shown; -1: none. Millstream's own."
    )
    # A header may shorten the time to live. Looking for it costs a little.
    message_ttl_headers: Switch = setting(
        Switch.OFF, f"Whether the header {TTL_HEADER} of records is looked at. Millstream's own."
    )
    # Looking for headers costs most where records are compressed.
    message_queue_headers: Switch = setting(
        Switch.ON, "Whether records may be delayed or taken once by header. Millstream's own."
    )
    # Records with an id that the topic has seen within this time and count are taken once.
    message_id_window_ms: int = setting(
        5 * 60 * 1000,
        f"How long a record's {MESSAGE_ID_HEADER} is remembered; 0: not at all. Millstream's own.",
    )
    message_id_count_max: int = setting(
        100_000, f"How many of a topic's {MESSAGE_ID_HEADER} are remembered. Millstream's own."
    )
    index_key: bool = setting(
        False, "Whether filters find records by key without reading all. Millstream's own."
    )
    index_headers: str = setting(
        "", "The headers by which filters find records, separated by commas. Millstream's own."
    )
    # The schema registry's; the names of Confluent's settings mean the same.
    schema_validation_value: SchemaCheck = setting(
        SchemaCheck.OFF, "Whether values are checked against the registry. Millstream's own."
    )
    schema_validation_key: SchemaCheck = setting(
        SchemaCheck.OFF, "Whether keys are checked against the registry. Millstream's own."
    )
    schema_validation_action: SchemaAction = setting(
        SchemaAction.REJECT,
        "What happens to a record that does not fit its schema. Millstream's own.",
    )
    schema_validation_unframed: Unframed = setting(
        Unframed.REJECT, "What happens to a record that names no schema. Millstream's own."
    )
    schema_subject_strategy: SubjectStrategy = setting(
        SubjectStrategy.TOPIC,
        "What names the subject of a record's schema. Millstream's own.",
    )
    # A view shows those records of another topic that its filter takes, and has none of its own.
    view_of: str = setting("", "The topic whose records this view shows. Millstream's own.")
    view_where: str = setting("", "The filter of a view: which records it shows. Millstream's own.")
    owner: str = setting(
        "",
        "The user or role, such as `User:ann`, that may do everything with this topic and give "
        "rights to it. Millstream's own.",
    )
    tags: str = setting(
        "", "Words to find the topic by, such as `pii,gold`: `topic list --tag`. Millstream's own."
    )
    purpose: str = setting("", "What the topic is for, in a sentence. Millstream's own.")
    mask_paths: str = setting(
        "",
        "Parts of records that REST and the console hide from users who may not alter the topic, "
        "such as `$.card.number,header.token,key`. Millstream's own.",
    )

    @property
    def checks_schemas(self) -> bool:
        # By identity: each append asks.
        return (
            self.schema_validation_value is not SchemaCheck.OFF
            or self.schema_validation_key is not SchemaCheck.OFF
        )

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidSetting(f"{name} = {value} is not in {low} to {high}")
        if self.compression_gzip_level == 0:
            raise InvalidSetting("compression_gzip_level = 0 is not -1 or in 1 to 9")
        _check_indexed(self.index_headers)
        if self.owner:
            _check_owner(self.owner)
        tags_of(self.tags)
        if len(self.purpose) > PURPOSE_LENGTH_MAX:
            raise InvalidSetting(
                f"purpose has {len(self.purpose)} characters, at most {PURPOSE_LENGTH_MAX}"
            )


INDEXED_HEADERS_MAX = 16  # Of one topic.
INDEXED_HEADER_LENGTH_MAX = 256


def _check_indexed(text: str) -> None:
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    if len(names) > INDEXED_HEADERS_MAX:
        raise InvalidSetting(f"index_headers has {len(names)} names, at most {INDEXED_HEADERS_MAX}")
    for name in names:
        if not 0 < len(name) <= INDEXED_HEADER_LENGTH_MAX:
            raise InvalidSetting(
                f"index_headers = {text[:100]!r} has a name of {len(name)} characters, "
                f"expected 1 to {INDEXED_HEADER_LENGTH_MAX}"
            )


# What is said of a single topic: no node has a default for it.
OF_ONE_TOPIC = frozenset({"view_of", "view_where", "owner", "tags", "purpose", "mask_paths"})
TAGS_MAX = 16  # Of one topic.
PURPOSE_LENGTH_MAX = 1_024
_TAG = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)


def tags_of(text: str) -> tuple[str, ...]:
    """The words of the setting `tags`; raise `InvalidSetting`."""
    tags = tuple(tag.strip() for tag in text.split(",")) if text.strip() else ()
    if len(tags) > TAGS_MAX:
        raise InvalidSetting(f"tags has {len(tags)} words, at most {TAGS_MAX}")
    for tag in tags:
        if _TAG.fullmatch(tag) is None:
            raise InvalidSetting(
                f"tags = {text[:100]!r}: {tag[:40]!r} is not 1 to 32 of a-z, 0-9 and -"
            )
    return tags


def _check_owner(text: str) -> None:
    kind, _, name = text.partition(":")
    if kind not in {"User", "Role"} or not name or name == "*":
        raise InvalidSetting(f"owner = {text[:100]!r} is not User:NAME or Role:NAME")


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


_REPLICA = re.compile(r"[0-9]+:[0-9]+")


def check_replicas(text: str) -> None:
    """Raise `ValueError` unless `text` names replicas as partition:node, or all with *."""
    replicas = [part.strip() for part in text.split(",")] if text.strip() else []
    if replicas != ["*"] and not all(_REPLICA.fullmatch(replica) for replica in replicas):
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

_FIELDS = {part.name: part.type for part in fields(TopicSettings)}
BUILT_IN_SETTINGS = TopicSettings()


def with_overrides(base: TopicSettings, overrides: dict[str, str]) -> TopicSettings:
    """Lay text values over `base`; raise `InvalidSetting` that names the key and what it takes."""
    if not overrides:
        return base  # As for most topics: to make another one checks all of its values again.
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
            problems.append(f"this version has no setting {name!r}; it has no effect")
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
        value = ",".join(sorted(part.strip() for part in text.split(",")))
        for member in kind:
            if member.value == value:
                return member
        raise InvalidSetting(f"{name} = {text!r} is not one of {[m.value for m in kind]}")
    if kind is str:
        return text
    if kind is bool:
        if (word := text.strip().lower()) not in {"true", "false"}:
            raise InvalidSetting(f"{name} = {text!r} is not true or false")
        return word == "true"
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
