"""Producer state against a model that keeps every batch and looks through all of them each time."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.codec.batch import CONTROL, TRANSACTIONAL, Header
from millstream.codec.markers import ControlKind, Marker
from millstream.errors import (
    DamagedLog,
    InvalidTransactionState,
    OutOfOrderSequence,
    RequestError,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
)
from millstream.storage.log.aborted import Aborted
from millstream.storage.log.producers import Duplicate, Producers
from tests.support.tiers import sized

SEQUENCES = 2**31
PRODUCER_IDS = st.integers(1, 4)
EPOCHS = st.integers(0, 3)


class Written(NamedTuple):
    header: Header
    marker: Marker | None


class Model:
    """All that was written, in order."""

    def __init__(self) -> None:
        self.log: list[Written] = []
        self.end_offset = 0

    def of(self, producer_id: int) -> list[Written]:
        return [written for written in self.log if written.header.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int | None:
        written = self.of(producer_id)
        return written[-1].header.producer_epoch if written else None

    def window(self, producer_id: int) -> list[Header]:
        """The batches with data since the epoch last changed."""
        headers: list[Header] = []
        epoch = -1
        for header, marker in self.of(producer_id):
            if header.producer_epoch != epoch:
                epoch = header.producer_epoch
                headers = []
            if marker is None:
                headers.append(header)
        return headers

    def next_sequence(self, producer_id: int) -> int:
        window = self.window(producer_id)
        if not window or window[-1].base_sequence < 0:
            return 0
        return (window[-1].base_sequence + window[-1].last_offset_delta + 1) % SEQUENCES

    def transactions(self) -> list[tuple[int, int, int | None, ControlKind | None]]:
        """Producer, first offset, offset of the marker and its kind, in the order of endings."""
        opened: dict[int, int] = {}
        ended: list[tuple[int, int, int | None, ControlKind | None]] = []
        for header, marker in self.log:
            if marker is None:
                if header.is_transactional:
                    opened.setdefault(header.producer_id, header.base_offset)
            elif header.producer_id in opened:
                first = opened.pop(header.producer_id)
                ended.append((header.producer_id, first, header.base_offset, marker.kind))
        return ended + [(producer, first, None, None) for producer, first in opened.items()]

    def is_open(self, producer_id: int) -> bool:
        return any(
            producer == producer_id and end is None for producer, _, end, _ in self.transactions()
        )

    def verdict(self, header: Header) -> Duplicate | type[RequestError] | None:
        epoch = self.epoch(header.producer_id)
        if epoch is None:
            return None
        window = self.window(header.producer_id)
        if header.producer_epoch == epoch and header.base_sequence >= 0:
            for sent in window[-5:]:
                same = (sent.base_sequence, sent.last_offset_delta)
                if same == (header.base_sequence, header.last_offset_delta):
                    return Duplicate(sent.base_offset, sent.end_offset, sent.max_timestamp)
        if header.producer_epoch < epoch:
            return StaleProducerEpoch
        expected = 0 if header.producer_epoch > epoch else self.next_sequence(header.producer_id)
        if header.base_sequence not in {expected, -1}:
            return OutOfOrderSequence
        if self.is_open(header.producer_id) and not header.is_transactional:
            return InvalidTransactionState
        return None

    def marker_verdict(self, marker: Marker) -> type[RequestError] | None:
        epoch = self.epoch(marker.producer_id)
        if epoch is not None and marker.producer_epoch < epoch:
            return StaleProducerEpoch
        known = [w.marker.coordinator_epoch for w in self.of(marker.producer_id) if w.marker]
        if known and marker.coordinator_epoch < known[-1]:
            return StaleCoordinatorEpoch
        return None


class ProducersMachine(RuleBasedStateMachine):
    """`restarted` goes through snapshots now and then; `steady` never does."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.restarted = Producers()
        self.steady = Producers()
        self.high_watermark = 0

    @rule(
        producer_id=PRODUCER_IDS,
        epoch=EPOCHS,
        keeps_epoch=st.booleans(),
        step=st.sampled_from([0, 0, 0, 0, 1, -1, -5, SEQUENCES // 2]),
        start=st.sampled_from([None, None, None, 0, SEQUENCES - 3, SEQUENCES - 1]),
        count=st.integers(1, 4),
        transactional=st.booleans(),
    )
    def produce(
        self,
        producer_id: int,
        epoch: int,
        keeps_epoch: bool,
        step: int,
        start: int | None,
        count: int,
        transactional: bool,
    ) -> None:
        if keeps_epoch:
            epoch = self.model.epoch(producer_id) or 0
        if start is None:
            start = self.model.next_sequence(producer_id)
        self.offer(
            self.header(
                producer_id,
                epoch,
                sequence=(start + step) % SEQUENCES,
                count=count,
                attributes=TRANSACTIONAL if transactional else 0,
            )
        )

    @rule(producer_id=PRODUCER_IDS, epoch=EPOCHS, count=st.integers(1, 4))
    def write_without_a_sequence(self, producer_id: int, epoch: int, count: int) -> None:
        attributes = TRANSACTIONAL
        self.offer(self.header(producer_id, epoch, sequence=-1, count=count, attributes=attributes))

    @precondition(lambda self: self.model.log)
    @rule(back=st.integers(0, 8))
    def repeat(self, back: int) -> None:
        header, marker = self.model.log[-1 - min(back, len(self.model.log) - 1)]
        if marker is None:
            self.offer(header._replace(base_offset=self.model.end_offset))

    @rule(
        producer_id=PRODUCER_IDS,
        epoch=EPOCHS,
        keeps_epoch=st.booleans(),
        coordinator_epoch=st.integers(0, 3),
        kind=st.sampled_from(ControlKind),
    )
    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        keeps_epoch: bool,
        coordinator_epoch: int,
        kind: ControlKind,
    ) -> None:
        if keeps_epoch:
            epoch = self.model.epoch(producer_id) or 0
        marker = Marker(kind, producer_id, epoch, coordinator_epoch)
        expected = self.model.marker_verdict(marker)
        if expected is not None:
            with pytest.raises(expected):
                self.restarted.check_marker(marker)
            return

        self.restarted.check_marker(marker)

        attributes = TRANSACTIONAL | CONTROL
        header = self.header(producer_id, epoch, sequence=-1, count=1, attributes=attributes)
        self.write(header, marker)

    @rule()
    def restart(self) -> None:
        self.restarted = Producers.decode(self.restarted.encode())

    @rule(data=st.data())
    def move_high_watermark(self, data: st.DataObject) -> None:
        self.high_watermark = data.draw(st.integers(self.high_watermark, self.model.end_offset))

    @rule(data=st.data())
    def look_for_aborted(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, self.model.end_offset))
        end = data.draw(st.integers(start, self.model.end_offset + 1))

        assert self.restarted.aborted(start, end) == [
            Aborted(producer_id, first, last)
            for producer_id, first, last, kind in self.model.transactions()
            if kind is ControlKind.ABORT and last is not None and last >= start and first < end
        ]

    @invariant()
    def restarting_makes_no_difference(self) -> None:
        for producers in (self.restarted, self.steady):
            producers.last_stable_offset(self.high_watermark)

        assert self.restarted.encode() == self.steady.encode()

    @invariant()
    def the_stable_end_is_where_the_first_undecided_transaction_starts(self) -> None:
        undecided = [
            first
            for _, first, end, _ in self.model.transactions()
            if end is None or end >= self.high_watermark
        ]
        first_open = min(
            (first for _, first, end, _ in self.model.transactions() if end is None), default=None
        )

        stable = self.restarted.last_stable_offset(self.high_watermark)

        assert stable == min([self.high_watermark, *undecided])
        assert self.restarted.first_unstable_offset == first_open

    @invariant()
    def the_description_tells_what_was_written(self) -> None:
        for view in self.restarted.describe():
            window = self.model.window(view.producer_id)
            assert view.epoch == self.model.epoch(view.producer_id)
            assert view.last_offset == (window[-1].last_offset if window else -1)
            assert (view.transaction_first_offset >= 0) == self.model.is_open(view.producer_id)

    def header(
        self, producer_id: int, epoch: int, *, sequence: int, count: int, attributes: int
    ) -> Header:
        at = self.model.end_offset
        return Header(
            at, 100, 1, 0, attributes, count - 1, at, at, producer_id, epoch, sequence, count
        )

    def offer(self, header: Header) -> None:
        expected = self.model.verdict(header)
        if isinstance(expected, type):
            with pytest.raises(expected):
                self.restarted.check(header)
            return
        assert self.restarted.check(header) == expected
        if expected is None:
            self.write(header, None)

    def write(self, header: Header, marker: Marker | None) -> None:
        self.model.log.append(Written(header, marker))
        self.model.end_offset = header.end_offset
        self.restarted.apply(header, marker)
        self.steady.apply(header, marker)


