"""Offsets that are committed in a producer's transaction, on a whole node."""

import asyncio
from collections.abc import Callable

import pytest

from millstream.codec.batch import read_header
from millstream.codec.markers import ControlKind, encode_marker
from millstream.config import Config, Limits, Timing
from millstream.engine.gate import Everyone, Operation
from millstream.engine.groups.offsets import Outcomes
from millstream.engine.groups.views import NOT_COMMITTED, Commit, Committed
from millstream.errors import (
    Denied,
    InvalidTransactionState,
    Overloaded,
    StaleProducerEpoch,
    UnknownTopic,
)
from millstream.errors.groups import (
    GroupNotFound,
    InvalidGroupId,
    StaleGeneration,
    UnknownMember,
    UnstableOffset,
)
from millstream.internal_topics.groups import partition_for
from millstream.model import Producer, Session, TopicPartition
from millstream.names import OFFSETS_TOPIC
from millstream.replication.replica import Replica
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.groups import GROUP, Consumer, running_groups
from tests.support.nodes import NOW_MS, ORDERS, SESSION
from tests.support.virtual_loop import run

SECOND = TopicPartition("orders", 1)
PRODUCER_ID = 7


class OpenTransactions:
    """Says yes to all but the ids that are closed, as the transactions of a node would."""

    def __init__(self, node: Node) -> None:
        self.asked: list[tuple[str, int, int, str]] = []
        self.closed: set[str] = set()
        node.groups._check_transaction = self

    async def __call__(
        self, session: Session, transactional_id: str, producer: Producer, group_id: str
    ) -> Callable[[], None]:
        self.asked.append((transactional_id, *producer, group_id))
        if transactional_id in self.closed:
            raise InvalidTransactionState(transactional_id)
        return lambda: None


async def commit(node: Node, offset: int, group_id: str = GROUP) -> None:
    outcomes = await node.groups.commit_offsets(SESSION, group_id, {ORDERS: Commit(offset)})
    assert outcomes == {ORDERS: None}


async def pend(
    node: Node,
    offset: int,
    target: TopicPartition = ORDERS,
    *,
    producer_id: int = PRODUCER_ID,
    epoch: int = 0,
    group_id: str = GROUP,
    member: Consumer | None = None,
) -> Outcomes:
    return await node.groups.commit_in_transaction(
        SESSION,
        group_id,
        {target: Commit(offset)},
        transactional_id="app",
        producer=Producer(producer_id, epoch),
        member_id="" if member is None else member.member_id,
        generation=-1 if member is None else member.generation,
    )


def offsets_log(node: Node, group_id: str = GROUP) -> Replica:
    topic = node.topics.describe(SESSION, OFFSETS_TOPIC)
    return node.hub.find(topic.log(partition_for(group_id, topic.partition_count)))


async def end(
    node: Node, kind: ControlKind = ControlKind.COMMIT, *, producer_id: int = PRODUCER_ID
) -> None:
    """Write the marker as the coordinator of the transaction would."""
    data = encode_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
    )
    log = offsets_log(node)
    await log.committed(log.append(data, read_header(data)).end_offset, None)


async def fetched(
    node: Node, target: TopicPartition = ORDERS, *, must_be_stable: bool = False
) -> int | type:
    committed = await node.groups.fetch_offsets(
        SESSION, GROUP, [target], must_be_stable=must_be_stable
    )
    outcome = committed[target]
    return outcome.offset if isinstance(outcome, Committed) else type(outcome)


@pytest.mark.parametrize(("kind", "expected"), [(ControlKind.COMMIT, 9), (ControlKind.ABORT, 5)])
def test_offsets_count_if_and_when_their_transaction_is_committed(
    kind: ControlKind, expected: int
) -> None:
    async def story() -> None:
        async with running_groups() as node:
            transactions = OpenTransactions(node)
            await commit(node, 5)

            assert await pend(node, 9) == {ORDERS: None}
            before = await fetched(node)
            await end(node, kind)

            assert before == 5
            assert await fetched(node) == expected
            assert transactions.asked == [("app", PRODUCER_ID, 0, GROUP)]

    run(story())


