"""Converts a record to its dead letter, and a dead letter back to its record.

Owns the headers of both directions. Pure. Key and value stay unchanged, so a reader of the
dead-letter topic sees the payload that failed. Headers that would take effect again, a delay or a
time to live, are left out: a dead letter does not expire.
"""

from typing import NamedTuple

import msgspec

from millstream.codec.records import Record
from millstream.engine.produce.options import (
    DELAY_MS,
    DELIVER_AT,
    DLQ_ATTEMPTS,
    DLQ_ERROR,
    DLQ_GROUP,
    DLQ_OFFSET,
    DLQ_PARTITION,
    DLQ_REASON,
    DLQ_TOPIC,
    SUBJECT,
    TTL_MS,
)
from millstream.engine.publish.subjects import subject_of
from millstream.internal_topics.deliveries import DeadLetterIntent
from millstream.model import Offset, TopicPartition

DLQ_SUBJECT = "ms-dlq-subject"  # The record's own subject header, if it had one.
# Set when the value is a whole unreadable batch, as stored in the log: its last offset.
DLQ_BATCH = "ms-dlq-batch"
GONE = "the record was gone from its topic before it could be copied"

_ACTING_HEADERS = frozenset({DELAY_MS, DELIVER_AT, TTL_MS})
_ORIGIN_HEADERS = frozenset(
    {
        DLQ_TOPIC,
        DLQ_PARTITION,
        DLQ_OFFSET,
        DLQ_GROUP,
        DLQ_ATTEMPTS,
        DLQ_REASON,
        DLQ_ERROR,
        DLQ_SUBJECT,
    }
)


class Origin(NamedTuple):
    """What a dead letter says of its original record."""

    target: TopicPartition
    offset: Offset
    group: str  # The subscription that gave it up; empty if it had no name.
    attempts: int
    reason: str
    error: str


def dead_letter(record: Record, intent: DeadLetterIntent, now_ms: int) -> Record:
    """The record as a dead letter. Its timestamp is now, so retention counts from now."""
    subject = subject_of(intent.topic, record.headers)
    kept = [
        header
        for header in record.headers
        if header[0] not in _ACTING_HEADERS
        and header[0] not in _ORIGIN_HEADERS
        and header[0] != SUBJECT
    ]
    headers = (
        *kept,
        (SUBJECT, f"{intent.prefix}{subject}".encode()),
        (DLQ_TOPIC, intent.topic.encode()),
        (DLQ_PARTITION, b"%d" % intent.partition),
        (DLQ_OFFSET, b"%d" % intent.offset),
        (DLQ_GROUP, intent.group.encode()),
        (DLQ_ATTEMPTS, b"%d" % intent.attempts),
        (DLQ_REASON, intent.reason.encode()),
        (DLQ_ERROR, intent.error.encode()),
        *((DLQ_SUBJECT, value) for name, value in record.headers if name == SUBJECT),
    )
    return record._replace(offset=0, timestamp=now_ms, headers=headers)


def raw_record(raw: bytes, offset: Offset, last_offset: Offset, timestamp: int) -> Record:
    """An unreadable batch as one record that holds its bytes."""
    return Record(offset, timestamp, None, raw, ((DLQ_BATCH, b"%d" % last_offset),))


def lost_letter(intent: DeadLetterIntent, now_ms: int) -> Record:
    """Dead letter of a record that its log no longer has."""
    intent = msgspec.structs.replace(intent, error=GONE)
    return dead_letter(Record(0, now_ms, None, None), intent, now_ms)


def origin_of(letter: Record) -> Origin | None:
    """Origin of a dead letter; None for a record without the headers."""
    fields = {name: (value or b"").decode("utf-8", "replace") for name, value in letter.headers}
    try:
        return Origin(
            TopicPartition(fields[DLQ_TOPIC], int(fields[DLQ_PARTITION])),
            int(fields[DLQ_OFFSET]),
            fields.get(DLQ_GROUP, ""),
            int(fields.get(DLQ_ATTEMPTS, "0")),
            fields.get(DLQ_REASON, ""),
            fields.get(DLQ_ERROR, ""),
        )
    except (KeyError, ValueError):
        return None


def revived(letter: Record, now_ms: int) -> Record:
    """The original record of a dead letter, to be delivered again."""
    headers = [
        (SUBJECT if name == DLQ_SUBJECT else name, value)
        for name, value in letter.headers
        if name == DLQ_SUBJECT or (name not in _ORIGIN_HEADERS and name != SUBJECT)
    ]
    return letter._replace(offset=0, timestamp=now_ms, headers=tuple(headers))
