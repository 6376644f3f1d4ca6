"""The bytes of `tests/golden/flymq`, written out for people, against what we read and write."""

from functools import partial

import pytest

from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import (
    HEAD,
    Body,
    Opcode,
    decode_request,
    encode_error,
    encode_reply,
    opcode_of,
)
from millstream.protocols.flymq.wire.shapes import read_body
from tests.support.golden import read_bytes, scripts

golden = partial(read_bytes, "flymq")
SENT_MS = 1_700_000_000_000

REQUESTS = {
    "a_produce_without_a_key_has_an_empty_one": (
        Opcode.PRODUCE,
        bodies.Produce("orders", b"", b"v0", -1),
    ),
    "a_mode_has_a_length_of_one_byte": (
        Opcode.SUBSCRIBE,
        bodies.Subscribe("orders", "g", 2, "commit"),
    ),
}

REPLIES = {
    "the_metadata_of_a_record_answers_a_produce": (
        Opcode.PRODUCE,
        bodies.RecordMetadata("orders", 0, 5, SENT_MS, -1, 2),
    ),
    "a_delayed_record_has_an_id_behind_its_metadata": (
        Opcode.PRODUCE_DELAYED,
        bodies.DelayedMetadata("orders", 0, 0, SENT_MS, -1, 2, "orders~17"),
    ),
    "a_fetch_reply_counts_before_its_next_offset": (
        Opcode.FETCH,
        bodies.Fetched(
            2, 9, (bodies.FetchedRecord(7, b"k", b"a"), bodies.FetchedRecord(8, b"", b"bc"))
        ),
    ),
    "a_login_is_answered_with_roles_of_short_lengths": (
        Opcode.AUTH,
        user_bodies.Authenticated(True, "ann", ("admin",), ""),
    ),
    "nobody_is_spelled_as_both_clients_read_it": (
        Opcode.WHOAMI,
        user_bodies.Identity(False, "", (), ()),
    ),
    "a_group_is_listed_with_its_topic": (
        Opcode.LIST_GROUPS,
        bodies.Groups((bodies.Group("orders", "g", 3, (bodies.GroupOffset(2, 40),)),)),
    ),
    "a_replay_is_answered_for_lengths_of_two_and_of_four": (
        Opcode.REPLAY_DLQ,
        bodies.Replayed(True, 0),
    ),
    "a_cluster_of_one": (
        Opcode.CLUSTER_METADATA,
        bodies.ClusterMetadata(
            "c",
            (
                bodies.PlacedTopic(
                    "orders",
                    (bodies.PlacedPartition(0, "1", "h:9092", 1, "online", ("1",), ("1",)),),
                ),
            ),
        ),
    ),
}


@pytest.mark.parametrize("claim", REQUESTS)
def test_a_request_is_read_from_its_bytes(claim: str) -> None:
    opcode, request = REQUESTS[claim]
    frame = golden(claim)

    assert opcode_of(frame) == opcode
    assert decode_request(opcode, frame[HEAD.size :]) == request


@pytest.mark.parametrize("claim", REPLIES)
def test_a_reply_is_spelled_in_its_bytes(claim: str) -> None:
    opcode, reply = REPLIES[claim]

    assert encode_reply(opcode, reply) == golden(claim)


def test_an_error_is_spelled_in_its_bytes() -> None:
    assert encode_error("unknown opcode: 12") == golden("an_error_has_a_code_before_its_text")


def test_the_anonymous_user_is_read_alike_in_the_layout_of_either_client() -> None:
    payload = golden("nobody_is_spelled_as_both_clients_read_it")[HEAD.size :]

    in_python: Body = read_body(user_bodies.Identity, payload)
    in_go: Body = read_body(user_bodies.Authenticated, payload)

    assert in_python == (False, "", (), ())
    assert in_go == (False, "", (), "")


def test_every_golden_file_is_read() -> None:
    claims = {*REQUESTS, *REPLIES, "an_error_has_a_code_before_its_text"}

    assert {script.stem for script in scripts("flymq")} == claims
