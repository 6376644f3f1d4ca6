"""Requests of the next transaction wait on the broker until the last one has its markers."""

import asyncio

import pytest

from millstream.config import Config, Limits, Timing
from millstream.engine.partitions.markers import Markers
from millstream.engine.transactions.coordinator import TransactionCoordinator
from millstream.errors import NotCoordinator, Overloaded, ProducerFenced, TransactionInProgress
from millstream.internal_topics.transactions import Participant, TransactionState, TransactionValue
from tests.support.nodes import ORDERS, SESSION
from tests.support.transactions import (
    BILLING,
    PAYMENTS,
    Writer,
    committed,
    running_transactions,
    stable,
)
from tests.support.virtual_loop import run

WAIT_S_MAX = Timing().transaction_end_wait_ms_max / 1000


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> "HeldMarkers":
    """Holds the markers of every transaction back until it is opened."""
    held = HeldMarkers()
    write = Markers.write

    async def later(
        markers: Markers, value: TransactionValue, left: list[Participant], *, epoch: int
    ) -> list[Participant]:
        await held.opened()
        return await write(markers, value, left, epoch=epoch)

    monkeypatch.setattr(Markers, "write", later)
    return held


class HeldMarkers:
    def __init__(self) -> None:
        self.is_open = False

    async def opened(self) -> None:
        while not self.is_open:
            await asyncio.sleep(0.001)


def loop_time() -> float:
    return asyncio.get_running_loop().time()


def test_batches_of_the_next_transaction_wait_for_the_markers_and_keep_their_order(
    gate: HeldMarkers,
) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            await writer.write(ORDERS, b"first")
            await writer.commit()

            sent = [
                asyncio.ensure_future(writer.send(target, writer.batch(target, b"%d" % number)))
                for number in range(5)
                for target in (ORDERS, PAYMENTS)
            ]
            await asyncio.sleep(0.1)
            assert not any(future.done() for future in sent)
            assert node.partitions.health(SESSION, ORDERS).log.end_offset == 1
            gate.is_open = True
            await asyncio.gather(*sent)
            await writer.commit()
            await stable(node)

            numbers = [b"%d" % number for number in range(5)]
            assert await committed(node) == [b"first", *numbers]
            assert await committed(node, PAYMENTS) == numbers

    run(story())


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_wait_ends_as_soon_as_the_markers_are_written(gate: HeldMarkers, is_v2: bool) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=is_v2)
            await writer.init()
            await writer.write(ORDERS, b"a")
            await writer.commit()
            loop = asyncio.get_running_loop()
            loop.call_later(WAIT_S_MAX / 2, setattr, gate, "is_open", True)

            began = loop_time()
            if is_v2:
                await writer.send(PAYMENTS, writer.batch(PAYMENTS, b"b"))
            else:
                await node.transactions.add_partitions(
                    SESSION, BILLING, writer.producer, [PAYMENTS]
                )

            assert loop_time() - began == pytest.approx(WAIT_S_MAX / 2, abs=0.05)
            view = await node.transactions.describe(SESSION, BILLING)
            assert view.state is TransactionState.ONGOING
            assert view.targets == [PAYMENTS]

    run(story())


def test_offsets_of_the_next_transaction_wait_too(gate: HeldMarkers) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            await writer.write(ORDERS, b"a")
            await writer.commit()
            asyncio.get_running_loop().call_later(WAIT_S_MAX / 2, setattr, gate, "is_open", True)

            await node.transactions.add_offsets(SESSION, BILLING, writer.producer, "readers")

            view = await node.transactions.describe(SESSION, BILLING)
            assert view.state is TransactionState.ONGOING

    run(story())


def test_a_wait_is_bounded_and_then_the_client_is_told_to_retry(gate: HeldMarkers) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            await writer.write(ORDERS, b"a")
            await writer.commit()

            began = loop_time()
            data = writer.batch(ORDERS, b"b")
            with pytest.raises(TransactionInProgress):
                await writer.send(ORDERS, data)
            with pytest.raises(TransactionInProgress):
                await node.transactions.add_partitions(SESSION, BILLING, writer.producer, [ORDERS])
            assert loop_time() - began == pytest.approx(2 * WAIT_S_MAX, abs=0.05)
            coordinator = await node._engine.transaction_coordinators.find(BILLING)
            assert not coordinator._end_waiters

            gate.is_open = True
            await writer.send(ORDERS, data)
            await writer.commit()
            await stable(node)
            assert await committed(node) == [b"a", b"b"]

    run(story())


def test_a_producer_fenced_during_the_wait_writes_nothing(
    gate: HeldMarkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(
        coordinator: TransactionCoordinator, transactional_id: str, *, until: float
    ) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(WAIT_S_MAX / 2, future.set_result, None)
        return future

    monkeypatch.setattr(TransactionCoordinator, "ended_future", late)

    async def story() -> None:
        async with running_transactions() as node:
            zombie, heir = Writer(node, is_v2=True), Writer(node, is_v2=True)
            await zombie.init()
            await zombie.write(ORDERS, b"a")
            await zombie.commit()

            sent = [
                asyncio.ensure_future(zombie.send(ORDERS, zombie.batch(ORDERS, b"zombie")))
                for _ in range(3)
            ]
            gate.is_open = True
            await heir.init()
            for future in sent:
                with pytest.raises(ProducerFenced):
                    await future
            await heir.write(ORDERS, b"heir")
            await heir.commit()
            await stable(node)

            assert await committed(node) == [b"a", b"heir"]

    run(story())


def test_a_wait_ends_when_the_coordinator_moves(gate: HeldMarkers) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            await writer.write(ORDERS, b"a")
            await writer.commit()
            sent = asyncio.ensure_future(writer.send(ORDERS, writer.batch(ORDERS, b"b")))
            await asyncio.sleep(0)

            coordinator = await node._engine.transaction_coordinators.find(BILLING)
            coordinator._forget()
            began = loop_time()
            with pytest.raises(NotCoordinator):
                await sent

            assert loop_time() - began < WAIT_S_MAX / 2

    run(story())


def test_only_so_many_batches_wait_for_the_end(gate: HeldMarkers) -> None:
    async def story() -> None:
        config = Config(limits=Limits(transaction_queued_batches_max=2))
        async with running_transactions(config) as node:
            writer = Writer(node, is_v2=True)
            await writer.init()
            await writer.write(ORDERS, b"a")
            await writer.commit()
            sent = [writer.send(ORDERS, writer.batch(ORDERS, b"b")) for _ in range(2)]

            with pytest.raises(Overloaded):
                writer.send(ORDERS, writer.batch(ORDERS, b"b"))

            gate.is_open = True
            assert [(await future).base_offset for future in sent] == [2, 3]

    run(story())
