"""The peer links of a node: which peers it reaches, their heartbeats, and what each group has said.

Owns the links and the heartbeat numbers. Pure: the driver opens and closes the streams, passes the
time in, and carries what `send` is given, in order, or ends the link.

Invariant: a node echoes a heartbeat only after the `Left` of every epoch that its replicas left
before it came. `GroupLinks.stepped` sends it in the very step, and heartbeats are echoed in a later
one.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from millstream.model import Epoch, LogId, NodeId, ReplicaId, node_of
from millstream.raft.link_messages import (
    GroupMessage,
    Heartbeat,
    Left,
    LinkMessage,
    PositionsSent,
)
from millstream.raft.messages import Hint

if TYPE_CHECKING:
    from millstream.replication.peering.group import GroupLinks


@dataclass(slots=True)
class Link:
    """One peer link as this node knows it. Nothing of it outlives it."""

    peer: NodeId
    heard_ms: int  # When the last heartbeat came.
    heard: int = 0  # The highest heartbeat number of the peer over this link.
    echoed: int = 0  # The highest own number that came back over it.
    echoed_ms: int = 0  # When it came; that the link began counts, too.
    # The epochs of fetches that came over it, and of those that were sent over it.
    fetched: dict[tuple[LogId, ReplicaId], Epoch] = field(default_factory=dict)
    asked: dict[LogId, Epoch] = field(default_factory=dict)
    has_positions: bool = False  # The peer has sent its positions: what it did not say is not so.


class PeerLinks:
    def __init__(
        self,
        me: NodeId,
        groups: MutableMapping[LogId, "GroupLinks"],
        send: Callable[[NodeId, LinkMessage], None],
        *,
        silence_ms_max: int,
    ) -> None:
        """`silence_ms_max` without a heartbeat ends a link: the election timeout."""
        self.me = me
        self.links: dict[NodeId, Link] = {}
        self.number = 0  # Of the last heartbeat sent, over any link.
        self.asking: dict[LogId, GroupLinks] = {}  # Groups with reads that wait.
        self._groups = groups
        self._send = send
        self._silence_ms_max = silence_ms_max
        self._asks_for_echoes = False

    # -- what groups ask -------------------------------------------------------------------------

    def reaches(self, replica: ReplicaId) -> bool:
        node = node_of(replica)
        return node == self.me or node in self.links

    def is_absent(self, replica: ReplicaId) -> bool:
        """Whether its node has no link, or one over which it has not sent its positions."""
        link = self.links.get(node_of(replica))
        return link is None or not link.has_positions

    def echo_of(self, log: LogId, replica: ReplicaId, epoch: Epoch) -> int:
        """See `group.is_confirmed`."""
        link = self.links.get(node_of(replica))
        if link is None or link.fetched.get((log, replica)) != epoch:
            return 0
        return link.echoed

    def is_heard_by(self, log: LogId, replica: ReplicaId, epoch: Epoch, now_ms: int) -> bool:
        """Whether the replica was in the epoch within half the time that a link may be silent."""
        link = self.links.get(node_of(replica))
        if link is None or link.fetched.get((log, replica)) != epoch:
            return False
        return now_ms - link.echoed_ms <= self._silence_ms_max // 2

    def forget(self, log: LogId) -> None:
        """The replica here is closed: messages for it are answered by a `Hint`."""
        self._groups.pop(log, None)

    def send(self, to: ReplicaId, message: LinkMessage) -> None:
        """Send over the link to the replica's node; without a link it is lost."""
        if node_of(to) in self.links:
            self._send(node_of(to), message)

    def send_left(self, peer: NodeId, left: Left) -> None:
        self._send_to(peer, left)

    def ask_for_echoes(self) -> int:
        """Ask all peers for an echo with the next `flush`; return the least number that counts."""
        self._asks_for_echoes = True
        return self.number + 1

    def flush(self) -> None:
        """Send the heartbeats that were asked for: one to each peer for all that asked."""
        if self._asks_for_echoes:
            self._asks_for_echoes = False
            self._beat_all(wants_echo=True)

    # -- the life of a link ------------------------------------------------------------------------

    def begin(self, peer: NodeId, now_ms: int) -> None:
        """Both streams are open and greeted. A link that is there ends first."""
        assert peer != self.me
        if peer in self.links:
            self.end(peer)
        self.links[peer] = Link(peer, now_ms, echoed_ms=now_ms)
        for group in list(self._groups.values()):
            group.link_began(peer)
        self._send_to(peer, PositionsSent())

    def end(self, peer: NodeId) -> None:
        """A stream broke, or the peer was silent for too long: nothing sent over it counts."""
        if self.links.pop(peer, None) is not None:
            for group in list(self._groups.values()):
                group.link_ended(peer)

    def tick(self, now_ms: int) -> list[NodeId]:
        """Send a heartbeat to each peer; end the links that were silent for too long and return
        their peers, whose streams the driver closes."""
        silent = [
            peer
            for peer, link in self.links.items()
            if now_ms - link.heard_ms > self._silence_ms_max
        ]
        for peer in silent:
            self.end(peer)
        self._asks_for_echoes = False
        self._beat_all(wants_echo=bool(self.asking))
        return silent

    def receive(self, peer: NodeId, message: LinkMessage, now_ms: int) -> None:
        link = self.links.get(peer)
        if link is None:
            return  # It came over a link that has ended.
        match message:
            case Heartbeat():
                self._on_heartbeat(link, message, now_ms)
            case Left():
                self._on_left(link, message)
            case PositionsSent():
                link.has_positions = True
                for group in list(self._groups.values()):
                    group.positions_came(peer)
            case GroupMessage():
                self._on_group_message(link, message)
            case _:
                assert_never(message)

    # -- parts -----------------------------------------------------------------------------------

    def _on_heartbeat(self, link: Link, beat: Heartbeat, now_ms: int) -> None:
        link.heard_ms = now_ms
        link.heard = max(link.heard, beat.number)
        if beat.echo > link.echoed:
            link.echoed, link.echoed_ms = beat.echo, now_ms
        if beat.wants_echo:
            self._beat(link, wants_echo=False)
        for group in list(self.asking.values()):
            group.answer_questions()

    def _on_left(self, link: Link, left: Left) -> None:
        key = left.log, left.replica
        if link.fetched.get(key) == left.epoch:
            del link.fetched[key]
        group = self._groups.get(left.log)
        if group is not None:
            group.peer_left(left.replica, left.epoch)

    def _on_group_message(self, link: Link, item: GroupMessage) -> None:
        group = self._groups.get(item.log)
        if node_of(item.sender) != link.peer:
            return
        if group is None or group.me != item.receiver:
            # Answered, never dropped: the sender may wait for it.
            if not isinstance(item.message, Hint):
                answer = Hint(item.message.epoch, None)
                self._send_to(link.peer, GroupMessage(item.log, item.receiver, item.sender, answer))
            return
        group.receive(link, item.sender, item.message)

    def _beat_all(self, *, wants_echo: bool) -> None:
        for link in list(self.links.values()):
            self._beat(link, wants_echo=wants_echo)

    def _beat(self, link: Link, *, wants_echo: bool) -> None:
        self.number += 1
        self._send_to(link.peer, Heartbeat(self.number, link.heard, wants_echo))

    def _send_to(self, peer: NodeId, message: LinkMessage) -> None:
        if peer in self.links:
            self._send(peer, message)
