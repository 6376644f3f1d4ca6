"""Frames to requests, responses to frames, and what cannot be read."""

from typing import NamedTuple

import pytest

from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.data import FetchResponse, ProduceRequest
from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, ApiVersionsResponse
from millstream.kafka_wire.apis.groups import HeartbeatRequest, HeartbeatResponse
from millstream.kafka_wire.apis.table import APIS, advertised, api_versions
from millstream.kafka_wire.headers import (
    RequestHeader,
    UnsupportedRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    refusal,
)
from millstream.kafka_wire.writers import size_of
from millstream.protocols.kafka.router import SERVED

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Range(NamedTuple):
    """Like a file range: a tuple whose length is not its size."""

    name: str
    size: int


@pytest.mark.parametrize("client_id", [None, "", "crab 🦀"])
@pytest.mark.parametrize("version", [3, 4])
def test_a_request_comes_back_with_its_header(version: int, client_id: str | None) -> None:
    header = RequestHeader(12, version, -5, client_id)

    frame = b"".join(encode_request(header, HEARTBEAT))  # type: ignore[arg-type]

    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert decode_request(memoryview(frame)[4:]) == (header, HEARTBEAT)


def test_tagged_fields_in_a_request_header_are_skipped() -> None:
    frame = b"".join(encode_request(RequestHeader(12, 4, 1, "c"), HEARTBEAT))[4:]  # type: ignore[arg-type]
    assert frame[11] == 0

    tagged = frame[:11] + b"\x01\x07\x02ab" + frame[12:]

    assert decode_request(tagged) == decode_request(frame)


def test_records_are_a_view_of_the_frame() -> None:
    partition = ProduceRequest.Topic.Partition(index=0, records=b"x" * 100)
    topic = ProduceRequest.Topic(name="t", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic])
    frame = b"".join(encode_request(RequestHeader(0, 9, 1), request))[4:]  # type: ignore[arg-type]

    _, read = decode_request(frame)

    assert isinstance(read, ProduceRequest)
    records = read.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert records == b"x" * 100


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_a_response_carries_ranges_of_files_without_reading_them(version: int) -> None:
    spliced = [Range("a", 1_000), b"bytes", Range("b", 2**30)]
    partition = FetchResponse.Topic.Partition(partition_index=0, high_watermark=9, records=spliced)  # type: ignore[arg-type]
    empty = FetchResponse.Topic.Partition(partition_index=1, high_watermark=9, records=[])
    topic = FetchResponse.Topic(topic="t", partitions=[partition, empty])

    chunks = encode_response(RequestHeader(1, version, 3), FetchResponse(responses=[topic]))

    assert [chunk for chunk in chunks if chunk in spliced] == spliced
    assert int.from_bytes(chunks[0][:4]) == sum(map(size_of, chunks)) - 4  # type: ignore[index]
    filled = b"".join(
        chunk if not isinstance(chunk, Range) else b"\0" * chunk.size  # type: ignore[misc]
        for chunk in chunks
        if chunk != spliced[2]
    )
    assert len(filled) == int.from_bytes(chunks[0][:4]) + 4 - 2**30  # type: ignore[index]


def test_a_spliced_response_reads_like_one_of_a_piece() -> None:
    parts = [b"ab", memoryview(b"cd"), bytearray(b"ef")]
    topics = [
        FetchResponse.Topic(
            topic=name,
            partitions=[
                FetchResponse.Topic.Partition(
                    partition_index=index,
                    high_watermark=1,
                    records=parts[:index],  # type: ignore[arg-type]
                )
                for index in range(4)
            ],
        )
        for name in ("a", "b")
    ]

    chunks = encode_response(RequestHeader(1, 12, 3), FetchResponse(responses=topics))
    _, read = decode_response(APIS[1], 12, b"".join(chunks)[4:])  # type: ignore[arg-type]

    assert isinstance(read, FetchResponse)
    got = [bytes(p.records[0]) for t in read.responses for p in t.partitions]  # type: ignore[arg-type, index]
    assert got == [b"", b"ab", b"abcd", b"abcdef"] * 2


