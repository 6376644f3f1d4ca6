"""The peer links of a node over TCP: it accepts, dials, and dials again.

Of two nodes the one with the greater id dials. A link is two connections, which the dialler opens
one after the other: first *bulk*, for records, then *steady*, for all else. Once the steady one is
greeted the link is up, for the acceptor first; so nothing of it can come before it is up.

Invariant: a link loses nothing while it is up. Whatever breaks one of its connections ends it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import cast

from millstream import __version__
from millstream.errors import StartupError
from millstream.model import NodeId, PeerIdentity
from millstream.names import node_name
from millstream.peers.conversation import Answer, Call, Cancel, Item, is_bulky, record_bytes
from millstream.peers.greeting import (
    NONCE_BYTES,
    Greeting,
    GreetingRefused,
    Introduction,
    Lane,
    Peer,
)
from millstream.ports import LinkReceiver, PeerMessage
from millstream.server.peering.accepting import Acceptor, Complaints, explain
from millstream.server.peering.connection import PeerConnection
from millstream.server.system.tls import PeerTls

_log = logging.getLogger(__name__)

CONNECT_S_MAX = 2.0
# Between two attempts to reach a node. Doubles up to the greater one, and varies by half.
REDIAL_S_MIN = 0.05
REDIAL_S_MAX = 1.0
# Connections that have not been greeted yet; beyond, the newest are closed.
UNGREETED_MAX = 100
MESSAGE_BYTES_OVER = 2**20  # What a message may have beside its records.


@dataclass(slots=True, eq=False)
class _Link:
    node: NodeId
    steady: PeerConnection
    bulk: PeerConnection
    waiting: list[Item] = field(default_factory=list)  # Until the end of this turn of the loop.
    waiting_bytes: int = 0  # Of their records.
    over: asyncio.Event = field(default_factory=asyncio.Event)


class PeerSockets:
    def __init__(
        self,
        identity: PeerIdentity,
        receiver: LinkReceiver,
        entropy: Random,
        *,
        records_bytes_max: int,
        tls: PeerTls | None = None,
    ) -> None:
        self.on_call: Callable[[NodeId, Call | Answer | Cancel], None] = _ignore
        self.on_change: Callable[[NodeId, bool], None] = _ignore_change
        self._identity = identity
        self._receiver = receiver
        self._entropy = entropy
        self._instance = entropy.getrandbits(63)
        self._message_bytes_max = records_bytes_max + MESSAGE_BYTES_OVER
        self._links: dict[NodeId, _Link] = {}
        self._addresses: dict[NodeId, str] = {}
        self._removed: set[NodeId] = set()
        self._diallers: dict[NodeId, asyncio.Task[None]] = {}
        self._connections: set[PeerConnection] = set()
        self._bulk: dict[tuple[NodeId, int], PeerConnection] = {}  # Greeted, without a link yet.
        self._tls = tls
        self._complaints = Complaints()
        self._acceptor = Acceptor(self._accept, tls, self._complaints)
        self._is_closed = False

    # -- for the node ------------------------------------------------------------------------------

    async def listen(self, address: str) -> str:
        """Accept peers there; return the address that was bound, `StartupError` if none was."""
        host, port = split_address(address)
        try:
            bound = await self._acceptor.open(host, port)
        except OSError as problem:
            raise StartupError(f"cannot accept other nodes at {address}: {problem}") from problem
        _log.info(
            "accepting peers address=%s:%d node=%d tls=%s",
            host,
            bound,
            self._identity.node_id,
            "no" if self._tls is None else "mutual",
        )
        return f"{host}:{bound}"

    def set_peers(self, addresses: Mapping[NodeId, str]) -> None:
        me = self._identity.node_id
        self._removed = (self._removed | self._addresses.keys()) - addresses.keys()
        self._addresses = {node: address for node, address in addresses.items() if node != me}
        for node in self._removed & self._links.keys():
            self.end(node, "removed from the cluster")
        dialled = {node for node in self._addresses if node < me}
        for node in self._diallers.keys() - dialled:
            self._diallers.pop(node).cancel()
        for node in sorted(dialled - self._diallers.keys()):
            task = asyncio.get_running_loop().create_task(self._dial_for_ever(node))
            self._diallers[node] = task

    def is_up(self, node: NodeId) -> bool:
        return node in self._links

    def send(self, node: NodeId, message: PeerMessage | Item) -> None:
        link = self._links.get(node)
        if link is None:
            return
        if not link.waiting:
            asyncio.get_running_loop().call_soon(self._flush, link)
        item = cast("Item", message)
        link.waiting.append(item)
        link.waiting_bytes += record_bytes(item)

    def queued_bytes(self, node: NodeId) -> int:
        link = self._links.get(node)
        if link is None:
            return 0
        return link.waiting_bytes + link.bulk.queued_bytes + link.steady.queued_bytes

    def end(self, node: NodeId, reason: str) -> None:
        link = self._links.pop(node, None)
        if link is None:
            return
        _log.info("lost a peer node=%d reason=%s", node, reason)
        link.waiting.clear()
        link.over.set()
        link.steady.end(reason)
        link.bulk.end(reason)
        if not self._is_closed:
            self._receiver.link_lost(node)
            self.on_change(node, False)

    def close(self) -> None:
        self._is_closed = True
        for task in self._diallers.values():
            task.cancel()
        self._diallers.clear()
        for node in list(self._links):
            self.end(node, "stopped")
        for connection in list(self._connections):
            connection.end("stopped")
        self._acceptor.close()

    # -- connection.Owner --------------------------------------------------------------------------

    def greeted(self, connection: PeerConnection, peer: Peer) -> None:
        node = peer.node_id
        if node in self._removed:
            connection.end("removed from the cluster")
        elif peer.lane is Lane.BULK:
            self._bulk[node, peer.link] = connection
        else:
            bulk = self._bulk.pop((node, peer.link), None)
            if bulk is None or bulk.is_ended:
                connection.end("a link without its bulk connection")
            else:
                self._begin(_Link(node, connection, bulk))

    def receive(self, connection: PeerConnection, item: Item) -> None:
        assert connection.peer is not None
        node = connection.peer.node_id
        link = self._links.get(node)
        if link is None or connection not in (link.steady, link.bulk):
            connection.end("records before their link is up")  # Not dropped: see the module.
            return
        if isinstance(item, Call | Answer | Cancel):
            self.on_call(node, item)
        else:
            self._receiver.receive(node, item)

    def ended(self, connection: PeerConnection, reason: str) -> None:
        self._connections.discard(connection)
        peer = connection.peer
        if peer is None:
            if connection.refusal is not None and not connection.is_dialler:
                self._complaints.say(connection.address, str(connection.refusal))
            return
        if self._bulk.get((peer.node_id, peer.link)) is connection:
            del self._bulk[peer.node_id, peer.link]
        link = self._links.get(peer.node_id)
        if link is not None and connection in (link.steady, link.bulk):
            self.end(peer.node_id, reason)

    # -- parts -------------------------------------------------------------------------------------

    def _begin(self, link: _Link) -> None:
        self.end(link.node, "a newer link")
        self._links[link.node] = link
        _log.info("reached a peer node=%d", link.node)
        self._receiver.link_up(link.node)
        self.on_change(link.node, True)

    def _flush(self, link: _Link) -> None:
        items, link.waiting, link.waiting_bytes = link.waiting, [], 0
        bulky = [item for item in items if is_bulky(item)]
        if not bulky:
            link.steady.send(items)
            return
        link.steady.send([item for item in items if not is_bulky(item)])
        link.bulk.send(bulky)

    def _introduction(self) -> Introduction:
        return Introduction(
            identity=self._identity,
            release=__version__,
            instance=self._instance,
            nonce=self._entropy.randbytes(NONCE_BYTES),
        )

    def _connect(self, greeting: Greeting) -> PeerConnection:
        connection = PeerConnection(greeting, self, message_bytes_max=self._message_bytes_max)
        self._connections.add(connection)
        return connection

    def _accept(self) -> PeerConnection:
        connection = self._connect(Greeting(self._introduction()))
        ungreeted = sum(each.peer is None for each in self._connections)
        if ungreeted > UNGREETED_MAX or self._is_closed:
            connection.end("too many connections that were not greeted")
        return connection

    async def _dial_for_ever(self, node: NodeId) -> None:
        delay_s, problem = REDIAL_S_MIN, ""
        while True:
            link = self._links.get(node)
            if link is not None:
                await link.over.wait()
                delay_s, problem = REDIAL_S_MIN, ""
            failure = await self._dial(node)
            if failure is None:
                continue
            if failure != problem:
                # Said once, not with every attempt.
                problem = failure
                _log.warning("cannot reach a peer node=%d problem=%s", node, failure)
            await asyncio.sleep(delay_s * self._entropy.uniform(0.5, 1.5))
            delay_s = min(2 * delay_s, REDIAL_S_MAX)

    async def _dial(self, node: NodeId) -> str | None:
        """Open both connections; return why it failed, None if the link is up."""
        number = self._entropy.getrandbits(63)
        opened: list[PeerConnection] = []
        try:
            for lane in (Lane.BULK, Lane.STEADY):
                opened.append(await self._dial_lane(node, number, lane))
                await opened[-1].is_settled
                if opened[-1].peer is None:
                    refusal = opened[-1].refusal
                    return str(refusal or f"closed while greeting: {opened[-1].end_reason}")
        except (OSError, TimeoutError, GreetingRefused) as problem:
            return explain(problem)
        finally:
            if node not in self._links:
                for connection in opened:
                    connection.end("not both connections could be opened")
        return None if node in self._links else "the link broke at once"

    async def _dial_lane(self, node: NodeId, number: int, lane: Lane) -> PeerConnection:
        address = self._addresses[node]
        host, port = split_address(address)
        greeting = Greeting(self._introduction(), peer=node, link=number, lane=lane)
        connection = self._connect(greeting)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                await loop.create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=None if self._tls is None else self._tls.dialling,
                    server_hostname=None if self._tls is None else node_name(node),
                )
        except TimeoutError:
            connection.end("not connected in time")
            raise TimeoutError(f"{address} did not answer in {CONNECT_S_MAX:g} s") from None
        except BaseException:
            connection.end("not connected")
            raise
        return connection


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT in its parts; `StartupError` for anything else."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise StartupError(f"{address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _ignore(node: NodeId, item: Call | Answer | Cancel) -> None:
    return


def _ignore_change(node: NodeId, is_up: bool) -> None:
    return
