"""A vote outlives a power cut: no other candidate gets it in the same epoch.

Two leaders of one epoch would need a voter that loses its power between its vote and the first
records of the epoch. Random lives seldom meet that moment, so this is a story of its own: one whole
node, and two candidates that only ask.
"""

import asyncio
from contextlib import nullcontext
from random import Random

import pytest

from millstream.config import Config, Timing
from millstream.model import CONTROL_LOG, Epoch, NodeId, Offset, Position, replica_id
from millstream.ports import PeerMessage
from millstream.raft.link_messages import GroupMessage
from millstream.raft.messages import Hint, Vote, VoteGranted
from millstream.server.node import build_node
from tests.simulation.node_canaries import forget_votes
from tests.simulation.node_links import Network, SimulatedLinks
from tests.simulation.node_world import Machine
from tests.support.virtual_loop import run

VOTER = NodeId(1)
ANSWER_S_MAX, ASK_AGAIN_S = 5.0, 0.1


class Candidate:
    """A node that does nothing but ask for votes."""

    def __init__(self, node: int, network: Network) -> None:
        self.me = NodeId(node)
        self.links = SimulatedLinks(self.me, network)
        self.links.open(self)
        self._answers: dict[Epoch, bool] = {}

    def link_up(self, node: NodeId) -> None:
        """It asks until it is answered."""

    def link_lost(self, node: NodeId) -> None:
        """The same."""

    def receive(self, node: NodeId, message: PeerMessage) -> None:
        answer = message.message if isinstance(message, GroupMessage) else None
        if node == VOTER and isinstance(answer, VoteGranted | Hint):
            self._answers[answer.epoch] = isinstance(answer, VoteGranted)

    async def gets_vote(self, epoch: int) -> bool:
        """Whether the voter grants its vote in this epoch."""
        vote = Vote(Epoch(epoch), Position(Epoch(0), Offset(0)))
        me, voter = replica_id(self.me), replica_id(VOTER)
        async with asyncio.timeout(ANSWER_S_MAX):
            while epoch not in self._answers:
                self.links.send(VOTER, GroupMessage(CONTROL_LOG, me, voter, vote))
                await asyncio.sleep(ASK_AGAIN_S)
        return self._answers[Epoch(epoch)]


async def votes_of_one_epoch() -> list[bool]:
    """Of a candidate, of another one after a power cut, and of that one in the next epoch."""
    network = Network(Random(0))
    machine = Machine(VOTER, network, Random(0))
    timing = Timing(tick_ms=20, election_timeout_ms=200)
    config = Config(node_id=VOTER, nodes=(1, 2, 3), timing=timing)
    first, second = Candidate(2, network), Candidate(3, network)

    life = asyncio.ensure_future(build_node(config, machine.ports()).run())
    votes = [await first.gets_vote(5)]
    machine.lose_power()
    life.cancel()
    life = asyncio.ensure_future(build_node(config, machine.ports()).run())
    votes += [await second.gets_vote(5), await second.gets_vote(6)]
    life.cancel()
    return votes


@pytest.mark.parametrize("has_bug", [False, True], ids=["as it is", "with a planted bug"])
def test_a_vote_outlives_a_power_cut(has_bug: bool) -> None:
    with forget_votes() if has_bug else nullcontext():
        votes = run(votes_of_one_epoch())

    assert votes == [True, has_bug, True]