TestProducersAgainstAModel = ProducersMachine.TestCase
TestProducersAgainstAModel.settings = settings(
    deadline=None, max_examples=sized(150), stateful_step_count=40
)


def busy() -> Producers:
    """Something of everything that a snapshot holds."""
    producers = Producers()
    at = 0
    for producer_id in range(1, 6):
        for sequence in range(7):
            header = Header(at, 99, 1, 0, TRANSACTIONAL, 0, at, at, producer_id, 0, sequence, 1)
            producers.apply(header)
            at += 1
        if producer_id % 2:
            marker = Marker(ControlKind.ABORT, producer_id, 0, 3)
            header = Header(at, 99, 1, 0, TRANSACTIONAL | CONTROL, 0, at, at, producer_id, 0, -1, 1)
            producers.apply(header, marker)
            at += 1
    return producers


SNAPSHOT = busy().encode()


@settings(deadline=None, max_examples=sized(500))
@given(st.integers(0, len(SNAPSHOT) - 1), st.integers(1, 255))
def test_a_snapshot_with_one_wrong_byte_is_damage(position: int, mask: int) -> None:
    data = bytearray(SNAPSHOT)
    data[position] ^= mask

    with pytest.raises(DamagedLog):
        Producers.decode(data)


def test_a_snapshot_cut_at_any_byte_is_damage() -> None:
    for size in range(len(SNAPSHOT)):
        with pytest.raises(DamagedLog):
            Producers.decode(SNAPSHOT[:size])


