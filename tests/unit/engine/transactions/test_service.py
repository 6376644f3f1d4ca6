"""Transactions through the engine: what commits, what is fenced, what survives, what times out."""

import asyncio

import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.markers import ControlKind, Marker
from millstream.codec.records import Record
from millstream.config import Config, Limits, Timing
from millstream.engine.partitions.markers import Markers
from millstream.errors import (
    CoordinatorUnavailable,
    Denied,
    InternalTopic,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotAttempted,
    OutOfOrderSequence,
    Overloaded,
    ProducerFenced,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
    TransactionInProgress,
    TransactionNotFound,
    UnknownProducer,
    UnknownTopic,
)
from millstream.errors.groups import InvalidPattern
from millstream.internal_topics.transaction_steps import EPOCH_MAX
from millstream.internal_topics.transactions import TransactionState
from millstream.model import Acks, NodeId, Producer, TopicPartition
from millstream.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION, FixedClock, batch
from tests.support.transactions import (
    BILLING,
    PAYMENTS,
    Writer,
    committed,
    running_transactions,
    stable,
)
from tests.support.virtual_loop import run


async def state_of(node: Node) -> TransactionState:
    return (await node.transactions.describe(SESSION, BILLING)).state


async def until_state(node: Node, state: TransactionState) -> None:
    async with asyncio.timeout(60):
        while await state_of(node) is not state:
            await asyncio.sleep(0.01)


# -- what readers see ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_commit_shows_all_partitions_and_an_abort_none(is_v2: bool) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=is_v2)
            await writer.init()
            await writer.write(ORDERS, b"a", b"b")
            await writer.write(PAYMENTS, b"c")
            assert await committed(node) == []

            await writer.commit()
            await stable(node)
            await stable(node, PAYMENTS)

            assert await committed(node) == [b"a", b"b"]
            assert await committed(node, PAYMENTS) == [b"c"]

            await writer.write(ORDERS, b"never")
            await writer.abort()
            await writer.write(ORDERS, b"d")
            await writer.commit()
            await stable(node)

            assert await committed(node) == [b"a", b"b", b"d"]

    run(story())


def test_the_topic_of_transactions_is_made_for_the_first_who_asks() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            assert await node.transactions.coordinator_of(SESSION, BILLING) == NodeId(1)

            topic = node.topics.describe(SESSION, TRANSACTIONS_TOPIC)
            assert topic.partition_count == node.config.transaction_partitions

    run(story())


def test_an_end_is_answered_before_its_markers_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Markers, "write", never)

    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()
            await writer.write(ORDERS, b"a")

            await writer.commit()

            assert await state_of(node) is TransactionState.PREPARE_COMMIT
            with pytest.raises(TransactionInProgress):
                await node.transactions.init(SESSION, BILLING, timeout_ms=1000)
            await asyncio.sleep(20)

    run(story())


# -- fencing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_second_producer_of_an_id_fences_the_first_and_aborts_its_transaction(
    is_v2: bool,
) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            zombie, heir = Writer(node, is_v2=is_v2), Writer(node, is_v2=is_v2)
            await zombie.init()
            await zombie.write(ORDERS, b"zombie")

            await heir.init()
            await heir.write(ORDERS, b"heir")
            await heir.commit()
            await stable(node)

            assert heir.producer.producer_id == zombie.producer.producer_id
            assert heir.producer.epoch > zombie.producer.epoch + 1
            assert await committed(node) == [b"heir"]
            with pytest.raises(ProducerFenced):
                await zombie.commit()
            with pytest.raises(ProducerFenced):
                await zombie.add(PAYMENTS)
            with pytest.raises(StaleProducerEpoch if not is_v2 else ProducerFenced):
                await zombie.send(ORDERS, zombie.batch(ORDERS, b"late"))
            with pytest.raises((StaleProducerEpoch, ProducerFenced, OutOfOrderSequence)):
                await zombie.send(PAYMENTS, zombie.batch(PAYMENTS, b"late"))

    run(story())


def test_the_first_init_over_an_open_transaction_says_to_ask_again() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()
            await writer.write(ORDERS, b"a")

            with pytest.raises(TransactionInProgress):
                await node.transactions.init(SESSION, BILLING, timeout_ms=60_000)

            await until_state(node, TransactionState.COMPLETE_ABORT)
            assert await committed(node) == []

    run(story())


