"""Partitions whose use is noted, for nodes whose settings ask for `data.produce` or `data.consume`.

A class of its own: a node that does not ask for it pays nothing for each request.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from millstream.codec.batch import read_header
from millstream.engine.audit.recorder import Recorder
from millstream.engine.gate import topic_resource
from millstream.engine.partitions.service import Partitions
from millstream.engine.partitions.slices import Slice, Want
from millstream.model import SYSTEM, Acks, Appended, Buffer, Session, TopicPartition
from millstream.storage.log.segment import FileRange


class AuditedPartitions(Partitions):
    def __init__(self, recorder: Recorder, *services: Any, **settings: Any) -> None:
        super().__init__(*services, **settings)  # As `Partitions` has them.
        self._recorder = recorder

    def append(
        self,
        session: Session,
        target: TopicPartition,
        data: Buffer,
        acks: Acks,
        **options: Any,  # As `Partitions.append` has them.
    ) -> asyncio.Future[Appended]:
        appended = super().append(session, target, data, acks, **options)
        if session.principal != SYSTEM:
            details = {"records": read_header(data).count, "bytes": len(data)}
            self._note("data.produce", session, target.topic, details)
        return appended

    async def read(
        self,
        session: Session,
        wants: Sequence[Want],
        **options: Any,  # As `Partitions.read` has them.
    ) -> list[Slice]:
        slices = await super().read(session, wants, **options)
        if session.principal != SYSTEM:
            for part in slices:
                if part.size:
                    details = {"records": _count(part), "bytes": part.size}
                    self._note("data.consume", session, part.target.topic, details)
        return slices

    def _note(self, event: str, session: Session, topic: str, details: dict[str, int]) -> None:
        self._recorder.note(event, session, resource=topic_resource(topic), details=details)


def _count(part: Slice) -> int:
    """The records of a slice; through a filter they are in memory, else in the page cache."""
    if isinstance(part.records, FileRange):
        return sum(header.count for _, header in part.records.headers())
    data, at, count = memoryview(b"" if part.records is None else part.records.read()), 0, 0
    while at < len(data):
        header = read_header(data, at)
        count += header.count
        at += header.size
    return count
