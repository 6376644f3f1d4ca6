"""Who is slowed down at the FlyMQ listener: it is answered, and its next request waits."""

import asyncio

from millstream.control.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Entity
from millstream.protocols.flymq.gateway import EMPTY_FETCHES_MAX, THROTTLE_MS_MAX
from tests.support.nodes import SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.asking import Connection, FlymqListener, open_listener

EVERYBODY = Entity("ANONYMOUS", None)


async def limit(listener: FlymqListener, rate: str, bytes_per_second: float) -> None:
    await listener.node.client_quotas.alter(SESSION, EVERYBODY, {rate: bytes_per_second})


def muted_s(client: Connection) -> float:
    """How long nothing more is read from it."""
    return max(0.0, client.pace.resume_at - asyncio.get_running_loop().time())


def test_who_writes_more_than_its_quota_waits() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await limit(listener, PRODUCER_BYTE_RATE, 1_000)

            await client.produce("orders", b"x")
            assert muted_s(client) == 0
            assert (await client.produce("orders", bytes(3_000))).offset == 1
            assert 1 < muted_s(client) < 3

    run(main())


def test_who_reads_more_than_its_quota_waits_but_not_for_ever() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            for _ in range(2):
                await client.produce("orders", bytes(100_000))
            await limit(listener, CONSUMER_BYTE_RATE, 1_000)

            assert (await client.fetch("orders")).record_count == 2
            assert 0 < muted_s(client) <= THROTTLE_MS_MAX / 1000

    run(main())


def test_who_finds_nothing_again_and_again_waits_a_little_until_it_finds_something() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await client.create("orders")
            for _ in range(EMPTY_FETCHES_MAX):
                await client.fetch("orders")
            assert muted_s(client) == 0

            await client.fetch("orders")
            assert 0 < muted_s(client) < 0.1

            await client.produce("orders", b"x")
            await client.fetch("orders")
            await asyncio.sleep(0.1)
            await client.fetch("orders", 1)
            assert muted_s(client) == 0

    run(main())


def test_without_quotas_no_client_waits() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            for _ in range(5):
                await client.produce("orders", bytes(100_000))
            await client.fetch("orders")

            assert muted_s(client) == 0

    run(main())
