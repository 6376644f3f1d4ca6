"""Nodes that do not belong together have no link, and both logs say why."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
import uvloop

from millstream.model import NodeId, PeerIdentity
from millstream.peers import greeting
from millstream.peers.greeting import Greeting, Introduction, Lane
from millstream.peers.wire import FrameReader, Kind, encode_frame
from tests.unit.server.peering.test_sockets import ONE, TWO, Side, identity_of, linked, until

Change = Callable[[PeerIdentity], PeerIdentity]


async def meet(identity: PeerIdentity, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    """Node 2 with this identity dials node 1; both say the sentence, and neither has a link."""
    first, second = Side(ONE), Side(TWO)
    await first.start()
    await second.start(identity)
    try:
        second.peers.set_peers({ONE: first.address})
        await until(
            lambda: f"refused a peer address=127.0.0.1 problem={sentence}" in caplog.text, ""
        )
        await until(lambda: f"cannot reach a peer node=1 problem={sentence}" in caplog.text, "")
        assert first.heard.events == second.heard.events == []
    finally:
        first.peers.close()
        second.peers.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda two: replace(two, cluster_id="dam"),
            "node 2 belongs to the cluster dam, node 1 to mill",
        ),
        (
            lambda two: replace(two, generation=3),
            "node 2 is of generation 3 of the cluster, node 1 of 0",
        ),
    ],
    ids=["another cluster", "left behind by a recovery"],
)
def test_a_node_of_elsewhere_gets_no_link(
    change: Change, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    uvloop.run(meet(change(identity_of(TWO)), sentence, caplog))


def test_a_version_that_is_too_new_is_refused_with_both_ranges(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello = Introduction.hello

    def newer(self: Introduction, *, peer: NodeId, link: int, lane: Lane) -> greeting.Hello:
        said = hello(self, peer=peer, link=link, lane=lane)
        if self.identity.node_id == TWO:
            fields = {name: getattr(said, name) for name in said.__struct_fields__}
            said = greeting.Hello(**{**fields, "protocol_min": 7, "protocol_max": 9})
        return said

    monkeypatch.setattr(Introduction, "hello", newer)

    uvloop.run(
        meet(
            identity_of(TWO),
            "node 2 (release 0.1.0) speaks versions 7 to 9 of the peer protocol, node 1 speaks 1",
            caplog,
        )
    )


@pytest.mark.parametrize(
    "nonsense",
    [b"\xff" * 64, encode_frame(Kind.GROUPS, b"\xff" * 40), encode_frame(Kind.CALL, b"")],
    ids=["noise", "messages", "a call"],
)
def test_a_proven_peer_that_speaks_nonsense_loses_its_own_link_only(
    nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Node 3 has the key and breaks the rules; the link of nodes 1 and 2 stays."""

    async def main() -> None:
        first, second = Side(ONE), Side(TWO)
        await first.start()
        await second.start()
        second.peers.set_peers({ONE: first.address})
        try:
            await linked(first, second)
            await speak(first.address, nonsense)
            await until(lambda: "broken frame of a peer node=3" in caplog.text, "not said")
            assert first.heard.events == [("up", TWO)]
            assert first.peers.is_up(TWO)
        finally:
            first.peers.close()
            second.peers.close()
            await asyncio.sleep(0)

    uvloop.run(main())


async def speak(address: str, nonsense: bytes) -> None:
    """Greet as node 3 does, then send this, until the other side closes."""
    identity = identity_of(NodeId(3))
    introduction = Introduction(identity=identity, release="x", instance=1, nonce=b"n" * 16)
    mine = Greeting(introduction, peer=ONE, link=1, lane=Lane.BULK)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(mine.begin())
        frames = FrameReader()
        async with asyncio.timeout(20):
            while mine.peer is None:
                for kind, payload in frames.feed(await reader.read(65_536)):
                    writer.write(mine.receive(kind, payload))
            writer.write(nonsense)
            while await reader.read(65_536):
                pass
    except ConnectionError:
        pass  # Reset is closed, too.
    finally:
        writer.transport.abort()
