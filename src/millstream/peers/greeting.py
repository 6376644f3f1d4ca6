"""The greeting of a connection between nodes: both prove that they have the cluster key.

    dialler   HELLO ->            names itself, the node that it means, and the lane
    acceptor        <- HELLO      names itself
    dialler   PROOF ->            HMAC-SHA-256 with the cluster key over both greetings
    acceptor        <- PROOF

A node that does not belong here is answered with `REFUSED` and a sentence. The nonces make each
proof worth one connection. Under TLS the certificate of each side names its node as well. Pure:
bytes in, bytes out.
"""

import hmac
from dataclasses import dataclass
from enum import Enum

import msgspec

from millstream.errors import ProtocolError
from millstream.model import NodeId, PeerIdentity
from millstream.names import node_name
from millstream.peers.wire import Kind, encode_frame

PROTOCOL_MIN = PROTOCOL_MAX = 1
NONCE_BYTES = 16
REASON_LENGTH_MAX = 500


class Lane(Enum):
    """The connections of a link."""

    STEADY = "steady"  # Heartbeats, consensus, calls.
    BULK = "bulk"  # Records that would delay heartbeats.


class GreetingRefused(ProtocolError):
    """One of both nodes does not belong to the other's cluster. Asking again soon cannot help."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    protocol_min: int
    protocol_max: int
    release: str
    cluster_id: str
    generation: int
    node_id: int
    peer_id: int  # The node that it is meant for.
    directory_id: str
    instance: int  # Of the process: another one after each start.
    link: int  # Both lanes of a link have the same number.
    lane: str
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Peer:
    """The node at the other end, proven."""

    node_id: NodeId
    directory_id: str
    instance: int
    link: int
    lane: Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What this node says of itself, and of one connection."""

    identity: PeerIdentity
    release: str
    instance: int
    nonce: bytes

    def hello(self, *, peer: NodeId, link: int, lane: Lane) -> Hello:
        identity = self.identity
        return Hello(
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
            release=self.release,
            cluster_id=identity.cluster_id,
            generation=identity.generation,
            node_id=identity.node_id,
            peer_id=peer,
            directory_id=str(identity.directory_id),
            instance=self.instance,
            link=link,
            lane=lane.value,
            nonce=self.nonce,
        )


class Greeting:
    """One side of a greeting. `begin` sends first at the dialler; then `receive` each frame."""

    def __init__(
        self,
        introduction: Introduction,
        *,
        peer: NodeId | None = None,
        link: int = 0,
        lane: Lane = Lane.STEADY,
    ) -> None:
        """With `peer` this side dials that node; without it accepts."""
        self.peer: Peer | None = None  # Set once it is proven.
        # The names in the certificate of the other side; None without TLS.
        self.certified_names: frozenset[str] | None = None
        self._introduction = introduction
        self.is_dialler = peer is not None
        self._expected = peer
        self._mine = b""
        self._theirs = b""
        self._hello: Hello | None = None
        self._link, self._lane = link, lane
        if peer is not None:
            self._mine = msgspec.msgpack.encode(introduction.hello(peer=peer, link=link, lane=lane))

    def begin(self) -> bytes:
        """The first bytes of a dialler."""
        assert self.is_dialler
        return encode_frame(Kind.HELLO, self._mine)

    def receive(self, kind: Kind, payload: bytes) -> bytes:
        """Return what is to be sent; `GreetingRefused` if they do not belong together, another
        `ProtocolError` for bytes that are no greeting. The greeting is over once `peer` is set."""
        if kind is Kind.REFUSED:
            raise GreetingRefused(_text(payload))
        if kind is Kind.HELLO and self._hello is None:
            return self._on_hello(payload)
        if kind is Kind.PROOF and self._hello is not None:
            return self._on_proof(self._hello, payload)
        raise ProtocolError(f"a greeting that does not go on with {kind.name}")

    def _on_hello(self, payload: bytes) -> bytes:
        try:
            hello = msgspec.msgpack.decode(payload, type=Hello)
            lane = Lane(hello.lane)
        except (msgspec.MsgspecError, ValueError) as problem:
            raise ProtocolError(f"a greeting that cannot be read: {problem}") from None
        self._check(hello)
        self._hello, self._theirs = hello, payload
        if self.is_dialler:
            return encode_frame(Kind.PROOF, self._proof(is_dialler=True))
        self._link, self._lane = hello.link, lane
        peer = NodeId(hello.node_id)
        mine = self._introduction.hello(peer=peer, link=hello.link, lane=lane)
        self._mine = msgspec.msgpack.encode(mine)
        return encode_frame(Kind.HELLO, self._mine)

    def _on_proof(self, hello: Hello, payload: bytes) -> bytes:
        if not hmac.compare_digest(payload, self._proof(is_dialler=not self.is_dialler)):
            raise GreetingRefused(
                f"node {hello.node_id} does not have the cluster key of node "
                f"{self._introduction.identity.node_id}"
            )
        self.peer = Peer(
            NodeId(hello.node_id), hello.directory_id, hello.instance, self._link, self._lane
        )
        if self.is_dialler:
            return b""
        return encode_frame(Kind.PROOF, self._proof(is_dialler=False))

    def _check(self, hello: Hello) -> None:
        identity = self._introduction.identity
        me, peer = identity.node_id, hello.node_id
        if hello.protocol_max < PROTOCOL_MIN or hello.protocol_min > PROTOCOL_MAX:
            problem = (
                f"node {peer} (release {hello.release[:50]}) speaks versions "
                f"{hello.protocol_min} to {hello.protocol_max} of the peer protocol, node {me} "
                f"speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}: upgrade the older one"
            )
        elif hello.cluster_id != identity.cluster_id:
            problem = (
                f"node {peer} belongs to the cluster {hello.cluster_id[:50]}, node {me} to "
                f"{identity.cluster_id}"
            )
        elif hello.generation != identity.generation:
            problem = (
                f"node {peer} is of generation {hello.generation} of the cluster, node {me} of "
                f"{identity.generation}: the older one was left behind by a recovery"
            )
        elif hello.peer_id != me:
            problem = f"node {peer} looks for node {hello.peer_id}, and this is node {me}"
        elif peer == me:
            problem = f"two nodes have the id {me}"
        elif self._expected is not None and peer != self._expected:
            problem = f"node {peer} answered instead of node {self._expected}"
        elif self.certified_names is not None and node_name(peer) not in self.certified_names:
            names = ", ".join(sorted(self.certified_names))[:200] or "nothing"
            problem = f"the certificate of node {peer} names {names}, not {node_name(peer)}"
        elif len(hello.nonce) != NONCE_BYTES:
            raise ProtocolError("a greeting without a nonce")
        else:
            return
        raise GreetingRefused(problem)

    def _proof(self, *, is_dialler: bool) -> bytes:
        """The side is part of it: no proof can be sent back to its maker."""
        first, second = (
            (self._mine, self._theirs) if self.is_dialler else (self._theirs, self._mine)
        )
        side = b"dialler" if is_dialler else b"acceptor"
        head = len(first).to_bytes(4, "big")
        key = self._introduction.identity.key
        return hmac.digest(key, side + b"\0" + head + first + second, "sha256")


def encode_refusal(problem: ProtocolError) -> bytes:
    text = str(problem)[:REASON_LENGTH_MAX]
    return encode_frame(Kind.REFUSED, text.encode())


def _text(payload: bytes) -> str:
    return payload[: 4 * REASON_LENGTH_MAX].decode(errors="replace")[:REASON_LENGTH_MAX]
