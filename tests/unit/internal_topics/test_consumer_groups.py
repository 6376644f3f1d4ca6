"""What is remembered of consumer groups: the fold of their records, and the bytes of those."""

from uuid import UUID

import pytest

from millstream.codec.records import Record
from millstream.internal_topics.consumer_groups import (
    ConsumerKey,
    ConsumersKey,
    ConsumersValue,
    ConsumerValue,
    HoldingKey,
    HoldingState,
    HoldingValue,
    SubscriptionKey,
    SubscriptionValue,
    TargetKey,
    TargetValue,
    TopicShare,
    listed,
    packed,
    unlisted,
    unpacked,
)
from millstream.internal_topics.groups import GroupsState, encode_key, encode_value
from millstream.model import LogId

GROUP = "billing"
A, B, OTHER = LogId(UUID(int=1), 0), LogId(UUID(int=1), 1), LogId(UUID(int=2), 0)
RECORDS: dict[ConsumerKey, ConsumerValue] = {
    ConsumersKey(GROUP): ConsumersValue(
        epoch=3, target_epoch=2, assignor="uniform", topics_hash=b"hash", changed_ms=1_000
    ),
    SubscriptionKey(GROUP, "m"): SubscriptionValue(
        instance_id=None,
        rack_id=None,
        client_id="app",
        client_host="10.0.0.1",
        rebalance_timeout_ms=60_000,
        names=("orders",),
        pattern="pay.*",
        matched=("payments",),
        assignor=None,
    ),
    TargetKey(GROUP, "m"): TargetValue(listed([A, B])),
    HoldingKey(GROUP, "m"): HoldingValue(
        state=HoldingState.UNREVOKED,
        epoch=2,
        previous_epoch=1,
        assigned=packed({A: 1}.items()),
        revoking=listed([OTHER]),
    ),
}
# Compaction compares keys byte by byte, and earlier lives wrote values: neither ever changes.
SPELLING = {
    ConsumersKey(GROUP): ("9203a762696c6c696e67", "96000302a7756e69666f726dc40468617368cd03e8"),
    SubscriptionKey(GROUP, "m"): (
        "9304a762696c6c696e67a16d",
        "9a00c0c0a3617070a831302e302e302e31cdea6091a66f7264657273a57061792e2a91a87061796d656e7473c0",
    ),
    TargetKey(GROUP, "m"): (
        "9305a762696c6c696e67a16d",
        "92009193c4100000000000000000000000000000000192000190",
    ),
    HoldingKey(GROUP, "m"): (
        "9306a762696c6c696e67a16d",
        (
            "9600a9756e7265766f6b656402019193c410000000000000000000000000000000019100910191"
            "93c41000000000000000000000000000000002910090"
        ),
    ),
}


def fold(*records: tuple[ConsumerKey, ConsumerValue | None]) -> GroupsState:
    state = GroupsState()
    for offset, (key, value) in enumerate(records):
        data = None if value is None else encode_value(value)
        state.apply(Record(offset, 0, encode_key(key), data))
    return state


def test_the_records_of_a_group_add_up() -> None:
    stored = fold(*RECORDS.items()).find(GROUP)

    assert stored is not None
    assert stored.consumers is not None
    assert stored.consumers.value == RECORDS[ConsumersKey(GROUP)]
    assert stored.consumers.subscriptions == {"m": RECORDS[SubscriptionKey(GROUP, "m")]}
    assert stored.consumers.targets == {"m": RECORDS[TargetKey(GROUP, "m")]}
    assert stored.consumers.holdings == {"m": RECORDS[HoldingKey(GROUP, "m")]}


def test_nothing_is_left_of_a_group_whose_records_are_all_taken_away() -> None:
    state = fold(*RECORDS.items(), *((key, None) for key in RECORDS))

    assert len(state) == 0


def test_a_tombstone_of_something_unknown_leaves_no_trace() -> None:
    assert len(fold(*((key, None) for key in RECORDS))) == 0


def test_a_value_that_cannot_be_read_changes_nothing() -> None:
    state = fold(*RECORDS.items())

    for offset, key in enumerate(RECORDS):
        for unreadable in (key, ConsumersKey("other")):
            with pytest.raises(ValueError):
                state.apply(Record(offset, 0, encode_key(unreadable), b"garbage"))

    stored = state.find(GROUP)
    assert stored is not None
    assert stored.consumers is not None
    assert stored.consumers.value == RECORDS[ConsumersKey(GROUP)]
    assert len(state) == 1


@pytest.mark.parametrize("key", RECORDS)
def test_the_spelling_of_keys_and_values_never_changes(key: ConsumerKey) -> None:
    assert (encode_key(key).hex(), encode_value(RECORDS[key]).hex()) == SPELLING[key]


def test_partitions_are_packed_by_topic_and_unpacked_again() -> None:
    assigned = {OTHER: 4, B: 1, A: 3}

    assert packed(assigned.items()) == (
        TopicShare(UUID(int=1), (0, 1), (3, 1)),
        TopicShare(UUID(int=2), (0,), (4,)),
    )
    assert unpacked(packed(assigned.items())) == assigned
    assert unlisted(listed(assigned)) == assigned.keys()


def test_it_is_known_when_the_members_of_a_group_last_changed() -> None:
    stored = fold(*RECORDS.items()).find(GROUP)

    assert stored is not None
    assert stored.changed_ms == 1_000
