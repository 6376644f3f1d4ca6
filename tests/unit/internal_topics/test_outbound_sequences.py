"""Outbound sequences: what a ledger stores of its writes to a partition."""

from uuid import UUID

import msgspec
import pytest

from millstream.internal_topics.outbound_sequences import (
    OutboundSequence,
    decode_key,
    decode_sequence,
    encode_key,
    encode_sequence,
)
from millstream.model import LogId

TARGET = LogId(UUID(int=7), 3)


def test_a_lane_begins_ends_and_goes_on_behind_what_it_carried() -> None:
    begun = OutboundSequence(5).begun([b"a", b"b"])

    assert begun == OutboundSequence(5, 0, (b"a", b"b"))
    assert begun.ended() == OutboundSequence(5, 2)
    assert begun.ended().begun([b"c"]) == OutboundSequence(5, 2, (b"c",))


def test_sequences_go_on_with_0_behind_the_last_one() -> None:
    assert OutboundSequence(5, 2**31 - 1, (b"a", b"b")).ended() == OutboundSequence(5, 1)


def test_a_plan_replaces_what_is_behind_it_and_drops_what_has_ended() -> None:
    outbound = OutboundSequence(5, 7, (b"a", b"b", b"c"))

    assert outbound.planned([b"d"], ended_count=1, kept_count=2) == OutboundSequence(
        5, 8, (b"b", b"d")
    )
    assert outbound.planned([], ended_count=3, kept_count=3) == OutboundSequence(5, 10)


@pytest.mark.parametrize(
    ("next_sequence", "count"), [(7, 0), (9, 2), (10, 3), (11, None), (6, None), (0, None)]
)
def test_a_log_tells_by_its_next_sequence_how_much_of_a_lane_it_has(
    next_sequence: int, count: int | None
) -> None:
    assert OutboundSequence(5, 7, (b"a", b"b", b"c")).begun_count(next_sequence) == count


def test_that_is_told_also_where_sequences_begin_again() -> None:
    assert OutboundSequence(5, 2**31 - 1, (b"a", b"b")).begun_count(1) == 2


def test_another_producer_begins_with_the_same_at_0() -> None:
    assert OutboundSequence(5, 17, (b"a",)).with_producer(6) == OutboundSequence(6, 0, (b"a",))


def test_what_is_written_is_read() -> None:
    outbound = OutboundSequence(5, 17, (b"a", b"\0"))

    assert decode_key(encode_key(TARGET)) == TARGET
    assert decode_sequence(encode_sequence(outbound)) == outbound


@pytest.mark.parametrize(
    "key", [None, b"", b"lane\0", b"lame\0" + bytes(20), b"lane\0" + bytes(21)]
)
def test_other_keys_are_of_no_lane(key: bytes | None) -> None:
    assert decode_key(key) is None


def test_a_value_of_a_later_version_is_told_apart() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_sequence(msgspec.msgpack.encode([1, 5, 0, []]))
