"""What a log knows of its producers, case by case. The properties compare it with a model."""

import tracemalloc

import msgspec
import pytest
from fastcrc import crc32

from millstream.codec.batch import CONTROL, TRANSACTIONAL, Header
from millstream.codec.markers import ControlKind, Marker
from millstream.errors import (
    DamagedLog,
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
)
from millstream.storage.log.aborted import Aborted
from millstream.storage.log.producers import CLOSING_MAX, Duplicate, Producers, ProducerView

SEQUENCE_MAX = 2**31 - 1
DAY_MS = 24 * 60 * 60 * 1000


def batch(
    at: int,
    producer_id: int = 7,
    *,
    sequence: int = 0,
    count: int = 1,
    epoch: int = 0,
    timestamp: int = 1_000,
    transactional: bool = False,
    records: int | None = None,
) -> Header:
    return Header(
        base_offset=at,
        size=100,
        epoch=1,
        crc=0,
        attributes=TRANSACTIONAL if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=count if records is None else records,
    )


def end(
    log: Producers,
    at: int,
    producer_id: int = 7,
    *,
    kind: ControlKind = ControlKind.ABORT,
    epoch: int = 0,
    coordinator_epoch: int = 0,
) -> None:
    header = batch(at, producer_id, sequence=-1, epoch=epoch)
    header = header._replace(attributes=TRANSACTIONAL | CONTROL)
    log.apply(header, Marker(kind, producer_id, epoch, coordinator_epoch))


def folded(*headers: Header, producer_ids_max: int = 100) -> Producers:
    log = Producers(producer_ids_max=producer_ids_max)
    for header in headers:
        log.apply(header)
    return log


# -- sequences -------------------------------------------------------------------------------------


def test_a_batch_without_a_producer_leaves_no_trace() -> None:
    log = Producers()

    log.apply(batch(0, producer_id=-1, sequence=-1))

    assert log.check(batch(1, producer_id=-1, sequence=-1)) is None
    assert len(log) == 0


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert Producers().check(batch(0, sequence=41)) is None


def test_the_next_sequence_is_taken() -> None:
    log = folded(batch(0, sequence=0, count=10))

    assert log.check(batch(10, sequence=10)) is None
    assert log.next_sequence(7, 0) == 10
    assert log.next_sequence(7, 1) is None  # It would begin anew.
    assert log.next_sequence(8, 0) is None


@pytest.mark.parametrize("sequence", [0, 9, 11, SEQUENCE_MAX])
def test_a_gap_or_a_step_back_is_refused(sequence: int) -> None:
    log = folded(batch(0, sequence=0, count=10))

    with pytest.raises(OutOfOrderSequence) as refusal:
        log.check(batch(10, sequence=sequence, count=3))

    assert (refusal.value.expected, refusal.value.got) == (10, sequence)


def test_the_broker_writes_without_a_sequence_as_often_as_it_likes() -> None:
    log = folded(batch(0, sequence=-1, transactional=True))

    assert log.check(batch(1, sequence=-1, transactional=True)) is None
    assert log.first_unstable_offset == 0
    (view,) = log.describe()
    assert (view.last_sequence, view.last_offset) == (-1, 0)


def test_without_a_sequence_epochs_and_transactions_are_checked_all_the_same() -> None:
    log = folded(batch(0, sequence=-1, epoch=3, transactional=True))

    with pytest.raises(StaleProducerEpoch):
        log.check(batch(1, sequence=-1, epoch=2, transactional=True))
    with pytest.raises(InvalidTransactionState):
        log.check(batch(1, sequence=-1, epoch=3))


def test_a_repeated_batch_is_answered_with_where_the_first_copy_went() -> None:
    log = folded(batch(100, sequence=0, count=10, timestamp=5), batch(110, sequence=10, count=2))

    assert log.check(batch(112, sequence=0, count=10)) == Duplicate(100, 110, 5)
    assert log.check(batch(112, sequence=10, count=2)) == Duplicate(110, 112, 1_000)


def test_only_the_last_five_batches_are_remembered() -> None:
    log = folded(*(batch(at, sequence=at) for at in range(6)))

    assert log.check(batch(6, sequence=1)) == Duplicate(1, 2, 1_000)
    with pytest.raises(OutOfOrderSequence):
        log.check(batch(6, sequence=0))


def test_a_batch_that_only_overlaps_an_earlier_one_is_no_duplicate() -> None:
    log = folded(batch(0, sequence=0, count=10))

    with pytest.raises(OutOfOrderSequence):
        log.check(batch(10, sequence=0, count=9))
    with pytest.raises(OutOfOrderSequence):
        log.check(batch(10, sequence=0, count=11))


