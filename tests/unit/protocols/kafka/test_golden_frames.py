"""The bytes of `tests/golden/kafka`, written out for people, against what we read and write."""

from functools import partial
from uuid import UUID

from millstream.kafka_wire.apis.discovery import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataResponse,
)
from millstream.kafka_wire.apis.groups import HeartbeatRequest
from millstream.kafka_wire.apis.table import APIS, api_versions
from millstream.kafka_wire.headers import (
    RequestHeader,
    UnsupportedRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    refusal,
)
from millstream.kafka_wire.readers import reader_source
from millstream.kafka_wire.schema import NO_ID, Message
from tests.support.golden import read_bytes, text

golden = partial(read_bytes, "kafka")


def metadata(
    cluster_id: str | None = None, topic_id: UUID = NO_ID, leader_epoch: int = -1
) -> MetadataResponse:
    partition = MetadataResponse.Topic.Partition(
        partition_index=0,
        leader_id=1,
        leader_epoch=leader_epoch,
        replica_nodes=[1],
        isr_nodes=[1],
    )
    return MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=1, host="h", port=9092)],
        cluster_id=cluster_id,
        controller_id=1,
        topics=[MetadataResponse.Topic(name="orders", topic_id=topic_id, partitions=[partition])],
    )


def check_response(claim: str, header: RequestHeader, response: Message) -> None:
    frame = golden(claim)

    assert b"".join(encode_response(header, response)) == frame  # type: ignore[arg-type]
    api = APIS[header.api_key]
    read = decode_response(api, header.api_version, frame[4:])
    assert read == (header.correlation_id, response)


def test_an_api_versions_request_has_a_flexible_header_from_v3_on() -> None:
    frame = golden("an_api_versions_request_has_a_flexible_header_from_v3_on")
    header = RequestHeader(18, 3, 1, "client")
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")

    assert b"".join(encode_request(header, request)) == frame  # type: ignore[arg-type]
    assert decode_request(frame[4:]) == (header, request)


def test_an_api_versions_response_keeps_the_old_header() -> None:
    feature = ApiVersionsResponse.SupportedFeature(name="kraf", min_version=1, max_version=1)
    check_response(
        "an_api_versions_response_keeps_the_old_header",
        RequestHeader(18, 3, 1),
        api_versions(3, {18, 0}, [feature]),
    )


def test_an_unknown_api_versions_is_answered_in_v0() -> None:
    answer = refusal(UnsupportedRequest(RequestHeader(18, 5, 42)))

    assert answer is not None
    assert b"".join(answer) == golden("an_unknown_api_versions_is_answered_in_v0")  # type: ignore[arg-type]


def test_a_metadata_response_v1_spells_lengths_out() -> None:
    check_response("a_metadata_response_v1_spells_lengths_out", RequestHeader(3, 1, 5), metadata())


def test_a_metadata_response_v12_is_flexible_and_has_topic_ids() -> None:
    check_response(
        "a_metadata_response_v12_is_flexible_and_has_topic_ids",
        RequestHeader(3, 12, 5),
        metadata(cluster_id="c", topic_id=UUID(bytes=bytes(range(16))), leader_epoch=7),
    )


def test_a_reader_of_heartbeat_v4() -> None:
    source = reader_source(HeartbeatRequest, 4, is_flexible=True)

    assert source.text == text("kafka", "a_reader_of_heartbeat_v4")
