"""The peer links of a node for its replicas: a fetch waits for room, and not beyond its `Left`."""

import asyncio
from dataclasses import replace

import pytest

from millstream.config import Config
from millstream.metrics import Metrics
from millstream.model import ORIGIN, Epoch, LastStop, NodeId
from millstream.ports import LinkReceiver, PeerMessage
from millstream.raft.link_messages import GroupMessage, Left
from millstream.raft.messages import Fetch, Hint
from millstream.replication.hub import Hub
from millstream.replication.peering.node_links import DEFERRED_S, QUEUED_BYTES_MAX
from millstream.server.system.real_ports import NoLinks
from millstream.settings import TopicSettings
from millstream.storage.journal.journal import open_journal
from tests.support.nodes import fake_ports
from tests.support.virtual_loop import run
from tests.unit.replication.test_hub import FIRST, ONE, TWO

PEER = NodeId(2)


class CrowdedLinks(NoLinks):
    """Links with as much in their queue as the test says."""

    def __init__(self) -> None:
        self.queued = QUEUED_BYTES_MAX + 1
        self.sent: list[PeerMessage] = []
        self.receiver: LinkReceiver

    def open(self, receiver: LinkReceiver) -> None:
        self.receiver = receiver

    def queued_bytes(self, node: NodeId) -> int:
        return self.queued

    def send(self, node: NodeId, message: PeerMessage) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("ending", ["room", "left", "lost"])
def test_a_fetch_waits_for_room_and_is_thrown_away_with_its_epoch_or_link(ending: str) -> None:
    async def story() -> None:
        links = CrowdedLinks()
        ports = replace(fake_ports(), links=links)
        hub = Hub(
            NodeId(1),
            ports,
            open_journal(ports.files, bytes_max=2**20),
            config=Config(nodes=(1, 2)),
            metrics=Metrics(),
            last_stop=LastStop(False, {}),
        )
        hub.keep_now(FIRST, frozenset({ONE, TWO}), TopicSettings(), name="orders-0")
        links.receiver.link_up(PEER)
        links.sent.clear()
        epoch = Epoch(0)
        links.receiver.receive(PEER, GroupMessage(FIRST, TWO, ONE, Fetch(epoch, ORIGIN, 0)))
        await asyncio.sleep(10 * DEFERRED_S)
        assert links.sent == []

        if ending == "left":
            links.receiver.receive(PEER, Left(FIRST, TWO, epoch))
        elif ending == "lost":
            links.receiver.link_lost(PEER)
            links.receiver.link_up(PEER)
            links.sent.clear()
        links.queued = 0
        await asyncio.sleep(10 * DEFERRED_S)
        hints = [GroupMessage(FIRST, ONE, TWO, Hint(epoch, None))]
        assert links.sent == (hints if ending == "room" else [])

    run(story())
