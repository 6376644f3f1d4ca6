"""Links and calls of a real node: nothing until `start`, so that a node alone loads none of it."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from random import Random
from typing import TYPE_CHECKING

from millstream.errors import PeerUnreachable, StartupError
from millstream.model import NodeId, PeerIdentity
from millstream.ports import CallHandler, LinkReceiver, PeerMessage, Secrets, Threads
from millstream.security.settings import Peers

if TYPE_CHECKING:
    from millstream.server.peering.calls import PeerCalls
    from millstream.server.peering.sockets import PeerSockets
    from millstream.server.system.tls import PeerTls

_log = logging.getLogger(__name__)

IN_CLEAR = Peers()


class RealPeers:
    """`ports.Links` and `ports.Calls` over TCP."""

    def __init__(
        self,
        entropy: Random,
        settings: Peers = IN_CLEAR,
        secrets: Secrets | None = None,
        threads: Threads | None = None,
        *,
        records_bytes_max: int,
    ) -> None:
        self._entropy = entropy
        self._secrets = secrets
        self._threads = threads
        self._settings = settings
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
            tls=await self._read_tls(identity, listen),
        )
        bound = await sockets.listen(listen)
        self._sockets = sockets
        self._calls = PeerCalls(sockets, self._handlers)
        sockets.on_change = self._change
        sockets.set_peers(self._addresses)
        return bound

    def set_peers(self, addresses: Mapping[NodeId, str]) -> None:
        instead = self._settings.address_by_node
        self._addresses = {node: instead.get(node, address) for node, address in addresses.items()}
        if self._sockets is not None:
            self._sockets.set_peers(self._addresses)

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

    async def _read_tls(self, identity: PeerIdentity, listen: str) -> "PeerTls | None":
        if self._settings.has_tls:
            from millstream.server.system.tls import PeerTls

            secrets, threads = self._secrets, self._threads
            assert secrets is not None
            assert threads is not None
            make = partial(PeerTls, self._settings, identity.node_id, secrets, threads)
            return await threads.run(make)
        if not _is_private(listen.rpartition(":")[0]):
            _log.warning(
                "nodes talk to each other in clear address=%s: set peers.certificate, peers.key "
                "and peers.ca, or keep the port inside a network that you trust",
                listen,
            )
        return None

    def _change(self, node: NodeId, is_up: bool) -> None:
        if not is_up and self._calls is not None:
            self._calls.link_lost(node)
        for watcher in self._watchers:
            watcher(node, is_up)


def _is_private(host: str) -> bool:
    """Whether an address is one of this machine or of a private network, as far as it says."""
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        return True  # A name: its network is not known.
    return address.is_private and not address.is_unspecified
