"""Kafka's hash of a key: a key is in one partition, whichever client wrote it."""

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MIX = 0x5BD1E995


def partition_hash(key: bytes) -> int:
    """The number whose remainder by the number of partitions is the partition of a key."""
    return murmur2(key) & 0x7FFFFFFF


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
