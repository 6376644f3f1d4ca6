"""Peer links over real sockets: up on both sides or on none, in order, and lost with a word."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from uuid import UUID

import pytest
import uvloop

from millstream.errors import CallRefused, Overloaded, PeerUnreachable, StartupError, TimedOut
from millstream.model import Epoch, LogId, NodeId, PeerIdentity, Position, ReplicaId
from millstream.peers.wire import Kind, encode_frame
from millstream.ports import PeerMessage
from millstream.raft.link_messages import GroupMessage, Heartbeat
from millstream.raft.messages import FetchReply
from millstream.security.settings import Peers
from millstream.server.system.peer_ports import IN_CLEAR, RealPeers
from millstream.server.system.secrets import SystemSecrets
from millstream.testing.proxy import Proxy
from tests.support.nodes import InlineThreads

ONE, TWO = NodeId(1), NodeId(2)
LOG = LogId(UUID(int=7), 0)


def identity_of(node: NodeId) -> PeerIdentity:
    return PeerIdentity(
        node_id=node,
        cluster_id="mill",
        directory_id=UUID(int=node),
        generation=0,
        key=b"0123456789abcdef" * 2,
    )


@dataclass
class Recorder:
    """Takes what links bring."""

    events: list[tuple[str, NodeId]] = field(default_factory=list)
    messages: list[PeerMessage] = field(default_factory=list)

    def link_up(self, node: NodeId) -> None:
        self.events.append(("up", node))

    def link_lost(self, node: NodeId) -> None:
        self.events.append(("lost", node))

    def receive(self, node: NodeId, message: PeerMessage) -> None:
        self.messages.append(message)


class Side:
    def __init__(self, node: NodeId, settings: Peers = IN_CLEAR) -> None:
        self.node = node
        self.heard = Recorder()
        self.peers = RealPeers(
            Random(node), settings, SystemSecrets(), InlineThreads(), records_bytes_max=100 * 2**20
        )
        self.peers.open(self.heard)
        self.address = ""

    def has_lost(self, node: NodeId, times: int) -> bool:
        return self.heard.events.count(("lost", node)) == times

    async def start(self, identity: PeerIdentity | None = None) -> None:
        self.address = await self.peers.start(identity or identity_of(self.node), "127.0.0.1:0")


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[Side, Side, Proxy]]:
    """Node 2 dials node 1 through a proxy."""
    first, second = Side(ONE), Side(TWO)
    await first.start()
    await second.start()
    host, _, port = first.address.rpartition(":")
    proxy = Proxy((host, int(port)))
    await proxy.start()
    first.peers.set_peers({ONE: first.address, TWO: second.address})
    second.peers.set_peers({ONE: proxy.address, TWO: second.address})
    try:
        yield first, second, proxy
    finally:
        first.peers.close()
        second.peers.close()
        await proxy.close()
        await asyncio.sleep(0)  # Aborted transports close their sockets in the next turn.


async def until(condition: Callable[[], object], complaint: str) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
    assert condition(), complaint


async def linked(first: Side, second: Side) -> None:
    await until(lambda: first.peers.is_up(TWO) and second.peers.is_up(ONE), "no link")


def story(play: Callable[[Side, Side, Proxy], Awaitable[None]]) -> None:
    async def main() -> None:
        async with two_nodes() as (first, second, proxy):
            await linked(first, second)
            await play(first, second, proxy)

    uvloop.run(main())


def records_of(size: int, *, offset: int = 0) -> GroupMessage:
    reply = FetchReply(
        epoch=Epoch(1),
        base=Position(Epoch(1), offset),
        boundaries=(),
        records=bytes([offset % 256]) * size,
        high_watermark=0,
        start_offset=0,
    )
    return GroupMessage(LOG, ReplicaId(2), ReplicaId(1), reply)


def test_messages_arrive_in_order_both_ways() -> None:
    async def play(first: Side, second: Side, proxy: Proxy) -> None:
        said = [Heartbeat(n, 0, False) for n in range(2_000)]
        for message in said:
            first.peers.send(TWO, message)
            second.peers.send(ONE, message)
            if message.number % 100 == 0:
                await asyncio.sleep(0)
        await until(
            lambda: len(first.heard.messages) == len(second.heard.messages) == 2_000, "lost"
        )
        assert first.heard.messages == second.heard.messages == said

    story(play)


def test_large_records_do_not_delay_heartbeats_and_arrive_whole() -> None:
    async def play(first: Side, second: Side, proxy: Proxy) -> None:
        large = [records_of(5 * 2**20, offset=n) for n in range(3)]
        for message in large:
            second.peers.send(ONE, message)
        second.peers.send(ONE, Heartbeat(1, 0, False))
        assert second.peers.queued_bytes(ONE) == 15 * 2**20
        await until(lambda: len(first.heard.messages) == 4, "lost")
        assert [each for each in first.heard.messages if isinstance(each, GroupMessage)] == large

    story(play)


def test_a_broken_link_is_lost_on_both_sides_and_dialled_again() -> None:
    async def play(first: Side, second: Side, proxy: Proxy) -> None:
        for _ in range(3):
            first.heard.events.clear()
            lost_before = second.heard.events.count(("lost", ONE))
            proxy.reset()
            await until(lambda: ("lost", TWO) in first.heard.events, "not lost")
            await until(partial(second.has_lost, ONE, lost_before + 1), "not lost")
            await linked(first, second)
        assert second.heard.events == [("up", ONE)] + 3 * [("lost", ONE), ("up", ONE)]

    story(play)


def test_a_link_that_a_node_ends_is_lost_before_the_call_returns() -> None:
    async def play(first: Side, second: Side, proxy: Proxy) -> None:
        changes: list[tuple[NodeId, bool]] = []
        first.peers.watch(lambda node, is_up: changes.append((node, is_up)))
        first.peers.end(TWO, "silence")
        assert first.heard.events[-1] == ("lost", TWO)
        assert changes == [(TWO, False)]
        first.peers.send(TWO, Heartbeat(9, 0, False))  # Lost: there is no link.
        await linked(first, second)
        await until(lambda: changes == [(TWO, False), (TWO, True)], "no news")
        assert not second.heard.messages

    story(play)


def test_a_peer_that_does_not_read_ends_the_link_instead_of_the_memory() -> None:
    async def play(first: Side, second: Side, proxy: Proxy) -> None:
        proxy.stall("to")
        sent = 0
        while second.peers.is_up(ONE):
            second.peers.send(ONE, records_of(2**20))
            sent += 1
            assert sent < 60
            await asyncio.sleep(0)
        assert second.heard.events[-1] == ("lost", ONE)

    story(play)


def test_a_node_that_is_no_longer_in_the_book_has_no_link() -> None:
    async def play(first: Side, second: Side, proxy: Proxy) -> None:
        first.peers.set_peers({})
        assert first.heard.events[-1] == ("lost", TWO)
        await until(lambda: ("lost", ONE) in second.heard.events, "not lost")
        await asyncio.sleep(0.2)
        assert not first.peers.is_up(TWO)
        first.peers.set_peers({TWO: second.address})
        await linked(first, second)

    story(play)


def test_a_node_with_another_key_gets_no_link(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        first, second = Side(ONE), Side(TWO)
        await first.start()
        await second.start(replace(identity_of(TWO), key=b"x" * 32))
        try:
            second.peers.set_peers({ONE: first.address})
            await until(lambda: "does not have the cluster key" in caplog.text, "not said")
            assert first.heard.events == second.heard.events == []
        finally:
            first.peers.close()
            second.peers.close()
            await asyncio.sleep(0)

    uvloop.run(main())


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", bytes(20), encode_frame(Kind.GROUPS, b"x"), b"\xff" * 5_000],
    ids=["http", "zeros", "no greeting", "noise"],
)
def test_a_stranger_at_the_peer_port_is_sent_away_with_a_line_in_the_log(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        first = Side(ONE)
        await first.start()
        host, _, port = first.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(data)
            async with asyncio.timeout(10):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(100)
            assert first.heard.events == []
            await until(lambda: "refused a peer address=127.0.0.1" in caplog.text, "not said")
        finally:
            writer.transport.abort()
            first.peers.close()
            await asyncio.sleep(0)

    uvloop.run(main())


def test_calls_are_answered_refused_or_fail_with_the_link() -> None:
    async def play(first: Side, second: Side, proxy: Proxy) -> None:
        never = asyncio.Event()
        cancelled = asyncio.Event()

        async def echo(node: NodeId, payload: bytes) -> bytes:
            return b"%d:" % node + payload

        async def refuse(node: NodeId, payload: bytes) -> bytes:
            raise Overloaded("come back later")

        async def hang(node: NodeId, payload: bytes) -> bytes:
            try:
                await never.wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return b""

        for method, handler in (("echo", echo), ("refuse", refuse), ("hang", hang)):
            first.peers.serve(method, handler)
        ask = second.peers.ask
        large = b"x" * 3_000_000
        assert await ask(ONE, "echo", large, timeout_s=20) == b"2:" + large
        with pytest.raises(CallRefused, match="come back later") as refusal:
            await ask(ONE, "refuse", b"", timeout_s=20)
        assert refusal.value.kind == "Overloaded"
        with pytest.raises(CallRefused, match="no method nonsense"):
            await ask(ONE, "nonsense", b"", timeout_s=20)
        with pytest.raises(TimedOut, match="did not answer hang"):
            await ask(ONE, "hang", b"", timeout_s=0.05)
        async with asyncio.timeout(20):
            await cancelled.wait()
        call = asyncio.ensure_future(ask(ONE, "hang", b"", timeout_s=20))
        await asyncio.sleep(0.05)
        proxy.reset()
        with pytest.raises(PeerUnreachable) as lost:
            await call
        assert lost.value.was_sent
        never.set()
        with pytest.raises(PeerUnreachable) as unsent:
            await ask(NodeId(5), "echo", b"", timeout_s=20)
        assert not unsent.value.was_sent

    story(play)


def test_tellings_come_in_order_and_are_not_answered() -> None:
    async def play(first: Side, second: Side, proxy: Proxy) -> None:
        came: list[bytes] = []

        async def take(node: NodeId, payload: bytes) -> bytes:
            came.append(payload)
            return b""

        second.peers.serve("news", take)
        for n in range(100):
            first.peers.tell(TWO, "news", b"%d" % n)
        await until(lambda: len(came) == 100, "lost")
        assert came == [b"%d" % n for n in range(100)]

    story(play)


def test_an_address_that_is_taken_is_a_sentence() -> None:
    async def main() -> None:
        first, second = Side(ONE), Side(TWO)
        await first.start()
        try:
            with pytest.raises(StartupError, match="cannot accept other nodes at"):
                await second.peers.start(identity_of(TWO), first.address)
            with pytest.raises(StartupError, match="is not HOST:PORT"):
                await second.peers.start(identity_of(TWO), "nowhere")
        finally:
            first.peers.close()

    uvloop.run(main())
