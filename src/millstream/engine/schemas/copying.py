"""A copy of the registry on a node that does not lead `_schemas`, read from the node that does.

Records are checked and shown by their schemas on every node; changes are made by the leader alone.
Each read of the copy asks the leader for what it lacks, so it has all that was committed before.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from millstream.codec.batch import read_header
from millstream.codec.records import decode_each
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.ledgers.ledger import UNREADABLE
from millstream.errors import InvalidRequest, OffsetOutOfRange, StorageError, StorageUnavailable
from millstream.internal_topics.registry import RegistryState
from millstream.internal_topics.schemas import decode_key, decode_value
from millstream.model import NodeId
from millstream.ports import Threads

if TYPE_CHECKING:
    from millstream.engine.schemas.log import RegistryLog

METHOD = "registry.read"
READ_BYTES = 256 * 1024  # Of one call; a batch larger than this comes alone.
RECENT_S = 1.0  # How old a copy may be for checks that are repeated if they fail.
# A copy that was not read for so long is read anew: compaction drops marks of what was deleted.
KEPT_S_MAX = 60 * 60.0


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: UUID
    offset: int


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes
    next_offset: int
    end_offset: int  # Of all that is committed.


class RegistryCopy:
    def __init__(
        self,
        log: "RegistryLog",
        peers: PeerCalls,
        threads: Threads,
        given_ids: Mapping[str, int],
        *,
        unpacked_bytes_max: int,
    ) -> None:
        self._log = log
        self._peers = peers
        self._threads = threads
        self._given_ids = given_ids
        self._unpacked_bytes_max = unpacked_bytes_max
        self._state = RegistryState()
        self._topic_id = UUID(int=0)  # Of the topic that was read.
        self._offset = 0
        self._reading = asyncio.Lock()
        self._begun_count = 0
        self._ended_number = 0  # Of the last read that was whole.
        self._ended_s = float("-inf")
        peers.serve(METHOD, _Question, self._serve)

    async def current(self, leader: int, topic_id: UUID) -> RegistryState:
        """The state with all that was committed before this call; raises what the leader says."""
        arrived = self._begun_count
        async with self._reading:
            if self._ended_number > arrived and topic_id == self._topic_id:
                return self._state  # A read that began since was whole.
            self._begun_count += 1
            number = self._begun_count
            try:
                await self._read(NodeId(leader), topic_id)
            except OffsetOutOfRange:
                self._forget(topic_id)
                await self._read(NodeId(leader), topic_id)
            self._ended_number = number
            self._ended_s = asyncio.get_running_loop().time()
            return self._state

    def recent(self, topic_id: UUID) -> RegistryState | None:
        """The state as it was `RECENT_S` ago or later; None if it was not read since."""
        age_s = asyncio.get_running_loop().time() - self._ended_s
        return self._state if age_s <= RECENT_S and topic_id == self._topic_id else None

    async def _read(self, leader: NodeId, topic_id: UUID) -> None:
        age_s = asyncio.get_running_loop().time() - self._ended_s
        if topic_id != self._topic_id or age_s > KEPT_S_MAX:
            self._forget(topic_id)
        end_offset: int | None = None
        while end_offset is None or self._offset < end_offset:
            question = _Question(topic_id=topic_id, offset=self._offset)
            answer = await self._peers.ask(leader, METHOD, question, _Answer)
            if end_offset is None:
                end_offset = answer.end_offset
            await self._apply(answer.data)
            if self._offset < end_offset and answer.next_offset <= question.offset:
                raise InvalidRequest(f"node {leader} has no records from {self._offset} on")
            self._offset = max(self._offset, answer.next_offset)

    def _forget(self, topic_id: UUID) -> None:
        self._state = RegistryState()
        for context, highest in self._given_ids.items():
            self._state.raise_id(context, highest)
        self._topic_id = topic_id
        self._offset = 0
        self._ended_s = float("-inf")

    async def _apply(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            header = read_header(data, at)
            if not header.is_control:
                self._fold(data, at)
                await asyncio.sleep(0)
            self._offset = max(self._offset, header.end_offset)
            at += header.size

    def _fold(self, data: bytes, at: int) -> None:
        for record in decode_each(data, at, decompressed_bytes_max=self._unpacked_bytes_max):
            if record.offset < self._offset:
                continue
            try:
                key = decode_key(record.key)
                if key is not None:
                    self._state.apply(key, decode_value(key, record.value))
            except UNREADABLE:
                continue  # The leader skips it too, and says so.

    async def _serve(self, _node: NodeId, question: _Question) -> _Answer:
        replica = await self._log.confirmed_replica(question.topic_id)
        end_offset = replica.high_watermark
        offset = max(question.offset, replica.log.start_offset)
        try:
            part = replica.log.read(offset, bytes_max=READ_BYTES, end_offset=end_offset)
            if part is None:
                return _Answer(data=b"", next_offset=offset, end_offset=end_offset)
            data = await self._threads.run(part.read)
        except StorageError as problem:
            raise StorageUnavailable(str(problem)) from problem
        return _Answer(data=bytes(data), next_offset=part.end_offset, end_offset=end_offset)
