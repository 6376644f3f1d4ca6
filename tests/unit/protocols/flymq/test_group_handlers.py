"""Groups through the FlyMQ listener: the same offsets that Kafka's clients commit and see."""

import pytest

from millstream.engine.groups.views import Commit, Committed
from millstream.internal_topics.groups import TEXT_BYTES_MAX, Protocol
from millstream.model import TopicPartition
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode
from tests.support.flymq import Refused
from tests.support.nodes import NOW_MS, SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.asking import Connection, FlymqListener, open_listener

ORDERS = TopicPartition("orders", 0)


async def subscribe(client: Connection, mode: str, *, partition: int = 0, group: str = "g") -> int:
    request = bodies.Subscribe("orders", group, partition, mode)
    return (await client.ask(Opcode.SUBSCRIBE, request, bodies.Place)).offset


async def commit(client: Connection, offset: int, *, topic: str = "orders") -> None:
    await client.ask(Opcode.COMMIT, bodies.Commit(topic, "g", 0, offset), bodies.Done)


async def get_offset(client: Connection, *, partition: int = 0, group: str = "g") -> int:
    request = bodies.GroupPartition("orders", group, partition)
    return (await client.ask(Opcode.GET_OFFSET, request, bodies.Place)).offset


async def reset(client: Connection, mode: str, offset: int = 0) -> None:
    request = bodies.ResetOffset("orders", "g", 0, mode, offset)
    await client.ask(Opcode.RESET_OFFSET, request, bodies.Done)


async def groups(client: Connection) -> tuple[bodies.Group, ...]:
    return (await client.ask(Opcode.LIST_GROUPS, bodies.Nothing(), bodies.Groups)).groups


async def describe(client: Connection, topic: str, group: str = "g") -> bodies.Group:
    request = bodies.GroupOfTopic(topic, group)
    return await client.ask(Opcode.DESCRIBE_GROUP, request, bodies.Group)


async def filled(listener: FlymqListener, count: int = 5) -> Connection:
    client = listener.connect()
    for number in range(count):
        await client.produce("orders", b"%d" % number)
    return client


def test_a_group_starts_where_its_mode_says() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)

            assert await subscribe(client, "earliest") == 0
            assert await subscribe(client, "latest") == 5
            assert await subscribe(client, "") == 5
            assert await subscribe(client, "commit") == 0
            await commit(client, 3)
            assert await subscribe(client, "commit") == 3
            assert await subscribe(client, "committed") == 3
            with pytest.raises(Refused, match="unknown subscribe mode: sometime"):
                await subscribe(client, "sometime")

    run(main())


def test_the_end_of_an_empty_partition_is_0_and_its_lag_too() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await client.create("orders")

            assert await subscribe(client, "latest") == 0
            request = bodies.GroupPartition("orders", "g", 0)
            assert await client.ask(Opcode.GET_LAG, request, bodies.Lag) == (0, 0, 0, 0)

    run(main())


def test_a_partition_that_does_not_exist_is_an_error_by_which_clients_count() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await client.create("orders", 2)

            for mode in ("earliest", "latest", "commit"):
                await subscribe(client, mode, partition=1)
                with pytest.raises(Refused, match="partition 2 not found in topic orders"):
                    await subscribe(client, mode, partition=2)

    run(main())


def test_a_commit_is_seen_by_kafka_and_one_of_kafkas_here() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)

            await commit(client, 3)
            committed = await listener.node.groups.fetch_offsets(SESSION, "g", [ORDERS])
            place = committed[ORDERS]
            assert isinstance(place, Committed)
            assert place.offset == 3

            await listener.node.groups.commit_offsets(SESSION, "g", {ORDERS: Commit(2)})
            assert await get_offset(client) == 2

    run(main())


def test_a_commit_may_go_back_but_not_to_where_no_topic_is() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)
            await commit(client, 4)
            await commit(client, 1)

            assert await get_offset(client) == 1
            with pytest.raises(Refused, match="topic not found: nothing"):
                await commit(client, 1, topic="nothing")
            with pytest.raises(Refused, match="at most"):
                await commit(client, 2**63)

    run(main())


def test_another_connection_goes_on_where_one_committed() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)
            await commit(client, 3)

            client.close()

            assert await subscribe(listener.connect(), "commit") == 3

    run(main())


