"""State as a fold over a log: proposals, replies, loading in steps, losing the lead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from millstream.codec.batch import read_header
from millstream.codec.markers import ControlKind, Marker, encode_marker
from millstream.codec.records import Record
from millstream.control.catalog import Topic
from millstream.engine.ledgers.ledger import Entry, Ledger
from millstream.errors import (
    BatchTooLarge,
    DamagedLog,
    NotLeader,
    StaleProducerEpoch,
    StorageUnavailable,
    TopicExists,
)
from millstream.model import NO_PRODUCER, Acks, Producer, TopicPartition
from millstream.replication.replica import Replica
from millstream.server.node import Node
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import NOW_MS, ORDERS, SESSION, FixedClock, batch, running_node
from tests.support.virtual_loop import run


class Sums:
    """A state to fold: a sum per key. It refuses what is no number."""

    def __init__(self) -> None:
        self.by_key: dict[bytes | None, int] = {}

    def apply(self, record: Record) -> int:
        assert record.value is not None
        if not record.value.isdigit():
            raise TopicExists(record.value.decode())
        self.by_key[record.key] = self.by_key.get(record.key, 0) + int(record.value)
        return self.by_key[record.key]


class Fixture:
    def __init__(self, node: Node, topic: Topic) -> None:
        self.node = node
        self.replica: Replica = node.hub.find(topic.log(0))
        self.sums = Sums()
        self.ledger = self.again(self.sums)
        self.replica.watch(self.fold)

    def again(self, sums: Sums) -> Ledger[int]:
        return Ledger(self.replica, FixedClock(), sums.apply)

    def fold(self) -> None:
        self.ledger.fold()


@asynccontextmanager
async def led(files: CrashingFiles | None = None, **settings: str) -> AsyncIterator[Fixture]:
    async with running_node(files=files) as node:
        yield Fixture(node, await node.topics.create(SESSION, "orders", settings=settings))


def test_a_proposal_is_answered_with_what_applying_its_last_record_gave() -> None:
    async def story() -> None:
        async with led() as at:
            first = await at.ledger.propose([Entry(b"a", b"1"), Entry(b"b", b"5")])
            second = await at.ledger.propose([Entry(b"a", b"2")])

            assert (first, second) == (5, 3)
            assert at.sums.by_key == {b"a": 3, b"b": 5}
            assert at.ledger.applied_offset == at.ledger.written_offset == 3

    run(story())


def test_proposals_are_applied_in_the_order_they_were_made() -> None:
    async def story() -> None:
        async with led() as at:
            replies = await asyncio.gather(
                *(at.ledger.propose([Entry(b"a", b"%d" % n)]) for n in range(1, 6))
            )

            assert replies == [1, 3, 6, 10, 15]

    run(story())


def test_nothing_is_applied_before_it_is_committed() -> None:
    async def story() -> None:
        async with led() as at:
            end_offset = at.ledger.write([Entry(b"a", b"1")])
            at.fold()
            seen_at_once = dict(at.sums.by_key)
            await at.replica.committed(end_offset, None)

            assert seen_at_once == {}
            assert at.sums.by_key == {b"a": 1}

    run(story())


def test_a_refusal_is_the_reply_and_folding_goes_on() -> None:
    async def story() -> None:
        async with led() as at:
            outcomes = await asyncio.gather(
                at.ledger.propose([Entry(b"a", b"1")]),
                at.ledger.propose([Entry(b"a", b"no number")]),
                at.ledger.propose([Entry(b"a", b"2")]),
                return_exceptions=True,
            )

            assert outcomes[0] == 1
            assert isinstance(outcomes[1], TopicExists)
            assert outcomes[2] == 3

    run(story())


def test_a_long_log_is_folded_in_bounded_steps_to_the_same_state() -> None:
    async def story() -> None:
        async with led() as at:
            for n in range(50):
                entries = [Entry(b"%d" % (n % 7), b"%d" % (n + k)) for k in range(7)]
                await at.ledger.propose(entries)
            sums = Sums()
            ledger = at.again(sums)

            steps, applied = 0, [0]
            while not ledger.fold(records_max=10):
                steps += 1
                applied.append(ledger.applied_offset)

            assert sums.by_key == at.sums.by_key
            assert steps >= 35
            assert applied == sorted(applied)
            assert max(b - a for a, b in pairwise(applied)) <= 14
            assert ledger.applied_offset == 350

    run(story())


def test_control_batches_are_no_records_of_the_ledger() -> None:
    async def story() -> None:
        async with led() as at:
            marker = encode_marker(
                ControlKind.ABORT,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=NOW_MS,
            )
            at.replica.append(marker, read_header(marker))
            reply = await at.ledger.propose([Entry(b"a", b"4")])

            assert reply == 4
            assert at.ledger.applied_offset == 2

    run(story())


class Drafts:
    """Sums in transactions: a producer's records are applied together, or not at all."""

    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        self.by_producer: dict[int, list[Record]] = {}

    def pend(self, record: Record, producer_id: int) -> int:
        self.by_producer.setdefault(producer_id, []).append(record)
        return len(self.by_producer[producer_id])

    def end(self, marker: Marker) -> None:
        for record in self.by_producer.pop(marker.producer_id, []):
            if marker.kind is ControlKind.COMMIT:
                self.sums.apply(record)


