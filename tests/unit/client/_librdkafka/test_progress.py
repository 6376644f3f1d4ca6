"""What was handed out, what is done, and records fetched ahead."""

from confluent_kafka import Message as Raw

from millstream.client._librdkafka.fetched import Fetched
from millstream.client._librdkafka.progress import Progress
from millstream.client.models import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def raw(at: TopicPartition, offset: int) -> Raw:
    return Raw(topic=at.topic, partition=at.partition, offset=offset)


def drain(fetched: Fetched) -> list[tuple[int | None, int | None]]:
    collected = []
    while (message := fetched.pop()) is not None:
        collected.append((message.partition(), message.offset()))
    return collected


def test_a_record_in_hand_is_not_done() -> None:
    progress = Progress()
    progress.hand_out(A, 7)

    assert progress.done == {}
    assert progress.origins == {A: 7}


def test_a_commit_settles_what_is_done() -> None:
    progress = Progress()
    for offset in (7, 8):
        progress.hand_out(A, offset)
        progress.mark(A, offset)

    progress.committed({A: 9})

    assert progress.done == {}
    assert progress.origins == {}


def test_a_commit_in_the_middle_leaves_the_rest_to_commit() -> None:
    progress = Progress()
    for offset in (7, 8, 9):
        progress.hand_out(A, offset)
        progress.mark(A, offset)

    progress.committed({A: 8})

    assert progress.done == {A: 10}
    assert progress.origins == {A: 8}


def test_a_partition_that_went_away_is_forgotten_with_what_is_in_hand() -> None:
    progress = Progress()
    progress.hand_out(A, 1)
    progress.let_go()
    progress.mark(A, 1)
    progress.hand_out(B, 5)

    progress.forget([B])

    assert progress.let_go() == {}
    assert progress.done == {A: 2}


def test_a_batch_in_hand_is_done_as_a_whole() -> None:
    progress = Progress()
    for at, offset in ((A, 1), (B, 7), (A, 2)):
        progress.hand_out(at, offset)

    assert progress.done == {}
    assert progress.let_go() == {A: 2, B: 7}
    assert not progress.is_in_hand


def test_a_commit_within_a_batch_leaves_the_rest_of_it_in_hand() -> None:
    progress = Progress()
    for offset in (1, 2, 3):
        progress.hand_out(A, offset)

    progress.committed({A: 3})

    assert progress.origins == {A: 3}
    assert progress.let_go() == {A: 3}


def test_a_paused_partition_keeps_its_records_in_order() -> None:
    fetched = Fetched()
    for offset in range(3):
        fetched.add(raw(A, offset))
        fetched.add(raw(B, offset))

    fetched.pause([A])
    fetched.add(raw(A, 3))
    paused = drain(fetched)
    fetched.resume([A])
    resumed = drain(fetched)

    assert paused == [(1, 0), (1, 1), (1, 2)]
    assert resumed == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_dropped_records_are_gone_also_when_paused() -> None:
    fetched = Fetched()
    for at in (A, B):
        fetched.add(raw(at, 0))
    fetched.pause([B])

    fetched.drop([A, B])
    fetched.resume([B])

    assert fetched.is_empty
    assert fetched.pop() is None


def test_a_partition_that_comes_back_is_no_longer_paused() -> None:
    fetched = Fetched()
    fetched.pause([A])
    fetched.drop([A])
    fetched.resume([A])

    fetched.add(raw(A, 4))

    assert drain(fetched) == [(0, 4)]
