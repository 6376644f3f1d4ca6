"""Record batches to Arrow, as a Spark task does it: rows per second of one core.

CPU time, best of several turns: what is measured is the decoder, not the neighbours.
"""

import random
import time

import pyarrow as pa

from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.model import TopicPartition
from millstream.spark.read.arrow import record_batch
from millstream.spark.read.fetched import open_batches, select
from millstream.spark.read.rows import find_rows

TURNS = 9
PIECE_BYTES = 3 * 2**20
TARGET = TopicPartition("orders", 0)
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
PLAIN = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
WITH_HEADERS = PLAIN.append(pa.field("headers", pa.list_(pa.field("element", HEADER))))


def piece(
    size: int,
    count: int,
    *,
    codec: Codec = Codec.NONE,
    varies: bool = False,
    headers: tuple[tuple[str, bytes], ...] = (),
) -> memoryview:
    """What one fetch brings: batches of `count` records with values of about `size` bytes."""
    source = random.Random(1)
    raw, offset = bytearray(), 0
    while len(raw) < PIECE_BYTES:
        sizes = [source.randint(size // 2, size * 3 // 2) if varies else size for _ in range(count)]
        records = [
            Record(
                offset + index,
                1_700_000_000_000 + index // 20,
                b"key-%06d" % index,
                source.randbytes(length),
                headers,
            )
            for index, length in enumerate(sizes)
        ]
        raw += encode_batch(records, base_offset=offset, codec=codec)
        offset += count
    return memoryview(raw)


def decode(raw: memoryview, schema: pa.Schema) -> int:
    rows = 0
    for data, payloads in open_batches(raw, select(raw, start=0, end=2**62).batches):
        rows += record_batch(TARGET, find_rows(data, payloads), schema).num_rows
    return rows


def measure(name: str, raw: memoryview, schema: pa.Schema = PLAIN) -> None:
    seconds, rows = float("inf"), 0
    for _ in range(TURNS):
        begin = time.process_time()
        rows = decode(raw, schema)
        seconds = min(seconds, time.process_time() - begin)
    print(f"{name:28} {rows / seconds / 1e6:5.2f} M rows/s {len(raw) / seconds / 1e6:6.0f} MB/s")


def main() -> None:
    headers = (("id", b"x"), ("trace", b"y" * 16))
    measure("100 B", piece(100, 1000))
    measure("100 B, 50 to 150", piece(100, 1000, varies=True))
    measure("100 B, batches of 150", piece(100, 150))
    measure("100 B, lz4", piece(100, 1000, codec=Codec.LZ4))
    measure("100 B, zstd", piece(100, 1000, codec=Codec.ZSTD))
    measure("100 B, two headers", piece(100, 1000, headers=headers), WITH_HEADERS)
    measure("1 KiB", piece(1024, 1000))
    measure("1 KiB, batches of 16", piece(1024, 16))


if __name__ == "__main__":
    main()
