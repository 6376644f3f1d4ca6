"""Delayed records as they are stored."""

from uuid import UUID

import pytest

from millstream.internal_topics.delayed import (
    NO_SENDER,
    DelayedHeader,
    Payload,
    Sender,
    decode_header,
    decode_key,
    decode_payload,
    decode_target,
    encode_key,
    encode_target,
    encode_value,
    id_text,
    read_id,
)
from millstream.model import LogId

TARGET = encode_target(LogId(UUID(int=7), 3))


@pytest.mark.parametrize("message_id", [b"", b"one", b"\0" * 256])
@pytest.mark.parametrize("sender", [NO_SENDER, Sender(2**40, 3, 2**31 - 1)])
@pytest.mark.parametrize(
    "payload",
    [Payload(None, None), Payload(b"", b""), Payload(b"k", b"v", (("a", b"1"), ("b", None)))],
)
def test_what_is_written_is_read(message_id: bytes, sender: Sender, payload: Payload) -> None:
    header = DelayedHeader(1_700_000_000_000, TARGET, sender, message_id)

    value = encode_value(header, payload)

    assert decode_header(value) == header
    assert decode_payload(value) == payload
    assert decode_target(header.target) == LogId(UUID(int=7), 3)


def test_a_key_is_the_number_and_nothing_else_is_a_key() -> None:
    assert decode_key(encode_key(2**62)) == 2**62
    for other in (None, b"", b"deferred\0", b"lane\0" + bytes(12), encode_key(1) + b"\0"):
        assert decode_key(other) is None


def test_values_of_others_are_told_apart() -> None:
    later = b"\1" + encode_value(DelayedHeader(1, TARGET), Payload(None, None))[1:]

    assert decode_header(later) is None
    assert decode_header(b"short") is None


def test_an_id_names_topic_and_number() -> None:
    assert id_text("orders", 17) == "orders~17"
    assert read_id("orders~17") == ("orders", 17)
    for text in ("orders", "orders~", "orders~x", "orders~-1", "orders~٣", "orders~" + "9" * 19):
        assert read_id(text) is None
