"""Nodes of a cluster: each id belongs to one data directory, and each invitation to one node."""

from typing import Any
from uuid import UUID

import pytest

from millstream.control.commands import (
    ChangeNode,
    InviteNode,
    NodeEncryption,
    RegisterNode,
    RequireEncryption,
    decode,
    encode,
)
from millstream.control.nodes import NodeState
from millstream.control.state import State
from millstream.errors import RequestError
from millstream.errors.cluster import InvalidInvitation, NodeRefused, UnknownNode

SECRET, OTHER_SECRET = b"s" * 32, b"o" * 32
NOW_MS, HOUR_MS = 1_000_000, 3_600_000


def register(node_id: int, **fields: Any) -> RegisterNode:
    values: dict[str, Any] = {
        "directory_id": UUID(int=node_id),
        "peer": ("10.0.0.1", 9093),
        "listeners": {"kafka": ("10.0.0.1", 9092)},
        "roles": ("controller", "broker"),
        "version": "1.0",
        "joined_ms": NOW_MS,
        **fields,
    }
    return RegisterNode(node_id=node_id, **values)


def invite(secret_hash: bytes = SECRET) -> InviteNode:
    return InviteNode(secret_hash=secret_hash, made_ms=NOW_MS, expires_ms=NOW_MS + HOUR_MS)


def grown(*node_ids: int) -> State:
    """A cluster with these nodes, each invited by a token of its own."""
    state = State()
    for node_id in node_ids:
        offset, secret = state.applied_offset, bytes([node_id]) * 32
        state.apply(offset, invite(secret))
        state.apply(offset + 1, register(node_id, invitation=secret))
    return state


def test_a_cluster_of_one_has_registered_nothing() -> None:
    assert State().nodes.members() == []


def test_the_first_node_needs_no_invitation_and_others_do() -> None:
    state = State()
    state.apply(0, register(1))

    with pytest.raises(InvalidInvitation, match="millstream cluster invite"):
        state.check(register(2))

    state.apply(1, invite())
    state.apply(2, register(2, invitation=SECRET))
    assert [node.node_id for node in state.nodes.members()] == [1, 2]
    assert state.nodes.next_id() == 3


def test_an_invitation_serves_one_node() -> None:
    state = grown(1, 2)

    with pytest.raises(InvalidInvitation, match="was used"):
        state.apply(9, register(3, invitation=bytes([2]) * 32))


def test_an_invitation_expires() -> None:
    state = grown(1)
    state.apply(9, invite())

    with pytest.raises(InvalidInvitation, match="has expired"):
        state.check(register(2, invitation=SECRET, joined_ms=NOW_MS + HOUR_MS))


def test_a_node_registers_again_with_other_addresses_and_keeps_its_id() -> None:
    state = grown(1, 2)

    state.apply(9, register(2, peer=("10.0.0.2", 9093), rack="b"))

    node = state.nodes.find(2)
    assert node.peer == ("10.0.0.2", 9093)
    assert node.rack == "b"
    assert node.registered_offset == 3


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (register(2, directory_id=UUID(int=77)), "another data directory"),
        (register(3, directory_id=UUID(int=2)), "another node id"),
        (register(0), "not in 1 to"),
        (register(1 << 20), "not in 1 to"),
        (register(2, peer=("", 9093)), "no address"),
        (register(2, peer=("h", 0)), "no address"),
        (register(2, listeners={"kafka": ("h" * 256, 1)}), "no address"),
        (register(2, roles=()), "roles are"),
        (register(2, roles=("king",)), "roles are"),
        (register(2, listeners={str(n): ("h", 1) for n in range(100)}), "at most 100 listeners"),
    ],
)
def test_a_registration_that_cannot_be_is_refused_by_a_sentence(
    command: RegisterNode, problem: str
) -> None:
    with pytest.raises(NodeRefused, match=problem):
        grown(1, 2).check(command)


def test_a_removed_node_stays_removed() -> None:
    state = grown(1, 2, 3)

    state.apply(20, ChangeNode(node_id=3, state="removed"))

    assert [node.node_id for node in state.nodes.members()] == [1, 2]
    assert state.nodes.next_id() == 4  # Its id is never given again.
    for command in (register(3), ChangeNode(node_id=3, state="active")):
        with pytest.raises(NodeRefused):
            state.check(command)


def test_a_draining_node_is_a_member_and_can_be_taken_back() -> None:
    state = grown(1, 2)

    state.apply(20, ChangeNode(node_id=2, state="draining"))
    assert state.nodes.find(2).state is NodeState.DRAINING
    state.apply(21, register(2, version="2.0"))  # A restart does not end it.
    assert state.nodes.find(2).state is NodeState.DRAINING
    state.apply(22, ChangeNode(node_id=2, state="active"))

    assert state.nodes.find(2).state is NodeState.ACTIVE


@pytest.mark.parametrize("command", [ChangeNode(node_id=9, state="removed")])
def test_an_unknown_node_is_named(command: ChangeNode) -> None:
    with pytest.raises(UnknownNode, match="no node 9"):
        grown(1).check(command)


@pytest.mark.parametrize(
    "command",
    [
        register(2, rack="a", machine="m", invitation=SECRET),
        invite(),
        ChangeNode(node_id=2, state="draining"),
        register(2, encryption=NodeEncryption(mode="on", key_name="main", check="3fa2c1b0")),
        RequireEncryption(is_required=True),
    ],
)
def test_commands_of_nodes_survive_their_bytes(
    command: RegisterNode | InviteNode | ChangeNode | RequireEncryption,
) -> None:
    assert decode(encode(command)) == command


def test_expired_invitations_are_forgotten_when_another_is_made() -> None:
    state = grown(1)
    state.apply(9, invite())
    late = NOW_MS + 2 * HOUR_MS
    state.apply(10, InviteNode(secret_hash=OTHER_SECRET, made_ms=late, expires_ms=late + HOUR_MS))

    with pytest.raises(InvalidInvitation, match="was used, or was never given"):
        state.check(register(2, invitation=SECRET, joined_ms=NOW_MS))


def test_states_of_nodes_that_this_version_does_not_know_are_refused() -> None:
    with pytest.raises(RequestError, match="no state"):
        grown(1).check(ChangeNode(node_id=1, state="asleep"))


def test_an_invitation_that_is_taken_back_lets_no_node_in() -> None:
    state = grown(1)
    state.apply(2, invite(SECRET))
    state.apply(3, InviteNode(secret_hash=SECRET, made_ms=NOW_MS, expires_ms=NOW_MS))

    assert state.nodes.invitations() == []
    with pytest.raises(InvalidInvitation, match="used, or was never given"):
        state.check(register(2, invitation=SECRET))