def test_offsets_are_reset() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)

            for mode, offset, expected in (("latest", 0, 5), ("earliest", 9, 0), ("offset", 2, 2)):
                await reset(client, mode, offset)
                assert await get_offset(client) == expected
            with pytest.raises(Refused, match="unknown reset mode: sometime"):
                await reset(client, "sometime")

    run(main())


def test_the_lag_is_what_was_not_committed() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)
            await commit(client, 2)
            request = bodies.GroupPartition("orders", "g", 0)

            assert await client.ask(Opcode.GET_LAG, request, bodies.Lag) == (2, 2, 5, 3)

    run(main())


def test_an_unknown_group_is_named_with_its_topic() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)

            with pytest.raises(Refused, match="consumer group not found: orders:g"):
                await get_offset(client)
            await subscribe(client, "latest")
            assert await get_offset(client) == 0

    run(main())


def test_a_group_is_listed_once_for_each_of_its_topics() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)
            await client.create("payments")
            await commit(client, 3)
            await commit(client, 0, topic="payments")

            assert await groups(client) == (
                ("orders", "g", 0, ((0, 3),)),
                ("payments", "g", 0, ((0, 0),)),
            )
            assert await describe(client, "payments") == ("payments", "g", 0, ((0, 0),))
            assert await describe(client, "") == ("orders", "g", 0, ((0, 3),))
            with pytest.raises(Refused, match="consumer group not found: nothing:g"):
                await describe(client, "nothing")

    run(main())


def test_a_group_of_the_longest_name_is_listed() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)
            name = "g" * TEXT_BYTES_MAX
            await listener.node.groups.commit_offsets(SESSION, name, {ORDERS: Commit(2)})

            assert [group.group for group in await groups(client)] == [name]

    run(main())


def test_who_subscribes_is_a_member_until_it_goes() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            first, second = await filled(listener), listener.connect()
            await subscribe(first, "latest")
            await subscribe(second, "latest")
            await subscribe(second, "earliest")

            assert (await describe(first, "orders")).members == 2
            second.close()
            assert await groups(first) == (("orders", "g", 1, ()),)

    run(main())


def test_members_that_came_through_kafka_are_counted() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)
            await commit(client, 3)
            await listener.node.groups.join(
                SESSION,
                "g",
                protocol_type="consumer",
                protocols=[Protocol("range", b"")],
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                needs_known_id=False,
            )

            assert (await describe(client, "orders")).members == 1
            with pytest.raises(Refused):
                await commit(client, 4)

    run(main())


def test_a_group_is_deleted_in_a_topic_or_as_a_whole() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)
            await client.create("payments")
            await commit(client, 3)
            await commit(client, 1, topic="payments")

            async def delete(topic: str) -> None:
                request = bodies.GroupOfTopic(topic, "g")
                await client.ask(Opcode.DELETE_GROUP, request, bodies.Done)

            await delete("orders")
            assert await groups(client) == (("payments", "g", 0, ((0, 1),)),)
            with pytest.raises(Refused, match="consumer group not found: orders:g"):
                await delete("orders")
            await delete("")
            assert await groups(client) == ()
            with pytest.raises(Refused, match="consumer group not found: g"):
                await delete("")

    run(main())


@pytest.mark.parametrize("topic", ["orders", ""])
def test_a_deleted_group_is_gone_also_if_somebody_attends_it(topic: str) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client, other = await filled(listener), listener.connect()
            for asking in (client, other):
                await subscribe(asking, "latest")
            await commit(client, 3)

            await client.ask(Opcode.DELETE_GROUP, bodies.GroupOfTopic(topic, "g"), bodies.Done)

            assert await groups(client) == ()
            await subscribe(client, "latest")
            assert await groups(client) == (("orders", "g", 1, ()),)
            other.close()
            assert await groups(client) == (("orders", "g", 1, ()),)
            client.close()
            assert await groups(listener.connect()) == ()

    run(main())


def test_a_time_is_found() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await filled(listener)

            async def seek(timestamp_ms: int) -> int:
                request = bodies.SeekToTimestamp("orders", 0, timestamp_ms)
                return (await client.ask(Opcode.SEEK_TO_TIMESTAMP, request, bodies.Place)).offset

            assert await seek(0) == 0
            assert await seek(NOW_MS + 10**9) == 5

    run(main())