def test_a_producer_without_epochs_left_gets_a_new_id_and_no_trouble() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            first = await writer.init()
            coordinator = await node._engine.transaction_coordinators.find(BILLING)
            value = coordinator.stored.find(BILLING)
            assert value is not None
            worn_out = type(value)(
                producer_id=value.producer_id,
                epoch=EPOCH_MAX - 1,
                timeout_ms=value.timeout_ms,
                changed_ms=value.changed_ms,
            )
            coordinator.write(BILLING, worn_out)
            writer.producer = worn_out.producer
            await writer.write(ORDERS, b"last epoch")

            before = writer.producer
            renewed = await writer.commit()
            await stable(node)

            assert renewed.producer_id != first.producer_id
            assert renewed.epoch == 0
            again = await node.transactions.end(SESSION, BILLING, before, commits=True, bumps=True)
            assert again == renewed
            await writer.write(ORDERS, b"new id")
            await writer.commit()
            await stable(node)
            assert await committed(node) == [b"last epoch", b"new id"]

    run(story())


# -- late messages (the attack of KIP-890) ---------------------------------------------------------


def test_a_batch_outside_of_a_transaction_is_refused() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()

            with pytest.raises(InvalidTransactionState):
                await writer.send(ORDERS, writer.batch(ORDERS, b"nobody added it"))

            assert node.partitions.health(SESSION, ORDERS).log.end_offset == 0

    run(story())


def test_a_late_batch_of_an_aborted_transaction_leaves_nothing_hanging() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()
            await writer.add(ORDERS)
            late = writer.batch(ORDERS, b"late")
            await writer.abort()
            await until_state(node, TransactionState.COMPLETE_ABORT)

            with pytest.raises(InvalidTransactionState):
                await writer.send(ORDERS, late)

            await stable(node)

    run(story())


def test_a_late_batch_of_one_transaction_does_not_join_the_next() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            await writer.write(PAYMENTS, b"one")
            late = writer.batch(ORDERS, b"late")
            await writer.abort()
            await writer.write(ORDERS, b"two")

            with pytest.raises((StaleProducerEpoch, ProducerFenced)):
                await writer.send(ORDERS, late)

            await writer.commit()
            await stable(node)
            assert await committed(node) == [b"two"]

    run(story())


def test_a_batch_needs_the_transactional_id_of_its_producer() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()
            await writer.add(ORDERS)
            data = writer.batch(ORDERS, b"a")

            with pytest.raises(Denied):
                node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
            with pytest.raises(UnknownProducer):
                node.partitions.append(
                    SESSION, ORDERS, data, Acks.ALL, transactional_id="somebody else's"
                )

    run(story())


def test_without_a_coordinator_a_batch_is_asked_for_again() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            writer.producer = Producer(5, 0)

            with pytest.raises(CoordinatorUnavailable):
                writer.send(ORDERS, writer.batch(ORDERS, b"a"))

    run(story())


def test_inside_a_transaction_nothing_is_written_outside_of_it() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()
            await writer.write(ORDERS, b"a")

            plain = encode_batch(
                [Record(0, 0, None, b"b")],
                producer_id=writer.producer.producer_id,
                producer_epoch=writer.producer.epoch,
                base_sequence=1,
            )
            with pytest.raises(InvalidTransactionState):
                node.partitions.append(SESSION, ORDERS, plain, Acks.ALL)

    run(story())


# -- partitions that join with their first batch ---------------------------------------------------


def test_batches_that_come_while_their_partition_joins_keep_their_order() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()

            sent = [
                writer.send(ORDERS, writer.batch(ORDERS, b"%d" % number)) for number in range(20)
            ]
            assert node.partitions.health(SESSION, ORDERS).log.end_offset == 0
            appended = [await sample for sample in sent]

            assert [result.base_offset for result in appended] == list(range(20))
            view = await node.transactions.describe(SESSION, BILLING)
            assert view.targets == [ORDERS]
            await writer.commit()
            await stable(node)
            assert await committed(node) == [b"%d" % number for number in range(20)]

    run(story())


def test_a_partition_is_in_the_transaction_before_it_has_a_batch() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            coordinator = await node._engine.transaction_coordinators.find(BILLING)

            sent = asyncio.ensure_future(writer.send(ORDERS, writer.batch(ORDERS, b"a")))
            while not sent.done():
                value = coordinator.stored.find(BILLING)
                assert value is not None
                if node.partitions.health(SESSION, ORDERS).log.end_offset:
                    assert [participant.target for participant in value.participants] == [ORDERS]
                await asyncio.sleep(0.0001)

    run(story())