def test_zero_follows_the_last_sequence_of_all() -> None:
    log = folded(batch(0, sequence=SEQUENCE_MAX))

    assert log.check(batch(1, sequence=0)) is None
    with pytest.raises(OutOfOrderSequence):
        log.check(batch(1, sequence=1))


def test_a_batch_may_run_over_the_last_sequence_of_all() -> None:
    log = folded(batch(0, sequence=SEQUENCE_MAX - 1, count=4))

    assert log.check(batch(4, sequence=2)) is None
    assert log.check(batch(4, sequence=SEQUENCE_MAX - 1, count=4)) == Duplicate(0, 4, 1_000)


# -- epochs ----------------------------------------------------------------------------------------


def test_an_older_epoch_is_fenced() -> None:
    log = folded(batch(0, epoch=3))

    with pytest.raises(StaleProducerEpoch):
        log.check(batch(1, sequence=1, epoch=2))


def test_a_fenced_producer_is_told_so_even_if_it_repeats_a_batch() -> None:
    log = folded(batch(0, epoch=2), batch(1, epoch=3))

    with pytest.raises(StaleProducerEpoch):
        log.check(batch(2, sequence=0, epoch=2))


def test_a_newer_epoch_starts_at_zero() -> None:
    log = folded(batch(0, sequence=0, epoch=2))

    assert log.check(batch(1, sequence=0, epoch=3)) is None
    with pytest.raises(OutOfOrderSequence):
        log.check(batch(1, sequence=1, epoch=3))


def test_a_newer_epoch_forgets_the_batches_of_the_older_one() -> None:
    log = folded(batch(0, sequence=0, epoch=2), batch(1, sequence=0, epoch=3))

    assert log.check(batch(2, sequence=1, epoch=3)) is None
    assert log.check(batch(2, sequence=0, epoch=3)) == Duplicate(1, 2, 1_000)


# -- transactions ----------------------------------------------------------------------------------


def test_an_open_transaction_holds_the_stable_end_where_it_starts() -> None:
    log = folded(batch(5, 1, transactional=True), batch(6, 2, transactional=True))

    assert log.first_unstable_offset == 5
    assert log.last_stable_offset(100) == 5
    assert log.last_stable_offset(3) == 3


def test_the_stable_end_moves_when_the_oldest_transaction_ends_below_the_high_watermark() -> None:
    log = folded(batch(5, 1, transactional=True), batch(6, 2, transactional=True))

    end(log, 7, 1, kind=ControlKind.COMMIT)

    assert log.first_unstable_offset == 6
    assert log.last_stable_offset(7) == 5
    assert log.last_stable_offset(8) == 6


def test_a_transaction_that_spans_another_keeps_holding_the_stable_end() -> None:
    log = folded(batch(5, 1, transactional=True), batch(6, 2, transactional=True))

    end(log, 7, 2)
    end(log, 8, 1)

    assert log.last_stable_offset(8) == 5
    assert log.last_stable_offset(9) == 9


def test_endings_above_the_high_watermark_are_bounded_and_never_too_short() -> None:
    log = Producers()
    count = CLOSING_MAX + 10
    for number in range(count):
        log.apply(batch(2 * number, number, transactional=True))
        end(log, 2 * number + 1, number)

    assert len(log._closing) == CLOSING_MAX
    assert log.last_stable_offset(2) == 0
    assert log.last_stable_offset(2 * count - 1) == 2 * count - 2
    assert log.last_stable_offset(2 * count) == 2 * count


def test_a_write_outside_of_the_open_transaction_is_refused() -> None:
    log = folded(batch(0, transactional=True))

    with pytest.raises(InvalidTransactionState):
        log.check(batch(1, sequence=1))
    assert log.check(batch(1, sequence=1, transactional=True)) is None


def test_after_its_transaction_a_producer_goes_on_where_it_was() -> None:
    log = folded(batch(0, transactional=True))

    end(log, 1, kind=ControlKind.COMMIT)

    assert log.check(batch(2, sequence=1)) is None


def test_an_aborted_transaction_is_listed_for_every_range_it_overlaps() -> None:
    log = folded(batch(5, 1, count=2, transactional=True), batch(7, 2, transactional=True))
    end(log, 8, 1)
    end(log, 9, 2, kind=ControlKind.COMMIT)
    aborted = [Aborted(1, 5, 8)]

    assert log.aborted(0, 6) == aborted
    assert log.aborted(8, 9) == aborted
    assert log.aborted(0, 5) == []
    assert log.aborted(9, 100) == []


def test_an_empty_batch_that_compaction_left_opens_no_transaction() -> None:
    log = folded(batch(0, transactional=True, count=3, records=0))

    assert log.first_unstable_offset is None
    assert log.check(batch(3, sequence=3)) is None


