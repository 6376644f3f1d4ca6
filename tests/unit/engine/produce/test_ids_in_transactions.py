"""Message ids in transactions: known to their own at once, to all others when it is committed."""

import asyncio

import pytest

from millstream.model import Acks, Appended, TopicPartition
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION
from tests.support.queues import batch_of, message, values_in
from tests.support.transactions import Writer, patiently, running_transactions
from tests.support.virtual_loop import run

BOTH = pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])


async def send(writer: Writer, *ids: bytes, target: TopicPartition = ORDERS) -> Appended:
    """Send one batch, a record with each id, in the writer's transaction."""
    if not writer.is_v2:
        await writer.add(target)
    sequence = writer.sequences.get(target, 0)
    writer.sequences[target] = sequence + len(ids)
    data = batch_of(
        *[message(b"x" + name, message_id=name) for name in ids],
        producer=writer.producer,
        base_sequence=sequence,
        is_transactional=True,
    )

    async def once() -> Appended:
        return await writer.send(target, data)

    return await patiently(once)  # type: ignore[return-value]


async def end(writer: Writer, *, commits: bool) -> None:
    """End the transaction, and see its marker in the log."""
    node = writer.node
    replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
    await writer.end(commits=commits)
    while replica.log.producers.first_unstable_offset is not None:
        await asyncio.sleep(0.01)


async def send_plain(node: Node, message_id: bytes) -> Appended:
    sent = batch_of(message(b"plain " + message_id, message_id=message_id))
    return await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)


@BOTH
@pytest.mark.parametrize("commits", [True, False])
def test_an_id_counts_when_its_transaction_was_committed_and_not_when_it_was_rolled_back(
    is_v2: bool, commits: bool
) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=is_v2)
            await writer.init()
            await send(writer, b"a")
            await end(writer, commits=commits)

            again = await send(writer, b"a", b"b")
            await end(writer, commits=True)

            assert again.duplicates == ({0: 0} if commits else {})
            assert (await send_plain(node, b"a")).duplicates.keys() == {0}
            assert (await send_plain(node, b"b")).duplicates.keys() == {0}

    run(story())


@BOTH
def test_a_transaction_takes_an_id_once(is_v2: bool) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=is_v2)
            await writer.init()

            first = await send(writer, b"a", b"a")
            second = await send(writer, b"b", b"a")
            await end(writer, commits=True)

            assert (first.duplicates, second.duplicates) == ({1: 0}, {1: 0})
            assert await values_in(node) == [b"xa", b"xb"]

    run(story())


def test_what_another_transaction_has_not_committed_is_no_original() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            first, other = Writer(node), Writer(node, transactional_id="other")
            for writer in (first, other):
                await writer.init()
            await send(first, b"a")

            assert (await send(other, b"a")).duplicates == {}
            assert (await send_plain(node, b"a")).duplicates == {}
            assert (await send_plain(node, b"a")).duplicates == {0: 2}

    run(story())


@BOTH
def test_a_producer_goes_on_behind_a_batch_of_nothing_but_duplicates(is_v2: bool) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            await send_plain(node, b"a")
            writer = Writer(node, is_v2=is_v2)
            await writer.init()

            first = await send(writer, b"a", b"a")
            second = await send(writer, b"b")
            await end(writer, commits=True)

            assert first.duplicates == {0: 0, 1: 0}
            assert second.duplicates == {}
            assert await values_in(node) == [b"plain a", b"xb"]

    run(story())


@BOTH
def test_a_batch_of_a_transaction_that_comes_twice_is_answered_as_the_first_time(
    is_v2: bool,
) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node, is_v2=is_v2)
            await writer.init()

            first = await send(writer, b"a", b"b")
            writer.sequences.clear()
            again = await send(writer, b"a", b"b")

            assert (first.base_offset, again.base_offset) == (0, 0)
            assert await values_in(node) == [b"xa", b"xb"]

    run(story())


def test_after_a_restart_the_ids_of_transactions_count_as_before() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_transactions(files=files) as node:
            for message_id, commits in ((b"kept", True), (b"gone", False)):
                writer = Writer(node)
                await writer.init()
                await send(writer, message_id)
                await end(writer, commits=commits)
            late = Writer(node, transactional_id="late")
            await late.init()
            await send(late, b"late")
        async with running_transactions(files=files) as node:
            late.node = node
            assert (await send_plain(node, b"kept")).duplicates == {0: 0}
            assert (await send_plain(node, b"gone")).duplicates == {}

            await end(late, commits=True)

            assert (await send_plain(node, b"late")).duplicates.keys() == {0}

    run(story())
