"""What readers ask for and what they get: wants and slices, places and what is found there.

Values only; `partitions` does the work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millstream.errors import RequestError
from millstream.model import Offset, TopicPartition
from millstream.storage.producers import Aborted
from millstream.storage.segment import FileRange

ANY_EPOCH = -1


class Want(NamedTuple):
    """What a reader asks of one partition."""

    target: TopicPartition
    offset: Offset
    bytes_max: int
    leader_epoch: int = ANY_EPOCH  # The epoch the reader believes in; a mismatch is refused.


class Slice(NamedTuple):
    """What a reader gets of one partition: whole batches, or the reason why not."""

    target: TopicPartition
    records: FileRange | None = None
    high_watermark: Offset = -1
    last_stable_offset: Offset = -1
    log_start_offset: Offset = -1
    aborted: Sequence[Aborted] = ()
    error: RequestError | None = None

    @property
    def size(self) -> int:
        return 0 if self.records is None else self.records.size


@dataclass(frozen=True, slots=True)
class Earliest: ...


@dataclass(frozen=True, slots=True)
class Latest: ...


@dataclass(frozen=True, slots=True)
class AtTime:
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtMaxTimestamp: ...


@dataclass(frozen=True, slots=True)
class LastRecords:
    count: int


Place = Earliest | Latest | AtTime | AtMaxTimestamp | LastRecords


class Found(NamedTuple):
    """An offset, and the timestamp of its record where the question was about time, else -1."""

    offset: Offset
    timestamp_ms: int = -1
    leader_epoch: int = ANY_EPOCH
