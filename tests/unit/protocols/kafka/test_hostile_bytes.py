"""Bytes that break a rule are refused with a sentence, before they cost anything."""

import tracemalloc

import pytest

from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.data import FetchRequest, ProduceRequest
from millstream.kafka_wire.apis.discovery import (
    ApiVersionsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from millstream.kafka_wire.apis.groups import DescribeGroupsRequest, HeartbeatRequest
from millstream.kafka_wire.readers import ELEMENTS_MAX, TAGGED_FIELDS_MAX, decode, reader_of
from millstream.kafka_wire.schema import Message


def read(message: type[Message], version: int, raw: bytes, *, is_flexible: bool) -> Message:
    return decode(reader_of(message, version, is_flexible=is_flexible), raw, 0, "request")


def flexible(raw: str) -> bytes:
    """An ApiVersions request v3 whose tagged section is `raw`."""
    return bytes.fromhex("01 01" + raw)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ("", "ends before its last field"),
        ("00 00 00", "ends before its last field"),
        ("7f ff ff ff", "2147483647 elements at byte 4, more than 0 bytes can hold"),
        ("00 00 00 03 00 01 61 00", "3 elements at byte 4, more than 4 bytes can hold"),
        ("ff ff ff fe", "length -2 before byte 4"),
        ("80 00 00 00", "length -2147483648"),
        ("00 00 00 01 ff ff", "null before byte 6, where a value must be"),
        ("00 00 00 01 ff fe", "length -2 before byte 6"),
        ("00 00 00 01 00 05 61", "5 bytes at 6, 1 are there"),
        ("00 00 00 01 00 02 c3 28", "not UTF-8"),
        ("00 00 00 01 00 03 ed a0 80", "not UTF-8"),  # A lone surrogate.
    ],
)
def test_old_spelling(raw: str, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        read(MetadataRequest, 1, bytes.fromhex(raw), is_flexible=False)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ("ff ff ff ff 0f 00", "4294967294 elements"),
        ("ff ff ff ff 1f 00", "more than 32 bits"),
        ("80 80 80 80 80 80", "does not end within 5 bytes"),
        ("80", "does not end"),
        ("06 02 61 02 62", "5 elements at byte 1, more than 4 bytes"),
        ("02 00 00", "null before byte 2"),
        ("02 ff 61 00 00", "12542 bytes at 3"),
        ("02 03 61", "2 bytes at 2, 1 are there"),
        ("02 03 c3 28 00 00", "not UTF-8"),
    ],
)
def test_flexible_spelling(raw: str, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        read(DescribeGroupsRequest, 5, bytes.fromhex(raw), is_flexible=True)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ("02 00 00 00 00", "tag 0 behind tag 0"),
        ("02 05 00 04 00", "tag 4 behind tag 5"),
        ("01 05 05 61", "5 bytes at 5, 1 are there"),
        ("ff ff ff ff 0f", f"4294967295 tagged fields, at most {TAGGED_FIELDS_MAX}"),
        ("81 01" + "00 00" * 129, f"129 tagged fields, at most {TAGGED_FIELDS_MAX}"),
        ("01", "does not end within 5 bytes"),
    ],
)
def test_tagged_sections(raw: str, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        read(ApiVersionsRequest, 3, flexible(raw), is_flexible=True)


def test_unknown_tags_are_skipped() -> None:
    plain = read(ApiVersionsRequest, 3, flexible("00"), is_flexible=True)

    tagged = read(ApiVersionsRequest, 3, flexible("02 00 01 61 c8 01 02 62 63"), is_flexible=True)

    assert tagged == plain


@pytest.mark.parametrize(
    ("tag", "sentence"),
    [
        ("00 02 61 62", "96 bytes at 1, 1 are there"),
        ("00 03 02 61 62", "tagged field of 3 bytes ends after 2"),
        ("00 00", "ends before its last field"),
        ("01 03 00 00 00", "ends before its last field"),
    ],
)
def test_a_tagged_field_fills_its_slice(tag: str, sentence: str) -> None:
    fixed = bytes(21)
    raw = fixed + bytes.fromhex("01 01 01" + "01" + tag)

    with pytest.raises(ProtocolError, match=sentence):
        read(FetchRequest, 15, raw, is_flexible=True)


def test_a_missing_part_is_minus_one_and_a_present_one_anything_else() -> None:
    head = bytes.fromhex("01 00 00 07 d0")

    without = read(DescribeTopicPartitionsRequest, 0, head + b"\xff\0", is_flexible=True)
    part = bytes.fromhex("01 02 61 00 00 00 05 00 00")
    with_one = read(DescribeTopicPartitionsRequest, 0, head + part, is_flexible=True)

    assert without.cursor is None  # type: ignore[attr-defined]
    assert (with_one.cursor.topic_name, with_one.cursor.partition_index) == ("a", 5)  # type: ignore[attr-defined]


def test_records_longer_than_the_frame_are_refused() -> None:
    raw = bytes.fromhex("ffff 0001 00000001 00000001 0001 61 00000001 00000000 7fffffff")

    with pytest.raises(ProtocolError, match="2147483647 bytes at 27, 0 are there"):
        read(ProduceRequest, 3, raw, is_flexible=False)


@pytest.mark.parametrize("count", [2**31 - 1, 10**6])
def test_a_count_that_the_bytes_cannot_hold_allocates_nothing(count: int) -> None:
    raw = count.to_bytes(4) + bytes(100)
    reader = reader_of(MetadataRequest, 1, is_flexible=False)
    tracemalloc.start()

    with pytest.raises(ProtocolError):
        decode(reader, raw, 0, "request")

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


def test_small_elements_cannot_be_blown_up_into_many_objects() -> None:
    count = ELEMENTS_MAX + 1
    raw = count.to_bytes(4) + bytes(2 * count)

    with pytest.raises(ProtocolError, match=f"{count} elements"):
        read(MetadataRequest, 1, raw, is_flexible=False)


def test_the_elements_of_nested_arrays_count_together() -> None:
    partitions = ELEMENTS_MAX // 4
    topic = b"\0\1t" + partitions.to_bytes(4) + bytes(partitions * 8)
    head = b"\xff\xff\0\1\0\0\0\1"
    few = head + (3).to_bytes(4) + topic * 3
    many = head + (4).to_bytes(4) + topic * 4

    read(ProduceRequest, 3, few, is_flexible=False)
    with pytest.raises(ProtocolError, match=f"{partitions} elements"):
        read(ProduceRequest, 3, many, is_flexible=False)


def test_the_sentence_names_the_request() -> None:
    reader = reader_of(HeartbeatRequest, 0, is_flexible=False)

    with pytest.raises(ProtocolError, match=r"^Heartbeat request v0: length -3 before byte 2$"):
        decode(reader, b"\xff\xfd", 0, "Heartbeat request v0")
