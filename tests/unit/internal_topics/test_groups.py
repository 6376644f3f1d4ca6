"""Groups and offsets as a fold, their bytes, and which offsets expire."""

from uuid import UUID

import msgspec
import pytest

from millstream.codec.markers import ControlKind, Marker
from millstream.codec.records import Record
from millstream.errors import ProtocolError
from millstream.internal_topics.groups import (
    GroupKey,
    GroupsState,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    PendingOffset,
    Protocol,
    StoredGroup,
    check_readable,
    check_text,
    encode_key,
    encode_value,
    expired_offsets,
    partition_for,
)
from millstream.model import TopicPartition

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7)
DAY_MS = 24 * 60 * 60 * 1000


def offset_value(offset: int = 5, committed_ms: int = 1_000) -> OffsetValue:
    return OffsetValue(
        offset=offset,
        leader_epoch=1,
        metadata="here",
        committed_ms=committed_ms,
        topic_id=TOPIC_ID,
    )


def group_value(changed_ms: int = 1_000) -> GroupValue:
    member = MemberValue(
        member_id="m",
        instance_id=None,
        client_id="app",
        client_host="10.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols=(Protocol("range", b"\0"),),
        assignment=b"\1",
    )
    return GroupValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        changed_ms=changed_ms,
        members=(member,),
    )


def offset_key(group_id: str = "g", target: TopicPartition = ORDERS) -> bytes:
    return encode_key(OffsetKey(group_id, target.topic, target.partition))


def record(key: bytes | None, value: bytes | None, offset: int = 0) -> Record:
    return Record(offset, 0, key, value)


def test_the_newest_record_of_a_key_counts() -> None:
    state = GroupsState()

    state.apply(record(encode_key(GroupKey("g")), encode_value(group_value())))
    state.apply(record(offset_key(), encode_value(offset_value(5))))
    state.apply(record(offset_key(), encode_value(offset_value(6))))

    stored = state.find("g")
    assert stored is not None
    assert stored.value == group_value()
    assert stored.offsets == {ORDERS: offset_value(6)}


def test_a_tombstone_takes_its_key_away_and_nothing_is_left_of_a_bare_group() -> None:
    state = GroupsState()
    state.apply(record(encode_key(GroupKey("g")), encode_value(group_value())))
    state.apply(record(offset_key(), encode_value(offset_value())))

    state.apply(record(encode_key(GroupKey("g")), None))
    still = state.find("g")
    assert still is not None
    assert still.value is None
    state.apply(record(offset_key(), None))

    assert state.find("g") is None
    assert len(state) == 0


def test_a_tombstone_of_something_unknown_leaves_no_trace() -> None:
    state = GroupsState()

    state.apply(record(encode_key(GroupKey("g")), None))
    state.apply(record(offset_key(), None))

    assert list(state) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"x"),
        (b"", b"x"),
        (b"garbage", b"x"),
        (msgspec.msgpack.encode([9, "g", "orders", 0]), b"x"),  # Of a later version.
        (encode_key(GroupKey("g")), b"garbage"),
        (offset_key(), msgspec.msgpack.encode([9, 1, 2, 3])),  # A later version.
        (encode_key(GroupKey("g")), encode_value(offset_value())),
    ],
)
def test_a_record_that_cannot_be_read_changes_nothing(key: bytes | None, value: bytes) -> None:
    state = GroupsState()

    with pytest.raises(ValueError):
        state.apply(record(key, value))
    with pytest.raises(ValueError):
        check_readable(key, value)

    assert list(state) == []


def test_a_record_that_cannot_be_read_keeps_what_was_there() -> None:
    state = GroupsState()
    state.apply(record(offset_key(), encode_value(offset_value())))

    with pytest.raises(ValueError):
        state.apply(record(offset_key(), b"garbage"))

    stored = state.find("g")
    assert stored is not None
    assert stored.offsets == {ORDERS: offset_value()}


def test_values_may_get_further_fields_at_their_end() -> None:
    state = GroupsState()
    fields = msgspec.msgpack.decode(encode_value(offset_value()))

    state.apply(record(offset_key(), msgspec.msgpack.encode([*fields, "of a later version"])))

    stored = state.find("g")
    assert stored is not None
    assert stored.offsets == {ORDERS: offset_value()}


def test_the_spelling_of_keys_and_values_never_changes() -> None:
    assert encode_key(GroupKey("g")).hex() == "9200a167"
    assert offset_key().hex() == "9401a167a66f726465727300"
    assert encode_value(offset_value()).hex() == (
        "96000501a468657265cd03e8c41000000000000000000000000000000007"
    )
    assert encode_value(group_value()).hex() == (
        "9700a8636f6e73756d657203a572616e6765a16dcd03e8"
        "9198a16dc0a3617070a831302e302e302e31cd2710cdea609192a572616e6765c40100c40101"
    )


# -- transactions ----------------------------------------------------------------------------------


def offset_at(position: int, offset: int | None, target: TopicPartition = ORDERS) -> Record:
    value = None if offset is None else encode_value(offset_value(offset))
    return record(offset_key(target=target), value, position)


def marker(producer_id: int, kind: ControlKind = ControlKind.COMMIT) -> Marker:
    return Marker(kind, producer_id, 0, 0)


def offsets_of(state: GroupsState) -> dict[TopicPartition, int]:
    stored = state.find("g")
    return {} if stored is None else {at: place.offset for at, place in stored.offsets.items()}


def test_offsets_in_a_transaction_count_from_its_commit_on() -> None:
    state = GroupsState()
    state.apply(offset_at(0, 5))

    state.pend(offset_at(1, 8), 1)
    before = offsets_of(state)
    state.end(marker(1))

    assert before == {ORDERS: 5}
    assert offsets_of(state) == {ORDERS: 8}


