"""Transactions through the FlyMQ listener: real ones, under ids that are lent again and again."""

import asyncio

import pytest

from millstream.config import Config, Timing
from millstream.engine.partitions.markers import Markers
from millstream.engine.transactions.service import TransactionView
from millstream.internal_topics.transactions import Participant, TransactionValue
from millstream.protocols.flymq import open_transactions
from millstream.protocols.flymq.open_transactions import SEEN_S_MAX, TIMEOUT_MS
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode
from tests.support.flymq import Refused
from tests.support.nodes import SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.asking import Connection, FlymqListener, open_listener


async def begin(client: Connection) -> str:
    begun = await client.ask(Opcode.BEGIN_TX, bodies.Nothing(), bodies.TransactionOutcome)
    assert begun.success
    return begun.transaction


async def produce(
    client: Connection, name: str, value: bytes, *, topic: str = "orders"
) -> bodies.RecordMetadata:
    request = bodies.ProduceInTransaction(name, topic, value)
    return await client.ask(Opcode.PRODUCE_TX, request, bodies.RecordMetadata)


async def commit(client: Connection, name: str) -> None:
    request = bodies.TransactionId(name)
    assert await client.ask(Opcode.COMMIT_TX, request, bodies.TransactionOutcome) == (name, True)


async def abort(client: Connection, name: str) -> None:
    request = bodies.TransactionId(name)
    assert await client.ask(Opcode.ABORT_TX, request, bodies.TransactionOutcome) == (name, True)


def ids(listener: FlymqListener) -> list[TransactionView]:
    return listener.node.transactions.list(SESSION)


def test_records_are_seen_once_their_transaction_is_committed() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            name = await begin(client)
            first = await produce(client, name, b"a")
            second = await produce(client, name, b"b")
            assert (first.offset, second.offset) == (0, 1)
            assert await client.values("orders") == []

            await commit(client, name)

            assert await client.values("orders") == [b"a", b"b"]

    run(main())


def test_records_of_an_aborted_transaction_are_never_seen() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            name = await begin(client)
            await produce(client, name, b"never")
            await abort(client, name)
            await client.produce("orders", b"plain")

            assert await client.values("orders") == [b"plain"]

    run(main())


def test_behind_many_records_of_an_aborted_transaction_the_next_one_is_found() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            name = await begin(client)
            for _ in range(20):
                await produce(client, name, bytes(100_000))
            await abort(client, name)
            answer = await client.produce("orders", b"plain")

            with pytest.raises(
                Refused, match=f"no record at offset 0, the next is at {answer.offset}"
            ):
                await client.ask(Opcode.CONSUME, bodies.Consume("orders", 0, 0), bodies.Consumed)
            assert await client.fetch("orders") == (1, 22, ((21, b"", b"plain"),))

    run(main())


def test_an_end_whose_markers_take_long_is_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            name = await begin(client)
            await produce(client, name, b"a")
            write = Markers.write

            async def slowly(
                markers: Markers, value: TransactionValue, left: list[Participant], *, epoch: int
            ) -> list[Participant]:
                await asyncio.sleep(1.5 * SEEN_S_MAX)
                return await write(markers, value, left, epoch=epoch)

            monkeypatch.setattr(Markers, "write", slowly)
            begun = asyncio.get_running_loop().time()
            await commit(client, name)

            assert SEEN_S_MAX <= asyncio.get_running_loop().time() - begun < 1.1 * SEEN_S_MAX
            await asyncio.sleep(SEEN_S_MAX)
            assert await client.values("orders") == [b"a"]

    run(main())


def test_a_transaction_spans_topics_partitions_and_connections() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            first, second = listener.connect(), listener.connect()
            await first.create("orders", 2)
            name = await begin(first)
            for number in range(4):
                await produce(first if number % 2 else second, name, b"%d" % number)
            await produce(second, name, b"paid", topic="payments")
            first.close()
            await commit(second, name)

            values = await second.values("orders") + await second.values("orders", partition=1)
            assert sorted(values) == [b"0", b"1", b"2", b"3"]
            assert await second.values("payments") == [b"paid"]

    run(main())


