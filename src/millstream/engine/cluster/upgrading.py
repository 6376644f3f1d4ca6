"""How far the nodes of a cluster agree on what they write, for operators and at the start."""

from typing import NamedTuple

from millstream.control.levels import unknown_level
from millstream.control.nodes import Nodes
from millstream.errors import StartupError
from millstream.model import LevelRange, NodeId


class Features(NamedTuple):
    """The feature `cluster.version`."""

    level: int  # In use.
    epoch: int  # Grows with the level.
    known: LevelRange  # By this node.
    known_by: dict[NodeId, LevelRange]

    @property
    def is_behind(self) -> bool:
        """Whether every node knows a later level than the one in use."""
        return all(levels.highest > self.level for levels in self.known_by.values())


def features_of(nodes: Nodes, me: NodeId, known: LevelRange) -> Features:
    """A node alone has registered nothing: it is at the highest level that it knows."""
    return Features(
        nodes.level or known.highest,
        nodes.level_offset,
        known,
        {node.node_id: node.levels for node in nodes.members()} or {me: known},
    )


def check_level(level: int, known: LevelRange) -> None:
    """Raise `StartupError` for a node that does not know the level its cluster was last at."""
    if level and level not in known:
        raise StartupError(unknown_level(level, known))
