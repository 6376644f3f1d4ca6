"""Peer links between simulated nodes: two FIFO streams each, which stall, break and are redialled.

A link ends for each side on its own, and what is in flight is lost then. A cut direction stalls;
the sides notice by silence. Calls go through the same streams as messages of consensus.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from millstream.errors import CallRefused, PeerUnreachable, RequestError, TimedOut
from millstream.model import NodeId
from millstream.ports import CallHandler, LinkReceiver, PeerIdentity, PeerMessage

STALLED_S = 0.01  # How often a stalled stream tries again.
DIAL_S_MAX = 0.04


@dataclass(frozen=True)
class _Call:
    number: int  # 0: no answer is expected.
    method: str
    payload: bytes


@dataclass(frozen=True)
class _Answer:
    number: int
    outcome: bytes | CallRefused


class _Wire:
    """One link: a queue of what is under way in each direction."""

    def __init__(self, network: "Network", ends: tuple[NodeId, NodeId]) -> None:
        self._network = network
        self._queues: dict[NodeId, deque[object]] = {end: deque() for end in ends}  # By receiver.
        self._next_s: dict[NodeId, float] = dict.fromkeys(ends, 0.0)
        self.begun: set[NodeId] = set()

    def send(self, source: NodeId, target: NodeId, item: object) -> None:
        loop = asyncio.get_running_loop()
        self._queues[target].append(item)
        due_s = loop.time() + self._network.delay_s()
        self._next_s[target] = max(self._next_s[target], due_s)
        loop.call_at(self._next_s[target], self._deliver, source, target)

    def _deliver(self, source: NodeId, target: NodeId) -> None:
        links = self._network.links.get(target)
        if links is None or not self._queues[target]:
            return
        wire = links.wires.get(source)
        is_stalled = (source, target) in self._network.cut or target not in self.begun
        if is_stalled and (wire is self or target not in self.begun):
            asyncio.get_running_loop().call_later(STALLED_S, self._deliver, source, target)
        elif wire is self:
            links.take(source, self._queues[target].popleft())


class Network:
    """Carries messages between nodes, with delays, resets and one-way cuts."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.links: dict[NodeId, SimulatedLinks] = {}
        self.reset_rate = 0.0  # How often a message breaks its link.
        self.delay_s_max = 0.01
        self.cut: set[tuple[NodeId, NodeId]] = set()  # (from, to): each way is cut on its own.
        self._is_dialling = False

    def delay_s(self) -> float:
        return self.random.uniform(0.0005, self.delay_s_max)

    def attach(self, links: "SimulatedLinks") -> None:
        self.links[links.me] = links
        if not self._is_dialling:
            self._is_dialling = True
            self._dial()

    def detach(self, node: NodeId) -> None:
        """The process is gone: its peers see the end of its streams, unless they are cut."""
        links = self.links.pop(node, None)
        if links is not None:
            for peer, wire in links.wires.items():
                self._notify_end(node, peer, wire)
            links.wires.clear()

    def reset(self, node: NodeId, peer: NodeId, reason: str) -> None:
        links = self.links.get(node)
        wire = None if links is None else links.wires.get(peer)
        if links is not None and wire is not None:
            self._notify_end(node, peer, wire)
            links.lose(peer, reason)

    def _notify_end(self, node: NodeId, peer: NodeId, wire: _Wire) -> None:
        def arrive() -> None:
            links = self.links.get(peer)
            if links is not None and links.wires.get(node) is wire:
                if (node, peer) in self.cut:
                    asyncio.get_running_loop().call_later(STALLED_S, arrive)
                else:
                    links.lose(node, "reset")

        asyncio.get_running_loop().call_later(self.delay_s(), arrive)

    def _dial(self) -> None:
        ids = sorted(self.links)
        for at, a in enumerate(ids):
            for b in ids[at + 1 :]:
                self._dial_pair(a, b)
        loop = asyncio.get_running_loop()
        loop.call_later(self.random.uniform(0.005, DIAL_S_MAX), self._dial)

    def _dial_pair(self, a: NodeId, b: NodeId) -> None:
        if (a, b) in self.cut or (b, a) in self.cut:
            return
        if b in self.links[a].wires and a in self.links[b].wires:
            return
        wire = _Wire(self, (a, b))
        for node, peer in ((a, b), (b, a)):
            asyncio.get_running_loop().call_later(
                self.random.uniform(0.0005, 0.005), self.links[node].begin, peer, wire
            )


