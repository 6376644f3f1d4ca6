"""Chooses the partition of a message that names none, as Kafka's own clients do.

Owns the hash of keys (Kafka's murmur2, so that a key is in one place whichever client wrote it) and
the turns of the partitions for messages without a key.
"""

from uuid import UUID

KEYS_KEPT_MAX = 10_000  # Keys whose hash is remembered: hashing is slow in Python.
TURNS_KEPT_MAX = 10_000

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MIX = 0x5BD1E995


class Partitioner:
    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}
        self._turns: dict[UUID, int] = {}

    def of_key(self, key: bytes, partition_count: int) -> int:
        hashed = self._hashes.get(key)
        if hashed is None:
            if len(self._hashes) >= KEYS_KEPT_MAX:
                self._hashes.clear()
            hashed = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return hashed % partition_count

    def turn(self, topic_id: UUID, partition_count: int) -> int:
        """The partition whose turn it is; the next call returns the next one."""
        turn = self._turns.get(topic_id, 0)
        if len(self._turns) >= TURNS_KEPT_MAX:
            self._turns.clear()
        self._turns[topic_id] = turn + 1
        return turn % partition_count


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits."""
    size = len(key)
    hashed = (_SEED ^ size) & _MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        block = int.from_bytes(key[at : at + 4], "little") * _MIX & _MASK
        block = (block ^ block >> 24) * _MIX & _MASK
        hashed = (hashed * _MIX & _MASK) ^ block
    if whole < size:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MIX & _MASK
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15