def test_a_fetch_of_stable_offsets_waits_for_the_transaction() -> None:
    async def story() -> None:
        async with running_groups() as node:
            OpenTransactions(node)
            await commit(node, 5)
            await pend(node, 9)
            await pend(node, 4, SECOND)

            assert await fetched(node, must_be_stable=True) is UnstableOffset
            assert await fetched(node, TopicPartition("orders", 2), must_be_stable=True) == -1
            all_of_it = await node.groups.fetch_offsets(SESSION, GROUP, must_be_stable=True)
            assert {target: type(outcome) for target, outcome in all_of_it.items()} == {
                ORDERS: UnstableOffset,
                SECOND: UnstableOffset,
            }
            await end(node)

            assert await fetched(node, must_be_stable=True) == 9
            assert await fetched(node, SECOND, must_be_stable=True) == 4

    run(story())


def test_what_is_pending_survives_a_restart() -> None:
    files = MemoryFiles()

    async def first_life() -> None:
        async with running_groups(files=files) as node:
            OpenTransactions(node)
            await commit(node, 5)
            await pend(node, 9)

    async def second_life() -> None:
        async with running_groups(files=files) as node:
            assert await fetched(node, must_be_stable=True) is UnstableOffset
            await end(node)
            assert await fetched(node, must_be_stable=True) == 9

    run(first_life())
    run(second_life())


def test_a_transaction_that_is_not_open_commits_nothing() -> None:
    async def story() -> None:
        async with running_groups() as node:
            OpenTransactions(node).closed.add("app")

            with pytest.raises(InvalidTransactionState):
                await pend(node, 9)

            assert await fetched(node, must_be_stable=True) == -1
            assert node.groups.list(SESSION) == []

    run(story())


def test_a_producer_that_was_replaced_commits_nothing() -> None:
    async def story() -> None:
        async with running_groups() as node:
            OpenTransactions(node)
            await pend(node, 9, epoch=1)

            with pytest.raises(StaleProducerEpoch):
                await pend(node, 10, epoch=0)

    run(story())


def test_a_member_is_checked_only_if_there_is_word_of_one() -> None:
    async def story() -> None:
        async with running_groups() as node:
            OpenTransactions(node)
            member = Consumer(node.groups)
            await member.enter()
            stranger, late = Consumer(node.groups), Consumer(node.groups)
            stranger.member_id, stranger.joined = "stranger", member.joined
            late.member_id = member.member_id

            assert await pend(node, 1) == {ORDERS: None}
            assert await pend(node, 2, member=member) == {ORDERS: None}
            with pytest.raises(UnknownMember):
                await pend(node, 3, member=stranger)
            with pytest.raises(StaleGeneration):
                await pend(node, 4, member=late)
            await end(node)

            assert await fetched(node) == 2

    run(story())


def test_a_generation_of_no_group_is_refused() -> None:
    async def story() -> None:
        async with running_groups() as node:
            OpenTransactions(node)

            with pytest.raises(GroupNotFound):
                await node.groups.commit_in_transaction(
                    SESSION,
                    "unknown",
                    {},
                    transactional_id="app",
                    producer=Producer(1, 0),
                    generation=3,
                )

    run(story())


def test_bad_commits_are_refused_as_outside_of_transactions() -> None:
    async def story() -> None:
        async with running_groups(Config(limits=Limits(commit_offsets_max=1))) as node:
            OpenTransactions(node)
            nowhere = TopicPartition("nowhere", 0)

            assert isinstance((await pend(node, 1, nowhere))[nowhere], UnknownTopic)
            with pytest.raises(InvalidGroupId):
                await pend(node, 1, group_id="")
            with pytest.raises(Overloaded):
                await node.groups.commit_in_transaction(
                    SESSION,
                    GROUP,
                    {ORDERS: Commit(1), SECOND: Commit(1)},
                    transactional_id="app",
                    producer=Producer(1, 0),
                )
            assert node.groups.list(SESSION) == []

    run(story())


