"""The messages of a peer link that belong to nodes, not to one replica.

A peer link carries them in order with the messages of all groups: what is not mentioned over it has
not changed (docs/consensus.md, "Peer links").
"""

from typing import TypeAlias

from msgspec import Struct

from millstream.model import Epoch, LogId, ReplicaId
from millstream.raft.messages import Message


class Heartbeat(Struct, frozen=True):
    """The sender lives. `number` counts on for the life of its process, over all links; `echo` is
    the highest number that it heard over this very link, 0 if none."""

    number: int
    echo: int
    wants_echo: bool  # Echo at once: a confirmed read waits for it.


class Left(Struct, frozen=True):
    """The replica is no longer in this epoch, or closed: none of its fetches there counts."""

    log: LogId
    replica: ReplicaId
    epoch: Epoch


class PositionsSent(Struct, frozen=True):
    """All fetches that begin this link have been sent."""


class GroupMessage(Struct, frozen=True):
    """A message from one replica of a log to another."""

    log: LogId
    sender: ReplicaId
    receiver: ReplicaId
    message: Message


LinkMessage: TypeAlias = Heartbeat | Left | PositionsSent | GroupMessage