def test_the_answer_to_api_versions_has_the_oldest_header_in_every_version() -> None:
    for version in range(5):
        (frame,) = encode_response(RequestHeader(18, version, 7), api_versions(version, SERVED))
        assert frame[4:10] == b"\0\0\0\7\0\0"  # type: ignore[index]  # Correlation id, then at once the error code.


def test_an_api_versions_from_the_future_is_answered_in_v0_with_our_range() -> None:
    frame = b"".join(encode_request(RequestHeader(18, 4, 9, "c"), ApiVersionsRequest()))  # type: ignore[arg-type]
    newer = frame[4:6] + b"\0\5" + frame[8:]

    with pytest.raises(UnsupportedRequest) as caught:
        decode_request(newer)
    answer = refusal(caught.value)

    assert answer is not None
    range_of_ours = ApiVersionsResponse.ApiRange(api_key=18, min_version=0, max_version=4)
    assert decode_response(APIS[18], 0, b"".join(answer)[4:]) == (  # type: ignore[arg-type]
        9,
        ApiVersionsResponse(error_code=35, api_keys=[range_of_ours]),
    )


@pytest.mark.parametrize(
    ("key", "version"), [(0, 2), (0, 13), (1, 3), (22, 6), (4, 0), (999, 0), (-1, 0), (3, -1)]
)
def test_what_is_not_served_is_refused_with_the_number_of_the_request(
    key: int, version: int
) -> None:
    frame = key.to_bytes(2, signed=True) + version.to_bytes(2, signed=True) + b"\0\0\0\x2a"

    with pytest.raises(UnsupportedRequest) as caught:
        decode_request(frame)

    assert caught.value.header == RequestHeader(key, version, 42)
    assert refusal(caught.value) is None


def test_an_api_without_a_handler_is_not_decoded() -> None:
    frame = b"".join(encode_request(RequestHeader(12, 0, 1), HEARTBEAT))[4:]  # type: ignore[arg-type]

    with pytest.raises(UnsupportedRequest):
        decode_request(frame, served={18, 3})


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x12\0\0\0\0\0", b"\0\x12\0\0\0\0\0\1"])
def test_a_frame_without_a_whole_header_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request(frame)


def test_bytes_behind_the_last_field_are_ignored_as_by_kafka() -> None:
    frame = b"".join(encode_request(RequestHeader(12, 4, 1), HEARTBEAT))[4:]  # type: ignore[arg-type]

    _, request = decode_request(frame + b"\0\0\0")

    assert request == HEARTBEAT


def test_a_response_of_another_api_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        encode_response(RequestHeader(18, 0, 1), HeartbeatResponse())


# -- what is advertised ----------------------------------------------------------------------------


def test_the_ranges_that_old_clients_test_for_are_advertised() -> None:
    ranges = {row.api_key: (row.min_version, row.max_version) for row in advertised(SERVED)}

    # librdkafka before 2.11 looks for exactly these versions.
    for key, version in [(10, 0), (11, 0), (12, 0), (13, 0), (14, 0), (2, 1), (22, 0), (0, 7)]:
        low, high = ranges[key]
        assert low <= version <= high
    assert ranges[0] == (0, 12)
    assert ranges[1] == (4, 17)
    assert ranges[22] == (0, 5)
    assert sorted(ranges) == list(ranges)


def test_only_what_has_a_handler_is_advertised() -> None:
    assert [row.api_key for row in advertised({3, 18})] == [3, 18]


def test_features_with_a_minimum_of_zero_are_kept_from_clients_that_cannot_read_them() -> None:
    zero = ApiVersionsResponse.SupportedFeature(name="a", min_version=0, max_version=1)
    feature = ApiVersionsResponse.SupportedFeature(name="b", min_version=1, max_version=1)

    assert api_versions(3, SERVED, [zero, feature]).supported_features == [feature]
    assert api_versions(4, SERVED, [zero, feature]).supported_features == [zero, feature]