class CommitsDenied(Everyone):
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return operation is not Operation.COMMIT


def test_without_the_right_to_commit_offsets_a_transaction_cannot_either() -> None:
    async def story() -> None:
        async with running_groups(policy=CommitsDenied()) as node:
            transactions = OpenTransactions(node)

            with pytest.raises(Denied, match="may not commit offsets of group:billing"):
                await pend(node, 9)

            assert transactions.asked == []

    run(story())


def test_a_group_that_is_deleted_takes_what_is_pending_with_it() -> None:
    async def story() -> None:
        async with running_groups() as node:
            OpenTransactions(node)
            await commit(node, 5)
            await pend(node, 9)
            await pend(node, 4, SECOND)

            await node.groups.delete(SESSION, GROUP)
            await end(node)

            assert await node.groups.fetch_offsets(SESSION, GROUP) == {}
            with pytest.raises(GroupNotFound):
                await node.groups.describe(SESSION, GROUP)

    run(story())


def test_an_offset_that_is_deleted_takes_what_is_pending_with_it() -> None:
    async def story() -> None:
        async with running_groups() as node:
            OpenTransactions(node)
            await pend(node, 9)
            await pend(node, 4, SECOND)

            await node.groups.delete_offsets(SESSION, GROUP, [ORDERS])
            await end(node)

            assert await fetched(node) == NOT_COMMITTED.offset
            assert await fetched(node, SECOND) == 4

    run(story())


def test_a_group_outlives_its_retention_as_long_as_something_is_pending() -> None:
    async def story() -> None:
        timing = Timing(offsets_retention_ms=60_000, offsets_check_ms=1_000)
        async with running_groups(Config(timing=timing)) as node:
            OpenTransactions(node)
            await commit(node, 5)
            await commit(node, 5, "standalone")
            await pend(node, 9)
            await pend(node, 9, SECOND)

            await asyncio.sleep(100)
            groups = [group.group_id for group in node.groups.list(SESSION)]
            kept = await fetched(node)
            await end(node, ControlKind.ABORT)
            await asyncio.sleep(10)

            assert groups == [GROUP]
            assert kept == 5
            assert node.groups.list(SESSION) == []

    run(story())


def test_transactions_survive_compaction() -> None:
    files = MemoryFiles()
    config = Config(timing=Timing(compaction_check_ms=1_000, retention_check_ms=1_000))

    async def first_life() -> None:
        async with running_groups(config, files=files) as node:
            OpenTransactions(node)
            changes = {
                "segment_bytes": "4096",
                "segment_ms": "1000",
                "delete_retention_ms": "1000",
            }
            await node.topics.alter(SESSION, OFFSETS_TOPIC, changes)
            for n in range(200):
                await pend(node, n)
                await pend(node, n, SECOND, producer_id=8)
                await end(node, ControlKind.COMMIT if n % 2 else ControlKind.ABORT)
                await end(node, ControlKind.ABORT if n % 2 else ControlKind.COMMIT, producer_id=8)
                if n % 40 == 39:
                    await asyncio.sleep(10)  # Markers go some runs after their records.
            log = TopicPartition(OFFSETS_TOPIC, offsets_log(node).id.partition)
            health = node.partitions.health(SESSION, log).log
            assert health.size_bytes < 25_000 < health.end_offset * 80
            await pend(node, 1_000)
            for n in range(200):
                await commit(node, n, "other")
            await asyncio.sleep(60)

    async def second_life() -> None:
        async with running_groups(config, files=files) as node:
            assert (await fetched(node), await fetched(node, SECOND)) == (199, 198)
            assert await fetched(node, must_be_stable=True) is UnstableOffset
            await end(node)
            assert await fetched(node, must_be_stable=True) == 1_000

    run(first_life())
    run(second_life())
