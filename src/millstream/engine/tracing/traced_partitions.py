"""Partitions whose appends and reads leave spans, for nodes with a `tracing.endpoint`.

A class of its own: a node without tracing pays nothing for each request. A batch is searched for
the bytes of a trace context; the records are never decoded nor changed. One that is compressed is
unpacked for that after it was admitted.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from millstream.base_error import MillstreamError
from millstream.codec.batch import HEADER_BYTES, is_compressed, read_header
from millstream.engine.partitions.service import Partitions
from millstream.engine.partitions.slices import Slice, Want
from millstream.engine.produce.options import unpack_small
from millstream.engine.tracing.sampled_batches import SampledBatches
from millstream.errors import RequestError
from millstream.model import SYSTEM, Acks, Appended, Buffer, LogId, Offset, Session, TopicPartition
from millstream.tracing import conventions
from millstream.tracing.spans import Span, TraceContext, Tracer, sampled_contexts

SEARCHED_BYTES_MAX = 2**20  # Of the records of one batch, half a millisecond.
# After a batch was unpacked for a time of t, the next is unpacked after a time of 19 t.
UNPACKING_SHARE_MAX = 0.05
UNPACKING_S_MAX = 0.001  # A small batch takes no longer, unless other processes do.


class _Traced(NamedTuple):
    """An append that leaves a span."""

    session: Session
    target: TopicPartition
    acks: Acks
    contexts: Sequence[TraceContext]
    record_count: int
    log_id: LogId
    began_ns: int
    began_s: float
    written_ns: int | None  # None: not written when `append` returned.


class TracedPartitions(Partitions):
    def __init__(self, tracer: Tracer, *services: Any, **settings: Any) -> None:
        super().__init__(*services, **settings)  # As `Partitions` has them.
        self._tracer = tracer
        self._sampled = SampledBatches()
        self._unpacks_at_s = 0.0

    def append(
        self,
        session: Session,
        target: TopicPartition,
        data: Buffer,
        acks: Acks,
        **options: Any,  # As `Partitions.append` has them.
    ) -> asyncio.Future[Appended]:
        is_searched = len(data) > HEADER_BYTES and not is_compressed(data)
        # Searched with its header, and before the clocks are read: most batches leave no span.
        contexts = self._contexts(data) if is_searched else []
        if contexts is None or session.principal == SYSTEM:
            return super().append(session, target, data, acks, **options)
        began_ns, began_s = self._tracer.now_ns(), self._metrics.elapsed_s()
        try:
            replica = self._leaders.find_writable(target)
            end_offset = replica.log.end_offset
        except RequestError:  # An append that is held comes again, once the log is open.
            replica, end_offset = None, 0
        appending = super().append(session, target, data, acks, **options)
        if not is_searched:  # Only a batch that was admitted is unpacked.
            contexts = self._contexts(self._unpacked(data))
        if replica is None or contexts is None:
            return appending
        written_ns = None
        if replica.log.end_offset > end_offset:
            written_ns = self._tracer.now_ns()
            # Now, and not with the span: a reader may come before the end of this append.
            self._remember(replica.id, end_offset, contexts)
        traced = _Traced(
            session,
            target,
            acks,
            contexts,
            read_header(data).count,
            replica.id,
            began_ns,
            began_s,
            written_ns,
        )
        if appending.done():
            self._end_append(traced, appending)
        else:
            appending.add_done_callback(partial(self._end_append, traced))
        return appending

    async def read(
        self,
        session: Session,
        wants: Sequence[Want],
        **options: Any,  # As `Partitions.read` has them.
    ) -> list[Slice]:
        began_ns = self._tracer.now_ns()
        slices = await super().read(session, wants, **options)
        if session.principal == SYSTEM:
            return slices
        begins_trace = self._tracer.begins_trace()
        if begins_trace or self._sampled.has_any:
            for part in slices:
                if part.records is not None and part.records.size:
                    self._end_fetch(session, part, began_ns, begins_trace=begins_trace)
        return slices

    # -- spans -----------------------------------------------------------------------------------

    def _end_append(self, traced: _Traced, appending: asyncio.Future[Appended]) -> None:
        ended_ns = self._tracer.now_ns()
        offset, error = None, ""
        if appending.cancelled():
            error = "cancelled"
        elif (problem := appending.exception()) is not None:
            error = type(problem).__name__
        elif (base_offset := appending.result().base_offset) >= 0:
            offset = base_offset
            if traced.written_ns is None:
                self._remember(traced.log_id, offset, traced.contexts)
        events = []
        if traced.written_ns is not None:
            events.append((conventions.WRITTEN, traced.written_ns))
        if traced.acks is Acks.ALL and not error:
            events.append((conventions.COMMITTED, ended_ns))
        target = traced.target
        attributes = conventions.messaging("append", traced.session, target, error=error)
        span = Span(
            name=f"append {target.topic}",
            began_ns=traced.began_ns,
            ended_ns=ended_ns,
            attributes=attributes | conventions.batch(offset=offset, count=traced.record_count),
            contexts=traced.contexts,
            events=events,
            error=error,
        )
        trace_id = self._tracer.end(span)
        if trace_id:
            took_s = self._metrics.elapsed_s() - traced.began_s
            seconds = self._seconds_of(traced.session.protocol, traced.acks)
            seconds.exemplify(took_s, trace_id, ended_ns / 1e9)

    def _end_fetch(
        self, session: Session, part: Slice, began_ns: int, *, begins_trace: bool
    ) -> None:
        assert part.records is not None
        start, end = part.records.base_offset, part.records.end_offset
        contexts: list[TraceContext] = []
        with suppress(RequestError):  # The topic was deleted meanwhile.
            contexts = self._sampled.between(self._leaders.log_id(part.target), start, end)
        if not contexts and not begins_trace:
            return
        attributes = conventions.messaging("fetch", session, part.target)
        span = Span(
            name=f"fetch {part.target.topic}",
            began_ns=began_ns,
            ended_ns=self._tracer.now_ns(),
            attributes=attributes | conventions.batch(offset=start),
            contexts=contexts,
            is_linked=True,
        )
        self._tracer.end(span)

    def _remember(
        self, log_id: LogId, base_offset: Offset, contexts: Sequence[TraceContext]
    ) -> None:
        if contexts:
            self._sampled.add(log_id, base_offset, contexts)

    # -- contexts --------------------------------------------------------------------------------

    def _contexts(self, payload: Buffer | None) -> list[TraceContext] | None:
        """The contexts of a batch that leaves a span, none if it begins a trace; None: no span."""
        contexts = None
        if payload is not None:
            if len(payload) > SEARCHED_BYTES_MAX:
                payload = memoryview(payload)[:SEARCHED_BYTES_MAX]
            contexts = sampled_contexts(payload)
        if contexts is None:
            return [] if self._tracer.begins_trace() else None
        return contexts or None

    def _unpacked(self, data: Buffer) -> Buffer | None:
        """The records of an admitted batch; None where that would take the loop too long."""
        began_s = self._metrics.elapsed_s()
        if began_s < self._unpacks_at_s:
            return None
        bytes_max = self._limits.batch_decompressed_bytes_max
        payload = None
        with suppress(MillstreamError):  # A large batch may be admitted on a thread, and refused.
            payload = unpack_small(data, read_header(data), bytes_max=bytes_max)
        now_s = self._metrics.elapsed_s()
        took_s = min(now_s - began_s, UNPACKING_S_MAX)
        self._unpacks_at_s = now_s + took_s * (1 / UNPACKING_SHARE_MAX - 1)
        return payload
