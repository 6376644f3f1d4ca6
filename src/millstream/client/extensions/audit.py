"""`client.audit`: reads the audit trail of a cluster, and verifies its chain.

The trail is the internal topic `__audit`; reading it needs READ of that topic.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Unpack

from millstream.client.extensions.requests import BrokerRequests
from millstream.client.models import AuditEvent, AuditFilter, AuditVerdict

if TYPE_CHECKING:
    from millstream.kafka_wire.apis.rights import QueryAuditRequest, QueryAuditResponse
    from millstream.security.audit_events import StoredEvent

PAGE_EVENTS = 1_000
TAIL_S = 0.5  # Between two looks at the end of the trail.


class AuditTrail:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def query(self, *, limit: int = 100, **filters: Unpack[AuditFilter]) -> tuple[AuditEvent, ...]:
        """The newest events that match all filters, newest first.

        `events` are names such as `access.denied` or `topic.*`; `resource` and `search` are parts.
        """
        return tuple(islice(self.export(**filters), limit))

    def export(self, **filters: Unpack[AuditFilter]) -> Iterator[AuditEvent]:
        """All events that match, newest first, read page by page."""
        request = _request(filters)
        while True:
            page = self._ask(request)
            for stored in page.events:
                yield _event(stored.value)
            if not page.cursor:
                return
            request.cursor = page.cursor

    def tail(self, **filters: Unpack[AuditFilter]) -> Iterator[AuditEvent]:
        """Events as they are written, from now on, without an end."""
        request = _request(filters)
        request.is_forward, request.cursor = True, "end"
        while True:
            page = self._ask(request)
            request.cursor = page.cursor
            for stored in page.events:
                yield _event(stored.value)
            if not page.events:
                time.sleep(TAIL_S)

    def verify(self, *, key: bytes = b"", heads: Sequence[str] = ()) -> AuditVerdict:
        """Follow the chain of every node through the whole trail.

        `heads` are those that nodes have logged, `1-48213:41…`: each must be in the trail.
        """
        from millstream.security.audit_events import decode, verify

        expected = {head.partition(":")[0]: head.partition(":")[2] for head in heads}
        starts: dict[int, int] = {}

        def stored() -> "Iterator[StoredEvent]":
            for event in self._stored(starts):
                for name in [name for name in expected if f'"id":"{name}"'.encode() in event.value]:
                    if decode(event.value).hash == expected[name]:
                        del expected[name]
                yield event

        verdict = verify(stored(), key=key, starts=starts)
        problems = [
            f"partition {each.partition}, offset {each.offset}: {each.problem}"
            for each in verdict.breaks
        ]
        problems += [f"the head {name} is not in the trail as it was logged" for name in expected]
        return AuditVerdict(
            event_count=verdict.event_count,
            heads={node: f"{node}-{head.seq}:{head.hash}" for node, head in verdict.heads.items()},
            problems=tuple(problems),
        )

    def _stored(self, starts: dict[int, int]) -> "Iterator[StoredEvent]":
        """All records of the trail as they lie there; `starts` is filled with the first page."""
        from millstream.security.audit_events import StoredEvent

        request = _request({})
        request.is_forward = True
        while True:
            page = self._ask(request)
            if not starts:
                starts.update(enumerate(page.starts))
            for each in page.events:
                yield StoredEvent(each.partition, each.offset, each.value)
            if page.cursor == request.cursor or (not page.events and not page.cursor):
                return
            request.cursor = page.cursor

    def _ask(self, request: "QueryAuditRequest") -> "QueryAuditResponse":
        from millstream.kafka_wire.apis.rights import QueryAuditResponse

        return self._requests.call(
            request, QueryAuditResponse, feature="the audit trail", doing="read the audit trail"
        )


def _request(filters: AuditFilter) -> "QueryAuditRequest":
    from millstream.kafka_wire.apis.rights import QueryAuditRequest

    start, end = filters.get("start"), filters.get("end")
    return QueryAuditRequest(
        start_ms=0 if start is None else round(start.timestamp() * 1000),
        end_ms=0 if end is None else round(end.timestamp() * 1000),
        events=list(filters.get("events", ())),
        principal=filters.get("principal", ""),
        resource=filters.get("resource", ""),
        result=filters.get("result", ""),
        search=filters.get("search", ""),
        limit=PAGE_EVENTS,
    )


def _event(value: bytes) -> AuditEvent:
    from millstream.security.audit_events import decode

    event = decode(value)
    data = event.data
    return AuditEvent(
        id=event.id,
        time=datetime.fromisoformat(event.time),
        event=data.event,
        result=data.result,
        principal=data.principal,
        roles=data.roles,
        mechanism=data.mechanism,
        listener=data.listener,
        protocol=data.protocol,
        address=data.address,
        client_id=data.client_id,
        action=data.action,
        operation=data.operation,
        resource=data.resource,
        rule=data.rule,
        count=data.count,
        node=data.node,
        details=dict(data.details),
        json=value.decode(),
    )
