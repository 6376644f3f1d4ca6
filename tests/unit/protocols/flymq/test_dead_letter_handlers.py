"""Dead letters through the FlyMQ listener: what a subscription gave up, seen, sent back, purged."""

import asyncio

import pytest

from millstream.engine.partitions.slices import Earliest
from millstream.engine.push import Delivered, SubscriptionSpec
from millstream.protocols.flymq.handlers import dead_letters
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode
from tests.support.flymq import Refused
from tests.support.nodes import SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.asking import Connection, FlymqListener, open_listener


async def give_up(listener: FlymqListener, *values: bytes) -> Connection:
    """Produce records, and have a subscription reject them all."""
    client = listener.connect()
    for value in values:
        await client.produce("orders", value)
    delivered: list[Delivered] = []

    def take(some: "list[Delivered]") -> bool:
        delivered.extend(some)
        return True

    spec = SubscriptionSpec(name="readers", topics=("orders",), start=Earliest())
    member = await listener.node.deliveries.subscribe(SESSION, spec, take)  # type: ignore[arg-type]
    while len(delivered) < len(values):
        await asyncio.sleep(0.01)
    for delivery in delivered:
        assert member.reject(
            delivery.target, delivery.record.offset, "rejected", "no such customer"
        )
    while len(await letters(client)) < len(values):
        await asyncio.sleep(0.01)
    member.close()
    return client


async def letters(
    client: Connection, topic: str = "orders", count: int = 100
) -> tuple[bodies.DeadLetter, ...]:
    request = bodies.FetchDeadLetters(topic, count)
    return (await client.ask(Opcode.FETCH_DLQ, request, bodies.DeadLetters)).letters


async def replay(client: Connection, name: str, topic: str = "orders") -> None:
    request = bodies.ReplayById(topic, name)
    assert await client.ask(Opcode.REPLAY_DLQ, request, bodies.Replayed) == (True, 0)


def test_what_was_given_up_is_seen_with_its_error() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await give_up(listener, b"a", b"b")

            assert await letters(client) == (
                ("0-0", b"a", "no such customer", 1),
                ("0-1", b"b", "no such customer", 1),
            )
            assert await letters(client, "orders.dlq", count=1) == (
                ("0-0", b"a", "no such customer", 1),
            )

    run(main())


def test_a_topic_without_dead_letters_has_an_empty_list() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            assert await letters(listener.connect(), "nothing") == ()

    run(main())


def test_a_dead_letter_is_sent_back_once_by_its_id_or_its_offset() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await give_up(listener, b"a", b"b")

            await replay(client, "0-1")
            by_offset = bodies.ReplayByOffset("orders", 0)
            await client.ask(Opcode.REPLAY_DLQ, by_offset, bodies.Replayed)

            assert await client.values("orders") == [b"a", b"b", b"b", b"a"]
            assert await letters(client) == ()
            for name in ("0-1", "0-7", "1-0", "nonsense", "0-999999999999999999"):
                with pytest.raises(Refused):
                    await replay(client, name)

    run(main())


def test_dead_letters_are_purged() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await give_up(listener, b"a", b"b")

            request = bodies.TopicOnly("orders")
            answer = await client.ask(Opcode.PURGE_DLQ, request, bodies.Message)

            assert answer == (True, "2 purged")
            assert await letters(client) == ()

    run(main())


def test_a_list_stays_small_enough_for_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await give_up(listener, b"a", b"b", b"c")
            monkeypatch.setattr(dead_letters, "REPLY_BYTES_MAX", 10_000)

            assert [letter.id for letter in await letters(client)] == ["0-0", "0-1"]

    run(main())
