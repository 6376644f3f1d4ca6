"""The requests and replies of the benchmark client, however the stream is cut."""

import pytest
from benchmarks.protocols.flymq import offset_in, produce_request
from benchmarks.protocols.wire import (
    CORE_NATS,
    DIALECTS,
    FLUX,
    HALF,
    JETSTREAM,
    RARE,
    Allowance,
    Counter,
    Dialect,
    Messages,
    deferred_publications,
    publications,
    subjects,
    value,
)

from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import (
    HEAD,
    Opcode,
    decode_request,
    encode_reply,
    measure,
    opcode_of,
)


@pytest.mark.parametrize("size", [16, 100, 128])
def test_a_value_has_its_size_and_begins_with_its_number(size: int) -> None:
    assert len(value(7, size)) == size
    assert value(7, size).startswith(b"0000000000000007")


def test_one_value_of_a_hundred_is_rare_and_every_second_is_half() -> None:
    values = [value(number, 100) for number in range(1_000)]

    assert sum(RARE in value for value in values) == 10
    assert sum(HALF in value for value in values) == 500


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_no_value_holds_a_word_that_is_looked_for(dialect: Dialect) -> None:
    looked_for = [word for word in (dialect.answer, dialect.error, b"MSG ") if word]

    for number in range(100):
        assert not any(word in value(number, 128) for word in looked_for)


def test_subjects_take_turns_in_publications_of_one_length() -> None:
    said, frame_bytes = publications(FLUX, subjects("t", 2), size=16, count=3)

    assert said == (
        b"PUB t.s0 16\r\n0000000000000000\r\n"
        b"PUB t.s1 16\r\n0000000000000001\r\n"
        b"PUB t.s0 16\r\n0000000000000002\r\n"
    )
    assert frame_bytes * 3 == len(said)


def test_jetstream_is_told_where_to_acknowledge_and_core_nats_is_not() -> None:
    stored, _ = publications(JETSTREAM, subjects("t", 1), size=16, count=1)
    passed_on, _ = publications(CORE_NATS, subjects("t", 1), size=16, count=1)

    assert stored == b"PUB t.s0 _INBOX.b 16\r\n0000000000000000\r\n"
    assert passed_on == b"PUB t.s0 16\r\n0000000000000000\r\n"


def test_a_deferred_publication_says_how_long_its_headers_and_all_of_it_are() -> None:
    said, frame_bytes = deferred_publications(b"t.s0", [1_700_000_000_123], size=16)

    head, _, body = said.partition(b"\r\n")
    word, subject, header_bytes, total_bytes = head.split()
    assert (word, subject) == (b"HPUB", b"t.s0")
    assert body[: int(header_bytes)] == b"ms-deliver-at: 1700000000123\r\n\r\n"
    assert body[int(header_bytes) : int(total_bytes)] == b"0000000000000000"
    assert body[int(total_bytes) :] == b"\r\n"
    assert frame_bytes == len(said)


@pytest.mark.parametrize("part_bytes", [1, 2, 3, 5, 100])
def test_every_answer_is_counted_once_wherever_the_stream_is_cut(part_bytes: int) -> None:
    stream = b"+OK\r\n" * 4 + b"+OK DEFERRED t~1\r\n" + b"+OK\r\n"
    counter = Counter(b"+OK")

    for at in range(0, len(stream), part_bytes):
        counter.feed(stream[at : at + part_bytes])

    assert counter.count == 6


@pytest.mark.parametrize("part_bytes", [1, 2, 7, 30, 1000])
def test_every_message_is_heard_once_wherever_the_stream_is_cut(part_bytes: int) -> None:
    stream = b"+OK\r\n" + b"".join(
        b"MSG t.s0 s 20 %d\r\n%b\r\n" % (900 + number, value(number, 20)) for number in range(5)
    )
    messages, heard = Messages(FLUX, 20), []

    for at in range(0, len(stream), part_bytes):
        heard += messages.feed(stream[at : at + part_bytes])

    assert heard == [(b"%d" % (900 + number), b"%016d" % number) for number in range(5)]


def test_messages_of_core_nats_are_heard_beside_its_pings() -> None:
    stream = b"MSG t.s0 1 16\r\n0000000000000004\r\nPING\r\nMSG t.s0 1 16\r\n0000000000000005\r\n"

    heard = Messages(CORE_NATS, 16).feed(stream)

    assert [number for _, number in heard] == [b"0000000000000004", b"0000000000000005"]


def test_no_more_is_said_than_may_be_unanswered() -> None:
    allowance = Allowance(b"aabbccdd", 2, window=2)

    assert bytes(allowance.part(0, 100)) == b"aabb"
    allowance.sent(3)
    assert bytes(allowance.part(0, 100)) == b"b"
    assert bytes(allowance.part(1, 100)) == b"bcc"
    assert bytes(allowance.part(1, 2)) == b"bc"
    assert not allowance.is_used_up


def test_all_is_said_in_the_end() -> None:
    allowance = Allowance(b"aabb", 2, window=10)

    allowance.sent(4)

    assert allowance.is_used_up
    assert not allowance.part(0, 100)


def test_a_flymq_request_is_whole_around_its_value() -> None:
    head, tail = produce_request("orders", 16)

    frame = head + value(5, 16) + tail

    assert measure(frame[: HEAD.size]) == len(frame)
    assert opcode_of(frame) is Opcode.PRODUCE
    assert decode_request(Opcode.PRODUCE, frame[HEAD.size :]) == bodies.Produce(
        "orders", b"", value(5, 16), 0
    )


def test_the_offset_of_a_flymq_reply_is_found() -> None:
    reply = bodies.RecordMetadata("orders", 3, 12_345, 1_700_000_000_000, -1, 16)

    assert offset_in(bytes(encode_reply(Opcode.PRODUCE, reply))) == 12_345
