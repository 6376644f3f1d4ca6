"""Decides what leaves a log: segments by age and size, and the range that compaction rewrites.

Decisions only, as functions of a few numbers per segment. Retention returns a new log start, which
replication agrees on before `Log.advance_start` removes anything; `compaction` does the rewriting.

Invariant: only sealed segments below `limit_offset` are considered. The caller passes the high
watermark for retention, the last stable offset for compaction.

A topic's time to live drops whole segments like its retention. Records with a time to live of their
own are dropped by rewriting, in compacted topics and in others.

The age of a segment is that of its newest record timestamp, as in Kafka. A segment whose records
have none (-1) is of unknown age: it goes with the first later segment whose age is known and past,
or by size. Timestamps in the future keep a segment until that future has come.
"""

from collections.abc import Sequence
from typing import NamedTuple

from millstream.model import Offset
from millstream.settings import UNLIMITED, Switch, TopicSettings

NOTHING_DUE = -1


class SegmentFacts(NamedTuple):
    """As much of a segment as a decision needs."""

    base_offset: Offset
    end_offset: Offset
    size: int
    max_timestamp: int  # -1 if no record has one.


class Cleaned(NamedTuple):
    """How far a log is compacted, and when something in there falls due."""

    end_offset: Offset = 0  # Below it every key stands once.
    due_ms: int = NOTHING_DUE  # The first delete horizon below it.


class CompactionRange(NamedTuple):
    """The segments from the log start to `end_offset` are to be rewritten."""

    dirty_start: Offset
    end_offset: Offset


def retention_start(
    sealed: Sequence[SegmentFacts],
    *,
    active_bytes: int,
    limit_offset: Offset,
    now_ms: int,
    settings: TopicSettings,
) -> Offset | None:
    """Where the log should start by its retention settings; None if it may stay as it is."""
    if not settings.cleanup_policy.deletes:
        return None
    removable = _below(sealed, limit_offset)
    total_bytes = active_bytes + sum(segment.size for segment in sealed)
    by_age = _expired_by_age(removable, now_ms=now_ms, retention_ms=_age_ms_max(settings))
    by_size = _expired_by_size(removable, total_bytes, retention_bytes=settings.retention_bytes)
    count = max(by_age, by_size)
    return removable[count - 1].end_offset if count else None


def should_seal(active: SegmentFacts, *, now_ms: int, settings: TopicSettings) -> bool:
    """Whether the active segment should be sealed now, although nothing is appended to it.

    Appends seal by age too, but a log without appends would keep its last records for ever:
    past their retention, or out of reach of compaction.
    """
    if active.max_timestamp < 0:
        return False  # Empty, or of unknown age.
    age_ms, age_ms_max = now_ms - active.max_timestamp, _age_ms_max(settings)
    is_expired = age_ms_max != UNLIMITED and age_ms > age_ms_max
    return is_expired or (rewrites(settings) and age_ms > segment_ms_max(settings))


def next_due_ms(
    sealed: Sequence[SegmentFacts], active: SegmentFacts | None, *, settings: TopicSettings
) -> int | None:
    """The first time at which `should_seal` or the age of a segment may change the log, unless
    something is written before; None if there is none.
    """
    age_ms_max, times_ms = _age_ms_max(settings), []
    if active is not None and active.max_timestamp >= 0:
        if age_ms_max != UNLIMITED:
            times_ms.append(active.max_timestamp + age_ms_max + 1)
        if rewrites(settings):
            times_ms.append(active.max_timestamp + segment_ms_max(settings) + 1)
    if settings.cleanup_policy.deletes and age_ms_max != UNLIMITED:
        # Segments of unknown age go with the first one of a known age.
        known = next((each for each in sealed if each.max_timestamp >= 0), None)
        if known is not None:
            times_ms.append(known.max_timestamp + age_ms_max + 1)
    return min(times_ms, default=None)


