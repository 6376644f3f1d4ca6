"""Root keys of a cluster: one name, one key; and a cluster that requires encryption."""

import pytest

from millstream.control.commands import NodeEncryption, RequireEncryption
from millstream.control.state import State
from millstream.errors.cluster import NodeRefused
from tests.unit.control.test_nodes import grown, register

HERE = NodeEncryption(mode="on", key_name="main", check="3fa2c1b0")
OTHER = NodeEncryption(mode="on", key_name="main", check="91bc04d2")
CLEAR = NodeEncryption(mode="off")


def encrypted(*keys: NodeEncryption | None) -> State:
    """A cluster whose nodes have said how they store records."""
    state = grown(*range(1, len(keys) + 1))
    for node_id, key in enumerate(keys, 1):
        state.apply(state.applied_offset, register(node_id, encryption=key))
    return state


def test_another_key_of_the_same_name_is_refused_and_both_checks_are_named() -> None:
    state = encrypted(HERE, CLEAR)

    sentence = r'key "main" here is not that of node 1 \(check 91bc04d2, there 3fa2c1b0\)'
    with pytest.raises(NodeRefused, match=sentence):
        state.check(register(2, encryption=OTHER))
    with pytest.raises(NodeRefused, match=sentence):
        state.apply(state.applied_offset, register(2, encryption=OTHER))

    assert state.nodes.find(2).encryption == CLEAR


@pytest.mark.parametrize(
    "key",
    [
        HERE,
        NodeEncryption(mode="on", key_name="own-91bc04d2", check="91bc04d2"),
        NodeEncryption(mode="read", key_name="main", check="3fa2c1b0"),
        NodeEncryption(mode="on", key_name="main", check=""),  # Of a key service.
        CLEAR,
        None,
    ],
)
def test_keys_of_other_names_and_the_same_key_are_taken(key: NodeEncryption | None) -> None:
    state = encrypted(HERE, CLEAR)

    state.apply(state.applied_offset, register(2, encryption=key))

    assert state.nodes.find(2).encryption == key


def test_a_node_that_did_not_say_before_is_taken_with_the_key_that_it_has() -> None:
    state = encrypted(HERE, None)

    state.apply(state.applied_offset, register(2, encryption=OTHER))
    state.apply(state.applied_offset, register(2, encryption=OTHER, rack="b"))

    assert state.nodes.find(2).rack == "b"


@pytest.mark.parametrize("other", [CLEAR, None, NodeEncryption(mode="read", key_name="main")])
def test_encryption_is_not_required_while_a_node_writes_in_clear(
    other: NodeEncryption | None,
) -> None:
    with pytest.raises(NodeRefused, match=r"node 2 writes records in clear: set encryption\.mode"):
        encrypted(HERE, other).check(RequireEncryption(is_required=True))


def test_once_required_no_node_in_clear_is_registered_until_it_is_lifted() -> None:
    state = encrypted(HERE, HERE)
    state.check(RequireEncryption(is_required=True))
    assert state.apply(state.applied_offset, RequireEncryption(is_required=True)) is True

    for key in (CLEAR, None, NodeEncryption(mode="read", key_name="main", check="3fa2c1b0")):
        with pytest.raises(NodeRefused, match="requires encryption at rest"):
            state.check(register(2, encryption=key))
    state.check(register(2, encryption=HERE, rack="b"))

    assert state.apply(state.applied_offset, RequireEncryption(is_required=False)) is False
    state.check(register(2, encryption=CLEAR))
