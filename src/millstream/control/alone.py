"""Rewrites the commands of a cluster for one node alone, which holds everything: for a restore.

Pure. Topics, users, rights and quotas stay as they are, and so do the offsets of all commands.
"""

from collections.abc import Iterable, Iterator

import msgspec

from millstream.control.commands import (
    AddPartitions,
    AddReplicas,
    AnyCommand,
    ChangeNode,
    CreateTopic,
    FinalizeLevel,
    FinishMoves,
    InviteNode,
    MoveReplicas,
    RaiseSchemaIds,
    RegisterNode,
    Replicas,
)
from millstream.control.state import State
from millstream.errors import RequestError
from millstream.model import NodeId, Offset

# Keeps the offset of a command that is left out: no id of a schema is below 0.
NOTHING = RaiseSchemaIds(context="", highest=0)

_OF_A_CLUSTER = (
    *(AddReplicas, MoveReplicas, FinishMoves),
    *(InviteNode, RegisterNode, ChangeNode),
    FinalizeLevel,  # A node alone is at its highest level.
)


def rewritten(
    commands: Iterable[tuple[Offset, bytes | None]], state: State, node: NodeId
) -> Iterator[tuple[Offset, AnyCommand]]:
    """Each command as `node` alone would have been given it; folds those of the cluster into
    `state`.

    None is a command that an operator had left out. One that the cluster refused is left out as
    well: a node alone might have taken it.
    """
    for offset, data in commands:
        if data is None:
            yield offset, NOTHING
            continue
        try:
            command, _ = state.fold(offset, data)
        except RequestError:
            yield offset, NOTHING
        else:
            yield offset, _alone(command, node)


def _alone(command: AnyCommand, node: NodeId) -> AnyCommand:
    if isinstance(command, _OF_A_CLUSTER):
        return NOTHING
    if isinstance(command, CreateTopic):
        has_copies = any(len(replicas) > 1 for replicas in command.placement)
        return msgspec.structs.replace(
            command,
            placement=_placed(command.placement, node),
            # It had copies: it gets them again, once other nodes join.
            follows_cluster=command.follows_cluster or has_copies,
        )
    if isinstance(command, AddPartitions):
        return msgspec.structs.replace(command, placement=_placed(command.placement, node))
    return command


def _placed(placement: tuple[Replicas, ...], node: NodeId) -> tuple[Replicas, ...]:
    return ((node,),) * len(placement)