@settings(deadline=None, max_examples=sized(300))
@given(st.binary(max_size=100), st.booleans())
def test_bytes_from_anywhere_are_damage(tail: bytes, has_prefix: bool) -> None:
    data = SNAPSHOT[:6] + tail if has_prefix else tail

    with pytest.raises(DamagedLog):
        Producers.decode(data)


@settings(deadline=None, max_examples=sized(300))
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3)), min_size=20, max_size=200))
def test_the_number_of_producers_stays_bounded_and_transactions_survive(
    writes: list[tuple[int, int]],
) -> None:
    producers = Producers(producer_ids_max=5)
    opened: dict[int, int] = {}
    for at, (producer_id, act) in enumerate(writes):
        if act == 0:
            attributes = TRANSACTIONAL | CONTROL
            header = Header(at, 99, 1, 0, attributes, 0, at, at, producer_id, 0, -1, 1)
            producers.apply(header, Marker(ControlKind.COMMIT, producer_id, 0, 0))
            opened.pop(producer_id, None)
        else:
            attributes = TRANSACTIONAL if act == 1 or producer_id in opened else 0
            header = Header(at, 99, 1, 0, attributes, 0, at, at, producer_id, 0, 0, 1)
            producers.apply(header)
            if attributes:
                opened.setdefault(producer_id, at)

        assert len(producers) <= max(5, len(opened) + 1)
        assert producers.first_unstable_offset == min(opened.values(), default=None)
        assert any(view.producer_id == producer_id for view in producers.describe())
