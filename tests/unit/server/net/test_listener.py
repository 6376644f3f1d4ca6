"""A port: it opens or says why not, takes so many and no more, and closes in order."""

import asyncio
import gc
import socket
from collections.abc import Callable, Coroutine

import pytest

from millstream.errors import StartupError
from millstream.server.net.connection import Address
from millstream.server.net.listener import Listener, take_port
from tests.support.guards import plain_guard
from tests.support.line_server import LOOPS, line_server, run_on, until

Run = Callable[[Coroutine[None, None, None]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    def and_collect(main: Coroutine[None, None, None]) -> None:
        run_on(request.param, main)
        gc.collect()

    return and_collect


def test_one_connection_too_many_is_refused_until_another_has_gone(run: Run) -> None:
    async def main() -> None:
        async with line_server(connections_max=2) as server:
            first, second = await server.connect(), await server.connect()
            await until(lambda: server.listener.connection_count == 2)

            assert await (await server.connect()).is_ended()

            first.writer.close()
            await until(lambda: server.listener.connection_count == 1)
            third = await server.connect()
            for client in (second, third):
                client.send(b"echo here")
                assert await client.line() == b"here"

    run(main())


def test_connections_are_counted_over_all_listeners_of_a_node(run: Run) -> None:
    async def main() -> None:
        async with line_server(connections_max=2) as server:
            port = take_port("others", Address("127.0.0.1", 0))
            other = Listener(port, server.listener._make_gateway, server.clients, plain_guard())
            opened = asyncio.Event()
            serving = asyncio.ensure_future(other.run(opened))
            await opened.wait()
            await server.connect()
            _, writer = await asyncio.open_connection(*other.address)
            await until(lambda: other.connection_count == 1)

            assert await (await server.connect()).is_ended()
            reader_2, writer_2 = await asyncio.open_connection(*other.address)
            assert await reader_2.read() == b""

            for stream in (writer, writer_2):
                stream.transport.abort()
            await until(lambda: other.connection_count == 0)
            third = await server.connect()
            third.send(b"echo here")
            assert await third.line() == b"here"
            serving.cancel()
            await asyncio.wait({serving})

    run(main())


def test_stopping_lets_everybody_have_what_they_wait_for(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            idle, waiting = await server.connect(), await server.connect()
            waiting.send(b"wait a", b"echo b")
            await until(lambda: sum(len(g.begun) for g in server.gateways) == 2)

            stopping = asyncio.ensure_future(server.listener.stop())
            assert await idle.is_ended()
            assert not stopping.done()
            server.happen(b"a")

            assert await waiting.remainder() == b"a\nb\n"
            await stopping
            assert server.listener.connection_count == 0

    run(main())


def test_a_stopping_listener_accepts_no_connection(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"wait a")
            await until(lambda: sum(len(g.begun) for g in server.gateways) == 1)
            stopping = asyncio.ensure_future(server.listener.stop())
            await asyncio.sleep(0)

            try:
                late = await server.connect()
                assert await late.is_ended()
            except ConnectionRefusedError:
                pass

            server.happen(b"a")
            await stopping

    run(main())


def test_cancelling_ends_everybody_at_once(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"wait for ever", b"wait too")
            await until(lambda: sum(len(g.begun) for g in server.gateways) == 2)

        assert server.gateways[0].is_closed
        assert server.listener.connection_count == 0

    run(main())


def test_port_0_becomes_the_port_that_was_given(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            assert server.listener.address.port > 0

    run(main())


def test_a_port_that_is_taken_is_named(run: Run) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]

            expected = f"cannot listen on 127.0.0.1:{port} for lines: another program has this port"
            with pytest.raises(StartupError, match=f"{expected}.* with --lines-port"):
                take_port("lines", Address("127.0.0.1", port), flag="--lines-port")

    run(main())


def test_a_client_that_comes_while_the_listener_closes_is_disconnected(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            # Accepted, but cut off before its task or its transport have begun.
            connection = server.listener._accept()
        transport = _Transport()

        connection.connection_made(transport)

        assert transport.is_aborted
        assert server.gateways == []

    run(main())


class _Transport(asyncio.Transport):
    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True
