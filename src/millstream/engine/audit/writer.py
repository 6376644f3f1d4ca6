"""Writes the audit trail: events of this node, and those of committed control commands.

Owns the node's chain in its partition of `__audit`, and how far the control log is in the trail.
The leader of the control log writes the events of commands; each batch says up to which command it
goes, so after a crash the next leader goes on behind it: every act is in the trail once.

Invariant: head and position are those of the last batch in the log. After any failure they are read
from the log again, because the batch may or may not be there.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from millstream.codec.batch import read_header
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.config import Config
from millstream.control.access import AccessChange
from millstream.control.catalog import Catalog, Topic
from millstream.engine.audit.control_events import CONTROL_EVENTS, USUAL, Fate, control_events
from millstream.engine.audit.recorder import Noted, Recorder
from millstream.engine.controller import Controller
from millstream.engine.ledgers.shards import REPLICAS
from millstream.engine.topics import Topics
from millstream.errors import (
    NotLeader,
    RequestError,
    StorageError,
    StorageUnavailable,
    TopicExists,
    UnknownTopic,
)
from millstream.model import SYSTEM_SESSION, Offset
from millstream.names import AUDIT_CONTROL_HEADER, AUDIT_TOPIC
from millstream.ports import Ports
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.security.audit_events import CONTENT_TYPE, UNREADABLE, Head, decode, encode

_log = logging.getLogger(__name__)

FLUSH_S = 0.1  # How old an event grows before it is written.
RETRY_S = 1.0
BATCH_EVENTS_MAX = 500  # About 250 KB.
HEAD_LOGGED_EVERY_MS = 60 * 60 * 1000
FAILURES_LOGGED_EVERY_S = 10.0
LOADED_BYTES = 2**16
_CONTENT_TYPE = ("content-type", CONTENT_TYPE.encode())


class Position(NamedTuple):
    """The next event of the control log that is not in the trail: of which command, and which."""

    offset: Offset = 0
    place: int = 0


class _Unsure(NamedTuple):
    """A batch that may be in the log: its commit was not seen."""

    end_seq: int
    events: list[Noted]


class AuditWriter:
    def __init__(
        self,
        recorder: Recorder,
        controller: Controller,
        hub: Hub,
        topics: Topics,
        *,
        config: Config,
        ports: Ports,
        cluster_id: str,
    ) -> None:
        """`topics` creates `__audit` on behalf of the broker: its gate must admit it."""
        self.head = Head()
        self._recorder = recorder
        self._controller = controller
        self._hub = hub
        self._topics = topics
        self._config = config
        self._ports = ports
        self._cluster_id = cluster_id
        self._key = b""
        self._position = Position()
        self._is_loaded = False
        self._unsure: _Unsure | None = None
        self._follows_commands = any(recorder.wants(event) for event in CONTROL_EVENTS)
        self._wakened = asyncio.Event()
        self._writing = asyncio.Lock()
        self._head_logged = Head()
        self._head_logged_ms = ports.clock.now_ms()
        self._failure_logged_at = float("-inf")
        recorder.wake = self._wakened.set
        if self._follows_commands:
            controller.watch(self._wakened.set)

    @property
    def _catalog(self) -> Catalog:
        return self._controller.state.catalog

    def _now_ms(self) -> int:
        return self._ports.clock.now_ms()

    async def read_key(self) -> None:
        """Read the key of the chain; `StartupError` if it cannot be had."""
        secret = self._config.audit.chain_key
        if secret:
            self._key = await self._ports.threads.run(lambda: self._ports.secrets.read(secret))

    async def run(self) -> None:
        """Write what is noted, `FLUSH_S` late at most, until cancelled."""
        self._wakened.set()
        while True:
            due_ms = self._recorder.next_due_ms()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if due_ms is None else due_ms / 1000):
                    await self._wakened.wait()
            await asyncio.sleep(FLUSH_S)
            self._wakened.clear()
            if not await self.flush():
                self._wakened.set()
                await asyncio.sleep(RETRY_S)

    async def flush(self, *, is_last: bool = False) -> bool:
        """Write all that waits; return False if it cannot be written now. `is_last` also ends the
        windows of sums."""
        async with self._writing:
            try:
                await self._write_all(is_last)
            except (RequestError, StorageError, OSError) as problem:
                self._note_failure(problem)
                return False
            self._recorder.is_failing = False
            self._log_head(is_last)
            return True

    # -- parts -----------------------------------------------------------------------------------

    async def _write_all(self, is_last: bool) -> None:
        topic = await self._topic()
        replica = await self._replica(topic)
        if not self._is_loaded:
            await self._load(topic, replica)
        while True:
            position, control = self._control_events()
            noted = self._recorder.take(BATCH_EVENTS_MAX, is_all=is_last)
            if control or noted:
                await self._write(replica, position, control, noted)
            is_done = position == self._position and not noted
            self._position = position
            self._forget_outcomes(position.offset)
            if is_done:
                return

    async def _write(
        self, replica: Replica, position: Position, control: list[Noted], noted: list[Noted]
    ) -> None:
        encoding = partial(self._encode, [*control, *noted], position)
        try:
            data, head = await self._ports.threads.run(encoding)
            end_offset = replica.append(data, read_header(data)).end_offset
        except BaseException:
            self._recorder.put_back(noted)
            raise
        self._unsure, self._is_loaded = _Unsure(head.seq, noted), False
        await replica.committed(end_offset, None)
        self._unsure, self._is_loaded = None, True
        self.head = head

    def _encode(self, events: list[Noted], position: Position) -> tuple[bytes, Head]:
        """On a thread: the batch of events and the head behind it."""
        head, now_ms, records = self.head, self._now_ms(), []
        chained = partial(encode, cluster_id=self._cluster_id, key=self._key)
        for at, noted in enumerate(events):
            facts = noted.facts
            value, head = chained(facts, noted.at_ms, head)
            records.append(Record(at, now_ms, facts.principal.encode(), value, (_CONTENT_TYPE,)))
        if self._is_controller:
            mark = (AUDIT_CONTROL_HEADER, f"{position.offset}.{position.place}".encode())
            records[-1] = records[-1]._replace(headers=(_CONTENT_TYPE, mark))
        return encode_batch(records), head

    # -- events of commands ----------------------------------------------------------------------

    @property
    def _is_controller(self) -> bool:
        return self._follows_commands and self._controller.is_leader

    def _control_events(self) -> tuple[Position, list[Noted]]:
        """Some events of commands from `_position` on, and the position behind them."""
        events: list[Noted] = []
        position = self._position
        if not self._is_controller:
            return position, events
        oldest_ms = self._now_ms() - self._config.audit.retention_ms
        for offset, at_ms, command in self._controller.commands(position.offset):
            first = position.place if offset == position.offset else 0
            fate, node_id = self._fate(offset), self._config.node_id
            by_ms = at_ms if command.by is None else command.by.at_ms
            for place, facts in enumerate(control_events(command, fate, offset, node_id)):
                if len(events) >= BATCH_EVENTS_MAX:
                    return Position(offset, place), events
                # Older ones were in the trail, and have left it.
                if place >= first and at_ms >= oldest_ms and self._recorder.wants(facts.event):
                    events.append(Noted(by_ms, facts))
            position = Position(offset + 1)
        return position, events

    def _fate(self, offset: Offset) -> Fate:
        outcomes = self._controller.outcomes
        assert outcomes is not None
        if offset not in outcomes:
            return USUAL
        outcome = outcomes[offset]
        if not isinstance(outcome, AccessChange):
            return Fate(is_refused=True)
        return Fate(False, frozenset(outcome.refusals), outcome.created)

    def _forget_outcomes(self, offset: Offset) -> None:
        outcomes = self._controller.outcomes
        if outcomes:
            for known in [known for known in outcomes if known < offset]:
                del outcomes[known]

    # -- the log ---------------------------------------------------------------------------------

    async def _topic(self) -> Topic:
        settings = {
            "retention_ms": str(self._config.audit.retention_ms),
            "cleanup_policy": "delete",
        }
        try:
            topic = self._catalog.find(AUDIT_TOPIC)
        except UnknownTopic:
            pass
        else:
            if topic.overrides.get("retention_ms") != settings["retention_ms"]:
                with suppress(NotLeader):
                    await self._topics.alter(SYSTEM_SESSION, AUDIT_TOPIC, settings)
            return topic
        try:
            return await self._topics.create(
                SYSTEM_SESSION,
                AUDIT_TOPIC,
                partitions=self._config.audit_partitions,
                replicas=min(REPLICAS, self._topics.machine_count),
                settings=settings,
            )
        except TopicExists:
            return self._catalog.find(AUDIT_TOPIC)

    async def _replica(self, topic: Topic) -> Replica:
        log_id = topic.log(self._config.node_id % topic.partition_count)
        await self._hub.opened([log_id])
        return self._hub.find(log_id)

    async def _load(self, topic: Topic, replica: Replica) -> None:
        """Read the end of the chain, and up to which command the trail goes."""
        if not replica.is_leader or not replica.is_ready:
            raise NotLeader(replica.id, replica.leader)
        # Also what is not committed yet: it will be, or this node leads no more.
        await replica.committed(replica.log.end_offset, None)
        self.head = await self._find_head(replica)
        unsure, self._unsure = self._unsure, None
        if unsure is not None and self.head.seq < unsure.end_seq:
            self._recorder.put_back(unsure.events)
        positions = [self._position]
        for partition in range(topic.partition_count):
            known = self._hub.get(topic.log(partition))
            if known is None:
                continue
            if not known.is_ready:  # Its end may not be known yet.
                raise NotLeader(known.id, known.leader)
            positions.append(await self._find_position(known))
        self._position = max(positions)
        self._is_loaded = True

    async def _find_head(self, replica: Replica) -> Head:
        end = replica.high_watermark
        while end > replica.log.start_offset:
            records, end = await self._batch_before(replica, end)
            for record in reversed(records):
                with suppress(*UNREADABLE):
                    event = decode(record.value or b"")
                    if event.data.node == self._config.node_id:
                        return Head(event.seq, event.hash)
        return Head()

    async def _find_position(self, replica: Replica) -> Position:
        end = replica.high_watermark
        while end > replica.log.start_offset:
            records, end = await self._batch_before(replica, end)
            for record in reversed(records):
                for name, value in record.headers:
                    if name == AUDIT_CONTROL_HEADER and value is not None:
                        offset, _, place = value.decode().partition(".")
                        return Position(int(offset), int(place))
        return Position()

    async def _batch_before(self, replica: Replica, end: Offset) -> tuple[list[Record], Offset]:
        """The records of the batch that ends at `end`, and where it begins."""
        chunk = replica.log.read(end - 1, bytes_max=LOADED_BYTES, end_offset=end)
        if chunk is None:
            raise StorageUnavailable(f"{replica.name} cannot be read at offset {end - 1}")
        data = await self._ports.threads.run(chunk.read)
        header = read_header(memoryview(data))
        records = decode_all(
            data, decompressed_bytes_max=self._config.limits.batch_decompressed_bytes_max
        )
        return records, header.base_offset

    # -- what the log of the node says -----------------------------------------------------------

    def _note_failure(self, problem: Exception) -> None:
        self._recorder.is_failing = True
        now = asyncio.get_running_loop().time()
        if now - self._failure_logged_at >= FAILURES_LOGGED_EVERY_S:
            self._failure_logged_at = now
            _log.warning("the audit trail cannot be written problem=%s", problem)

    def _log_head(self, is_last: bool) -> None:
        now_ms = self._now_ms()
        is_due = is_last or now_ms - self._head_logged_ms >= HEAD_LOGGED_EVERY_MS
        if is_due and self.head != self._head_logged:
            self._head_logged, self._head_logged_ms = self.head, now_ms
            node_id = self._config.node_id
            _log.info("head of the audit trail head=%d-%d:%s", node_id, *self.head)
