"""What the broker reads of a consumer's subscription, against an independent implementation."""

from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.consumer_protocol_subscription import v0, v1, v2, v3
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from millstream.protocols.kafka.consumer_metadata import subscribed_topics


def spelled(version: int, topics: list[str], user_data: bytes | None = None) -> bytes:
    module = (v0, v1, v2, v3)[version].data
    kind = module.ConsumerProtocolSubscription
    fields: dict[str, object] = {"topics": tuple(map(TopicName, topics)), "user_data": user_data}
    if version >= 1:
        part = module.TopicPartition(topic=TopicName("owned"), partitions=(i32(1), i32(2)))
        fields["owned_partitions"] = (part,)
    if version >= 2:
        fields["generation_id"] = i32(5)
    if version >= 3:
        fields["rack_id"] = "north"
    out = BytesIO()
    out.write(i16(version).to_bytes(2, "big"))
    entity_writer(kind)(out, kind(**fields))
    return out.getvalue()


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("topics", [[], ["orders"], ["orders", "größe", "orders"]])
def test_topics_are_read_from_every_version(version: int, topics: list[str]) -> None:
    metadata = spelled(version, topics, b"whatever")

    assert subscribed_topics("consumer", metadata) == frozenset(topics)


def test_a_later_version_that_adds_fields_is_read_all_the_same() -> None:
    metadata = b"\0\x63" + spelled(3, ["orders"])[2:] + b"more"

    assert subscribed_topics("consumer", metadata) == {"orders"}


def test_other_protocol_types_say_nothing_of_topics() -> None:
    assert subscribed_topics("connect", spelled(0, ["orders"])) is None


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"orders",
        b"\xff\xff\0\0\0\0",  # A negative version.
        b"\0\0\xff\xff\xff\xff",  # No list at all.
        b"\0\0\x7f\xff\xff\xff\0\1a",  # More topics than bytes.
        b"\0\0\0\0\0\1\xff\xff",  # A topic without a name.
        b"\0\0\0\0\0\1\0\2\xff\xfe",  # No Unicode.
    ],
)
def test_malformed_metadata_says_nothing(metadata: bytes) -> None:
    assert subscribed_topics("consumer", metadata) is None


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_bytes_from_anywhere_are_read_or_say_nothing(metadata: bytes) -> None:
    topics = subscribed_topics("consumer", metadata)

    assert topics is None or all(isinstance(topic, str) for topic in topics)
