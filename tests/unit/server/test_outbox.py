"""Pushing to a client over a real socket: between replies, whole, and only while it takes it."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from tests.support.doors import LOOPS, LineDoor, line_door, run_on, until

Run = Callable[[Coroutine[None, None, None]], None]
BIG = 2**23


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    return lambda main: run_on(request.param, main)


async def _first(door: LineDoor) -> None:
    await until(lambda: bool(door.gateways))


def test_a_push_reaches_a_client_that_asked_nothing(run: Run) -> None:
    async def main() -> None:
        async with line_door() as door:
            client = await door.connect()
            await _first(door)

            assert door.gateways[0].outbox.send([b"news ", b"for you\n"])
            assert await client.line() == b"news for you"

    run(main())


def test_a_push_while_a_reply_is_awaited_goes_before_it(run: Run) -> None:
    async def main() -> None:
        async with line_door() as door:
            client = await door.connect()
            client.send(b"wait later")
            await until(lambda: bool(door.gateways and door.gateways[0].awaited))
            assert door.gateways[0].outbox.send([b"news\n"])
            door.happen(b"later")

            assert [await client.line(), await client.line()] == [b"news", b"later"]

    run(main())


def test_a_push_is_refused_while_the_client_does_not_read_and_room_is_announced(run: Run) -> None:
    async def main() -> None:
        async with line_door() as door:
            client = await door.connect()
            await _first(door)
            outbox = door.gateways[0].outbox
            has_room = asyncio.Event()
            outbox.on_room = has_room.set
            assert outbox.send([b"x" * BIG + b"\n"])
            await until(lambda: not outbox.has_room)

            assert not outbox.send([b"never\n"])
            await client.reader.readexactly(BIG + 1)
            await has_room.wait()
            assert outbox.send([b"again\n"])
            assert await client.line() == b"again"

    run(main())


def test_a_client_that_waits_for_news_is_not_dropped_for_its_silence(run: Run) -> None:
    async def main() -> None:
        async with line_door(connection_idle_ms_max=20) as door:
            waiting, silent = await door.connect(), await door.connect()
            await until(lambda: len(door.gateways) == 2)
            door.gateways[0].outbox.is_awaited = True

            assert await silent.is_ended()
            await asyncio.sleep(0.1)
            assert door.gateways[0].outbox.send([b"still here\n"])
            assert await waiting.line() == b"still here"

    run(main())


def test_after_the_end_nothing_is_taken(run: Run) -> None:
    async def main() -> None:
        async with line_door() as door:
            client = await door.connect()
            await _first(door)
            gateway = door.gateways[0]
            client.reset()
            await until(lambda: gateway.is_closed)

            assert not gateway.outbox.send([b"nobody\n"])

    run(main())
