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


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def has_tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def _first(server: LineServer) -> None:
    """Wait for the first client, until the last bytes of its handshake have left."""
    await until(lambda: bool(server.gateways) and server.gateways[0].push_channel.has_room)


def test_a_push_reaches_a_client_that_asked_nothing(run: Run, has_tls: bool) -> None:
    async def main() -> None:
        async with line_server(has_tls=has_tls) as server:
            client = await server.connect()
            await _first(server)

            assert server.gateways[0].push_channel.send([b"news ", b"for you\n"])
            assert await client.line() == b"news for you"

    run(main())


def test_there_is_room_after_any_number_of_requests_without_a_reply(
    run: Run, has_tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with line_server(has_tls=has_tls) as server:
            client = await server.connect()
            await _first(server)
            gateway = server.gateways[0]
            for count in range(1, 5):
                client.send(b"quiet")
                await until(lambda count=count: len(gateway.awaited) == count)  # type: ignore[misc]
                assert gateway.push_channel.has_room, f"no room after {count} requests"

            assert gateway.push_channel.send([b"news\n"])
            assert await client.line() == b"news"

    run(main())
    assert not caplog.records, "an error in a callback of the transport"


def test_a_push_while_a_reply_is_awaited_goes_before_it(run: Run, has_tls: bool) -> None:
    async def main() -> None:
        async with line_server(has_tls=has_tls) as server:
            client = await server.connect()
            client.send(b"wait later")
            await until(lambda: bool(server.gateways and server.gateways[0].awaited))
            assert server.gateways[0].push_channel.send([b"news\n"])
            server.happen(b"later")

            assert [await client.line(), await client.line()] == [b"news", b"later"]

    run(main())


def test_a_push_is_refused_while_the_client_does_not_read_and_room_is_announced(
    run: Run, has_tls: bool
) -> None:
    async def main() -> None:
        async with line_server(has_tls=has_tls) as server:
            client = await server.connect()
            await _first(server)
            push_channel = server.gateways[0].push_channel
            has_room = asyncio.Event()
            push_channel.on_room = has_room.set
            pushes = 0
            while push_channel.send([b"x" * BIG + b"\n"]):
                pushes += 1
                await asyncio.sleep(0)  # It leaves in this turn of the loop.
            # Below TLS a transport takes one push whole before it reports that it waits.
            assert pushes == (2 if has_tls else 1)

            await client.reader.readexactly(pushes * (BIG + 1))
            await has_room.wait()
            assert push_channel.send([b"again\n"])
            assert await client.line() == b"again"

    run(main())


def test_a_client_that_waits_for_news_is_not_dropped_for_its_silence(
    run: Run, has_tls: bool
) -> None:
    async def main() -> None:
        # Long enough for two handshakes on a busy machine, before the first client says it waits.
        async with line_server(has_tls=has_tls, connection_idle_ms_max=500) as server:
            waiting, silent = await server.connect(), await server.connect()
            await until(lambda: len(server.gateways) == 2)
            await _first(server)
            server.gateways[0].push_channel.is_awaited = True

            assert await silent.is_ended()
            await asyncio.sleep(0.1)
            assert server.gateways[0].push_channel.send([b"still here\n"])
            assert await waiting.line() == b"still here"

    run(main())


def test_after_the_end_nothing_is_taken(run: Run, has_tls: bool) -> None:
    async def main() -> None:
        async with line_server(has_tls=has_tls) as server:
            client = await server.connect()
            await _first(server)
            gateway = server.gateways[0]
            client.reset()
            await until(lambda: gateway.is_closed)

            assert not gateway.push_channel.send([b"nobody\n"])

    run(main())
