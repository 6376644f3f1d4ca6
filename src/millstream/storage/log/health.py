"""Figures of a log for operators."""

from collections.abc import Sequence
from typing import NamedTuple

from millstream.model import Offset
from millstream.storage.log.segment import Segment


class LogHealth(NamedTuple):
    """How large a log is, and how well it is indexed."""

    segment_count: int
    size_bytes: int
    start_offset: Offset
    end_offset: Offset
    index_entries: int
    index_bytes_per_entry_max: int  # The most bytes that a search may have to read.
    index_gaps: int  # Sealed segments without an index on disk.


def health_of(
    segments: Sequence[Segment], start_offset: Offset, end_offset: Offset, index_gaps: int
) -> LogHealth:
    tables = [(segment, segment.table) for segment in segments]
    entries = [s.entry_count if table is None else len(table) for s, table in tables]
    widest = [s.widest if table is None else table.widest for s, table in tables]
    return LogHealth(
        segment_count=len(segments),
        size_bytes=sum(segment.size for segment in segments),
        start_offset=start_offset,
        end_offset=end_offset,
        index_entries=sum(entries),
        index_bytes_per_entry_max=max(widest, default=0),
        index_gaps=index_gaps,
    )