def test_a_marker_without_a_transaction_is_taken_and_remembers_its_epochs() -> None:
    log = Producers()

    log.check_marker(Marker(ControlKind.ABORT, 7, 4, 2))
    end(log, 0, epoch=4, coordinator_epoch=2)

    assert log.aborted(0, 10) == []
    with pytest.raises(StaleProducerEpoch):
        log.check(batch(1, epoch=3))
    with pytest.raises(OutOfOrderSequence):
        log.check(batch(1, epoch=4, sequence=1))
    assert log.check(batch(1, epoch=4, sequence=0)) is None


def test_a_marker_fences_older_producers_and_older_coordinators() -> None:
    log = folded(batch(0, epoch=3, transactional=True))
    end(log, 1, epoch=4, coordinator_epoch=2)

    with pytest.raises(StaleProducerEpoch):
        log.check_marker(Marker(ControlKind.ABORT, 7, 3, 9))
    with pytest.raises(StaleCoordinatorEpoch):
        log.check_marker(Marker(ControlKind.ABORT, 7, 4, 1))
    log.check_marker(Marker(ControlKind.ABORT, 7, 4, 2))


# -- forgetting ------------------------------------------------------------------------------------


def test_the_log_start_drops_what_was_aborted_before_it_and_keeps_the_producers() -> None:
    log = folded(batch(0, transactional=True))
    end(log, 1)
    log.apply(batch(2, sequence=1, transactional=True))
    end(log, 3)

    log.forget_before(2)

    assert log.aborted(0, 100) == [Aborted(7, 2, 3)]
    assert log.check(batch(4, sequence=2)) is None
    assert log.check(batch(4, sequence=0)) == Duplicate(0, 1, 1_000)


def test_a_log_start_inside_an_open_transaction_moves_its_beginning() -> None:
    log = folded(batch(0, 1, transactional=True), batch(1, 2, transactional=True))

    log.forget_before(10)

    assert log.first_unstable_offset == 10
    end(log, 11, 1)
    assert log.last_stable_offset(100) == 10


def test_a_log_start_inside_a_transaction_that_is_ending_moves_its_beginning() -> None:
    log = folded(batch(0, 1, transactional=True))
    end(log, 20, 1)

    log.forget_before(10)

    assert log.last_stable_offset(20) == 10


def test_what_compaction_removed_is_no_longer_listed() -> None:
    log = folded(batch(0, 1, transactional=True), batch(1, 2, transactional=True))
    end(log, 2, 1)
    end(log, 3, 2)

    frozen = log.freeze_aborted()
    log.apply(batch(4, 3, transactional=True))
    end(log, 5, 3)

    assert log.replace_aborted(frozen, frozen.without([Aborted(1, 0, 2)]))
    assert log.aborted(0, 100) == [Aborted(2, 1, 3), Aborted(3, 4, 5)]
    assert not log.replace_aborted(frozen, frozen.without([])), "it speaks of other columns"


def test_silent_producers_expire() -> None:
    log = folded(batch(0, 1), batch(1, 2))

    log.expire(1_000, DAY_MS)
    log.apply(batch(2, 2, sequence=1))
    log.expire(1_000 + DAY_MS - 1, DAY_MS)
    assert len(log) == 2
    log.expire(1_000 + DAY_MS, DAY_MS)

    assert [view.producer_id for view in log.describe()] == [2]


def test_old_timestamps_do_not_make_a_producer_expire() -> None:
    log = folded(batch(0, timestamp=-1))

    log.expire(10 * DAY_MS, DAY_MS)

    assert log.check(batch(1)) == Duplicate(0, 1, -1)


def test_a_clock_that_steps_back_only_delays_expiry() -> None:
    log = folded(batch(0))

    log.expire(10 * DAY_MS, DAY_MS)
    log.expire(0, DAY_MS)
    log.expire(DAY_MS - 1, DAY_MS)
    assert len(log) == 1
    log.expire(DAY_MS, DAY_MS)

    assert len(log) == 0


def test_a_producer_in_a_transaction_never_expires() -> None:
    log = folded(batch(0, transactional=True))

    log.expire(0, 1)
    log.expire(10 * DAY_MS, 1)

    assert log.first_unstable_offset == 0
    assert len(log) == 1


def test_the_least_recent_producers_make_room() -> None:
    log = folded(batch(0, 1), batch(1, 2), producer_ids_max=2)

    log.apply(batch(2, 1, sequence=1))
    log.apply(batch(3, 3))

    assert [view.producer_id for view in log.describe()] == [1, 3]


def test_a_producer_in_a_transaction_makes_no_room() -> None:
    log = folded(batch(0, 1, transactional=True), producer_ids_max=1)

    log.apply(batch(1, 2))
    log.apply(batch(2, 3, transactional=True))
    log.apply(batch(3, 4, transactional=True))

    assert sorted(view.producer_id for view in log.describe()) == [1, 3, 4]
    assert log.first_unstable_offset == 0


