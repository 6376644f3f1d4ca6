"""Whatever wrote a log, FlyMQ's fetches return its committed records, each once, in order."""

import asyncio
from random import Random

import pytest

from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.model import Acks, TopicPartition
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode
from tests.support.nodes import NOW_MS, SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.asking import Connection, FlymqListener, open_listener

TOPIC = TopicPartition("orders", 0)
STEPS = 30


async def write(
    listener: FlymqListener, client: Connection, random: Random, number: int
) -> list[bytes]:
    """Write something in some way; return what readers shall see of it."""
    values = [b"%d-%d %s" % (number, at, random.choice([b"a", b"B"])) for at in range(5)]
    match random.randrange(4):
        case 0:
            await client.produce("orders", values[0], key=random.choice([b"", b"key"]))
            return values[:1]
        case 1:
            some = values[: random.randint(1, 5)]
            batch = encode_batch(
                [Record(at, NOW_MS, b"key", value) for at, value in enumerate(some)],
                codec=random.choice([Codec.NONE, Codec.GZIP, Codec.ZSTD]),
            )
            await listener.node.partitions.append(SESSION, TOPIC, batch, Acks.ALL)
            return some
        case _:
            commits = random.random() < 0.5
            begun = await client.ask(Opcode.BEGIN_TX, bodies.Nothing(), bodies.TransactionOutcome)
            name = begun.transaction
            for value in values[:2]:
                request = bodies.ProduceInTransaction(name, "orders", value)
                await client.ask(Opcode.PRODUCE_TX, request, bodies.RecordMetadata)
            end = Opcode.COMMIT_TX if commits else Opcode.ABORT_TX
            await client.ask(end, bodies.TransactionId(name), bodies.TransactionOutcome)
            return values[:2] if commits else []


async def drain(client: Connection, random: Random, where: str = "") -> list[bytes]:
    """Fetch as a consumer does: from the start, always where the last fetch said to go on."""
    collected: list[bytes] = []
    offset = 0
    while True:
        count = random.choice([1, 2, 3, 7, 100])
        fetched = await client.fetch("orders", offset, count=count, where=where)
        offsets = [record.offset for record in fetched.records]
        assert fetched.record_count == len(offsets) <= count
        assert offsets == sorted({at for at in offsets if at >= offset})
        assert fetched.next_offset >= max([offset, *(at + 1 for at in offsets)])
        if not offsets and fetched.next_offset == offset:
            return collected
        collected += [record.value for record in fetched.records]
        offset = fetched.next_offset


@pytest.mark.parametrize("seed", range(10))
def test_fetches_return_what_was_committed(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        async with open_listener() as listener:
            client = listener.connect()
            await client.create("orders")
            written: list[bytes] = []
            for number in range(STEPS):
                written += await write(listener, client, random, number)
            while any(
                v.state.name.startswith("PREPARE") for v in listener.node.transactions.list(SESSION)
            ):
                await asyncio.sleep(0.01)

            assert await drain(client, random) == written
            expected = [value for value in written if value.endswith(b"B")]
            assert await drain(client, random, where=r"B$") == expected
            assert await drain(client, random, where="nothing like it") == []

    run(main())
