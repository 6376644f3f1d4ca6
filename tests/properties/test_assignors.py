"""Shares of partitions for any subscriptions: complete, allowed, even, and moving little."""

from collections.abc import Collection, Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.groups.consumer.assignors import (
    ASSIGNORS,
    Assignor,
    Shares,
    Subscriber,
    range_,
    uniform,
)
from millstream.model import LogId

TOPICS = [UUID(int=number) for number in range(1, 6)]

counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
subscriptions = st.frozensets(st.sampled_from(TOPICS))
differing = st.lists(subscriptions, min_size=1, max_size=8)
member_counts = st.integers(1, 8)


def wishes_of(topics: Collection[frozenset[UUID]]) -> list[Subscriber]:
    return [Subscriber(f"m{number}", names) for number, names in enumerate(topics)]


def holding(subscribers: Collection[Subscriber], shares: Shares) -> list[Subscriber]:
    return [
        subscriber._replace(held=shares.get(subscriber.member_id, frozenset()))
        for subscriber in subscribers
    ]


def moved(before: Shares, after: Shares) -> int:
    """How many partitions left a member that is still here."""
    return sum(
        len(before[member_id] - after[member_id]) for member_id in before if member_id in after
    )


@pytest.mark.parametrize("assignor", ASSIGNORS.values())
@given(counts_of_topics, differing)
def test_every_wanted_partition_goes_to_exactly_one_who_wants_it(
    assignor: Assignor, counts: Mapping[UUID, int], topics: list[frozenset[UUID]]
) -> None:
    subscribers = wishes_of(topics)

    shares = assignor(subscribers, counts)

    assigned = [partition for share in shares.values() for partition in share]
    request = frozenset().union(*topics) & counts.keys()
    assert sorted(assigned) == [LogId(t, i) for t in sorted(request) for i in range(counts[t])]
    for subscriber in subscribers:
        assert {
            partition.topic_id for partition in shares[subscriber.member_id]
        } <= subscriber.topics


@given(counts_of_topics, member_counts)
def test_those_who_want_the_same_get_as_much_give_or_take_one(
    counts: Mapping[UUID, int], members: int
) -> None:
    shares = uniform(wishes_of([frozenset(TOPICS)] * members), counts)

    sizes = [len(share) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1


@given(counts_of_topics, differing, differing)
def test_shares_differ_by_at_most_one_where_a_member_could_take_more(
    counts: Mapping[UUID, int], before: list[frozenset[UUID]], after: list[frozenset[UUID]]
) -> None:
    shares = uniform(wishes_of(before), counts)
    subscribers = holding(wishes_of(after), shares)

    shares = uniform(subscribers, counts)

    for subscriber in subscribers:
        for partition in shares[subscriber.member_id]:
            takers = [w.member_id for w in subscribers if partition.topic_id in w.topics]
            least = min(len(shares[member_id]) for member_id in takers)
            assert len(shares[subscriber.member_id]) <= least + 1


@given(counts_of_topics, differing)
def test_nothing_moves_when_nothing_has_changed(
    counts: Mapping[UUID, int], topics: list[frozenset[UUID]]
) -> None:
    subscribers = wishes_of(topics)
    shares = uniform(subscribers, counts)

    assert uniform(holding(subscribers, shares), counts) == shares


@given(counts_of_topics, member_counts)
def test_a_newcomer_takes_its_part_and_nothing_else_moves(
    counts: Mapping[UUID, int], members: int
) -> None:
    everything = frozenset(TOPICS)
    before = uniform(wishes_of([everything] * members), counts)

    after = uniform(holding(wishes_of([everything] * (members + 1)), before), counts)

    assert moved(before, after) == len(after[f"m{members}"])


@given(counts_of_topics, member_counts)
def test_one_who_leaves_moves_only_what_was_its_own(
    counts: Mapping[UUID, int], members: int
) -> None:
    subscribers = wishes_of([frozenset(TOPICS)] * (members + 1))
    before = uniform(subscribers, counts)

    after = uniform(holding(subscribers[1:], before), counts)

    assert moved(before, after) == 0


@given(counts_of_topics, member_counts)
def test_the_order_of_members_does_not_matter(counts: Mapping[UUID, int], members: int) -> None:
    subscribers = wishes_of([frozenset(TOPICS)] * members)

    for assignor in ASSIGNORS.values():
        assert assignor(subscribers[::-1], counts) == assignor(subscribers, counts)


def test_a_range_is_of_neighbours_and_the_same_in_every_topic() -> None:
    counts = {TOPICS[0]: 4, TOPICS[1]: 4}

    shares = range_(wishes_of([frozenset(TOPICS)] * 2), counts)

    assert shares["m0"] == {LogId(topic, index) for topic in counts for index in (0, 1)}


def test_static_members_keep_their_ranges_from_process_to_process() -> None:
    counts = {TOPICS[0]: 4}
    topics = frozenset(TOPICS)

    first = range_(
        [Subscriber("z", topics, instance_id="a"), Subscriber("y", topics, instance_id="b")], counts
    )
    second = range_(
        [Subscriber("x", topics, instance_id="a"), Subscriber("y", topics, instance_id="b")], counts
    )

    assert first["z"] == second["x"]