def segment_ms_max(settings: TopicSettings) -> int:
    """How long a segment takes records. Half of `max_compaction_lag_ms` is for its first record to
    wait in it, the other half for `compaction_range` to find it overdue once it is sealed."""
    if not settings.cleanup_policy.compacts:
        return settings.segment_ms
    return min(settings.segment_ms, settings.max_compaction_lag_ms // 2)


def rewrites(settings: TopicSettings) -> bool:
    """Whether single records go from the log, besides whole segments."""
    return settings.cleanup_policy.compacts or settings.message_ttl_headers is Switch.ON


def compaction_range(
    sealed: Sequence[SegmentFacts],
    *,
    cleaned: Cleaned,
    limit_offset: Offset,
    now_ms: int,
    settings: TopicSettings,
) -> CompactionRange | None:
    """What to compact; None if too little is dirty and no tombstone, marker or record is due.

    A segment younger than `min_compaction_lag_ms` ends the range. Records without a timestamp
    have no age that could be waited for. A limit below the clean part is not known again since a
    restart.
    """
    if not rewrites(settings) or limit_offset < cleaned.end_offset:
        return None
    clean_bytes = dirty_bytes = 0
    end_offset = None
    is_due = cleaned.due_ms != NOTHING_DUE and cleaned.due_ms <= now_ms
    for segment in _below(sealed, limit_offset):
        if segment.end_offset <= cleaned.end_offset:
            clean_bytes += segment.size
        elif _is_past_lag(segment, now_ms=now_ms, lag_ms=settings.min_compaction_lag_ms):
            dirty_bytes += segment.size
            is_due = is_due or _is_overdue(segment, now_ms, settings)
        else:
            break
        end_offset = segment.end_offset
    if end_offset is None:
        return None
    ratio = dirty_bytes / max(1, clean_bytes + dirty_bytes)
    if not is_due and (dirty_bytes == 0 or ratio < settings.min_cleanable_dirty_ratio):
        return None
    return CompactionRange(min(cleaned.end_offset, end_offset), end_offset)


def _age_ms_max(settings: TopicSettings) -> int:
    """How old a record may grow."""
    ages = [settings.message_ttl_ms]
    if settings.cleanup_policy.deletes:
        ages.append(settings.retention_ms)
    return min((age_ms for age_ms in ages if age_ms != UNLIMITED), default=UNLIMITED)


def _below(sealed: Sequence[SegmentFacts], limit_offset: Offset) -> Sequence[SegmentFacts]:
    for count, segment in enumerate(sealed):
        if segment.end_offset > limit_offset:
            return sealed[:count]
    return sealed


def _is_past_lag(segment: SegmentFacts, *, now_ms: int, lag_ms: int) -> bool:
    """Without a lag no time matters, not even one in the future."""
    return lag_ms == 0 or segment.max_timestamp < 0 or now_ms - segment.max_timestamp >= lag_ms


def _is_overdue(segment: SegmentFacts, now_ms: int, settings: TopicSettings) -> bool:
    """Whether the segment is compacted now, however little of the log is dirty."""
    age_ms = now_ms - segment.max_timestamp
    return segment.max_timestamp >= 0 and age_ms >= settings.max_compaction_lag_ms // 2


def _expired_by_age(removable: Sequence[SegmentFacts], *, now_ms: int, retention_ms: int) -> int:
    """How many of the oldest segments are past their age."""
    if retention_ms == UNLIMITED:
        return 0
    expired = 0
    for count, segment in enumerate(removable, start=1):
        if segment.max_timestamp < 0:
            continue
        if now_ms - segment.max_timestamp <= retention_ms:
            break  # Removing behind a survivor would leave a hole.
        expired = count
    return expired


def _expired_by_size(
    removable: Sequence[SegmentFacts], total_bytes: int, *, retention_bytes: int
) -> int:
    """How many of the oldest segments can go with the rest still holding `retention_bytes`."""
    if retention_bytes < 0:
        return 0
    for count, segment in enumerate(removable):
        total_bytes -= segment.size
        if total_bytes < retention_bytes:
            return count
    return len(removable)