def test_a_name_that_is_unknown_or_ended_is_an_error() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            name = await begin(client)
            await produce(client, name, b"a")
            await commit(client, name)

            for attempt in (commit, abort):
                for gone in (name, "nonsense", ""):
                    with pytest.raises(Refused, match="transaction not found: "):
                        await attempt(client, gone)
            with pytest.raises(Refused, match="transaction not found: "):
                await produce(client, name, b"b")

    run(main())


def test_a_transaction_without_records_ends_either_way() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()

            await commit(client, await begin(client))
            await abort(client, await begin(client))

            name = await begin(client)
            await produce(client, name, b"a")
            await commit(client, name)
            assert await client.values("orders") == [b"a"]

    run(main())


def test_two_transactions_are_open_side_by_side() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            kept, dropped = await begin(client), await begin(client)
            await produce(client, dropped, b"dropped")
            await produce(client, kept, b"kept")

            await commit(client, kept)
            await abort(client, dropped)

            assert kept != dropped
            assert await client.values("orders") == [b"kept"]

    run(main())


def test_ids_are_lent_again() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            names = set()
            for number in range(20):
                name = await begin(client)
                names.add(name)
                await produce(client, name, b"%d" % number)
                await (commit if number % 2 else abort)(client, name)

            assert len(names) == 20
            assert len(ids(listener)) <= 2
            assert await client.values("orders") == [b"%d" % at for at in range(1, 20, 2)]

    run(main())


def test_an_id_whose_markers_are_not_written_yet_is_not_lent() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            for number in range(10):
                name = await begin(client)
                await produce(client, name, b"%d" % number)
                await commit(client, name)  # The next begins at once.

            assert await client.values("orders") == [b"%d" % at for at in range(10)]

    run(main())


def test_an_abandoned_transaction_is_aborted() -> None:
    async def main() -> None:
        config = Config(timing=Timing(transaction_check_ms=1_000))
        async with open_listener(config) as listener:
            client = listener.connect()
            name = await begin(client)
            await produce(client, name, b"forgotten")
            await asyncio.sleep(TIMEOUT_MS / 1000 + 5)

            with pytest.raises(Refused):
                await commit(client, name)
            await client.produce("orders", b"plain")
            assert await client.values("orders") == [b"plain"]

            again = await begin(client)
            await produce(client, again, b"again")
            await commit(client, again)
            assert await client.values("orders") == [b"plain", b"again"]

    run(main())


def test_a_transaction_of_an_earlier_life_of_the_listener_does_not_stand_in_the_way() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await produce(client, await begin(client), b"left open")

            later = FlymqListener(listener.node).connect()
            name = await begin(later)
            await produce(later, name, b"new")
            await commit(later, name)
            while not await client.values("orders"):
                again = await begin(later)  # Takes over the id that was left, which aborts.
                await abort(later, again)
                await asyncio.sleep(0.1)

            assert await client.values("orders") == [b"new"]

    run(main())


def test_there_is_a_bound_on_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(open_transactions, "OPEN_MAX", 3)
        async with open_listener() as listener:
            client = listener.connect()
            names = [await begin(client) for _ in range(3)]

            with pytest.raises(Refused, match="3 transactions are open already"):
                await begin(client)
            await abort(client, names[0])
            await begin(client)

    run(main())


def test_a_record_that_is_refused_leaves_the_transaction_as_it_was() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            name = await begin(client)
            await produce(client, name, b"a")
            with pytest.raises(Refused, match="at most"):
                await produce(client, name, bytes(2**21))
            await produce(client, name, b"b")
            await commit(client, name)

            assert await client.values("orders") == [b"a", b"b"]

    run(main())
