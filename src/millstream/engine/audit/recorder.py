"""Collects events on the event loop until they are written: one bounded queue, and sums.

Equal refusals within `window_ms`, and uses of records within `data_window_ms`, become one event
with a count. Owns what is dropped when the queue is full. Writes nothing itself.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from millstream.engine.action import current_action
from millstream.metrics import AUDIT_DROPPED, Metrics
from millstream.model import SYSTEM_SESSION, Session, node_principal
from millstream.ports import Clock
from millstream.security.audit import SYSTEM_EVENTS, Audit, expand_events
from millstream.security.audit_events import TEXT_LENGTH_MAX, Facts

_log = logging.getLogger(__name__)

GAP: Final = "audit.gap"
DROPS_LOGGED_EVERY_MS = 10_000
# Events about many requests of one client: those of one window are one.
_DATA: Final = frozenset(
    {"data.produce", "data.consume", "offset.commit", "txn.begin", "txn.commit", "audit.read"}
)
_SHORT: Final = frozenset(
    {"access.denied", "access.granted", "auth.failure", "connection.refused", "txn.abort"}
)
_WITHOUT_ACTION: Final = ("auth.", "connection.", "system.", "tls.", "encryption.")
_ABOUT_CLIENTS: Final = ("auth.", "access.", "data.")
NO_DETAILS: Final[Mapping[str, Any]] = {}


class _Raw(NamedTuple):
    """An event as it was noted: its JSON fields are put together on the writer's thread."""

    event: str
    session: Session
    result: str
    operation: str
    resource: str
    rule: str
    details: Mapping[str, Any]
    action: str
    node_id: int
    equal_count: int = 1


class Noted:
    """An event that waits to be written."""

    __slots__ = ("_source", "at_ms")

    def __init__(self, at_ms: int, source: Facts | _Raw) -> None:
        self.at_ms = at_ms
        self._source = source

    @property
    def facts(self) -> Facts:
        source = self._source
        if isinstance(source, Facts):
            return source
        session = source.session
        return Facts(
            event=source.event,
            result=source.result,
            principal=str(session.principal),
            roles=session.roles,
            mechanism=session.mechanism,
            listener=session.listener,
            protocol=session.protocol,
            address=session.address,
            client_id=session.client_id,
            action=source.action,
            operation=source.operation,
            resource=source.resource[:TEXT_LENGTH_MAX],
            rule=source.rule,
            count=source.equal_count,
            node=source.node_id,
            details=source.details,
        )

    @property
    def gap(self) -> int:
        """How many events an `audit.gap` tells of; 0 for any other event."""
        source = self._source
        if isinstance(source, Facts) and source.event == GAP:
            return int(source.details["dropped"])
        return 0


class _Sum:
    """Equal events of one window."""

    __slots__ = ("bytes", "count", "due_ms", "first_ms", "raw", "records")

    def __init__(self, first_ms: int, due_ms: int, raw: _Raw) -> None:
        self.first_ms = first_ms
        self.due_ms = due_ms
        self.raw = raw
        self.count = 0
        self.records = 0
        self.bytes = 0

    def add(self, details: Mapping[str, Any]) -> None:
        self.count += 1
        if details:
            self.records += details.get("records", 0)
            self.bytes += details.get("bytes", 0)

    def ended(self) -> Noted:
        details = self.raw.details
        if "records" in details:
            details = {**details, "records": self.records, "bytes": self.bytes}
        return Noted(self.first_ms, self.raw._replace(equal_count=self.count, details=details))


class _Plan(NamedTuple):
    """How an event is noted."""

    window_ms: int  # 0: each by itself.
    has_action: bool
    is_about_clients: bool  # Not written of principals that are excluded.


def _plan(event: str, settings: Audit) -> _Plan:
    window_ms = 0
    if event in _SHORT:
        window_ms = settings.window_ms
    elif event in _DATA:
        window_ms = settings.data_window_ms
    has_action = not event.startswith(_WITHOUT_ACTION)
    return _Plan(window_ms, has_action, event.startswith(_ABOUT_CLIENTS))


