"""FlyMQ's frames: every opcode, both ways, and what is refused."""

from random import Random

import pytest

from millstream.errors import InvalidRequest, ProtocolError
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import (
    HEAD,
    OPERATIONS,
    Opcode,
    decode_request,
    encode_error,
    encode_reply,
    encode_request,
    measure,
    opcode_of,
)
from millstream.protocols.flymq.wire.shapes import LIST_ITEMS_MAX, fields_of, read_body
from millstream.protocols.flymq.wire.user_bodies import UserRequest
from tests.unit.protocols.flymq.arbitrary import arbitrary

SEEDS = range(20)


def spell(body: tuple[object, ...]) -> bytes:
    out = bytearray()
    fields_of(type(body)).write(out, body)
    return bytes(out)


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_every_form_of_a_request_is_read_as_it_was_written(opcode: Opcode) -> None:
    for seed in SEEDS:
        for form in OPERATIONS[opcode].requests:
            request = arbitrary(form, Random(f"{opcode}-{form.__name__}-{seed}"))

            assert decode_request(opcode, spell(request)) == request


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_every_reply_is_read_as_it_was_written(opcode: Opcode) -> None:
    for seed in SEEDS:
        reply = arbitrary(OPERATIONS[opcode].reply, Random(f"{opcode}-{seed}"))

        frame = encode_reply(opcode, reply)

        assert measure(frame[: HEAD.size]) == len(frame)
        assert read_body(type(reply), frame[HEAD.size :], is_exact=True) == reply


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_a_request_that_ends_anywhere_too_early_is_refused_or_has_defaults(opcode: Opcode) -> None:
    form = OPERATIONS[opcode].requests[-1]
    whole = spell(arbitrary(form, Random(f"cut {opcode}")))

    for size in range(len(whole)):
        try:
            read = decode_request(opcode, whole[:size])
        except ProtocolError:
            continue
        assert any(default in read for default in form._field_defaults.values())  # type: ignore[attr-defined]


def test_a_reply_has_the_opcode_of_its_request_but_for_auth() -> None:
    answered = {
        opcode: encode_reply(opcode, arbitrary(OPERATIONS[opcode].reply, Random(1)))[2]
        for opcode in OPERATIONS
    }

    different = {opcode for opcode, answer in answered.items() if answer != opcode}
    assert different == {Opcode.AUTH}
    assert answered[Opcode.AUTH] == Opcode.AUTH_RESPONSE


def test_what_lies_behind_a_request_is_ignored() -> None:
    request = bodies.Consume("orders", 1, 7)

    assert decode_request(Opcode.CONSUME, spell(request) + b"a later version's field") == request


@pytest.mark.parametrize("value", [b"", b"x", b"\0" * 70_000, b"\0\1s" * 5])
def test_the_order_of_a_schema_and_its_message_is_found_out(value: bytes) -> None:
    go = bodies.ProduceWithSchema("orders", "order-v1", value)
    python = bodies.ProduceWithSchemaLast("orders", value, "order-v1")

    assert decode_request(Opcode.PRODUCE_WITH_SCHEMA, spell(go)) == go
    assert decode_request(Opcode.PRODUCE_WITH_SCHEMA, spell(python)) == python


@pytest.mark.parametrize("offset", [0, 1, 2**16, 2**47])
@pytest.mark.parametrize("name", ["a", "sixsix", "orders~17"])
def test_a_dead_letter_is_named_by_id_or_by_offset(offset: int, name: str) -> None:
    by_offset, by_id = bodies.ReplayByOffset("orders", offset), bodies.ReplayById("orders", name)

    assert decode_request(Opcode.REPLAY_DLQ, spell(by_offset)) == by_offset
    assert decode_request(Opcode.REPLAY_DLQ, spell(by_id)) == by_id


@pytest.mark.parametrize("opcode", [0x00, 0x0C, 0x71, 0xA0, 0xFF])
def test_an_unknown_opcode_is_refused_in_decimal(opcode: int) -> None:
    with pytest.raises(InvalidRequest, match=f"unknown opcode: {opcode}$"):
        opcode_of(encode_request(opcode, b""))


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        ("ae 01 01 01 00 00 00 00", "magic 0xae, version 1"),
        ("af 02 01 01 00 00 00 00", "magic 0xaf, version 2"),
        ("af 01 01 01 02 00 00 01", "payload of 33554433 bytes, at most 33554432"),
    ],
)
def test_a_head_that_is_not_flymqs_breaks_the_protocol(head: str, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        measure(bytes.fromhex(head))


def test_the_largest_payload_is_32_mib() -> None:
    assert measure(bytes.fromhex("af 01 01 01 02 00 00 00")) == 8 + 32 * 2**20


def test_an_error_is_a_code_and_a_text_that_is_cut_between_characters() -> None:
    frame = encode_error("ä" * 10_000)

    failure = read_body(bodies.Failure, frame[HEAD.size :], is_exact=True)
    assert frame[2] == Opcode.ERROR
    assert failure == bodies.Failure(1, "ä" * 2_048)


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b"", "2 bytes at 0, 0 are there"),
        (b"\0\5ab", "5 bytes at 2, 2 are there"),
        (b"\0\1\xff\0\0\0\0\0\0\0\0\0\0\0\0", "1 bytes at 0 are not UTF-8"),
        (b"\0\1a\xff\xff\xff\xff", "4294967295 bytes at 7, 0 are there"),
    ],
)
def test_a_length_is_not_believed(payload: bytes, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        decode_request(Opcode.PRODUCE, payload)


def test_a_list_has_a_bound_whatever_its_count_says() -> None:
    head = spell(UserRequest("u", "", "", (), False))[: -len(b"\0\0\0\0\0")]

    with pytest.raises(
        ProtocolError, match=f"a list of 4294967295 items, at most {LIST_ITEMS_MAX}"
    ):
        decode_request(Opcode.USER_CREATE, head + b"\xff\xff\xff\xff" + b"\0" * 100)
