"""The greeting of nodes: only nodes of one cluster with one key talk, the others get a sentence."""

from dataclasses import replace
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ProtocolError
from millstream.model import NodeId, PeerIdentity
from millstream.peers.greeting import Greeting, GreetingRefused, Introduction, Lane, encode_refusal
from millstream.peers.wire import FrameReader, Kind, encode_frame

ONE, TWO = (
    PeerIdentity(
        node_id=NodeId(n),
        cluster_id="mill",
        directory_id=UUID(int=n),
        generation=0,
        key=b"k" * 32,
    )
    for n in (1, 2)
)


def side(identity: PeerIdentity, *, peer: int | None = None) -> Greeting:
    introduction = Introduction(
        identity=identity, release="1.0", instance=7, nonce=bytes([identity.node_id]) * 16
    )
    return Greeting(
        introduction,
        peer=None if peer is None else NodeId(peer),
        link=42 if peer is not None else 0,
        lane=Lane.BULK if peer is not None else Lane.STEADY,
    )


def talk(dialler: Greeting, acceptor: Greeting) -> None:
    """Carry the frames of both until neither has more to say."""
    data, ends = dialler.begin(), (acceptor, dialler)
    turn = 0
    while data:
        receiver = ends[turn % 2]
        ((kind, payload),) = list(FrameReader().feed(data))
        data = receiver.receive(kind, payload)
        turn += 1


def test_two_nodes_of_one_cluster_prove_themselves() -> None:
    dialler, acceptor = side(TWO, peer=1), side(ONE)
    talk(dialler, acceptor)

    assert dialler.peer is not None
    assert acceptor.peer is not None
    assert (dialler.peer.node_id, acceptor.peer.node_id) == (1, 2)
    assert acceptor.peer.directory_id == str(TWO.directory_id)
    assert (acceptor.peer.link, acceptor.peer.lane) == (42, Lane.BULK)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (replace(TWO, cluster_id="dam"), "belongs to the cluster dam, node 1 to mill"),
        (replace(TWO, generation=3), "generation 3 of the cluster, node 1 of 0"),
        (replace(TWO, key=b"x" * 32), "node 2 does not have the cluster key of node 1"),
        (replace(TWO, node_id=NodeId(1)), "two nodes have the id 1"),
    ],
)
def test_a_stranger_is_refused_with_a_sentence(other: PeerIdentity, sentence: str) -> None:
    dialler, acceptor = side(other, peer=1), side(ONE)

    with pytest.raises(GreetingRefused, match=sentence):
        talk(dialler, acceptor)

    assert dialler.peer is None
    assert acceptor.peer is None


def test_a_dialler_that_reached_another_node_says_so() -> None:
    with pytest.raises(GreetingRefused, match="looks for node 3, and this is node 1"):
        talk(side(TWO, peer=3), side(ONE))


def test_a_newer_protocol_is_refused_with_both_ranges() -> None:
    acceptor = side(ONE)
    hello = msgspec.msgpack.decode(side(TWO, peer=1).begin()[9:])
    hello |= {"protocol_min": 8, "protocol_max": 9, "release": "9.0"}

    with pytest.raises(GreetingRefused, match=r"speaks versions 8 to 9.*speaks 1 to 1"):
        acceptor.receive(Kind.HELLO, msgspec.msgpack.encode(hello))


def test_the_reason_of_a_refusal_reaches_the_other_side() -> None:
    frame = encode_refusal(GreetingRefused("another cluster"))
    ((kind, payload),) = list(FrameReader().feed(frame))

    with pytest.raises(GreetingRefused, match="another cluster"):
        side(TWO, peer=1).receive(kind, payload)


def test_a_proof_cannot_be_sent_back_to_its_maker() -> None:
    """Without the side in the proof, an attacker without a key would mirror the dialler's."""
    dialler, acceptor = side(TWO, peer=1), side(ONE)
    hello = acceptor.receive(*next(iter(FrameReader().feed(dialler.begin()))))
    proof = dialler.receive(*next(iter(FrameReader().feed(hello))))

    with pytest.raises(GreetingRefused, match="does not have the cluster key"):
        dialler.receive(*next(iter(FrameReader().feed(proof))))


def test_a_proof_of_an_older_greeting_is_worth_nothing() -> None:
    old = side(TWO, peer=1)
    hello = side(ONE).receive(*next(iter(FrameReader().feed(old.begin()))))
    proof = old.receive(*next(iter(FrameReader().feed(hello))))
    introduction = Introduction(identity=ONE, release="1.0", instance=8, nonce=b"n" * 16)
    acceptor = Greeting(introduction)
    acceptor.receive(*next(iter(FrameReader().feed(old.begin()))))

    with pytest.raises(GreetingRefused, match="does not have the cluster key"):
        acceptor.receive(*next(iter(FrameReader().feed(proof))))


@given(st.sampled_from(Kind), st.binary(max_size=200), st.booleans())
def test_nonsense_is_a_protocol_error(kind: Kind, data: bytes, dials: bool) -> None:
    greeting = side(TWO, peer=1) if dials else side(ONE)
    ((read_kind, payload),) = list(FrameReader().feed(encode_frame(kind, data)))

    with pytest.raises(ProtocolError):
        greeting.receive(read_kind, payload)
    assert greeting.peer is None


def test_the_key_is_in_no_representation() -> None:
    assert "kkkk" not in repr(ONE)


@pytest.mark.parametrize("is_dialler", [True, False])
def test_under_tls_a_certificate_must_name_the_node_that_greets(is_dialler: bool) -> None:
    dialler, acceptor = side(TWO, peer=1), side(ONE)
    dialler.certified_names = frozenset({"node-1", "broker.example"})
    acceptor.certified_names = frozenset({"node-2"})
    checker = dialler if is_dialler else acceptor
    checker.certified_names = frozenset({"node-3"})

    liar = 1 if is_dialler else 2
    sentence = f"the certificate of node {liar} names node-3, not node-{liar}"
    with pytest.raises(GreetingRefused, match=sentence):
        talk(dialler, acceptor)
    assert checker.peer is None
