"""Selects the batches of a fetch response that a range reads.

Leaves out control batches, aborted transactions and batches outside the range. Pure, and at the
level of batch headers; `rows` decodes the records. The list of aborted transactions belongs to the
response that it came with, so no state is kept from one response to the next.
"""

from collections.abc import Iterable
from typing import NamedTuple

from millstream.codec.batch import HEADER_BYTES, Header, read_header, verify_batch
from millstream.codec.compression import Codec, decompress
from millstream.codec.markers import ControlKind, decode_marker
from millstream.errors import CorruptBatch
from millstream.kafka_client.answers import Aborted
from millstream.model import Buffer

# Of one batch, from any Kafka: brokers without a limit of their own store all that a producer
# packed, up to the size of a Java array. A batch beyond half of that is an attack on the executor.
DECOMPRESSED_BYTES_MAX = 2**30
# Arrow counts bytes in 31 bits, and batches of a few MiB keep Spark busiest.
PIECE_BYTES_MAX = 8 * 2**20


class Selected(NamedTuple):
    """The batches that hold rows of a range, where they start, and from where to read on."""

    batches: list[tuple[Header, int]]
    next_offset: int


class Payload(NamedTuple):
    """The records of one batch, uncompressed: `data[start:end]`."""

    header: Header
    start: int
    end: int


def select(records: Buffer, *, start: int, end: int, aborted: Iterable[Aborted] = ()) -> Selected:
    """Find the batches with rows from `start` to `end`; a last one that was cut off is left out.

    `next_offset` is at least `end` when the range is done: also if its last offsets are gaps.
    """
    view = memoryview(records)
    chosen: list[tuple[Header, int]] = []
    pending = sorted(aborted, key=lambda transaction: transaction.first_offset)
    doomed: set[int] = set()
    position, at = start, 0
    while len(view) - at >= HEADER_BYTES and position < end:
        header = read_header(view, at)
        if len(view) - at < header.size:
            break
        verify_batch(view, at)
        if header.base_offset >= end:
            return Selected(chosen, header.base_offset)
        while pending and pending[0].first_offset <= header.last_offset:
            doomed.add(pending.pop(0).producer_id)
        if header.is_control:
            if header.count and decode_marker(view, at).kind is ControlKind.ABORT:
                doomed.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in doomed:
            pass  # Part of an aborted transaction: not read.
        elif header.end_offset > start and header.count:
            chosen.append((header, at))
        position = max(position, header.end_offset)
        at += header.size
    if records and not at:
        raise CorruptBatch(f"{len(records)} bytes without one whole batch")
    return Selected(chosen, position)


def open_batches(
    records: Buffer, batches: Iterable[tuple[Header, int]]
) -> Iterable[tuple[Buffer, list[Payload]]]:
    """Uncompress batches, and gather them into pieces of at most `PIECE_BYTES_MAX` or one batch.

    Batches that are not compressed stay where they are: their pieces are the fetched bytes.
    """
    view = memoryview(records)
    plain: list[Payload] = []
    opened: list[Buffer] = []
    payloads: list[Payload] = []
    size = 0
    for header, at in batches:
        if header.codec is Codec.NONE and not opened:
            plain.append(Payload(header, at + HEADER_BYTES, at + header.size))
            continue
        body = view[at + HEADER_BYTES : at + header.size]
        if plain:
            yield view, plain
            plain = []
        data = decompress(header.codec, body, size_max=DECOMPRESSED_BYTES_MAX)
        if opened and size + len(data) > PIECE_BYTES_MAX:
            yield b"".join(opened), payloads
            opened, payloads, size = [], [], 0
        opened.append(data)
        payloads.append(Payload(header, size, size + len(data)))
        size += len(data)
    if plain:
        yield view, plain
    if opened:
        yield b"".join(opened), payloads
