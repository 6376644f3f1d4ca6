"""Levels of the feature `cluster.version`: what nodes of different versions write to one log.

A newer version writes nothing that an older one cannot read until every node of the cluster knows
the level of it, and an operator has finalized that level. Pure.
"""

from collections.abc import Mapping

from millstream.errors.cluster import LevelRefused
from millstream.model import LevelRange, NodeId

FEATURE = "cluster.version"


def unknown_level(level: int, known: LevelRange) -> str:
    """Why a node may not be part of a cluster at `level`."""
    return (
        f"this cluster is at level {level} of {FEATURE}, and this version of Millstream knows "
        f"{known}: install the version that the other nodes have"
    )


def check_finalize(known: Mapping[NodeId, LevelRange], current: int, level: int) -> None:
    """Raise `LevelRefused` unless all nodes know `level`, and it is no step back."""
    if not known:
        raise LevelRefused(
            f"a node alone uses all that it knows: {FEATURE} is finalized in a cluster"
        )
    if level < current:
        raise LevelRefused(f"{FEATURE} is {current} and does not go back to {level}")
    for node, levels in known.items():
        if level not in levels:
            raise LevelRefused(
                f"node {node} knows {levels} of {FEATURE}, not {level}: upgrade that node first"
            )


def check_written(name: str, needed: int, current: int) -> None:
    """Raise `LevelRefused` for a command that some node of the cluster may not know."""
    if current and needed > current:
        raise LevelRefused(
            f"{name} needs level {needed} of {FEATURE}, and this cluster is at {current}: raise it "
            "with: millstream cluster upgrade"
        )
