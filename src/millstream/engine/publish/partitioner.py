"""Chooses the partition of a message that names none, as Kafka's own clients do.

Owns the turns of the partitions for messages without a key, and remembers the hashes of keys.
"""

from uuid import UUID

from millstream.codec.murmur2 import partition_hash

KEYS_KEPT_MAX = 10_000  # Keys whose hash is remembered: hashing is slow in Python.
TURNS_KEPT_MAX = 10_000


class Partitioner:
    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}
        self._turns: dict[UUID, int] = {}

    def of_key(self, key: bytes, partition_count: int) -> int:
        hashed = self._hashes.get(key)
        if hashed is None:
            if len(self._hashes) >= KEYS_KEPT_MAX:
                self._hashes.clear()
            hashed = self._hashes[key] = partition_hash(key)
        return hashed % partition_count

    def turn(self, topic_id: UUID, partition_count: int) -> int:
        """The partition whose turn it is; the next call returns the next one."""
        turn = self._turns.get(topic_id, 0)
        if len(self._turns) >= TURNS_KEPT_MAX:
            self._turns.clear()
        self._turns[topic_id] = turn + 1
        return turn % partition_count
