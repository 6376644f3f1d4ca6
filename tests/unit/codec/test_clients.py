"""Batches in both directions between us and the record layers of two real clients.

kafka-python and aiokafka each bring their own reader and writer of the format; aiokafka twice, in C
and in Python. What they write we read, what we write they read, with every codec.
"""

import warnings
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import aiokafka.record.memory_records as aiokafka_memory
import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER
from aiokafka.record.control_record import ControlRecord as AiokafkaControlRecord

from millstream.codec.batch import stamp_time, verify_batch, verify_produced
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import ControlKind, encode_marker
from millstream.codec.records import Record, decode_all, verify_records
from millstream.codec.rewrite import filter_batch

with warnings.catch_warnings():
    # kafka-python loads its schemas through a deprecated function of importlib.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records as kafka_records
    import kafka.record.memory_records as kafka_memory

CAP = 2**24

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(1, 1_700_000_000_001, None, b"no key"),
    Record(2, 1_699_999_999_000, b"no value", None),
    Record(3, 1_700_000_100_000, b"", b""),
    Record(
        4, 1_700_000_000_000, b"k", b"v", (("trace", b"\x00\x01"), ("trace", b""), ("né", None))
    ),
    Record(5, 1_700_000_000_000, b"big", b"0123456789" * 20_000),
    *(Record(index, 1_700_000_000_000 + index, b"k%d" % index, b"v") for index in range(6, 500)),
]

BUILDERS = {
    "kafka-python": kafka_records.DefaultRecordBatchBuilder,
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchBuilderPy,
}
READERS = {
    "kafka-python": kafka_records.DefaultRecordBatch,
    "aiokafka": aiokafka_records.DefaultRecordBatch,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchPy,
}
STREAMS = {
    "kafka-python": kafka_memory.MemoryRecords,
    "aiokafka": aiokafka_memory.MemoryRecords,
    "aiokafka in Python": aiokafka_memory._MemoryRecordsPy,
}
every_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)


def built_by(client: str, codec: Codec, **fields: int) -> bytes:
    state = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1} | fields
    builder = BUILDERS[client](
        magic=2, compression_type=codec, is_transactional=0, batch_size=2**24, **state
    )
    for record in RECORDS:
        offset, timestamp, key, value, headers = record
        builder.append(offset, timestamp, key, value, list(headers))
    return bytes(builder.build())


def read_by(client: str, raw: bytes) -> list[Record]:
    batch = READERS[client](bytearray(raw))
    assert batch.validate_crc()
    return [as_record(record) for record in batch]


def as_record(record: Any) -> Record:  # Each client has its own class of records.
    key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
    headers = tuple((name, content) for name, content in record.headers)
    return Record(record.offset, record.timestamp, key, value, headers)


@pytest.mark.parametrize("client", BUILDERS)
@every_codec
def test_what_a_client_builds_we_read(client: str, codec: Codec) -> None:
    raw = built_by(client, codec, producer_id=9, producer_epoch=3, base_sequence=70)

    header = verify_produced(raw, size_max=CAP)
    assert header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 70)
    verify_records(raw, decompressed_bytes_max=CAP)
    assert header.max_timestamp == 1_700_000_100_000
    assert decode_all(raw, decompressed_bytes_max=CAP) == RECORDS


@pytest.mark.parametrize("client", READERS)
@every_codec
def test_what_we_build_a_client_reads(client: str, codec: Codec) -> None:
    raw = encode_batch(RECORDS, codec=codec, producer_id=9, producer_epoch=3, base_sequence=70)

    assert read_by(client, raw) == RECORDS


@pytest.mark.parametrize("client", BUILDERS)
def test_we_spell_an_uncompressed_batch_to_the_byte_as_a_client_does(client: str) -> None:
    theirs = built_by(client, Codec.NONE)

    assert encode_batch(RECORDS, epoch=verify_batch(theirs).epoch) == theirs


@pytest.mark.parametrize("client", READERS)
@every_codec
def test_a_client_reads_the_gaps_that_filtering_leaves(client: str, codec: Codec) -> None:
    moved = [record._replace(offset=record.offset + 1_000) for record in RECORDS]
    raw = encode_batch(moved, base_offset=1_000, codec=codec)

    filtered = filter_batch(raw, lambda record: record.offset % 3 == 1, decompressed_bytes_max=CAP)

    assert filtered is not None
    assert read_by(client, filtered) == [record for record in moved if record.offset % 3 == 1]


@pytest.mark.parametrize("client", READERS)
def test_a_client_reads_times_relative_to_a_delete_horizon(client: str) -> None:
    raw = filter_batch(
        encode_batch(RECORDS),
        lambda _: True,
        decompressed_bytes_max=CAP,
        delete_horizon_ms=1_800_000_000_000,
    )

    assert raw is not None
    assert read_by(client, raw) == RECORDS


@pytest.mark.parametrize("client", READERS)
def test_a_client_reads_log_append_time(client: str) -> None:
    raw = encode_batch(RECORDS)

    _, timed = stamp_time(raw, verify_batch(raw), 1_750_000_000_000)

    assert {record.timestamp for record in read_by(client, timed)} == {1_750_000_000_000}


@pytest.mark.parametrize("client", STREAMS)
def test_a_client_walks_over_batches_markers_and_empty_batches(client: str) -> None:
    data = encode_batch(RECORDS[:1], producer_id=9, producer_epoch=3, base_sequence=0)
    empty = filter_batch(data, lambda _: False, decompressed_bytes_max=CAP, keep_empty=True)
    marker = encode_marker(
        ControlKind.COMMIT,
        producer_id=9,
        producer_epoch=3,
        coordinator_epoch=1,
        timestamp=1,
        base_offset=1,
    )
    assert empty is not None

    stream = STREAMS[client](data + empty + marker)
    batches = []
    while (batch := stream.next_batch()) is not None:
        batches.append(batch)

    assert [batch.is_control_batch for batch in batches] == [False, False, True]
    assert [len(list(batch)) for batch in batches] == [1, 0, 1]


@pytest.mark.parametrize("kind", list(ControlKind))
def test_kafka_python_reads_our_markers(kind: ControlKind) -> None:
    raw = encode_marker(kind, producer_id=9, producer_epoch=3, coordinator_epoch=1, timestamp=1)

    batch = kafka_records.DefaultRecordBatch(raw)
    (control,) = list(batch)

    assert batch.is_control_batch
    assert (control.commit, control.abort) == (
        kind is ControlKind.COMMIT,
        kind is ControlKind.ABORT,
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(ControlKind.COMMIT, COMMIT_MARKER), (ControlKind.ABORT, ABORT_MARKER)],
)
def test_aiokafka_reads_our_markers(kind: ControlKind, expected: AiokafkaControlRecord) -> None:
    raw = encode_marker(kind, producer_id=9, producer_epoch=3, coordinator_epoch=1, timestamp=1)

    batch = aiokafka_records.DefaultRecordBatch(bytearray(raw))
    (record,) = list(batch)

    assert batch.is_control_batch
    assert batch.producer_id == 9
    assert AiokafkaControlRecord.parse(record.key) == expected
