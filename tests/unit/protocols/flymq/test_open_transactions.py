"""What becomes of a transaction when the engine fails it in the middle."""

import asyncio
from typing import Any

import pytest

from millstream.errors import (
    CoordinatorUnavailable,
    InvalidTransactionState,
    StorageUnavailable,
    TransactionNotFound,
)
from millstream.model import Appended
from millstream.protocols.flymq.open_transactions import TIMEOUT_MS, OpenTransactions
from millstream.server.node import Node
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run


class Flaky:
    """A service of the engine, of which one method fails as often as it is told."""

    def __init__(self, service: Any, method: str, failure: Any) -> None:
        self.failures_left = 0
        self._service = service
        self._method = method
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self.failures_left:
            self.failures_left -= 1
            return self._failure
        return getattr(self._service, name)


def lost_append(*_: object, **__: object) -> "asyncio.Future[Appended]":
    """Begun, and gone: it may have been written or not."""
    writing: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
    writing.set_exception(StorageUnavailable("the disk is gone"))
    return writing


async def unavailable(*_: object, **__: object) -> None:
    raise CoordinatorUnavailable("flymq-1-0")


def opened(node: Node, **services: Any) -> OpenTransactions:
    return OpenTransactions(
        services.get("transactions", node.transactions),
        services.get("partitions", node.partitions),
        node.topics,
        config=node.config,
        clock=node.clock,
    )


def test_a_transaction_that_lost_a_record_is_aborted_instead_of_committed() -> None:
    async def main() -> None:
        async with running_node() as node:
            partitions = Flaky(node.partitions, "append", lost_append)
            transactions = opened(node, partitions=partitions)
            name = await transactions.begin(SESSION)
            await transactions.produce(SESSION, name, "orders", b"a")
            partitions.failures_left = 1
            with pytest.raises(StorageUnavailable):
                await transactions.produce(SESSION, name, "orders", b"b")

            with pytest.raises(InvalidTransactionState, match="aborted, because a record was lost"):
                await transactions.end(SESSION, name, commits=True)
            with pytest.raises(TransactionNotFound):
                await transactions.end(SESSION, name, commits=True)

    run(main())


def test_a_commit_that_may_work_later_can_be_asked_for_again() -> None:
    async def main() -> None:
        async with running_node() as node:
            flaky = Flaky(node.transactions, "end", unavailable)
            transactions = opened(node, transactions=flaky)
            name = await transactions.begin(SESSION)
            await transactions.produce(SESSION, name, "orders", b"a")
            flaky.failures_left = 1
            with pytest.raises(CoordinatorUnavailable):
                await transactions.end(SESSION, name, commits=True)

            await transactions.end(SESSION, name, commits=True)

            with pytest.raises(TransactionNotFound):
                await transactions.end(SESSION, name, commits=True)

    run(main())


def test_a_client_that_goes_while_it_commits_does_not_keep_the_id() -> None:
    async def main() -> None:
        async with running_node() as node:
            transactions = opened(node)
            name = await transactions.begin(SESSION)
            await transactions.produce(SESSION, name, "orders", b"a")
            ending = asyncio.ensure_future(transactions.end(SESSION, name, commits=True))
            await asyncio.sleep(0)
            ending.cancel()
            await asyncio.wait([ending])

            for _ in range(20):
                again = await transactions.begin(SESSION)
                await transactions.produce(SESSION, again, "orders", b"b")
                await transactions.end(SESSION, again, commits=True)
                await asyncio.sleep(1)

            assert len(node.transactions.list(SESSION)) <= 2

    run(main())


def test_a_transaction_whose_end_failed_is_still_dropped_when_its_time_is_up() -> None:
    async def main() -> None:
        async with running_node() as node:
            flaky = Flaky(node.transactions, "end", unavailable)
            transactions = opened(node, transactions=flaky)
            first = await transactions.begin(SESSION)
            await transactions.produce(SESSION, first, "orders", b"a")
            await asyncio.sleep(TIMEOUT_MS / 2000)
            await transactions.begin(SESSION)
            flaky.failures_left = 1
            with pytest.raises(CoordinatorUnavailable):
                await transactions.end(SESSION, first, commits=True)

            await asyncio.sleep(TIMEOUT_MS / 2000 + 1)

            with pytest.raises(TransactionNotFound):
                await transactions.end(SESSION, first, commits=True)

    run(main())
