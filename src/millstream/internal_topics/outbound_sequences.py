"""Outbound sequences: the record format in which a ledger tracks its writes to a partition.

Owns the key, the value and its bytes. A ledger has one outbound sequence for each partition that it
writes to. The latest record says all: the producer id, the sequence that comes next and, while a
write is under way, its ids. Ids in a sequence are intents whose end is not known. Each has a
sequence number of its own, one after the other; the log of the partition says which it has.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from millstream.codec.batch import SEQUENCE_MAX
from millstream.model import LogId

# No other key of such a ledger may begin with these bytes, which are on disk.
KEY_PREFIX = b"lane\0"
_TOPIC_ID_BYTES = 16
_KEY_BYTES = len(KEY_PREFIX) + _TOPIC_ID_BYTES + 4


class OutboundSequence(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Values may get further fields at their end."""

    producer_id: int
    base_sequence: int = 0  # Of the first id, or of the next one if there is none.
    ids: tuple[bytes, ...] = ()  # Under way, in order; one record and one sequence each.

    def begun(self, ids: Sequence[bytes]) -> "OutboundSequence":
        assert not self.ids
        return msgspec.structs.replace(self, ids=tuple(ids))

    def ended(self) -> "OutboundSequence":
        assert self.ids
        return OutboundSequence(self.producer_id, self.sequence(len(self.ids)))

    def planned(
        self, ids: Sequence[bytes], *, ended_count: int, kept_count: int
    ) -> "OutboundSequence":
        """With `ids` behind those that are kept, and without those that have ended."""
        kept = self.ids[ended_count:kept_count]
        return OutboundSequence(self.producer_id, self.sequence(ended_count), (*kept, *ids))

    def sequence(self, index: int) -> int:
        """The sequence of an id, as in a client's own batches: after 2**31 - 1 comes 0."""
        return (self.base_sequence + index) & SEQUENCE_MAX

    def begun_count(self, next_sequence: int) -> int | None:
        """How many ids are in a log that expects this sequence next; None if it cannot be."""
        count = (next_sequence - self.base_sequence) & SEQUENCE_MAX
        return count if count <= len(self.ids) else None

    def with_producer(self, producer_id: int) -> "OutboundSequence":
        """The same ids under a producer id that the partition does not know."""
        return OutboundSequence(producer_id, 0, self.ids)


def encode_key(target: LogId) -> bytes:
    return KEY_PREFIX + target.topic_id.bytes + target.partition.to_bytes(4, "big")


def decode_key(key: bytes | None) -> LogId | None:
    """The partition of an outbound sequence; None for every other key."""
    if key is None or len(key) != _KEY_BYTES or not key.startswith(KEY_PREFIX):
        return None
    at = len(KEY_PREFIX)
    topic_id = UUID(bytes=key[at : at + _TOPIC_ID_BYTES])
    return LogId(topic_id, int.from_bytes(key[at + _TOPIC_ID_BYTES :], "big"))


def encode_sequence(outbound: OutboundSequence) -> bytes:
    return _encoder.encode(outbound)


def decode_sequence(value: bytes) -> OutboundSequence:
    """Decode a value; `msgspec.MsgspecError` for an invalid one, or one of a later version."""
    return _decoder.decode(value)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(OutboundSequence)
