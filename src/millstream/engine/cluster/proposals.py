"""Proposals to the control log from any node, and how far a follower has to fold.

The leader writes a command of another node with a tag as its key and answers with its offset. The
proposer takes the outcome from its own fold, which is the same on every node. If its fold passes
that offset without the tag, the command was lost with its leader and is sent again.

Invariant: a command is sent again only if it is known not to be in the log.
"""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from millstream.control.state import Outcome
from millstream.engine.cluster.peer_calls import Nothing, PeerCalls
from millstream.engine.runtime.futures import ignore_outcome
from millstream.errors import (
    LeaderNotReady,
    NotLeader,
    Overloaded,
    PeerUnreachable,
    RequestError,
    TimedOut,
)
from millstream.errors.cluster import UnknownOutcome
from millstream.model import NodeId, Offset
from millstream.replication.replica import Replica

if TYPE_CHECKING:  # It imports this module.
    from millstream.engine.controller import Controller

PROPOSAL_S_MAX = 10.0  # From the first attempt to the outcome.
LEADERLESS_S_MAX = 4.0  # Longer than an election: a node that is cut off says so soon.
RETRY_S = 0.05
WAITING_MAX = 10_000  # Proposals of this node that wait for their outcome.


class _Proposal(msgspec.Struct, frozen=True):
    tag: bytes
    command: bytes


class _Offset(msgspec.Struct, frozen=True):
    offset: Offset


class Proposals:
    def __init__(self, me: NodeId, instance: int, peers: PeerCalls) -> None:
        """`instance` is drawn anew for each process: tags of an earlier one are not ours."""
        self._prefix = b"%d/%x/" % (me, instance)
        self._peers = peers
        self._count = 0
        self._waiting: dict[bytes, asyncio.Future[Outcome]] = {}
        self._controller: Controller
        self._replica: Replica

    def connect(self, controller: "Controller", replica: Replica) -> None:
        self._controller, self._replica = controller, replica
        self._peers.serve("control.propose", _Proposal, self._write)
        self._peers.serve("control.watermark", Nothing, self._watermark)

    def applied(self, tag: bytes, outcome: Outcome | RequestError) -> None:
        """The fold has passed a command with a tag."""
        future = self._waiting.get(tag)
        if future is None or future.done():
            return
        if isinstance(outcome, RequestError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    async def forward(self, data: bytes) -> Outcome:
        """Have the leader commit a command, and return its outcome here; raise its refusal.

        `NotLeader` if no leader took it in `PROPOSAL_S_MAX`, or none was known for
        `LEADERLESS_S_MAX`; `UnknownOutcome` if one may have taken it.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} proposals wait for the control log")
        self._count += 1
        tag = self._prefix + b"%d" % self._count
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.add_done_callback(ignore_outcome)
        self._waiting[tag] = future
        is_sent = False
        try:
            async with asyncio.timeout(PROPOSAL_S_MAX):
                while True:
                    is_sent = False
                    offset = await self._try(_Proposal(tag, data))
                    is_sent = True
                    if await self._passed(offset, future):
                        return future.result()
        except TimeoutError:
            if is_sent:
                raise UnknownOutcome("the control log did not answer in time") from None
            raise NotLeader(self._replica.name, self._controller.leader) from None
        finally:
            del self._waiting[tag]

    async def catch_up(self) -> None:
        """Wait until all is applied here that the leader knew to be committed when it was asked."""
        while not self._replica.is_ready or not self._replica.is_leader:
            leader = self._controller.leader
            if leader is not None and not self._replica.is_leader:
                try:
                    mark = await self._peers.ask(leader, "control.watermark", Nothing(), _Offset)
                except RequestError:
                    await asyncio.sleep(RETRY_S)
                    continue
                await self._folded_to(mark.offset)
                return
            await self._controller.next_fold()

    # -- parts -----------------------------------------------------------------------------

    async def _try(self, proposal: _Proposal) -> Offset:
        """Give a command to the leader; return where it was written, in the end. -1: unknown."""
        loop = asyncio.get_running_loop()
        known_s = loop.time()
        while True:
            leader = self._controller.leader
            if leader is not None:
                known_s = loop.time()
            elif loop.time() - known_s > LEADERLESS_S_MAX:
                raise NotLeader(self._replica.name, None)
            try:
                if self._replica.is_leader:
                    return self._controller.write(proposal.tag, proposal.command)
                if leader is not None:
                    answer = await self._peers.ask(leader, "control.propose", proposal, _Offset)
                    return answer.offset
            except PeerUnreachable as problem:
                if problem.was_sent:
                    return -1
            except TimedOut:
                return -1
            except (NotLeader, LeaderNotReady):
                pass  # Nothing was written.
            except RequestError:
                # The reason, such as a topic that exists, may not be known here yet.
                await self.catch_up()
                raise
            await asyncio.sleep(RETRY_S)

    async def _passed(self, offset: Offset, future: "asyncio.Future[Outcome]") -> bool:
        """Wait until the fold has applied the command, or has passed its offset without it."""
        while not future.done():
            if 0 <= offset < self._controller.applied_offset:
                return False
            await self._controller.next_fold()
        return True

    async def _folded_to(self, offset: Offset) -> None:
        while self._controller.applied_offset < offset:
            await self._controller.next_fold()

    async def _write(self, _node: NodeId, proposal: _Proposal) -> _Offset:
        return _Offset(self._controller.write(proposal.tag, proposal.command))

    async def _watermark(self, _node: NodeId, _question: Nothing) -> _Offset:
        replica = self._replica
        if not replica.is_leader:
            raise NotLeader(replica.name, replica.leader)
        if not replica.is_ready:
            raise LeaderNotReady(replica.name)
        return _Offset(replica.high_watermark)
