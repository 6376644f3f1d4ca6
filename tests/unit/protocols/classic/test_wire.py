"""Classic frames: bytes as real programs wrote them, round trips, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ProtocolError
from millstream.protocols.classic.wire import (
    HEAD,
    Frame,
    Frames,
    InvalidProperties,
    Kind,
    decode,
    encodable,
    encode,
)

NAMES = st.text(st.characters(exclude_characters="=\0", exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NUMBERS = st.integers(0, 2**63 - 1)


def _head(size: int, kind: int, properties_bytes: int, body_bytes: int) -> bytes:
    return HEAD.pack(size, kind, 7, 0, properties_bytes, body_bytes)


def test_a_frame_is_laid_out_as_the_original_lays_it_out() -> None:
    properties = b"status=success\0subscription_id=g2\0subscriber_id=raw\0"
    stamps = b"created_at=1.500\0version=1.0\0"

    spelt = encode(
        Frame(
            Kind.ACK,
            1,
            1_500,
            {"status": "success", "subscription_id": "g2", "subscriber_id": "raw"},
        )
    )

    assert spelt[:8] == bytes.fromhex("00000071 00000002")
    assert spelt[8:16] == bytes.fromhex("0000000000000001")
    assert spelt[24:32] == bytes.fromhex("00000051 00000000")
    assert spelt[32:] == properties + stamps


@given(
    st.sampled_from(Kind), NUMBERS, NUMBERS, st.dictionaries(NAMES, VALUES), st.binary(max_size=99)
)
def test_what_is_spelt_is_read_again(
    kind: Kind, sequence: int, timestamp_ms: int, properties: dict[str, str], body: bytes
) -> None:
    read = decode(encode(Frame(kind, sequence, timestamp_ms, properties, body)))

    assert (read.kind, read.sequence, read.timestamp_ms, read.body) == (
        kind,
        sequence,
        timestamp_ms,
        body,
    )
    assert dict(read.properties).keys() == properties.keys() | {"created_at", "version"}
    assert all(
        read.properties[name] == value
        for name, value in properties.items()
        if name not in {"created_at", "version"}  # Those are the frame's own.
    )


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_are_found_however_the_stream_is_cut(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(encode(Frame(Kind.PUBLISH, n, 0, {}, body)) for n, body in enumerate(bodies))
    frames, decoded = Frames(frame_bytes_max=2**20), []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        decoded += [decode(bytes(frame)).body for frame in frames.feed(stream[at : at + size])]
        at += size

    assert decoded == bodies


def test_a_value_may_contain_the_equals_sign() -> None:
    assert (
        decode(encode(Frame(Kind.PUBLISH, 1, 0, {"where": "a=b=c"}))).properties["where"] == "a=b=c"
    )
    assert not encodable("a=b", "c")
    assert not encodable("", "c")
    assert not encodable("a", "b\0")


@pytest.mark.parametrize(
    "head",
    [
        _head(31, 1, 0, 0),
        _head(32, 1, 1, 0),
        _head(2**32 - 1, 1, 2**32 - 1, 2**32 - 1),
        _head(2**20 + 1, 1, 2**20 + 1 - 32, 0),
    ],
    ids=["shorter than its head", "parts beyond the whole", "all ones", "beyond the limit"],
)
def test_lengths_that_cannot_be_end_the_conversation(head: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(Frames(frame_bytes_max=2**20).feed(head))


@pytest.mark.parametrize("properties", [b"topic\0", b"=a\0", b"a=b\0\0", b"topic=\xff\0"], ids=repr)
def test_properties_that_cannot_be_name_their_request(properties: bytes) -> None:
    frame = _head(32 + len(properties), 9, len(properties), 0) + properties

    with pytest.raises(InvalidProperties) as refused:
        decode(frame)
    assert refused.value.sequence == 7


def test_the_last_property_may_do_without_its_end() -> None:
    properties = b"topic=a\0colour=red"

    read = decode(_head(32 + len(properties), 9, len(properties), 0) + properties)

    assert read.properties == {"topic": "a", "colour": "red"}
