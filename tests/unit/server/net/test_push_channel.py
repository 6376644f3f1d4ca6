"""Pushing to a client over a real socket: between replies, whole, and only while it takes it."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from tests.support.line_server import LOOPS, LineServer, line_server, run_on, until

Run = Callable[[Coroutine[None, None, None]], None]
BIG = 2**23


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    return lambda main: run_on(request.param, main)


async def _first(server: LineServer) -> None:
    await until(lambda: bool(server.gateways))


def test_a_push_reaches_a_client_that_asked_nothing(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            await _first(server)

            assert server.gateways[0].push_channel.send([b"news ", b"for you\n"])
            assert await client.line() == b"news for you"

    run(main())


def test_a_push_while_a_reply_is_awaited_goes_before_it(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"wait later")
            await until(lambda: bool(server.gateways and server.gateways[0].awaited))
            assert server.gateways[0].push_channel.send([b"news\n"])
            server.happen(b"later")

            assert [await client.line(), await client.line()] == [b"news", b"later"]

    run(main())


def test_a_push_is_refused_while_the_client_does_not_read_and_room_is_announced(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            await _first(server)
            push_channel = server.gateways[0].push_channel
            has_room = asyncio.Event()
            push_channel.on_room = has_room.set
            assert push_channel.send([b"x" * BIG + b"\n"])
            await until(lambda: not push_channel.has_room)

            assert not push_channel.send([b"never\n"])
            await client.reader.readexactly(BIG + 1)
            await has_room.wait()
            assert push_channel.send([b"again\n"])
            assert await client.line() == b"again"

    run(main())


def test_a_client_that_waits_for_news_is_not_dropped_for_its_silence(run: Run) -> None:
    async def main() -> None:
        async with line_server(connection_idle_ms_max=20) as server:
            waiting, silent = await server.connect(), await server.connect()
            await until(lambda: len(server.gateways) == 2)
            server.gateways[0].push_channel.is_awaited = True

            assert await silent.is_ended()
            await asyncio.sleep(0.1)
            assert server.gateways[0].push_channel.send([b"still here\n"])
            assert await waiting.line() == b"still here"

    run(main())


def test_after_the_end_nothing_is_taken(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            await _first(server)
            gateway = server.gateways[0]
            client.reset()
            await until(lambda: gateway.is_closed)

            assert not gateway.push_channel.send([b"nobody\n"])

    run(main())
