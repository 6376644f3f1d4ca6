"""Takes values apart that clients of a schema registry wrote: a zero, the schema's id, the bytes.

Pure. Protobuf has the place of the message in its file between the id and the bytes.
"""

from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from millstream.spark.read.arrow import Array
from millstream.spark.values.decoding import Decode, Decoded, Failure, ValueReader, failure

FRAME = Struct(">bi")
MAGIC = 0
PATH_LENGTH_MAX = 100  # Messages inside of messages.
VARINT_BYTES_MAX = 5


class Framed(NamedTuple):
    schema_id: int
    data: bytes


def unframed(value: bytes) -> Framed:
    """Raises `ValueError` for a value that does not begin with the id of a schema."""
    if len(value) < FRAME.size or value[0] != MAGIC:
        raise ValueError(
            "it does not begin with the id of a schema, as values of a schema registry do; without "
            "schemaRegistryUrl such values are read"
        )
    _, schema_id = FRAME.unpack_from(value)
    return Framed(schema_id, value[FRAME.size :])


def framed_reader(read: ValueReader) -> ValueReader:
    """Read values behind their frames; the schema of the query counts, whatever the id."""

    def read_framed(values: Array) -> Decoded:
        bare: list[bytes | None] = []
        unreadable: dict[int, Failure] = {}
        for index, value in enumerate(values.to_pylist()):
            try:
                bare.append(None if value is None else unframed(value).data)
            except ValueError as problem:
                bare.append(None)
                unreadable[index] = failure(index, problem)
        column, failures = read(pa.array(bare, pa.binary()))
        unreadable |= {bad.at: bad for bad in failures}
        return Decoded(column, [unreadable[index] for index in sorted(unreadable)])

    return read_framed


def framed_message(decode: Decode, path: list[int]) -> Decode:
    """Decode a Protobuf message behind its frame and its place, which must be `path`."""

    def decode_framed(value: bytes) -> dict[str, object]:
        data = unframed(value).data
        place, start = message_path(data)
        if place != path:
            raise ValueError(f"it is message {place} of its file, valueMessage is {path}")
        return decode(data[start:])

    return decode_framed


def message_path(data: bytes) -> tuple[list[int], int]:
    """The indexes that lead to a message in its file, and where its bytes begin.

    Zigzag varints behind their count; the first message of a file is a single zero.
    """
    count, at = _varint(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= PATH_LENGTH_MAX:
        raise ValueError(f"the place of a message has {count} indexes")
    path = []
    for _ in range(count):
        index, at = _varint(data, at)
        path.append(index)
    return path, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    for position in range(at, at + VARINT_BYTES_MAX):
        if position >= len(data):
            break
        number |= (data[position] & 0x7F) << shift
        if data[position] < 0x80:
            return (number >> 1) ^ -(number & 1), position + 1
        shift += 7
    raise ValueError("the place of a message ends in the middle of a number")