class Recorder:
    """`wake` is called when there is something to write that was not there before."""

    def __init__(
        self, settings: Audit, node_id: int, clock: Clock, metrics: Metrics, *, is_whole: bool
    ) -> None:
        """`is_whole` is False on nodes without a login: they note starts and stops only."""
        self.events = expand_events(settings.events)
        if not is_whole:
            self.events &= SYSTEM_EVENTS
        self.wake: Callable[[], None] = lambda: None
        self.on_failure = settings.on_failure
        self.is_failing = False  # Set by the writer while nothing can be written.
        self.dropped = 0  # Not yet told by an `audit.gap`.
        self._settings = settings
        self._events_max = settings.queue_events_max
        self._plans = {event: _plan(event, settings) for event in self.events}
        self._excluded = frozenset(settings.exclude_principals)
        self._node_id = node_id
        self._own_session = replace(SYSTEM_SESSION, principal=node_principal(node_id))
        self._clock = clock
        self._metrics = metrics
        self._queue: deque[Noted] = deque()
        self._sums: dict[tuple[object, ...], _Sum] = {}
        self._drop_logged_ms = -DROPS_LOGGED_EVERY_MS

    @property
    def is_full(self) -> bool:
        return len(self._queue) + len(self._sums) >= self._events_max

    @property
    def refuses(self) -> bool:
        """Whether nothing may happen that could not be written."""
        return self.on_failure == "refuse" and (self.is_failing or self.is_full)

    def wants(self, event: str) -> bool:
        return event in self.events

    def note(
        self,
        event: str,
        session: Session,
        *,
        result: str = "success",
        operation: str = "",
        resource: str = "",
        rule: str | Callable[[], tuple[str, str]] = "",
        details: Mapping[str, Any] = NO_DETAILS,
        is_summed: bool = False,
    ) -> None:
        """Note an event of a client. A callable `rule` returns operation and rule, and is called
        once for each window."""
        plan = self._plans.get(event)
        if plan is None:
            return
        if self._excluded and plan.is_about_clients and str(session.principal) in self._excluded:
            return
        window_ms = self._settings.data_window_ms if is_summed else plan.window_ms
        key = None
        if window_ms:
            who = (session.principal, session.address, session.protocol)
            key = (event, who, operation, resource, result)
            total = self._sums.get(key)
            if total is not None:
                total.add(details)
                return
        if len(self._queue) + len(self._sums) >= self._events_max:
            self._drop(1)
            return
        # Made now: afterwards another request may be served, and rights may be others.
        if not isinstance(rule, str):
            operation, rule = rule()
        action = current_action() if plan.has_action else ""
        node_id, now_ms = self._node_id, self._clock.now_ms()
        raw = _Raw(event, session, result, operation, resource, rule, details, action, node_id)
        if key is not None:
            total = self._sums[key] = _Sum(now_ms, now_ms + window_ms, raw)
            total.add(details)
        else:
            self._queue.append(Noted(now_ms, raw))
        if key is not None or len(self._queue) == 1:
            self.wake()

    def note_system(
        self, event: str, details: Mapping[str, object], *, result: str = "success"
    ) -> None:
        """Note an event of the node itself."""
        self.note(event, self._own_session, result=result, resource="cluster", details=details)

    def take(self, events_max: int, *, is_all: bool = False) -> list[Noted]:
        """Remove the next events, sums whose window has ended among them; `is_all` ends all."""
        now_ms = self._clock.now_ms()
        for key in [key for key, total in self._sums.items() if is_all or total.due_ms <= now_ms]:
            self._queue.append(self._sums.pop(key).ended())
        if self.dropped and len(self._queue) < events_max:
            dropped, self.dropped = self.dropped, 0
            facts = Facts(
                event=GAP,
                result="failure",
                principal=str(self._own_session.principal),
                node=self._node_id,
                details={"dropped": dropped},
            )
            self._queue.append(Noted(now_ms, facts))
        queue = self._queue
        return [queue.popleft() for _ in range(min(events_max, len(queue)))]

    def put_back(self, events: Collection[Noted]) -> None:
        """Events that were taken and could not be written: they are the next again."""
        for noted in reversed(list(events)):
            if noted.gap:
                self.dropped += noted.gap
            else:
                self._queue.appendleft(noted)
        excess = len(self._queue) + len(self._sums) - self._events_max
        if excess > 0:
            for _ in range(min(excess, len(self._queue))):
                self._queue.pop()
            self._drop(excess)

    def next_due_ms(self) -> int | None:
        """How long until there is something to write; None if nothing waits."""
        if self._queue or self.dropped:
            return 0
        if not self._sums:
            return None
        due_ms = min(total.due_ms for total in self._sums.values())
        return max(0, due_ms - self._clock.now_ms())

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._metrics.add(AUDIT_DROPPED, count)
        now_ms = self._clock.now_ms()
        if now_ms - self._drop_logged_ms >= DROPS_LOGGED_EVERY_MS:
            self._drop_logged_ms = now_ms
            _log.warning(
                "dropped events of the audit trail count=%d queue_events_max=%d",
                self.dropped,
                self._settings.queue_events_max,
            )
