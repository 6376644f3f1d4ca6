"""Links and calls of a real node: nothing until `start`, so that a node alone loads none of it."""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from millstream.errors import PeerUnreachable, StartupError
from millstream.model import NodeId, PeerIdentity
from millstream.ports import CallHandler, LinkReceiver, PeerMessage

if TYPE_CHECKING:
    from millstream.server.peering.calls import PeerCalls
    from millstream.server.peering.sockets import PeerSockets


class RealPeers:
    """`ports.Links` and `ports.Calls` over TCP."""

    def __init__(self, entropy: Random, *, records_bytes_max: int) -> None:
        self._entropy = entropy
        self._records_bytes_max = records_bytes_max
        self._receiver: LinkReceiver | None = None
        self._watchers: list[Callable[[NodeId, bool], None]] = []
        self._handlers: dict[str, CallHandler] = {}
        self._addresses: Mapping[NodeId, str] = {}
        self._sockets: PeerSockets | None = None
        self._calls: PeerCalls | None = None

    # -- ports.Links -------------------------------------------------------------------------------

    def open(self, receiver: LinkReceiver) -> None:
        self._receiver = receiver

    async def start(self, identity: PeerIdentity, listen: str) -> str:
        assert self._receiver is not None, "links are opened before they are started"
        assert self._sockets is None, "links are started once"
        if len(identity.key) < 16:
            raise StartupError("the cluster key is shorter than 16 bytes")
        from millstream.server.peering.calls import PeerCalls
        from millstream.server.peering.sockets import PeerSockets

        sockets = PeerSockets(
            identity,
            self._receiver,
            self._entropy,
            records_bytes_max=self._records_bytes_max,
        )
        bound = await sockets.listen(listen)
        self._sockets = sockets
        self._calls = PeerCalls(sockets, self._handlers)
        sockets.on_change = self._change
        sockets.set_peers(self._addresses)
        return bound

    def set_peers(self, addresses: Mapping[NodeId, str]) -> None:
        self._addresses = dict(addresses)
        if self._sockets is not None:
            self._sockets.set_peers(addresses)

    def watch(self, watcher: Callable[[NodeId, bool], None]) -> None:
        self._watchers.append(watcher)

    def is_up(self, node: NodeId) -> bool:
        return self._sockets is not None and self._sockets.is_up(node)

    def send(self, node: NodeId, message: PeerMessage) -> None:
        if self._sockets is not None:
            self._sockets.send(node, message)

    def queued_bytes(self, node: NodeId) -> int:
        return 0 if self._sockets is None else self._sockets.queued_bytes(node)

    def end(self, node: NodeId, reason: str) -> None:
        if self._sockets is not None:
            self._sockets.end(node, reason)

    def close(self) -> None:
        if self._sockets is not None and self._calls is not None:
            self._calls.close()
            self._sockets.close()

    # -- ports.Calls -------------------------------------------------------------------------------

    async def ask(self, node: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes:
        if self._calls is None:
            raise PeerUnreachable(node, was_sent=False)
        return await self._calls.ask(node, method, payload, timeout_s=timeout_s)

    def tell(self, node: NodeId, method: str, payload: bytes) -> None:
        if self._calls is not None:
            self._calls.tell(node, method, payload)

    def serve(self, method: str, handler: CallHandler) -> None:
        self._handlers[method] = handler

    # -- parts -------------------------------------------------------------------------------------

    def _change(self, node: NodeId, is_up: bool) -> None:
        if not is_up and self._calls is not None:
            self._calls.link_lost(node)
        for watcher in self._watchers:
            watcher(node, is_up)
