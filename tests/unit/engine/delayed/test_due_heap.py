"""Which delayed records are heap, and which is due."""

import sys
import tracemalloc

from millstream.engine.delayed.due_heap import Due, DueHeap, rank, unrank

NOW_MS = 1_700_000_000_000


def test_what_is_due_is_named_once_earliest_first_and_stays_until_it_is_removed() -> None:
    heap = DueHeap()
    for due in (Due(30, 1, 0), Due(10, 2, 1), Due(20, 5, 0), Due(10, 9, 0)):
        heap.add(due)

    assert heap.next_due_ms == 10
    assert heap.next_due(9, count_max=10) == []
    assert heap.next_due(20, count_max=2) == [Due(10, 2, 1), Due(10, 9, 0)]
    assert heap.next_due(20, count_max=2) == [Due(20, 5, 0)]
    assert heap.next_due(20, count_max=2) == []
    assert heap.next_due_ms == 30
    assert heap.find(2) == Due(10, 2, 1)
    assert heap.remove(2) == Due(10, 2, 1)
    assert heap.find(2) is None
    assert len(heap) == 3


def test_what_is_removed_is_never_due() -> None:
    heap = DueHeap()
    heap.add(Due(10, 1, 0))
    heap.add(Due(10, 2, 0))

    assert heap.remove(1) == Due(10, 1, 0)
    assert heap.remove(1) is None
    assert heap.next_due(100, count_max=10) == [Due(10, 2, 0)]
    assert heap.next_due_ms is None


def test_what_is_cancelled_takes_no_memory_until_its_time_comes() -> None:
    heap = DueHeap()
    for number in range(20_000):
        heap.add(Due(NOW_MS, number, 0))
        heap.remove(number)

    assert heap.next_due_ms is None


def test_of_many_cancelled_records_few_traces_are_left() -> None:
    heap = DueHeap()
    for number in range(20_000):
        heap.add(Due(NOW_MS + number * 7919 % 10_000, number, 0))
    for number in range(0, 20_000, 2):
        heap.remove(number)
    for number in range(1, 20_000, 2):
        if number % 100 != 1:
            heap.remove(number)

    assert len(heap) == 200
    assert len(heap._heap) <= 2 * len(heap)
    due = heap.next_due(NOW_MS + 10_000, count_max=1_000)
    assert due == sorted(due)
    assert len(due) == 200


def test_they_are_listed_by_number_from_anywhere() -> None:
    heap = DueHeap()
    for number in range(0, 20_000, 2):
        heap.add(Due(20_000 - number, number, 0))
    for number in range(0, 20_000, 4):
        heap.remove(number)

    listed = [due.number for some in heap.after(9_001) for due in some]

    assert listed == list(range(9_002, 20_000, 4))


def test_one_takes_some_80_bytes_also_when_it_is_named() -> None:
    heap, soon = DueHeap(), list[int]()
    tracemalloc.start()
    try:
        for number in range(20_000):
            heap.add(Due(NOW_MS + number * 7919 % 10_000_000, number, 0))
        bytes_pending, _ = tracemalloc.get_traced_memory()
        while due := heap.next_due(NOW_MS + 10_000_000, count_max=1_000):
            soon += [rank(due_ms, number) for due_ms, number, _ in due]
            del due
        bytes_named, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(soon) == 20_000
    assert bytes_pending / 20_000 < 90
    assert bytes_named / 20_000 < 110  # Lists do not shrink at once.


def test_a_rank_sorts_as_time_and_number_do() -> None:
    both = [(time_ms, number) for time_ms in (0, 5, 2**45) for number in (0, 1, 2**62)]

    assert sorted(rank(*pair) for pair in both) == [rank(*item) for item in sorted(both)]
    assert [unrank(rank(*pair)) for pair in both] == both


def test_those_that_are_gone_take_no_memory() -> None:
    heap = DueHeap()
    for number in range(100_000):
        heap.add(Due(number, number, 0))

    named = heap.next_due(10**9, count_max=10**6)
    for due in named:
        heap.remove(due.number)

    assert len(named) == 100_000
    assert len(heap) == 0
    assert sys.getsizeof(heap._chunks) < 10_000
    assert not heap._chunks