def test_when_transactions_end_the_bound_holds_again() -> None:
    log = folded(*(batch(at, at, transactional=True) for at in range(5)), producer_ids_max=2)

    for at in range(5):
        end(log, 5 + at, at)

    assert [view.producer_id for view in log.describe()] == [3, 4]


# -- describing and snapshots ----------------------------------------------------------------------


def test_producers_are_described_for_operators() -> None:
    log = folded(batch(0, sequence=0, count=4, epoch=2, transactional=True))
    end(log, 9, 8, coordinator_epoch=5)

    assert log.describe() == [
        ProducerView(7, 2, 3, 1_000, -1, 0, 3),
        ProducerView(8, 0, -1, 1_000, 5, -1, -1),
    ]


def test_a_snapshot_brings_everything_back() -> None:
    log = folded(batch(0, 1, transactional=True), batch(1, 2, transactional=True), batch(2, 3))
    end(log, 3, 1)

    again = Producers.decode(log.encode())

    assert again.encode() == log.encode()
    assert again.aborted(0, 9) == [Aborted(1, 0, 3)]
    assert again.last_stable_offset(9) == 1
    assert again.describe() == log.describe()


def test_a_frozen_state_does_not_change_with_what_comes_later() -> None:
    log = folded(*(batch(at, at % 3 + 1, transactional=True) for at in range(3)), batch(3, 4))
    end(log, 4, 1)
    frozen, expected = log.freeze(), log.encode()

    for _ in range(2):
        log.apply(batch(5, 4, sequence=1))
        log.apply(batch(6, 9))
        log.forget_before(5)
    end(log, 7, 2)

    assert b"".join(frozen.encode()) == expected
    assert log.encode() != expected


def test_a_snapshot_is_cut_to_a_smaller_bound() -> None:
    log = folded(*(batch(at, at) for at in range(10)))

    again = Producers.decode(log.encode(), producer_ids_max=3)

    assert [view.producer_id for view in again.describe()] == [7, 8, 9]


@pytest.mark.parametrize("data", [b"", b"MSPS", b"MSPS\0\1\0\0\0\0", b"x" * 100])
def test_what_is_no_snapshot_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedLog):
        Producers.decode(data)


def test_a_snapshot_of_another_version_is_not_guessed_at() -> None:
    data = bytearray(Producers().encode())
    data[5] = 3

    with pytest.raises(DamagedLog, match="version"):
        Producers.decode(data)


def test_aborted_transactions_take_32_bytes_each_in_memory_and_in_a_snapshot() -> None:
    count = 20_000
    producers = Producers()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for at in range(0, 2 * count, 2):
        flags = TRANSACTIONAL
        producers.apply(Header(at, 100, 1, 0, flags, 0, 0, 1, 7, 0, at // 2, 1))
        marker = Header(at + 1, 78, 1, 0, flags | CONTROL, 0, 0, 1, 7, 0, -1, 1)
        producers.apply(marker, Marker(ControlKind.ABORT, 7, 0, 0))
        producers.last_stable_offset(at + 2)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert taken / count < 48  # Arrays grow ahead of what they hold.
    assert len(producers.encode()) / count < 33
    assert len(producers.aborted(0, 2 * count)) == count
    assert producers.aborted(10, 11) == [Aborted(7, 10, 11)]


def test_aborted_transactions_go_with_the_log_start() -> None:
    producers = Producers()
    for at in range(0, 200, 2):
        producers.apply(Header(at, 100, 1, 0, TRANSACTIONAL, 0, 0, 1, 7, 0, at // 2, 1))
        marker = Header(at + 1, 78, 1, 0, TRANSACTIONAL | CONTROL, 0, 0, 1, 7, 0, -1, 1)
        producers.apply(marker, Marker(ControlKind.ABORT, 7, 0, 0))
    before = len(producers.encode())

    producers.forget_before(199)

    assert [transaction.last_offset for transaction in producers.aborted(0, 999)] == [199]
    assert before - len(producers.encode()) >= 99 * 32


def test_a_snapshot_of_the_first_version_is_read() -> None:
    body = msgspec.msgpack.encode(
        [[(7, [0, [], 3, -1, -1])], [(7, 40)], [], [(7, 10, 20), (8, 15, 30)], [15, 31]]
    )
    data = b"MSPS\0\1" + crc32.iscsi(body).to_bytes(4, "big") + body

    producers = Producers.decode(data)

    assert producers.aborted(0, 99) == [Aborted(7, 10, 20), Aborted(8, 15, 30)]
    assert producers.aborted(21, 99) == [Aborted(8, 15, 30)]
    assert producers.first_unstable_offset == 40
    assert Producers.decode(producers.encode()).encode() == producers.encode()
