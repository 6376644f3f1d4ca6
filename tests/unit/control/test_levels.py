"""Levels of `cluster.version`: a level is finalized once every node knows it, and never taken back.

A command of a later level is not written before that.
"""

from typing import get_args

import pytest

from millstream.control.commands import AnyCommand, ChangeNode, FinalizeLevel, decode, encode
from millstream.control.levels import check_written
from millstream.control.state import State
from millstream.errors.cluster import LevelRefused, NodeRefused
from millstream.model import CLUSTER_LEVELS, FIRST_LEVELS, LevelRange
from tests.unit.control.test_nodes import invite, register

OLD, BOTH, NEW = LevelRange(1, 1), LevelRange(1, 2), LevelRange(2, 3)
# Frozen: a node of the first level knows these commands and no other. A command that is not here
# has a `LEVEL` of its own.
FIRST_COMMANDS = {
    *("CreateTopic", "DeleteTopic", "AddPartitions", "AddReplicas", "MoveReplicas", "FinishMoves"),
    *("AlterTopic", "ReserveProducerIds", "RaiseSchemaIds", "AlterQuotas", "AlterResource"),
    *("AlterUsers", "PutRole", "DeleteRole", "AddAcls", "RemoveAcls", "ReplaceAcls"),
    *("InviteNode", "RegisterNode", "ChangeNode", "RequireEncryption"),
}


def cluster_of(*levels: LevelRange) -> State:
    """A cluster whose nodes know these levels; the first one made it."""
    state = State()
    for node_id, known in enumerate(levels, start=1):
        offset, secret = state.applied_offset, bytes([node_id]) * 32
        state.apply(offset, invite(secret))
        state.apply(offset + 1, register(node_id, invitation=secret, levels=known))
    return state


def finalize(state: State, level: int) -> object:
    state.check(FinalizeLevel(level=level))
    return state.apply(state.applied_offset, FinalizeLevel(level=level))


def test_a_command_that_the_first_level_does_not_know_has_a_level_of_its_own() -> None:
    first = {each.__name__ for each in get_args(AnyCommand) if FIRST_LEVELS.highest == each.LEVEL}
    later = {each.__name__: each.LEVEL for each in get_args(AnyCommand) if each.LEVEL > 1}

    assert first == FIRST_COMMANDS
    assert max(later.values()) <= CLUSTER_LEVELS.highest
    assert later == {"FinalizeLevel": 2}


def test_a_cluster_begins_at_the_highest_level_of_its_first_node() -> None:
    assert State().nodes.level == 0
    assert cluster_of(OLD, BOTH).nodes.level == 1
    assert cluster_of(BOTH).nodes.level == 2


def test_a_node_that_does_not_say_knows_the_first_level() -> None:
    state = State()
    state.apply(0, register(1))

    assert state.nodes.find(1).levels == FIRST_LEVELS


def test_a_level_is_finalized_once_every_node_knows_it() -> None:
    state = cluster_of(OLD, OLD)
    state.apply(state.applied_offset, register(1, levels=BOTH))

    with pytest.raises(LevelRefused, match=r"node 2 knows level 1 of cluster\.version, not 2"):
        finalize(state, 2)
    assert state.nodes.level == 1

    state.apply(state.applied_offset, register(2, levels=BOTH))
    assert finalize(state, 2) == 2
    assert (state.nodes.level, state.nodes.level_offset) == (2, state.applied_offset - 1)


def test_a_refusal_that_was_written_changes_nothing() -> None:
    """Another command may have come first: the fold refuses by the same rule."""
    state = cluster_of(OLD, BOTH)
    version = state.nodes.version

    with pytest.raises(LevelRefused):
        state.apply(state.applied_offset, FinalizeLevel(level=2))

    assert (state.nodes.level, state.nodes.version) == (1, version)


def test_a_level_is_never_taken_back() -> None:
    state = cluster_of(BOTH)

    with pytest.raises(LevelRefused, match="is 2 and does not go back to 1"):
        finalize(state, 1)


def test_a_removed_node_holds_nothing_up_and_a_node_alone_has_no_say() -> None:
    state = cluster_of(OLD, OLD)
    state.apply(state.applied_offset, register(1, levels=BOTH))
    state.apply(state.applied_offset, ChangeNode(node_id=2, state="removed"))
    assert finalize(state, 2) == 2
    with pytest.raises(LevelRefused, match="a node alone"):
        finalize(State(), 2)


@pytest.mark.parametrize("levels", [OLD, LevelRange(3, 4)])
def test_a_node_that_does_not_know_the_level_is_refused(levels: LevelRange) -> None:
    state = cluster_of(BOTH)
    state.apply(state.applied_offset, invite())

    with pytest.raises(NodeRefused, match=r"this cluster is at level 2 of cluster\.version"):
        state.check(register(2, invitation=b"s" * 32, levels=levels))


def test_a_node_may_go_back_to_an_older_version_until_the_level_is_finalized() -> None:
    state = cluster_of(OLD, BOTH)

    state.check(register(2, levels=OLD))
    state.apply(state.applied_offset, register(2, levels=OLD))

    assert state.nodes.find(2).levels == OLD


def test_a_command_of_a_later_level_waits_for_that_level() -> None:
    check_written("CreateTopic", 1, 1)
    check_written("FutureCommand", 2, 2)
    check_written("FutureCommand", 2, 0)  # A node alone writes all that it knows.
    with pytest.raises(LevelRefused, match=r"FutureCommand needs level 2 .* is at 1: raise"):
        check_written("FutureCommand", 2, 1)


def test_levels_survive_their_bytes_and_older_bytes_are_read() -> None:
    command = register(2, levels=NEW)

    assert decode(encode(command)) == command
    assert b"levels" not in encode(register(2))  # As an older version wrote it.
    assert decode(encode(FinalizeLevel(level=2))) == FinalizeLevel(level=2)
    assert (str(OLD), str(BOTH)) == ("level 1", "levels 1 to 2")