def test_offsets_in_a_transaction_that_is_aborted_never_count() -> None:
    state = GroupsState()
    state.apply(offset_at(0, 5))

    state.pend(offset_at(1, 8), 1)
    state.end(marker(1, ControlKind.ABORT))

    assert offsets_of(state) == {ORDERS: 5}
    state.end(marker(1))
    assert offsets_of(state) == {ORDERS: 5}


def test_a_group_of_which_only_a_transaction_knows_is_there_until_that_is_aborted() -> None:
    state = GroupsState()

    state.pend(offset_at(0, 8), 1)
    there = state.find("g")
    assert there is not None
    assert list(there.pending) == [ORDERS]
    state.end(marker(1, ControlKind.ABORT))

    assert state.find("g") is None


def test_a_marker_ends_the_transaction_of_its_producer_only() -> None:
    state = GroupsState()
    state.pend(offset_at(0, 8), 1)
    state.pend(offset_at(1, 9, TopicPartition("orders", 1)), 2)

    state.end(marker(2))

    assert offsets_of(state) == {TopicPartition("orders", 1): 9}


@pytest.mark.parametrize("newer", [6, None])
def test_a_record_behind_a_pending_one_beats_it_whatever_becomes_of_it(newer: int | None) -> None:
    state = GroupsState()
    state.apply(offset_at(0, 5))
    state.pend(offset_at(1, 8), 1)

    state.apply(offset_at(2, newer))
    state.end(marker(1))

    assert offsets_of(state) == ({} if newer is None else {ORDERS: newer})


def test_of_two_transactions_the_later_record_counts_not_the_later_marker() -> None:
    state = GroupsState()
    state.pend(offset_at(0, 8), 1)
    state.pend(offset_at(1, 9), 2)

    state.end(marker(2))
    state.end(marker(1))

    assert offsets_of(state) == {ORDERS: 9}


def test_the_earlier_of_two_transactions_counts_until_the_later_is_decided() -> None:
    state = GroupsState()
    state.pend(offset_at(0, 8), 1)
    state.pend(offset_at(1, 9), 2)

    state.end(marker(1))
    between = offsets_of(state)
    state.end(marker(2))

    assert between == {ORDERS: 8}
    assert offsets_of(state) == {ORDERS: 9}


@pytest.mark.parametrize("key", [None, b"garbage", encode_key(GroupKey("g"))])
def test_nothing_but_offsets_is_pending(key: bytes | None) -> None:
    state = GroupsState()

    with pytest.raises(ValueError):
        state.pend(record(key, encode_value(group_value())), 1)
    state.end(marker(1))

    assert list(state) == []


# The codes are what Java's String.hashCode says of the same text, as printed by jshell 17.
@pytest.mark.parametrize(
    ("group_id", "code"),
    [
        ("", 0),
        ("a", 97),
        ("billing", -109829509),
        ("hello", 99162322),
        ("größe", 98762257),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_a_group_lives_where_javas_hash_puts_it(group_id: str, code: int) -> None:
    expected = 0 if code == -(2**31) else abs(code)

    assert [partition_for(group_id, n) for n in (1, 16, 50)] == [expected % n for n in (1, 16, 50)]


def test_text_that_is_no_unicode_is_refused() -> None:
    check_text("größe", None, "")
    with pytest.raises(ProtocolError, match="no Unicode"):
        check_text("fine", "\ud800")


# -- expiry ----------------------------------------------------------------------------------------


def stored(*commits: tuple[str, int], changed_ms: int | None = None) -> StoredGroup:
    group = StoredGroup()
    if changed_ms is not None:
        group.value = group_value(changed_ms)
    for topic, committed_ms in commits:
        group.offsets[TopicPartition(topic, 0)] = offset_value(committed_ms=committed_ms)
    return group


def expired(
    group: StoredGroup,
    now_days: float,
    *,
    is_empty: bool = True,
    subscribed: frozenset[str] | None = None,
) -> set[str]:
    expired = expired_offsets(
        group,
        now_ms=int(now_days * DAY_MS),
        retention_ms=7 * DAY_MS,
        is_empty=is_empty,
        subscribed=subscribed,
    )
    return {target.topic for target in expired}


def test_offsets_without_a_group_expire_from_their_commit() -> None:
    group = stored(("old", 0), ("new", DAY_MS))

    assert expired(group, 6.9) == set()
    assert expired(group, 7) == {"old"}
    assert expired(group, 8) == {"old", "new"}


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty() -> None:
    group = stored(("old", 0), changed_ms=5 * DAY_MS)

    assert expired(group, 11.9) == set()
    assert expired(group, 12) == {"old"}


def test_an_offset_committed_after_the_group_became_empty_expires_from_its_commit() -> None:
    group = stored(("reset", 6 * DAY_MS), changed_ms=0)

    assert expired(group, 12.9) == set()
    assert expired(group, 13) == {"reset"}


def test_an_offset_that_a_transaction_may_replace_does_not_expire() -> None:
    group = stored(("old", 0), ("pending", 0))
    group.pending[TopicPartition("pending", 0)] = {1: PendingOffset(9, offset_value())}

    assert expired(group, 100) == {"old"}


def test_a_group_with_members_keeps_what_it_subscribes_to_and_all_if_that_is_unknown() -> None:
    group = stored(("read", 0), ("dropped", 0), changed_ms=0)

    assert expired(group, 100, is_empty=False, subscribed=frozenset({"read"})) == {"dropped"}
    assert expired(group, 100, is_empty=False, subscribed=None) == set()
