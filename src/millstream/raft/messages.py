"""The messages between the replicas of one group.

`core`, `leader` and `follower` act on them. Any message may be lost, delayed, repeated or
overtaken.

Invariant: `epoch` is the epoch of the sender. A replica that gets a higher one enters it; a replica
that gets a lower one answers `Hint`, whatever the message was.
"""

from typing import TypeAlias

from msgspec import Struct

from millstream.model import Boundary, Epoch, Offset, Position, ReplicaId


class PreVote(Struct, frozen=True):
    """Would you vote for me in the epoch after this one? Sent before an election is started."""

    epoch: Epoch
    last: Position


class PreVoteGranted(Struct, frozen=True):
    """I would: I hear no leader either, and you hold all that I hold. A refusal is a `Hint`."""

    epoch: Epoch


class Vote(Struct, frozen=True):
    """Vote for me in this epoch. `last` is where my log ends."""

    epoch: Epoch
    last: Position


class VoteGranted(Struct, frozen=True):
    """You have my only vote of this epoch. A refusal is a `Hint`."""

    epoch: Epoch


class Lead(Struct, frozen=True):
    """I lead this epoch: fetch from me."""

    epoch: Epoch


class Alive(Struct, frozen=True):
    """I follow you, but my disk is busy with what I have. Answered with `Lead`, no records."""

    epoch: Epoch


class Fetch(Struct, frozen=True):
    """Send what follows `position`. Everything before it survives a power cut here."""

    epoch: Epoch
    position: Position
    high_watermark: Offset  # As known to the follower: news of it alone is worth an answer.


class FetchReply(Struct, frozen=True, kw_only=True):
    """The records after `base`, and boundaries where they follow each other without a gap."""

    epoch: Epoch
    base: Position  # The position asked for; an answer to any other question is stale.
    boundaries: tuple[Boundary, ...]
    records: object  # As `LogView.read` gave it; falsy if there are none.
    high_watermark: Offset
    start_offset: Offset


class Diverged(Struct, frozen=True):
    """I do not hold `base`. My newest epoch that is not above it ends at `end`: cut to there."""

    epoch: Epoch
    base: Position
    end: Position


class Reset(Struct, frozen=True):
    """The records after `base` are deleted here. Drop your log, continue at `start_offset`."""

    epoch: Epoch
    base: Position
    start_offset: Offset
    boundaries: tuple[Boundary, ...]  # Those still known that start at or before it.


class Hint(Struct, frozen=True):
    """I cannot do that, but this is the epoch I am in, and its leader as far as I know."""

    epoch: Epoch
    leader: ReplicaId | None


class TakeOver(Struct, frozen=True):
    """You hold all that I hold: campaign now, without asking around first."""

    epoch: Epoch


Message: TypeAlias = (
    PreVote
    | PreVoteGranted
    | Vote
    | VoteGranted
    | Lead
    | Alive
    | Fetch
    | FetchReply
    | Diverged
    | Reset
    | Hint
    | TakeOver
)
