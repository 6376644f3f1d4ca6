"""Copies damaged records of a replica here anew from another replica that holds them.

Looks for damage that readers, followers, compaction or the scrubber have met, asks the nodes of the
other voters for these offsets, and puts their batches in the place of the damage. What no node can
give stays damaged, and is asked for again later.

Invariant: only committed batches are taken, of the offsets and epochs that the journal here has for
that place, and only if every checksum holds.
"""

import asyncio
import logging
from uuid import UUID

import msgspec

from millstream.engine.cluster.members import Members
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.errors import (
    BatchTooLarge,
    InvalidRequest,
    OffsetOutOfRange,
    RequestError,
    StorageError,
    StorageUnavailable,
)
from millstream.metrics import REPAIRED_RANGES, Metrics
from millstream.model import LogId, NodeId, Offset, node_of
from millstream.ports import Ports
from millstream.replication.hub import Hub
from millstream.replication.repairing import replace_damage
from millstream.replication.replica import Replica
from millstream.storage.log.cache import NotVerified
from millstream.storage.log.verifying import INLINE_BYTES_MAX, BadRange

METHOD = "cluster.copy"
CHECK_S = 2.0
LOGS_AT_ONCE = 500  # Looked at in one turn of the event loop.
RANGES_AT_ONCE = 100  # Repaired in a round.
COPIED_BYTES_MAX = 3 * 2**20  # In one answer of a peer.
COPY_S_MAX = 10.0
RETRY_S = 60.0  # After no node could give the records.
WAITING_MAX = 10_000  # Ranges that are asked for again later.
VERIFICATIONS_MAX = 100  # Before one read.

_log = logging.getLogger(__name__)


class _Question(msgspec.Struct, frozen=True):
    topic_id: bytes
    partition: int
    base_offset: Offset
    end_offset: Offset


class _Answer(msgspec.Struct, frozen=True):
    data: bytes


class Copying:
    def __init__(
        self, members: Members, hub: Hub, ports: Ports, peers: PeerCalls, metrics: Metrics
    ) -> None:
        self._members = members
        self._hub = hub
        self._ports = ports
        self._peers = peers
        self._metrics = metrics
        self._retry_s: dict[tuple[LogId, Offset], float] = {}
        peers.serve(METHOD, _Question, self._serve)

    async def run(self) -> None:
        """Repair what is damaged until cancelled, once there is a cluster."""
        await self._members.is_in_cluster.wait()
        while True:
            await self.repair_all()
            await asyncio.sleep(CHECK_S)

    async def repair_all(self) -> None:
        for replica, bad in await self._damaged():
            try:
                await self._repair(replica, bad)
            except RequestError as problem:
                self._wait(replica, bad)
                _log.warning(
                    "damaged records were not copied anew log=%s offset=%d problem=%s",
                    replica.name,
                    bad.base_offset,
                    problem,
                )

    # -- parts -----------------------------------------------------------------------------

    async def _damaged(self) -> list[tuple[Replica, BadRange]]:
        now_s = asyncio.get_running_loop().time()
        self._retry_s = {key: at for key, at in self._retry_s.items() if at > now_s}
        damaged: list[tuple[Replica, BadRange]] = []
        for at, (log_id, replica) in enumerate(list(self._hub.replicas.items()), start=1):
            if at % LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if replica.is_gone or len(replica.core.voters) < 2:
                continue
            damaged += [
                (replica, bad)
                for bad in replica.log.damage()
                if (log_id, bad.base_offset) not in self._retry_s
            ]
        return damaged[:RANGES_AT_ONCE]

    def _wait(self, replica: Replica, bad: BadRange) -> None:
        if len(self._retry_s) < WAITING_MAX:
            until = asyncio.get_running_loop().time() + RETRY_S
            self._retry_s[replica.id, bad.base_offset] = until

    async def _repair(self, replica: Replica, bad: BadRange) -> None:
        """Raise what the last node that was asked refused."""
        problem: RequestError = StorageUnavailable("no node with another replica can be reached")
        for node in sorted({node_of(voter) for voter in replica.core.voters}):
            if node == self._members.me or not self._members.is_up(node):
                continue
            try:
                answer = await self._ask(node, replica.id, bad)
                await replace_damage(
                    replica, bad, answer.data, commits=self._hub.commits, ports=self._ports
                )
            except RequestError as refusal:
                problem = refusal
                continue
            self._metrics.add(REPAIRED_RANGES)
            _log.warning(
                "copied damaged records anew log=%s offsets=%d..%d from=%d file=%s",
                replica.name,
                bad.base_offset,
                bad.end_offset - 1,
                node,
                bad.path,
            )
            return
        raise problem

    async def _ask(self, node: NodeId, log_id: LogId, bad: BadRange) -> _Answer:
        question = _Question(
            log_id.topic_id.bytes, log_id.partition, bad.base_offset, bad.end_offset
        )
        return await self._peers.ask(node, METHOD, question, _Answer, timeout_s=COPY_S_MAX)

    async def _serve(self, _node: NodeId, question: _Question) -> _Answer:
        replica = self._hub.find(LogId(UUID(bytes=question.topic_id), question.partition))
        offset, end_offset = question.base_offset, question.end_offset
        if not replica.log.start_offset <= offset < end_offset <= replica.high_watermark:
            raise InvalidRequest(
                f"{replica.name} has no committed records from {offset} to {end_offset - 1} here"
            )
        parts: list[bytes] = []
        while offset < end_offset:
            data, offset = await self._read(replica, offset, end_offset)
            parts.append(data)
            if sum(map(len, parts)) > COPIED_BYTES_MAX:
                raise BatchTooLarge(sum(map(len, parts)), COPIED_BYTES_MAX)
        return _Answer(b"".join(parts))

    async def _read(
        self, replica: Replica, offset: Offset, end_offset: Offset
    ) -> tuple[bytes, Offset]:
        """Some verified batches from `offset` on, and where the next one begins."""
        try:
            for _ in range(VERIFICATIONS_MAX):
                try:
                    records = replica.log.read(
                        offset,
                        bytes_max=COPIED_BYTES_MAX,
                        end_offset=end_offset,
                        verified_bytes_max=INLINE_BYTES_MAX,
                    )
                except NotVerified as unverified:
                    await self._hub.verify(unverified.work)
                    continue
                if records is None:
                    return b"", end_offset
                return await self._ports.threads.run(records.read), records.end_offset
        except (StorageError, OffsetOutOfRange) as problem:
            raise StorageUnavailable(str(problem)) from problem
        raise StorageUnavailable(f"{replica.name} cannot be verified at offset {offset}")
