"""The audit trail as a node keeps and answers it: one object, which is None-like where it is off.

Owns queries, which read `__audit` backwards in bounded steps. Needs READ of that topic.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.gate import Gate, Operation, topic_resource
from millstream.engine.topics import LED_TIMEOUTS_MAX
from millstream.errors import InvalidRequest, UnknownTopic
from millstream.model import Offset, Session
from millstream.names import AUDIT_TOPIC
from millstream.ports import Ports
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

if TYPE_CHECKING:  # Loaded where the trail is written or read.
    from millstream.engine.audit.query import Search
    from millstream.engine.audit.recorder import Recorder
    from millstream.engine.audit.writer import AuditWriter
    from millstream.security.audit_events import Event

QUERY_EVENTS_MAX = 10_000  # In one answer.
PAGE_EVENTS = 1_000
END = "end"
QUERY_S_MAX = 0.25  # One step of a query; its answer says how to go on.


class AuditQuery(NamedTuple):
    """What is asked for; empty and 0 mean all."""

    start_ms: int = 0
    end_ms: int = 0
    events: Sequence[str] = ()
    principal: str = ""  # `User:ann` or `ann`.
    resource: str = ""  # Part of it.
    result: str = ""
    search: str = ""  # Part of the event, in upper or lower case.


class FoundEvent(NamedTuple):
    """An event where it lies in `__audit`."""

    partition: int
    offset: Offset
    value: bytes
    event: "Event | None"  # None of a record that is none, where all records were asked for.

    @property
    def time(self) -> str:
        return "" if self.event is None else self.event.time


class AuditPage(NamedTuple):
    """`cursor` goes on behind the events; empty at the end of the trail."""

    events: list[FoundEvent]
    cursor: str
    starts: list[Offset]  # Of the partitions of `__audit`.


def _bounded(events_max: int) -> int:
    return min(events_max or QUERY_EVENTS_MAX, QUERY_EVENTS_MAX)


class AuditTrail:
    def __init__(
        self,
        gate: Gate,
        catalog: Catalog,
        hub: Hub,
        config: Config,
        ports: Ports,
        recorder: "Recorder | None",
        writer: "AuditWriter | None",
    ) -> None:
        self.recorder = recorder
        self.writer = writer
        self._gate = gate
        self._catalog = catalog
        self._hub = hub
        self._config = config
        self._ports = ports

    async def query(
        self, session: Session, query: AuditQuery, *, events_max: int = 100, cursor: str = ""
    ) -> AuditPage:
        """Some events that the query means, newest first; fewer than `events_max` if the search
        took its time, then `cursor` says where to go on."""
        self._gate.admit(session, Operation.READ, topic_resource(AUDIT_TOPIC))
        self._gate.note("audit.read", session, topic_resource(AUDIT_TOPIC))
        search = await self._search(query, cursor)
        return await search.backward(_bounded(events_max), QUERY_S_MAX)

    async def follow(
        self, session: Session, query: AuditQuery, *, events_max: int = 100, cursor: str = ""
    ) -> AuditPage:
        """The same from the oldest on, partition by partition. The cursor never ends: later it
        finds what has come since. The cursor `end` begins with what comes now."""
        self._gate.admit(session, Operation.READ, topic_resource(AUDIT_TOPIC))
        self._gate.note("audit.read", session, topic_resource(AUDIT_TOPIC))
        search = await self._search(
            query, "" if cursor == END else cursor, is_forward=cursor != END
        )
        return await search.forward(_bounded(events_max), QUERY_S_MAX)

    async def _search(
        self, query: AuditQuery, cursor: str, *, is_forward: bool = False
    ) -> "Search":
        from millstream.engine.audit.query import Search

        replicas = await self._replicas()
        try:
            return Search(
                query,
                replicas,
                cursor,
                self._ports.threads,
                self._config.limits,
                is_forward=is_forward,
            )
        except ValueError as problem:
            raise InvalidRequest(str(problem)) from None

    async def _replicas(self) -> list[Replica]:
        """The partitions of the trail. Those that rest, or are being opened, are waited for: an end
        is known once they have a leader."""
        try:
            topic = self._catalog.find(AUDIT_TOPIC)
        except UnknownTopic:
            if self.recorder is None:
                raise InvalidRequest(
                    "the audit trail is not enabled: set audit.enabled, or have listeners with "
                    "logins"
                ) from None
            return []
        log_ids = [topic.log(at) for at in range(topic.partition_count)]
        limit_s = LED_TIMEOUTS_MAX * self._config.timing.election_timeout_ms / 1000
        with suppress(TimeoutError):  # Then the search ends where the partition is known to end.
            async with asyncio.timeout(limit_s):
                await self._hub.awake(log_ids)
                for log_id in log_ids:
                    await self._hub.led(log_id)
        return [self._hub.find(log_id) for log_id in log_ids]


async def all_pages(
    trail: AuditTrail, session: Session, query: AuditQuery
) -> AsyncIterator[AuditPage]:
    """All events that the query means, newest first, page by page."""
    cursor = ""
    while True:
        page = await trail.query(session, query, events_max=PAGE_EVENTS, cursor=cursor)
        yield page
        cursor = page.cursor
        if not cursor:
            return
        await asyncio.sleep(0)
