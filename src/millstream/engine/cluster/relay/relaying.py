"""Passes requests on to other nodes, from the first link on: a node alone loads none of it."""

from typing import NamedTuple

from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.controller import Controller
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.ledgers.exactly_once import WriterContext
from millstream.engine.partitions.service import Partitions
from millstream.engine.producer_ids import ProducerIds
from millstream.engine.push.assembly import Delivering
from millstream.engine.runtime.background import BackgroundTasks
from millstream.engine.schemas.log import UNPACKED_BYTES_MAX, RegistryLog
from millstream.model import NodeId, TopicPartition
from millstream.ports import Links, Threads
from millstream.replication.hub import Hub


class Relayed(NamedTuple):
    """What passes requests on, and what it needs to reach other nodes."""

    controller: Controller
    hub: Hub
    threads: Threads
    peers: PeerCalls
    producer_ids: ProducerIds  # Its gate must admit the broker.
    background: BackgroundTasks
    partitions: Partitions
    push: Delivering
    writer_context: WriterContext
    delayed: DelayedScheduler
    registry: RegistryLog | None  # None: the registry is off.


def on_first_link(links: Links, relayed: Relayed, *, me: NodeId) -> None:
    """Have services pass on what other nodes lead, once there is one."""

    def link_changed(node: NodeId, is_up: bool) -> None:
        if relayed.partitions.remote is None:
            _connect(links, relayed, me)

    links.watch(link_changed)


def _connect(links: Links, relayed: Relayed, me: NodeId) -> None:
    from millstream.engine.cluster.relay.remote_partitions import RemotePartitions
    from millstream.engine.ledgers.remote_logs import RemoteAppends
    from millstream.engine.push.remote.service import RemoteSubscriptions
    from millstream.engine.schemas.copying import RegistryCopy

    state, leadership = relayed.controller.state, relayed.hub.leadership

    def leader_of(target: TopicPartition) -> NodeId | None:
        return leadership.of(state.catalog.find(target.topic).log(target.partition)).leader

    relayed.partitions.remote = RemotePartitions(
        relayed.partitions,
        relayed.peers,
        relayed.producer_ids,
        relayed.background,
        me=me,
        leader_of=leader_of,
    )
    deliveries = relayed.push.deliveries
    deliveries.remote = RemoteSubscriptions(
        deliveries,
        relayed.push.shards,
        relayed.peers,
        links,
        relayed.background,
        me=me,
        nodes=lambda: [node.node_id for node in state.nodes.members()],
    )
    RemoteAppends(relayed.peers, relayed.writer_context)
    relayed.delayed.connect(relayed.peers)
    if relayed.registry is not None:
        relayed.registry.copy = RegistryCopy(
            relayed.registry,
            relayed.peers,
            relayed.threads,
            relayed.registry.given_ids,
            unpacked_bytes_max=UNPACKED_BYTES_MAX,
        )
