"""Remembers which batches hold sampled records, so that a span of their readers has links to them.

Readers get whole batches, so a batch is the place of its records. Nothing is decoded for readers.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

from millstream.model import LogId, Offset
from millstream.tracing.spans import LINKS_MAX, TraceContext

SAMPLED_RECORDS_MAX = 10_000

_Batch = tuple[Offset, tuple[TraceContext, ...]]


class SampledBatches:
    """The newest batches with sampled records, `SAMPLED_RECORDS_MAX` records in all."""

    def __init__(self, records_max: int = SAMPLED_RECORDS_MAX) -> None:
        self._records_max = records_max
        self._records = 0
        self._batches: dict[LogId, list[_Batch]] = {}  # By base offset.
        self._oldest_first: deque[tuple[LogId, _Batch]] = deque()

    @property
    def has_any(self) -> bool:
        return bool(self._batches)

    def add(self, log_id: LogId, base_offset: Offset, contexts: Sequence[TraceContext]) -> None:
        batch = base_offset, tuple(contexts)
        insort(self._batches.setdefault(log_id, []), batch)
        self._oldest_first.append((log_id, batch))
        self._records += len(contexts)
        while self._records > self._records_max:
            self._forget(*self._oldest_first.popleft())

    def between(self, log_id: LogId, start: Offset, end: Offset) -> list[TraceContext]:
        """The contexts of batches that begin from `start` to before `end`, `LINKS_MAX` at most."""
        batches = self._batches.get(log_id)
        contexts: list[TraceContext] = []
        if batches is None:
            return contexts
        for at in range(bisect_left(batches, (start, ())), len(batches)):
            base_offset, sampled = batches[at]
            if base_offset >= end or len(contexts) >= LINKS_MAX:
                break
            contexts += sampled
        return contexts[:LINKS_MAX]

    def _forget(self, log_id: LogId, batch: _Batch) -> None:
        batches = self._batches[log_id]
        batches.remove(batch)
        self._records -= len(batch[1])
        if not batches:
            del self._batches[log_id]