class SimulatedLinks:
    """`ports.Links` and `ports.Calls` of one life of a node."""

    def __init__(self, me: NodeId, network: Network) -> None:
        self.me = me
        self.wires: dict[NodeId, _Wire] = {}
        self._network = network
        self._receiver: LinkReceiver
        self._watchers: list[Callable[[NodeId, bool], None]] = []
        self._handlers: dict[str, CallHandler] = {}
        self._calls: dict[int, tuple[NodeId, asyncio.Future[bytes]]] = {}
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # -- ports.Links -------------------------------------------------------------------------------

    def open(self, receiver: LinkReceiver) -> None:
        self._receiver = receiver
        self._network.attach(self)

    async def start(self, identity: PeerIdentity, listen: str) -> str:
        return listen

    def set_peers(self, addresses: Mapping[NodeId, str]) -> None:
        return  # Every node dials every other one.

    def watch(self, watcher: Callable[[NodeId, bool], None]) -> None:
        self._watchers.append(watcher)

    def is_up(self, node: NodeId) -> bool:
        return node in self.wires

    def send(self, node: NodeId, message: PeerMessage) -> None:
        wire = self.wires.get(node)
        if wire is None:
            return
        if self._network.random.random() < self._network.reset_rate:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._network.reset, self.me, node, "reset")
        wire.send(self.me, node, message)

    def queued_bytes(self, node: NodeId) -> int:
        return 0

    def end(self, node: NodeId, reason: str) -> None:
        self._network.reset(self.me, node, reason)

    def close(self) -> None:
        if self._network.links.get(self.me) is self:
            self._network.detach(self.me)

    # -- ports.Calls -------------------------------------------------------------------------------

    async def ask(self, node: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes:
        if node not in self.wires:
            raise PeerUnreachable(node, was_sent=False)
        self._number += 1
        number = self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[number] = node, answer
        self.send(node, _Call(number, method, payload))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as problem:
            raise TimedOut(f"node {node} did not answer {method}") from problem
        finally:
            self._calls.pop(number, None)

    def tell(self, node: NodeId, method: str, payload: bytes) -> None:
        self.send(node, _Call(0, method, payload))

    def serve(self, method: str, handler: CallHandler) -> None:
        self._handlers[method] = handler

    # -- for the network ---------------------------------------------------------------------------

    def begin(self, peer: NodeId, wire: _Wire) -> None:
        if self._network.links.get(self.me) is not self or wire in self.wires.values():
            return
        self.lose(peer, "a newer link")
        self.wires[peer] = wire
        wire.begun.add(self.me)
        self._receiver.link_up(peer)
        for watcher in self._watchers:
            watcher(peer, True)

    def lose(self, peer: NodeId, reason: str) -> None:
        if self.wires.pop(peer, None) is None:
            return
        self._receiver.link_lost(peer)
        for node, answer in list(self._calls.values()):
            if node == peer and not answer.done():
                answer.set_exception(PeerUnreachable(peer, was_sent=True))
        for watcher in self._watchers:
            watcher(peer, False)

    def take(self, peer: NodeId, item: object) -> None:
        match item:
            case _Call():
                task = asyncio.get_running_loop().create_task(self._answer(peer, item))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case _Answer(number, outcome):
                _, answer = self._calls.get(number, (None, None))
                if answer is None or answer.done():
                    return
                if isinstance(outcome, CallRefused):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(outcome)
            case _:
                self._receiver.receive(peer, item)

    async def _answer(self, peer: NodeId, call: _Call) -> None:
        handler = self._handlers.get(call.method)
        outcome: bytes | CallRefused
        try:
            if handler is None:
                raise CallRefused("InvalidRequest", f"no method {call.method}")
            outcome = await handler(peer, call.payload)
        except RequestError as problem:
            outcome = CallRefused(type(problem).__name__, str(problem))
        if call.number:
            self.send(peer, _Answer(call.number, outcome))
