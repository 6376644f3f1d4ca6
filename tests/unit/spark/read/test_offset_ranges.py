"""What a trigger takes, how it becomes tasks, and what counts as lost."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from millstream.model import TopicPartition
from millstream.spark.options.places import Specific, starting
from millstream.spark.pipelines.summaries import positions
from millstream.spark.read.offset_ranges import (
    OffsetRange,
    Offsets,
    QueryPosition,
    TopicIds,
    backlog,
    check_available,
    from_json,
    gather,
    limited,
    limited_bytes,
    ranges,
    recreated,
    recreated_losses,
    split,
    to_json,
    without,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
offsets = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 12)), st.integers(0, 2**40)
)


@given(offsets)
def test_offsets_survive_json_and_are_spelt_one_way(given_offsets: Offsets) -> None:
    shuffled = dict(reversed(given_offsets.items()))

    assert json.dumps(to_json(given_offsets)) == json.dumps(to_json(shuffled))
    assert from_json(json.loads(json.dumps(to_json(given_offsets)))) == (given_offsets, {})


@given(offsets, st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x-_1", "yY"])))
def test_ids_of_topics_stand_beside_offsets_and_older_readers_ignore_them(
    given_offsets: Offsets, topic_ids: TopicIds
) -> None:
    written = json.loads(json.dumps(to_json(given_offsets, topic_ids)))

    topics = {target.topic for target in given_offsets}
    known = {topic: topic_ids[topic] for topic in topics if topic in topic_ids}
    assert from_json(written) == (given_offsets, known)
    # As versions before this read a checkpoint.
    without_ids = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in written.items()
        for partition, offset in partitions.items()
    }
    assert without_ids == given_offsets
    # And as a user may copy it into an option.
    place = starting({"startingoffsets": json.dumps(written)}, is_streaming=True)
    assert place == Specific(given_offsets)
    assert set(positions(written)) == topics  # As progress is counted.


def test_a_topic_that_was_created_anew_is_told_by_its_id() -> None:
    before = QueryPosition({A0: 5, A1: 7, B0: 3}, {"a": "old", "b": "same"})

    assert recreated(before.topic_ids, {"a": "new", "b": "same", "c": "x"}) == ["a"]
    assert recreated({}, {"a": "new"}) == recreated({"a": "old"}, {}) == []
    assert without(before.offsets, ["a"]) == {B0: 3}
    (loss,) = recreated_losses(before, {"a": "new", "b": "same"})
    assert "topic a was deleted and created anew: its id was old and is new" in loss
    assert "{0: 5, 1: 7}" in loss


def test_tasks_are_told_the_id_of_their_topic() -> None:
    assert ranges({}, {A0: 1, B0: 1}, {"a": "x"}) == [
        OffsetRange("a", 0, 0, 1, "x"),
        OffsetRange("b", 0, 0, 1),
    ]


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    written = to_json({TopicPartition("a", 10): 1, TopicPartition("a", 9): 2})

    assert list(written["a"]) == ["9", "10"]


def test_a_new_partition_is_read_from_its_first_offset() -> None:
    assert ranges({A0: 5}, {A0: 7, A1: 3}) == [OffsetRange("a", 0, 5, 7), OffsetRange("a", 1, 0, 3)]


def test_a_partition_that_ends_before_its_start_is_read_anew() -> None:
    assert ranges({A0: 100}, {A0: 3}) == [OffsetRange("a", 0, 0, 3)]


@given(offsets, offsets, st.integers(1, 1000))
def test_a_limit_is_kept_and_every_partition_with_a_backlog_moves_on(
    starts: Offsets, ends: Offsets, limit: int
) -> None:
    taken = limited(starts, ends, offsets_max=limit)

    before, after = backlog(starts, ends), backlog(starts, taken)
    assert set(taken) == set(ends)
    assert set(after) == set(before)
    assert all(0 < after[target] <= before[target] for target in before)
    assert sum(after.values()) <= limit + len(before)


def test_a_limit_is_shared_by_backlog() -> None:
    assert limited({}, {A0: 900, B0: 100}, offsets_max=100) == {A0: 90, B0: 10}
    assert limited({}, {A0: 9, B0: 1}, offsets_max=100) == {A0: 9, B0: 1}


def test_a_limit_of_bytes_counts_what_records_take() -> None:
    taken = limited_bytes({}, {A0: 100, B0: 100}, {A0: 10.0, B0: 90.0}, bytes_max=1000)

    assert taken == {A0: 10, B0: 10}


@given(offsets, offsets, st.none() | st.integers(1, 50), st.none() | st.integers(2**36, 2**40))
def test_tasks_cover_the_ranges_exactly(
    starts: Offsets, ends: Offsets, partitions_min: int | None, records_max: int | None
) -> None:
    whole = ranges(starts, ends)

    pieces = split(whole, partitions_min=partitions_min, records_max=records_max)

    for r in whole:
        mine = [piece for piece in pieces if piece.target == r.target]
        assert (mine[0].start, mine[-1].end) == (r.start, r.end)
        assert all(a.end == b.start for a, b in pairwise(mine))
    assert all(piece.start < piece.end for piece in pieces)
    if records_max is not None:
        assert all(piece.end - piece.start <= records_max for piece in pieces)
    if partitions_min is not None and whole and min(r.end - r.start for r in whole) >= 50:
        assert len(pieces) >= partitions_min


def test_ranges_stay_whole_when_there_are_enough() -> None:
    whole = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 1)]

    assert split(whole, partitions_min=2, records_max=None) == whole


def test_the_larger_of_the_two_counts_wins() -> None:
    whole = [OffsetRange("a", 0, 0, 100)]

    assert len(split(whole, partitions_min=3, records_max=10)) == 10
    assert len(split(whole, partitions_min=20, records_max=10)) == 20


def test_gaps_and_growth_are_no_loss() -> None:
    assert check_available({A0: 5}, {A0: 9, A1: 3}, {A1: 0}).losses == []


def test_what_went_is_named() -> None:
    (gone,) = check_available({A0: 5}, {}, {}).losses
    (late,) = check_available({}, {A1: 9}, {A1: 4}).losses
    (shrunk,) = check_available({A0: 5}, {A0: 2}, {}).losses

    assert gone == "partition a-0 is gone, the query stood at offset 5"
    assert late == "partition a-1 was added with offset 4 instead of 0"
    assert shrunk == "partition a-0 ends at offset 2, the query stood at 5"


@given(st.lists(st.integers(1, 3_000), max_size=30))
def test_small_ranges_share_a_task_in_order_and_large_ones_have_their_own(sizes: list[int]) -> None:
    pieces = [OffsetRange("a", index, 5, 5 + size) for index, size in enumerate(sizes)]

    tasks = gather(pieces, records_min=2_000, ranges_max=8)

    assert [piece for task in tasks for piece in task] == pieces
    for task in tasks:
        assert len(task) == 1 or sum(piece.end - piece.start for piece in task) <= 2_000
        assert len(task) <= 8
    for before, after in pairwise(tasks):
        total = sum(piece.end - piece.start for piece in (*before, after[0]))
        assert total > 2_000 or len(before) == 8


def test_a_task_of_one_record_at_least_is_a_task_for_each_range() -> None:
    pieces = [OffsetRange("a", index, 0, 1) for index in range(3)]

    assert gather(pieces, records_min=1, ranges_max=8) == [(piece,) for piece in pieces]