def test_a_batch_that_cannot_be_the_first_does_not_join() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            writer.batch(ORDERS, b"lost on its way")

            with pytest.raises(OutOfOrderSequence):
                writer.send(ORDERS, writer.batch(ORDERS, b"second"))

            assert await state_of(node) is TransactionState.EMPTY

    run(story())


def test_only_so_many_batches_wait_to_join() -> None:
    async def story() -> None:
        config = Config(limits=Limits(transaction_queued_batches_max=2))
        async with running_transactions(config) as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            sent = [writer.send(ORDERS, writer.batch(ORDERS, b"a")) for _ in range(2)]

            with pytest.raises(Overloaded):
                writer.send(ORDERS, writer.batch(ORDERS, b"a"))

            assert [(await sample).base_offset for sample in sent] == [0, 1]

    run(story())


def test_a_producer_fenced_while_its_batches_wait_writes_none_of_them() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            sent = [writer.send(ORDERS, writer.batch(ORDERS, b"zombie")) for _ in range(3)]

            with pytest.raises(TransactionInProgress):
                await node.transactions.init(SESSION, BILLING, timeout_ms=60_000)

            for sample in sent:
                with pytest.raises((StaleProducerEpoch, InvalidTransactionState)):
                    await sample
            await until_state(node, TransactionState.COMPLETE_ABORT)
            await stable(node)
            assert await committed(node) == []

    run(story())


def test_a_caller_that_is_gone_does_not_break_the_order_of_the_others() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            first = writer.send(ORDERS, writer.batch(ORDERS, b"first"))
            second = writer.send(ORDERS, writer.batch(ORDERS, b"second"))

            first.cancel()  # type: ignore[attr-defined]

            assert (await second).base_offset == 1

    run(story())


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced(is_v2: bool) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, timeout_ms=30_000, is_v2=is_v2)
            await writer.init()
            await writer.write(ORDERS, b"hanging")
            await node.partitions.append(SESSION, ORDERS, batch(b"behind it"), Acks.ALL)
            await asyncio.sleep(25)
            assert await committed(node) == []

            await asyncio.sleep(20)

            assert await committed(node) == [b"behind it"]
            assert await state_of(node) is TransactionState.COMPLETE_ABORT
            with pytest.raises(ProducerFenced):
                await writer.commit()

    run(story())


def test_an_unused_id_is_forgotten() -> None:
    async def story() -> None:
        timing = Timing(transactional_id_expiration_ms=60_000)
        async with running_transactions(Config(timing=timing)) as node:
            writer = Writer(node)
            await writer.init()
            await writer.write(ORDERS, b"a")
            await writer.commit()
            await asyncio.sleep(45)
            assert await state_of(node) is TransactionState.COMPLETE_COMMIT

            await asyncio.sleep(30)

            with pytest.raises(TransactionNotFound):
                await node.transactions.describe(SESSION, BILLING)
            with pytest.raises(UnknownProducer):
                await writer.add(ORDERS)
            assert (await writer.init()).epoch == 0

    run(story())


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60 * 1000 + 1])
def test_a_timeout_must_be_in_bounds(timeout_ms: int) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            with pytest.raises(InvalidTransactionTimeout):
                await node.transactions.init(SESSION, BILLING, timeout_ms=timeout_ms)

    run(story())


# -- restarts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
def test_an_open_transaction_goes_on_after_a_restart(is_v2: bool) -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_transactions(files=files) as node:
            writer = Writer(node, is_v2=is_v2)
            await writer.init()
            await writer.write(ORDERS, b"before")

        async with running_transactions(files=files) as node:
            writer.node = node
            await writer.write(ORDERS, b"after")
            await writer.commit()
            await stable(node)

            assert await committed(node) == [b"before", b"after"]

    run(story())


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("markers_written", [0, 1, 2])
def test_a_decided_transaction_is_ended_after_a_restart_wherever_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, markers_written: int, is_v2: bool, commits: bool
) -> None:
    async def story() -> None:
        files = MemoryFiles()
        with monkeypatch.context() as patch:
            interrupt(patch, markers_written)
            async with running_transactions(files=files) as node:
                writer = Writer(node, is_v2=is_v2)
                await writer.init()
                await writer.write(ORDERS, b"a")
                await writer.write(PAYMENTS, b"b")
                await writer.end(commits=commits)
                await asyncio.sleep(1)
                assert (await state_of(node)).name.startswith("PREPARE")

        async with running_transactions(files=files) as node:
            await stable(node)
            await stable(node, PAYMENTS)

            assert await committed(node) == ([b"a"] if commits else [])
            assert await committed(node, PAYMENTS) == ([b"b"] if commits else [])
            ended = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
            await until_state(node, ended)
            writer.node = node
            await writer.write(ORDERS, b"next")
            await writer.commit()
            await stable(node)
            assert (await committed(node))[-1] == b"next"

    run(story())