def marker_of(kind: ControlKind, producer_id: int) -> bytes:
    return encode_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
    )


@pytest.mark.parametrize("records_max", [1, 1_000])
def test_records_of_a_transaction_are_handed_over_until_its_marker_comes(records_max: int) -> None:
    async def story() -> None:
        async with led() as at:
            sums = Sums()
            drafts = Drafts(sums)
            ledger = Ledger(at.replica, FixedClock(), sums.apply, transactions=drafts)
            at.replica.watch(ledger.fold)  # type: ignore[arg-type]

            replies = [
                await ledger.outcome(ledger.write(entries, producer=producer))
                for entries, producer in (
                    ([Entry(b"a", b"1"), Entry(b"a", b"2")], Producer(7, 0)),
                    ([Entry(b"a", b"4")], NO_PRODUCER),
                    ([Entry(b"a", b"8")], Producer(8, 0)),
                )
            ]
            before = dict(sums.by_key)
            for kind, producer_id in ((ControlKind.COMMIT, 7), (ControlKind.ABORT, 8)):
                data = marker_of(kind, producer_id)
                end_offset = at.replica.append(data, read_header(data)).end_offset
            await at.replica.committed(end_offset, None)

            assert replies == [2, 4, 1]
            assert before == {b"a": 4}
            assert sums.by_key == {b"a": 7}
            again = Sums()
            loading = Ledger(at.replica, FixedClock(), again.apply, transactions=Drafts(again))
            while not loading.fold(records_max=records_max):
                pass
            assert again.by_key == sums.by_key

    run(story())


def test_a_producer_of_an_older_epoch_writes_nothing() -> None:
    async def story() -> None:
        async with led() as at:
            drafts = Drafts(at.sums)
            ledger = Ledger(at.replica, FixedClock(), at.sums.apply, transactions=drafts)
            end_offset = ledger.write([Entry(b"a", b"1")], producer=Producer(7, 1))

            with pytest.raises(StaleProducerEpoch):
                ledger.write([Entry(b"a", b"1")], producer=Producer(7, 0))

            assert ledger.written_offset == end_offset

    run(story())


def test_an_awaited_proposal_fails_when_leadership_is_lost() -> None:
    async def story() -> None:
        async with led() as at:
            proposal = asyncio.ensure_future(at.ledger.propose([Entry(b"a", b"1")]))
            await asyncio.sleep(0)
            at.replica.leave()
            at.ledger.close(NotLeader(at.replica.id, 2))

            with pytest.raises(NotLeader):
                await proposal

    run(story())


def test_a_proposal_that_the_disk_refuses_changes_nothing() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with led(files) as at:
            files.space_left = 0
            with pytest.raises(StorageUnavailable):
                at.ledger.write([Entry(b"a", b"1" * 1000)])
            files.space_left = None

            assert await at.ledger.propose([Entry(b"a", b"2")]) == 2
            assert at.ledger.applied_offset == 1

    run(story())


def test_a_proposal_that_no_segment_could_hold_is_refused() -> None:
    async def story() -> None:
        async with led(segment_bytes="2000") as at:
            with pytest.raises(BatchTooLarge):
                at.ledger.write([Entry(b"a", b"1" * 3000)])

            assert await at.ledger.propose([Entry(b"a", b"2")]) == 2

    run(story())


def test_a_cancelled_proposal_is_applied_all_the_same() -> None:
    async def story() -> None:
        async with led() as at:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await at.ledger.propose([Entry(b"a", b"1")])
            await asyncio.sleep(1)

            assert at.sums.by_key == {b"a": 1}
            assert at.ledger._replies == {}

    run(story())


def test_bytes_that_rotted_are_damage_and_not_the_clients_mistake() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with led(files) as at:
            await at.ledger.propose([Entry(b"a", b"1")])
            (name,) = [n for n in files.list(f"logs/{at.replica.id}") if n.endswith(".log")]
            files.flip_bit(f"logs/{at.replica.id}/{name}", 65)

            with pytest.raises(DamagedLog):
                at.again(Sums()).fold()

    run(story())


def test_what_others_append_to_the_log_is_folded_too() -> None:
    async def story() -> None:
        async with led() as at:
            data = batch(b"7", b"8", key=b"k")
            await at.node.partitions.append(SESSION, TopicPartition(*ORDERS), data, Acks.ALL)

            assert at.sums.by_key == {b"k": 15}

    run(story())
