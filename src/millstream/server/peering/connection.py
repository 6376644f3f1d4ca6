"""One connection to another node: it greets, then carries frames, until something is wrong with it.

Owns the transport. A frame that breaks a rule, or a queue above `QUEUE_BYTES_MAX`, ends it.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol, cast

from millstream.errors import ProtocolError
from millstream.peers.conversation import Item, Listener, Speaker
from millstream.peers.greeting import Greeting, GreetingRefused, Peer, encode_refusal
from millstream.peers.wire import FRAME_BYTES_MAX, GREETING_BYTES_MAX, FrameReader
from millstream.server.system.tls import certified_names

_log = logging.getLogger(__name__)

# Bytes that wait for a peer to read them, on each connection. More means that it does not keep up.
QUEUE_BYTES_MAX = 32 * 2**20
GREETING_S_MAX = 5.0


class Owner(Protocol):
    def greeted(self, connection: "PeerConnection", peer: Peer) -> None:
        """The peer is proven. Called before anything else that it sent is read."""

    def receive(self, connection: "PeerConnection", item: Item) -> None: ...

    def ended(self, connection: "PeerConnection", reason: str) -> None:
        """Called once, also if the connection never was greeted."""


class PeerConnection(asyncio.Protocol):
    def __init__(self, greeting: Greeting, owner: Owner, *, message_bytes_max: int) -> None:
        self.peer: Peer | None = None
        self.is_ended = False
        self.end_reason = ""
        # What the other side said against a greeting, for the log of this one.
        self.refusal: ProtocolError | None = None
        # Done when the peer is proven, or when the connection ends before.
        self.is_settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._greeting = greeting
        self._owner = owner
        self._frames = FrameReader(GREETING_BYTES_MAX)
        self._speaker = Speaker()
        self._listener = Listener(message_bytes_max=message_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_dialler(self) -> bool:
        return self._greeting.is_dialler

    @property
    def address(self) -> str:
        """Where the other side is, once it is connected."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if name else "unknown"

    @property
    def queued_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, items: Sequence[Item]) -> None:
        """Send, in order; too much that waits ends the connection."""
        if self.is_ended or self._transport is None:
            return
        # Asked before: a message of any size passes where nothing waits.
        is_crowded = self.queued_bytes > QUEUE_BYTES_MAX
        self._transport.writelines(list(self._speaker.encode(items)))
        if is_crowded:
            self.end("the peer does not read what it is sent")
        elif self._speaker.is_full:
            self.end("all aliases are taken")

    def end(self, reason: str) -> None:
        """Drop the connection with all that waits to be sent."""
        self._finish(reason)
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it.
        if self.is_ended:
            self._transport.abort()
            return
        self._greeting.certified_names = certified_names(transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(GREETING_S_MAX, self.end, "no greeting in time")
        if self._greeting.is_dialler:
            self._transport.write(self._greeting.begin())

    def data_received(self, data: bytes) -> None:
        try:
            for kind, payload in self._frames.feed(data):
                if self.peer is None:
                    self._greet(self._greeting.receive(kind, payload))
                else:
                    for item in self._listener.receive(kind, payload):
                        if self.is_ended:
                            return
                        self._owner.receive(self, item)
                if self.is_ended:
                    return
        except ProtocolError as problem:
            self._refuse(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish("closed by the peer" if exc is None else str(exc) or type(exc).__name__)

    # -- parts -------------------------------------------------------------------------------------

    def _greet(self, reply: bytes) -> None:
        if reply and self._transport is not None:
            self._transport.write(reply)
        peer = self._greeting.peer
        if peer is None:
            return
        self.peer = peer
        self._frames.bytes_max = FRAME_BYTES_MAX
        self._cancel_timer()
        self._owner.greeted(self, peer)
        if not self.is_settled.done():
            self.is_settled.set_result(None)

    def _refuse(self, problem: ProtocolError) -> None:
        self.refusal = problem
        if self.peer is not None:
            _log.warning("broken frame of a peer node=%d problem=%s", self.peer.node_id, problem)
            self.end(f"a broken frame: {problem}")
            return
        if self._transport is not None and isinstance(problem, GreetingRefused):
            self._transport.write(encode_refusal(problem))
            self._finish(str(problem))
            self._transport.close()  # Behind the reason, which the peer shall read.
        else:
            self.end(str(problem))

    def _finish(self, reason: str) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        self.end_reason = reason
        self._cancel_timer()
        if not self.is_settled.done():
            self.is_settled.set_result(None)
        self._owner.ended(self, reason)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