def interrupt(patch: pytest.MonkeyPatch, markers_written: int) -> None:
    """Let only so many markers be written, and none of it be remembered."""
    write = Markers.write

    async def some(self: Markers, value: object, participants: list, *, epoch: int) -> None:
        await write(self, value, participants[:markers_written], epoch=epoch)  # type: ignore[arg-type]
        await asyncio.Event().wait()

    patch.setattr(Markers, "write", some)


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_fenced_producer_stays_fenced_after_a_restart(is_v2: bool) -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_transactions(files=files) as node:
            zombie = Writer(node, is_v2=is_v2)
            await zombie.init()
            await zombie.write(ORDERS, b"zombie")
            with pytest.raises(TransactionInProgress):
                await node.transactions.init(SESSION, BILLING, timeout_ms=60_000)

        async with running_transactions(files=files) as node:
            zombie.node = node
            with pytest.raises(ProducerFenced):
                await zombie.commit()
            heir = Writer(node, is_v2=is_v2)
            assert (await heir.init()).epoch > zombie.producer.epoch + 1
            await stable(node)
            assert await committed(node) == []

    run(story())


def test_time_goes_on_over_a_restart() -> None:
    async def story() -> None:
        files, clock = MemoryFiles(), FixedClock()
        async with running_transactions(files=files, clock=clock) as node:
            writer = Writer(node, timeout_ms=60_000)
            await writer.init()
            await writer.write(ORDERS, b"a")

        clock.start_ms += 60_000
        async with running_transactions(files=files, clock=clock) as node:
            await asyncio.sleep(11)

            assert await state_of(node) is TransactionState.COMPLETE_ABORT

    run(story())


# -- markers ---------------------------------------------------------------------------------------


def test_a_partition_that_was_deleted_holds_up_no_end() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()
            await writer.write(ORDERS, b"a")
            await writer.write(PAYMENTS, b"b")
            await node.topics.delete(SESSION, "payments")
            await node.topics.create(SESSION, "payments", partitions=3)

            await writer.commit()
            await until_state(node, TransactionState.COMPLETE_COMMIT)

            assert await committed(node) == [b"a"]
            assert node.partitions.health(SESSION, PAYMENTS).log.end_offset == 0

    run(story())


def test_markers_are_tried_until_every_partition_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    write, attempts = Markers._mark, 0

    def flaky(self: Markers, replica: object, marker: Marker) -> object:
        nonlocal attempts
        attempts += 1
        if attempts % 2:
            raise Overloaded("not now")
        return write(self, replica, marker)  # type: ignore[arg-type]

    monkeypatch.setattr(Markers, "_mark", flaky)

    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()
            await writer.add(*[TopicPartition("payments", at) for at in range(3)])
            await writer.write(ORDERS, b"a")

            await writer.commit()
            await until_state(node, TransactionState.COMPLETE_COMMIT)

            assert await committed(node) == [b"a"]
            assert [
                node.partitions.health(SESSION, TopicPartition("payments", at)).log.end_offset
                for at in range(3)
            ] == [1, 1, 1]

    run(story())


def test_more_transactions_than_may_end_at_once_all_end() -> None:
    async def story() -> None:
        async with running_transactions(Config(limits=Limits(transaction_endings_max=2))) as node:
            writers = [Writer(node, transactional_id=f"billing-{at}") for at in range(9)]
            for writer in writers:
                await writer.init()
                await writer.write(ORDERS, writer.transactional_id.encode())

            await asyncio.gather(*(writer.commit() for writer in writers))
            await stable(node)

            assert len(await committed(node)) == 9

    run(story())


def test_a_marker_by_hand_ends_a_hanging_transaction_unless_it_is_too_old() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()
            await writer.write(ORDERS, b"a")
            (producer,) = await node.partitions.producers(SESSION, ORDERS)
            marker = Marker(ControlKind.ABORT, producer.producer_id, producer.epoch, 9)

            with pytest.raises(StaleProducerEpoch):
                node.partitions.write_marker(SESSION, ORDERS, marker, must_be_newer=True)
            await node.partitions.write_marker(SESSION, ORDERS, marker)
            with pytest.raises(StaleCoordinatorEpoch):
                node.partitions.write_marker(SESSION, ORDERS, marker._replace(coordinator_epoch=8))

            await stable(node)
            assert await committed(node) == []

    run(story())


