"""Encodes and decodes markers: the control batches that end a transaction in one partition."""

from enum import Enum
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from millstream.codec.batch import CODEC_BITS, verify_batch
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.errors import InvalidBatch
from millstream.model import Buffer

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0


class ControlKind(Enum):
    """How a transaction ended; the value is the type in a marker's key."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    kind: ControlKind
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def encode_marker(
    kind: ControlKind,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    epoch: int = 0,
) -> bytes:
    """Encode the control batch that ends a transaction. It takes an offset, like any record."""
    key = _KEY.pack(_VERSION, kind.value)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return encode_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def decode_marker(buffer: Buffer, at: int = 0) -> Marker:
    """Verify and decode the control batch at `at`."""
    header = verify_batch(buffer, at)
    if not header.is_control or header.count != 1 or header.attributes & CODEC_BITS:
        raise InvalidBatch("a marker is one record in an uncompressed control batch")
    (record,) = decode_all(buffer, at, decompressed_bytes_max=0)
    try:
        # A later version may append fields; these stay where they are.
        _, kind = _KEY.unpack_from(record.key or b"")
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
        return Marker(
            ControlKind(kind), header.producer_id, header.producer_epoch, coordinator_epoch
        )
    except (struct_error, ValueError) as problem:
        raise InvalidBatch(f"not a marker: {problem}") from None
