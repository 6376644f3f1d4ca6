"""Jobs over the records of a topic: copy them to another one, or make a profile of them.

Both read what was there when they began, in turns of the event loop like every request.
"""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

import msgspec

from millstream.codec.records import Record
from millstream.engine.filters.filter import Filter, parse
from millstream.engine.masks import MASK
from millstream.engine.publish.publisher import Publication
from millstream.errors import RequestError
from millstream.model import TopicPartition
from millstream.names import DELAY_HEADER, DELIVER_AT_HEADER
from millstream.protocols.http.admin.topics import TopicParams
from millstream.protocols.http.calls import Call
from millstream.protocols.http.operate.jobs import JobView
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.pages import PartitionNumber, partitions_of, window_of
from millstream.protocols.http.records.producing import published
from millstream.protocols.http.records.profile import Profile, ProfileView
from millstream.protocols.http.records.reading import Bounds, read_chunk
from millstream.protocols.http.router import Right, Route
from millstream.protocols.http.turns import turns_of

RECORDS_MAX = 1_000_000  # That a profile looks at, unless the request says how many.


class Span(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records of a topic are meant."""

    filter: str = ""
    start: str = msgspec.field(default="earliest", name="from")
    until: str = "latest"
    partition: PartitionNumber | None = None


class CopyRequest(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: str
    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None  # Records a second.
    dry_run: bool = False


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    to: str
    read: int  # Records that the filter let pass.
    written: int
    duplicates: int  # Left out: the topic has their message ids already.
    dry_run: bool


class ProfileRequest(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    records_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] = RECORDS_MAX


async def copy(call: Call, params: TopicParams, body: CopyRequest) -> JobView:
    """Keys, values, headers and times stay; a record that was delayed is not delayed again."""
    services = call.services
    if body.to == params.topic:
        raise HttpProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "invalid_request",
            "a topic cannot be copied to itself",
            fields=("$.to",),
        )
    services.partitions.admit_append(call.session, body.to)
    services.topics.describe(call.session, body.to).check_writable()
    reading = await _open(call, params.topic, body)
    copying = _Copying(call, body)
    return services.jobs.start(
        call, "copy", params.topic, copying.run(reading), copying.view
    ).view()


async def profile(call: Call, params: TopicParams, body: ProfileRequest) -> JobView:
    services = call.services
    reading = await _open(call, params.topic, body)
    masks = services.topics.masks(call.session, params.topic)
    tally = Profile(params.topic, shows_key=None if not masks.hides_key else MASK)

    async def work() -> ProfileView:
        turns = turns_of(services)
        async for target, records in reading.chunks():
            left = body.records_max - tally.records
            steps = tally.add(target.partition, records[:left])
            await turns.run(steps, "/v1/topics/{topic}:profile")
            if len(records) >= left:
                break
        return tally.view()

    return services.jobs.start(call, "profile", params.topic, work(), tally.view).view()


class _Reading:
    """The records between two places of each partition, as far as they were there."""

    def __init__(
        self, call: Call, windows: dict[TopicPartition, Bounds], where: Filter | None
    ) -> None:
        self._call = call
        self._windows = windows
        self._where = where

    async def chunks(self) -> AsyncIterator[tuple[TopicPartition, list[Record]]]:
        services, session = self._call.services, self._call.session
        for target, (start, end) in self._windows.items():
            at = start
            while at < end:
                chunk = await read_chunk(services, session, target, at, where=self._where)
                records = [record for record in chunk.records if record.offset < end]
                if records:
                    yield target, records
                if chunk.next_offset <= at:
                    break
                at = chunk.next_offset


async def _open(call: Call, topic: str, span: Span) -> _Reading:
    described = call.services.topics.describe(call.session, topic)
    where = parse(span.filter) if span.filter else None
    windows = {}
    for partition in partitions_of(described, span.partition):
        target = TopicPartition(topic, partition)
        windows[target] = await window_of(call, target, span.start, span.until)
    return _Reading(call, windows, where)


class _Copying:
    def __init__(self, call: Call, body: CopyRequest) -> None:
        self._call = call
        self._body = body
        self._read = self._written = self._duplicates = 0

    def view(self) -> Copied:
        return Copied(
            to=self._body.to,
            read=self._read,
            written=self._written,
            duplicates=self._duplicates,
            dry_run=self._body.dry_run,
        )

    async def run(self, reading: _Reading) -> Copied:
        """Write chunk by chunk; each is durable before the next is read."""
        clock = self._call.services.elapsed_s
        began_s = clock()
        async for target, records in reading.chunks():
            self._read += len(records)
            if not self._body.dry_run:
                await self._write(target, records)
            if self._body.rate is not None:
                behind_s = self._read / self._body.rate - (clock() - began_s)
                await asyncio.sleep(max(0.0, behind_s))
        return self.view()

    async def _write(self, target: TopicPartition, records: list[Record]) -> None:
        topics, session = self._call.services.topics, self._call.session
        count = topics.describe(session, self._body.to).partition_count
        # Keys decide if there are fewer partitions; without a key a record takes its turn.
        partition = target.partition if target.partition < count else None
        outcomes = await published(
            self._call,
            [
                Publication(
                    self._body.to,
                    record.value,
                    record.key,
                    tuple(
                        (name, value)
                        for name, value in record.headers
                        if name not in {DELAY_HEADER, DELIVER_AT_HEADER}
                    ),
                    partition,
                    record.timestamp if record.timestamp >= 0 else None,
                )
                for record in records
            ],
        )
        for outcome in outcomes:
            if isinstance(outcome, RequestError):
                raise outcome
            self._written += not outcome.is_duplicate
            self._duplicates += outcome.is_duplicate


_TOPIC = "topic:{topic}"
_READ = (Right("READ", _TOPIC), Right("DESCRIBE", _TOPIC))

ROUTES = (
    Route(
        method="POST",
        path="/v1/topics/{topic}:copy",
        handler=copy,
        summary="Copy records to another topic, as a job",
        params=TopicParams,
        body=CopyRequest,
        reply=JobView,
        status=HTTPStatus.ACCEPTED,
        location="/v1/jobs/{id}",
        rights=(Right("WRITE", "topic:{to}"), Right("DESCRIBE", "topic:{to}"), *_READ),
        example={"to": "orders-2026", "filter": "$.kg > 20", "from": "24h"},
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}:profile",
        handler=profile,
        summary="Look at the records of a topic: sizes, keys, nulls, skew, records per hour; a job",
        params=TopicParams,
        body=ProfileRequest,
        reply=JobView,
        status=HTTPStatus.ACCEPTED,
        location="/v1/jobs/{id}",
        rights=_READ,
        example={"from": "24h"},
    ),
)