# -- offsets, tools and bounds ---------------------------------------------------------------------


def test_offsets_of_a_group_are_in_the_transaction_once_they_are_added() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            producer = await writer.init()
            await node.groups.coordinator_of(SESSION, "readers")
            check = (SESSION, BILLING, *producer, "readers")
            with pytest.raises(InvalidTransactionState):
                node.transactions.check_offsets(*check)

            await node.transactions.add_offsets(SESSION, BILLING, producer, "readers")

            node.transactions.check_offsets(*check)
            (home,) = (await node.transactions.describe(SESSION, BILLING)).targets
            assert home.topic == OFFSETS_TOPIC
            await writer.commit()
            with pytest.raises(InvalidTransactionState):
                node.transactions.check_offsets(*check)
            await until_state(node, TransactionState.COMPLETE_COMMIT)
            assert node.partitions.health(SESSION, home).log.end_offset == 1

    run(story())


def test_partitions_are_added_all_or_none() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            producer = await writer.init()
            missing = TopicPartition("payments", 3)
            internal = TopicPartition(TRANSACTIONS_TOPIC, 0)

            outcomes = await node.transactions.add_partitions(
                SESSION, BILLING, producer, [ORDERS, missing, internal]
            )

            assert {target: type(outcome) for target, outcome in outcomes.items()} == {
                ORDERS: NotAttempted,
                missing: UnknownTopic,
                internal: InternalTopic,
            }
            assert await state_of(node) is TransactionState.EMPTY

    run(story())


def test_whether_a_partition_is_in_a_transaction_can_be_asked() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            producer = await writer.init()
            await writer.add(ORDERS)

            outcomes = node.transactions.check_partitions(
                SESSION, BILLING, producer, [ORDERS, PAYMENTS]
            )

            assert outcomes[ORDERS] is None
            assert isinstance(outcomes[PAYMENTS], InvalidTransactionState)

    run(story())


def test_ids_are_listed_by_state_producer_age_and_pattern() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writers = [Writer(node, transactional_id=name) for name in ("a-1", "a-2", "b-1")]
            for writer in writers:
                await writer.init()
            await writers[1].write(ORDERS, b"x")
            await asyncio.sleep(2)

            def names(**filters: object) -> list[str]:
                listed = node.transactions.list(SESSION, **filters)  # type: ignore[arg-type]
                return sorted(view.transactional_id for view in listed)

            assert names() == ["a-1", "a-2", "b-1"]
            assert names(states=[TransactionState.ONGOING]) == ["a-2"]
            assert names(producer_ids=[writers[2].producer.producer_id]) == ["b-1"]
            assert names(running_ms_min=1_000) == ["a-2"]
            assert names(running_ms_min=60_000) == []
            assert names(pattern="a-.*") == ["a-1", "a-2"]
            with pytest.raises(InvalidPattern):
                names(pattern="(")

    run(story())


def test_an_id_must_not_be_empty() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            with pytest.raises(InvalidRequest):
                await node.transactions.init(SESSION, "", timeout_ms=1000)

    run(story())


def test_only_so_many_ids_are_remembered() -> None:
    async def story() -> None:
        async with running_transactions(Config(limits=Limits(transactional_ids_max=1))) as node:
            await Writer(node).init()

            with pytest.raises(Overloaded):
                await Writer(node, transactional_id="other").init()
            assert (await Writer(node).init()).epoch == 1

    run(story())


def test_steps_of_one_id_taken_at_once_are_answered_in_their_order() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            await node.transactions.init(SESSION, BILLING, timeout_ms=60_000)

            producers = await asyncio.gather(
                *(node.transactions.init(SESSION, BILLING, timeout_ms=60_000) for _ in range(5))
            )

            assert [producer.epoch for producer in producers] == [1, 2, 3, 4, 5]

    run(story())


def test_a_step_refused_by_a_full_disk_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            await writer.init()
            coordinator = await node._engine.transaction_coordinators.find(BILLING)

            with monkeypatch.context() as patch:
                patch.setattr(coordinator.ledger, "write", refuse)
                with pytest.raises(Overloaded):
                    await writer.add(ORDERS)

            await writer.write(ORDERS, b"a")
            await writer.commit()
            await stable(node)
            assert await committed(node) == [b"a"]

    run(story())


def refuse(*_: object) -> None:
    raise Overloaded("no room")
