"""Batches that are not what they say they are: the right error, and no trace in the log."""

import struct
import time

import pytest

from millstream.codec.batch import CONTROL, HEADER_BYTES, LOG_APPEND_TIME, read_header, seal
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.kafka_wire.error_codes import ErrorCode
from tests.hostile.broker import PRODUCE, Broker, Client, batch, produce_request, spell

GOOD = batch(b"one", b"two")
TRANSACTIONAL, DELETE_HORIZON = 0x10, 0x40


def forged(**fields: int) -> bytes:
    """A batch with a right checksum and these fields in its header."""
    header = read_header(GOOD)._replace(**fields)
    return seal(header, GOOD[HEADER_BYTES:])[1]


def patched(at: int, raw: bytes) -> bytes:
    """A batch with these bytes in it and its old checksum."""
    return GOOD[:at] + raw + GOOD[at + len(raw) :]


FAR_FUTURE_MS = int(time.time() * 1000) + 10 * 24 * 3600 * 1000

FORGERIES: dict[str, tuple[bytes | None, ErrorCode]] = {
    "nothing": (None, ErrorCode.INVALID_RECORD),
    "no bytes": (b"", ErrorCode.CORRUPT_MESSAGE),
    "half a header": (GOOD[:30], ErrorCode.CORRUPT_MESSAGE),
    "half a batch": (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
    "a wrong checksum": (patched(17, b"\0\1\2\3"), ErrorCode.CORRUPT_MESSAGE),
    "a changed record": (patched(len(GOOD) - 2, b"!"), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (patched(8, struct.pack(">i", -1)), ErrorCode.CORRUPT_MESSAGE),
    "a length of 0": (patched(8, struct.pack(">i", 0)), ErrorCode.CORRUPT_MESSAGE),
    "a huge length": (patched(8, struct.pack(">i", 2**31 - 1)), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "bytes behind it": (GOOD + b"\0", ErrorCode.INVALID_RECORD),
    "magic 0": (patched(16, b"\0"), ErrorCode.INVALID_RECORD),
    "magic 1": (patched(16, b"\1"), ErrorCode.INVALID_RECORD),
    "magic 3": (patched(16, b"\3"), ErrorCode.INVALID_RECORD),
    "no records": (forged(count=0), ErrorCode.INVALID_RECORD),
    "a negative count": (forged(count=-1), ErrorCode.INVALID_RECORD),
    "a count beyond its deltas": (forged(count=3), ErrorCode.INVALID_RECORD),
    "deltas beyond its count": (forged(last_offset_delta=7), ErrorCode.INVALID_RECORD),
    "a negative delta": (forged(last_offset_delta=-1, count=0), ErrorCode.INVALID_RECORD),
    "a negative offset": (patched(0, struct.pack(">q", -5)), ErrorCode.CORRUPT_MESSAGE),
    "a control batch": (forged(attributes=CONTROL), ErrorCode.INVALID_RECORD),
    "a delete horizon": (forged(attributes=DELETE_HORIZON), ErrorCode.INVALID_RECORD),
    "the broker's time": (forged(attributes=LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
    "codec 5": (forged(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (forged(attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a transaction of nobody": (forged(attributes=TRANSACTIONAL), ErrorCode.INVALID_RECORD),
    "a producer without an epoch": (
        forged(producer_id=9, base_sequence=0),
        ErrorCode.INVALID_RECORD,
    ),
    "a producer without a sequence": (
        forged(producer_id=9, producer_epoch=0),
        ErrorCode.INVALID_RECORD,
    ),
    "the far future": (forged(max_timestamp=FAR_FUTURE_MS), ErrorCode.INVALID_TIMESTAMP),
    "more than a topic takes": (batch(bytes(2**21)), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_batch_is_refused_and_leaves_no_trace(broker: Broker, name: str) -> None:
    data, code = FORGERIES[name]
    with Client(broker) as client:
        before = client.end_offset()

        refused = client.produce(data)

        assert (ErrorCode(refused.error_code), refused.base_offset) == (code, -1)
        assert client.end_offset() == before
        assert client.produce(GOOD).base_offset == before


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_batch_without_acks_is_the_end_and_leaves_no_trace(
    broker: Broker, name: str
) -> None:
    data, _ = FORGERIES[name]
    with Client(broker) as other:
        before = other.end_offset()
        with Client(broker) as client:
            client.send(spell(PRODUCE, 9, produce_request(data, acks=0)))

            assert client.is_closed()

        assert other.end_offset() == before


@pytest.mark.parametrize("acks", [2, -2, 2**15 - 1])
def test_acks_that_do_not_exist_are_refused_and_leave_no_trace(broker: Broker, acks: int) -> None:
    with Client(broker) as client:
        before = client.end_offset()

        refused = client.produce(GOOD, acks=acks)

        assert refused.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert client.end_offset() == before


def test_a_good_batch_without_acks_is_taken_and_the_client_goes_on(broker: Broker) -> None:
    with Client(broker) as client:
        before = client.end_offset()
        client.send(spell(PRODUCE, 9, produce_request(GOOD, acks=0)))

        assert client.produce(GOOD).base_offset == before + 2


def test_a_bomb_is_refused_before_it_takes_all_its_memory(broker: Broker) -> None:
    bomb = encode_batch([Record(0, 1_700_000_000_000, None, bytes(2**26))], codec=Codec.ZSTD)
    before = broker.resident_bytes()
    with Client(broker) as client:
        assert client.produce(bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE

    assert broker.resident_bytes() - before < 2**26
