"""Which delayed records are pending, and which is due."""

import sys

from millstream.control.deferred_pending import Due, Pending


def test_what_is_due_comes_out_once_earliest_first() -> None:
    pending = Pending()
    for due in (Due(30, 1, 0), Due(10, 2, 1), Due(20, 5, 0), Due(10, 9, 0)):
        pending.add(due)

    assert pending.next_due_ms == 10
    assert pending.take_due(9, count_max=10) == []
    assert pending.take_due(20, count_max=2) == [Due(10, 2, 1), Due(10, 9, 0)]
    assert pending.take_due(20, count_max=2) == [Due(20, 5, 0)]
    assert len(pending) == 1
    assert pending.find(1) == Due(30, 1, 0)
    assert pending.find(2) is None


def test_what_is_removed_is_never_due() -> None:
    pending = Pending()
    pending.add(Due(10, 1, 0))
    pending.add(Due(10, 2, 0))

    assert pending.remove(1) == Due(10, 1, 0)
    assert pending.remove(1) is None
    assert pending.take_due(100, count_max=10) == [Due(10, 2, 0)]
    assert pending.next_due_ms is None


def test_they_are_listed_by_number_from_anywhere() -> None:
    pending = Pending()
    for number in range(0, 20_000, 2):
        pending.add(Due(20_000 - number, number, 0))
    for number in range(0, 20_000, 4):
        pending.remove(number)

    listed = [due.number for some in pending.after(9_001) for due in some]

    assert listed == list(range(9_002, 20_000, 4))


def test_those_that_are_gone_take_no_memory() -> None:
    pending = Pending()
    for number in range(100_000):
        pending.add(Due(number, number, 0))

    taken = pending.take_due(10**9, count_max=10**6)

    assert len(taken) == 100_000
    assert len(pending) == 0
    assert sys.getsizeof(pending._chunks) < 10_000
    assert not pending._chunks
