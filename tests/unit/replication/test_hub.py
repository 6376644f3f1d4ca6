"""All replicas of a node: one that meets what cannot be stops alone."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from millstream.codec.batch import PREFIX_BYTES, read_header, stamp
from millstream.config import Config
from millstream.errors import DamagedLog, StorageUnavailable
from millstream.metrics import Metrics
from millstream.model import (
    ORIGIN,
    Boundary,
    Epoch,
    LastStop,
    LogId,
    NodeId,
    Position,
    ReplicaId,
    node_of,
    replica_id,
)
from millstream.ports import LinkReceiver, PeerMessage
from millstream.raft.link_messages import GroupMessage
from millstream.raft.messages import FetchReply, Hint, Lead, Message
from millstream.replication.group_commit import NOTE_S
from millstream.replication.hub import Hub
from millstream.server.system.real_ports import NoLinks
from millstream.settings import TopicSettings
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.journal.journal import open_journal
from tests.support.nodes import batch, fake_ports
from tests.support.virtual_loop import run

FIRST, SECOND = LogId(UUID(int=7), 0), LogId(UUID(int=7), 1)
ONE, TWO, THREE = ReplicaId(1), ReplicaId(2), ReplicaId(3)


class ScriptedLinks(NoLinks):
    """Notes what is sent; the test says what arrives."""

    def __init__(self) -> None:
        self.sent: list[PeerMessage] = []
        self.receiver: LinkReceiver

    def open(self, receiver: LinkReceiver) -> None:
        self.receiver = receiver

    def send(self, node: NodeId, message: PeerMessage) -> None:
        self.sent.append(message)

    def receive(self, log: LogId, sender: ReplicaId, receiver: ReplicaId, message: Message) -> None:
        self.receiver.receive(node_of(sender), GroupMessage(log, sender, receiver, message))

    def reach(self, *nodes: ReplicaId) -> None:
        for node in nodes:
            self.receiver.link_up(node_of(node))


def new_hub(links: ScriptedLinks, files: MemoryFiles | None = None) -> Hub:
    ports = replace(fake_ports(files), links=links)
    journal = open_journal(ports.files, bytes_max=2**20)
    config = Config(nodes=(1, 2, 3))
    return Hub(
        NodeId(1), ports, journal, config=config, metrics=Metrics(), last_stop=LastStop(False, {})
    )


def test_a_replica_whose_peer_breaks_a_rule_stops_and_the_others_go_on() -> None:
    async def story() -> None:
        links = ScriptedLinks()
        hub = new_hub(links)
        links.reach(TWO, THREE)
        for log_id in (FIRST, SECOND):
            hub.keep_now(log_id, frozenset({ONE, TWO, THREE}), TopicSettings(), name=str(log_id))

        links.receive(FIRST, TWO, ONE, Lead(Epoch(1)))
        links.receive(FIRST, THREE, ONE, Lead(Epoch(1)))  # Two leaders in one epoch.
        links.receive(SECOND, TWO, ONE, Lead(Epoch(1)))

        stopped, other = hub.replicas[FIRST], hub.replicas[SECOND]
        assert "two leaders in one epoch" in str(stopped.failure)
        assert stopped.leader is None
        assert other.failure is None
        assert other.leader == 2
        links.sent.clear()
        links.receive(FIRST, TWO, ONE, Lead(Epoch(2)))
        # Answered, never dropped; and no vote, fetch or word of it as a replica.
        assert links.sent == [GroupMessage(FIRST, ONE, TWO, Hint(Epoch(2), None))]
        with pytest.raises(StorageUnavailable, match="broke a rule of consensus"):
            stopped.append(b"", None)  # type: ignore[arg-type]
        await asyncio.sleep(0)

    run(story())


def test_a_message_for_an_earlier_incarnation_is_not_taken() -> None:
    async def story() -> None:
        links = ScriptedLinks()
        hub = new_hub(links)
        links.reach(TWO, THREE)
        mine = replica_id(NodeId(1), 40)
        founders = frozenset({mine, TWO, THREE})
        replica = hub.keep_now(FIRST, founders, TopicSettings(), name="orders-0")

        links.receive(FIRST, TWO, ONE, Lead(Epoch(1)))
        assert replica.leader is None
        links.receive(FIRST, TWO, mine, Lead(Epoch(1)))
        assert replica.leader == 2
        await asyncio.sleep(0)

    run(story())


@pytest.mark.parametrize("loss", ["directory", "tail"])
def test_a_voter_that_lost_durable_records_does_not_open_as_a_shorter_one(loss: str) -> None:
    async def story() -> None:
        files, links = MemoryFiles(), ScriptedLinks()
        await follow_for_a_while(new_hub(links, files), links)
        directory = f"logs/{FIRST}"
        if loss == "directory":
            files.remove_directory(directory)
        else:
            segment = files.open(f"{directory}/{0:020}.log")
            segment.truncate(segment.size() - 1)

        hub = new_hub(links, files)
        founders = frozenset({ONE, TWO, THREE})
        with pytest.raises(DamagedLog, match="was durable up to 2"):
            hub.keep_now(FIRST, founders, TopicSettings(), name="orders-0")

    run(story())


async def follow_for_a_while(hub: Hub, links: ScriptedLinks) -> None:
    """Two records, committed by the leader and durable here; then the process is killed."""
    founders = frozenset({ONE, TWO, THREE})
    replica = hub.keep_now(FIRST, founders, TopicSettings(), name="orders-0")
    running = asyncio.get_running_loop().create_task(hub.commits.run())
    links.reach(TWO)
    epoch = Epoch(1)
    opening = Boundary(epoch, 0, founders)
    data = batch(b"a", b"b")
    _, prefix = stamp(read_header(data), base_offset=0, epoch=epoch)
    for base, boundaries, records, watermark in (
        (ORIGIN, (opening,), bytes(prefix) + data[PREFIX_BYTES:], 0),
        (Position(epoch, 2), (), b"", 2),
    ):
        reply = FetchReply(
            epoch=epoch,
            base=base,
            boundaries=boundaries,
            records=records,
            high_watermark=watermark,
            start_offset=0,
        )
        links.receive(FIRST, TWO, ONE, reply)
        await asyncio.sleep(0.1)
    assert replica.high_watermark == 2
    await asyncio.sleep(NOTE_S)
    await hub.commits.synced(replica)
    running.cancel()
