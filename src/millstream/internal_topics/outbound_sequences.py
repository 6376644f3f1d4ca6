"""Lanes: what a ledger of ours remembers of the records it hands over to a partition.

Owns the key, the value and its bytes. There is one lane for each partition that is written to, and
its latest record says all: who writes there, which sequence comes next, and, while something is
under way, what. The one thing to know: ids on a lane are intents whose end is not known. Each has a
sequence of its own, one after the other, and the log of the partition tells which it has.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from millstream.codec.batch import SEQUENCE_MAX
from millstream.model import LogId

# No other key of a ledger that has lanes may begin like this.
LANE = b"lane\0"
_TOPIC_ID_BYTES = 16
_KEY_BYTES = len(LANE) + _TOPIC_ID_BYTES + 4


class Lane(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Values may get further fields at their end."""

    producer_id: int
    base_sequence: int = 0  # Of what is under way, or else of what comes next.
    ids: tuple[bytes, ...] = ()  # What is under way, in order; a record each, a sequence each.

    def begun(self, ids: Sequence[bytes]) -> "Lane":
        assert not self.ids
        return msgspec.structs.replace(self, ids=tuple(ids))

    def ended(self) -> "Lane":
        assert self.ids
        return Lane(self.producer_id, self.sequence(len(self.ids)))

    def planned(self, ids: Sequence[bytes], *, ended_count: int, kept_count: int) -> "Lane":
        """Other ids behind those that are kept, without those that have ended."""
        kept = self.ids[ended_count:kept_count]
        return Lane(self.producer_id, self.sequence(ended_count), (*kept, *ids))

    def sequence(self, index: int) -> int:
        """The sequence of an id, as in a client's own batches: after 2**31 - 1 comes 0."""
        return (self.base_sequence + index) & SEQUENCE_MAX

    def begun_count(self, next_sequence: int) -> int | None:
        """How many ids a log has that expects this sequence next; None if it is no log of ours."""
        count = (next_sequence - self.base_sequence) & SEQUENCE_MAX
        return count if count <= len(self.ids) else None

    def renewed(self, producer_id: int) -> "Lane":
        """The same under way, by a producer that the partition does not know."""
        return Lane(producer_id, 0, self.ids)


def encode_key(target: LogId) -> bytes:
    return LANE + target.topic_id.bytes + target.partition.to_bytes(4, "big")


def decode_key(key: bytes | None) -> LogId | None:
    """The partition of a lane; None for every other key."""
    if key is None or len(key) != _KEY_BYTES or not key.startswith(LANE):
        return None
    at = len(LANE)
    topic_id = UUID(bytes=key[at : at + _TOPIC_ID_BYTES])
    return LogId(topic_id, int.from_bytes(key[at + _TOPIC_ID_BYTES :], "big"))


def encode_lane(lane: Lane) -> bytes:
    return _encoder.encode(lane)


def decode_lane(value: bytes) -> Lane:
    """Read a lane; `msgspec.MsgspecError` for what is none, or of a later version."""
    return _decoder.decode(value)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Lane)
