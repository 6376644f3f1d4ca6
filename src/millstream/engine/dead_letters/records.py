"""Converts a record to its dead letter, and a dead letter back to its record.

Owns the headers of both directions. Pure. Key and value stay unchanged, so a reader of the
dead-letter topic sees the payload that failed. Headers that would take effect again, a delay or a
time to live, are left out: a dead letter does not expire.
"""

from typing import NamedTuple

import msgspec

from millstream.codec.records import Record
from millstream.engine.publish.subjects import subject_of
from millstream.internal_topics.deliveries import DeadLetterIntent
from millstream.model import Offset, TopicPartition
from millstream.names import (
    DELAY_HEADER,
    DELIVER_AT_HEADER,
    DLQ_ATTEMPTS_HEADER,
    DLQ_BATCH_HEADER,
    DLQ_ERROR_HEADER,
    DLQ_GROUP_HEADER,
    DLQ_OFFSET_HEADER,
    DLQ_PARTITION_HEADER,
    DLQ_REASON_HEADER,
    DLQ_SUBJECT_HEADER,
    DLQ_TOPIC_HEADER,
    SUBJECT_HEADER,
    TTL_HEADER,
)

GONE = "the record was gone from its topic before it could be copied"

_ACTING_HEADERS = frozenset({DELAY_HEADER, DELIVER_AT_HEADER, TTL_HEADER})
_ORIGIN_HEADERS = frozenset(
    {
        DLQ_TOPIC_HEADER,
        DLQ_PARTITION_HEADER,
        DLQ_OFFSET_HEADER,
        DLQ_GROUP_HEADER,
        DLQ_ATTEMPTS_HEADER,
        DLQ_REASON_HEADER,
        DLQ_ERROR_HEADER,
        DLQ_SUBJECT_HEADER,
    }
)


class Origin(NamedTuple):
    """The original record of a dead letter, as its headers describe it."""

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
        and header[0] != SUBJECT_HEADER
    ]
    headers = (
        *kept,
        (SUBJECT_HEADER, f"{intent.prefix}{subject}".encode()),
        (DLQ_TOPIC_HEADER, intent.topic.encode()),
        (DLQ_PARTITION_HEADER, b"%d" % intent.partition),
        (DLQ_OFFSET_HEADER, b"%d" % intent.offset),
        (DLQ_GROUP_HEADER, intent.group.encode()),
        (DLQ_ATTEMPTS_HEADER, b"%d" % intent.attempts),
        (DLQ_REASON_HEADER, intent.reason.encode()),
        (DLQ_ERROR_HEADER, intent.error.encode()),
        *((DLQ_SUBJECT_HEADER, value) for name, value in record.headers if name == SUBJECT_HEADER),
    )
    return record._replace(offset=0, timestamp=now_ms, headers=headers)


def raw_record(raw: bytes, offset: Offset, last_offset: Offset, timestamp: int) -> Record:
    """An unreadable batch as one record that holds its bytes."""
    return Record(offset, timestamp, None, raw, ((DLQ_BATCH_HEADER, b"%d" % last_offset),))


def lost_letter(intent: DeadLetterIntent, now_ms: int) -> Record:
    """Dead letter of a record that its log no longer has."""
    intent = msgspec.structs.replace(intent, error=GONE)
    return dead_letter(Record(0, now_ms, None, None), intent, now_ms)


def origin_of(letter: Record) -> Origin | None:
    """Origin of a dead letter; None for a record without the headers."""
    fields = {name: (value or b"").decode("utf-8", "replace") for name, value in letter.headers}
    try:
        return Origin(
            TopicPartition(fields[DLQ_TOPIC_HEADER], int(fields[DLQ_PARTITION_HEADER])),
            int(fields[DLQ_OFFSET_HEADER]),
            fields.get(DLQ_GROUP_HEADER, ""),
            int(fields.get(DLQ_ATTEMPTS_HEADER, "0")),
            fields.get(DLQ_REASON_HEADER, ""),
            fields.get(DLQ_ERROR_HEADER, ""),
        )
    except (KeyError, ValueError):
        return None


def revived(letter: Record, now_ms: int) -> Record:
    """The original record of a dead letter, to be delivered again."""
    headers = [
        (SUBJECT_HEADER if name == DLQ_SUBJECT_HEADER else name, value)
        for name, value in letter.headers
        if name == DLQ_SUBJECT_HEADER or (name not in _ORIGIN_HEADERS and name != SUBJECT_HEADER)
    ]
    return letter._replace(offset=0, timestamp=now_ms, headers=tuple(headers))
