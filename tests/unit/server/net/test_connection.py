"""A connection over a real socket: order, bounds, and how it ends, whatever either side does."""

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine

import pytest

from tests.support.line_server import LOOPS, Block, LineClient, line_server, run_on, until

Run = Callable[[Coroutine[None, None, None]], None]
BIG = 2**23


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    def and_collect(main: Coroutine[None, None, None]) -> None:
        run_on(request.param, main)
        gc.collect()  # A coroutine that was never awaited warns now.

    return and_collect


async def _ask_elsewhere(client: LineClient) -> None:
    client.send(b"echo still here")
    assert await client.line() == b"still here"


# -- order -----------------------------------------------------------------------------------------


def test_replies_leave_in_the_order_of_requests_whichever_is_done_first(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"wait slow", b"wait fast", b"echo at once")
            server.happen(b"fast")
            await until(lambda: bool(server.gateways and len(server.gateways[0].begun) == 3))
            server.happen(b"slow")

            assert [await client.line() for _ in range(3)] == [b"slow", b"fast", b"at once"]

    run(main())


def test_the_ordered_part_of_a_request_is_done_at_arrival(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"wait first", b"echo second", b"echo third")
            await until(lambda: bool(server.gateways and server.gateways[0].awaited))

            assert len(server.gateways[0].begun) == 3
            assert server.gateways[0].awaited == [b"first"]

    run(main())


def test_a_request_may_want_no_reply(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"quiet", b"echo a", b"quiet", b"echo b")

            assert [await client.line(), await client.line()] == [b"a", b"b"]

    run(main())


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_one_chunk", [True, False])
def test_no_more_requests_are_begun_than_the_pipeline_holds(run: Run, is_one_chunk: bool) -> None:
    async def main() -> None:
        async with line_server(pipeline_requests_max=4) as server:
            client = await server.connect()
            lines = [b"wait %d" % n for n in range(100)]
            if is_one_chunk:
                client.send(*lines)
            for line in [] if is_one_chunk else lines:
                client.send(line)
                await client.writer.drain()
                await asyncio.sleep(0)
            await until(lambda: bool(server.gateways and len(server.gateways[0].begun) >= 4))
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(server.gateways[0].begun) == 4

            for n in range(100):
                server.happen(b"%d" % n)

            assert [await client.line() for _ in range(100)] == [b"%d" % n for n in range(100)]

    run(main())


def test_writes_to_a_slow_reader_are_bounded_and_hold_up_no_other_client(run: Run) -> None:
    async def main() -> None:
        async with line_server(write_buffer_bytes_max=2**16) as server:
            server.blocks = blocks = [Block(BIG) for _ in range(8)]
            slow, other = await server.connect(), await server.connect()
            slow.pause_reading()
            slow.send(b"send", b"echo behind it")
            await until(lambda: blocks[0].bytes_read > 0)

            for _ in range(50):
                await _ask_elsewhere(other)

            # What fits into the socket is on its way, the rest still lies in its file.
            assert blocks[-1].bytes_read == 0
            slow.resume_reading()
            assert len(await slow.reader.readexactly(8 * BIG)) == 8 * BIG
            assert await slow.line() == b"behind it"

    run(main())


def test_a_connection_on_which_nothing_moves_is_dropped(run: Run) -> None:
    async def main() -> None:
        async with line_server(connection_idle_ms_max=50) as server:
            server.blocks = [Block(BIG)]
            idle, slow, waiting = [await server.connect() for _ in range(3)]
            slow.pause_reading()
            slow.send(b"send")
            waiting.send(b"wait for ever")

            assert await idle.is_ended()
            assert await waiting.is_ended()
            await until(lambda: server.listener.connection_count == 0)
            assert all(gateway.is_closed for gateway in server.gateways)

    run(main())


def test_a_slow_reader_who_says_goodbye_still_counts_until_the_bytes_are_gone(run: Run) -> None:
    async def main() -> None:
        async with line_server(connection_idle_ms_max=300) as server:
            server.blocks = blocks = [Block(BIG)]
            slow = await server.connect()
            slow.pause_reading()
            slow.send(b"send")
            slow.writer.write_eof()
            await until(lambda: blocks[0].bytes_read > 0)

            assert server.listener.connection_count == 1
            await until(lambda: server.listener.connection_count == 0)

    run(main())


def test_when_all_requests_fill_the_memory_the_one_who_holds_most_is_dropped(run: Run) -> None:
    async def main() -> None:
        async with line_server(request_bytes_max=100_000) as server:
            large, small, third = [await server.connect() for _ in range(3)]
            small.writer.write(b"echo " + b"s" * 20_000)
            await until(lambda: any(g.unfinished_bytes > 20_000 for g in server.gateways))
            large.send(b"wait " + b"l" * 30_000, b"wait " + b"m" * 40_000)
            await until(lambda: sum(len(g.begun) for g in server.gateways) == 2)

            third.writer.write(b"echo " + b"t" * 20_000)

            assert await large.is_ended()
            small.send(b"")
            third.send(b"")
            assert await small.line() == b"s" * 20_000
            assert await third.line() == b"t" * 20_000

    run(main())


def test_answered_requests_hold_no_memory(run: Run) -> None:
    async def main() -> None:
        async with line_server(request_bytes_max=100_000) as server:
            client = await server.connect()

            for _ in range(50):
                client.send(b"echo " + b"a" * 20_000)
                assert await client.line() == b"a" * 20_000

    run(main())


# -- waiting as told -------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [b"mute", b"late_mute"])
@pytest.mark.parametrize("is_one_chunk", [True, False])
def test_a_client_that_is_made_to_wait_is_served_after_that_and_others_meanwhile(
    run: Run, word: bytes, is_one_chunk: bool
) -> None:
    async def main() -> None:
        async with line_server(pipeline_requests_max=1) as server:
            client, other = await server.connect(), await server.connect()
            now = asyncio.get_running_loop().time
            client.send(b"echo before", word + b" 0.3", *[b"echo after"] * is_one_chunk)
            assert await client.line() == b"before"
            if word == b"late_mute":
                assert await client.line() == b"0.3"
            await until(lambda: any(gateway.pace.resume_at > 0 for gateway in server.gateways))
            (muted,) = [gateway for gateway in server.gateways if gateway.pace.resume_at > 0]
            if not is_one_chunk:
                client.send(b"echo after")

            for _ in range(20):
                await _ask_elsewhere(other)
            assert now() >= muted.pace.resume_at or b"echo after" not in muted.begun
            assert await client.line() == b"after"

            # Timers are as exact as the loop's clock, which may count in milliseconds.
            assert now() >= muted.pace.resume_at - 0.002

    run(main())


def test_requests_before_the_wait_are_answered_during_it(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"wait first", b"wait second", b"mute 60", b"echo never")
            await until(lambda: bool(server.gateways and len(server.gateways[0].begun) == 3))

            server.happen(b"second")
            server.happen(b"first")

            assert [await client.line(), await client.line()] == [b"first", b"second"]
            assert len(server.gateways[0].begun) == 3

    run(main())


def test_a_wait_may_grow_while_it_lasts(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"mute 0.05", b"echo after")
            await until(lambda: bool(server.gateways and server.gateways[0].begun))
            pace = server.gateways[0].pace

            pace.resume_at += 0.2
            assert await client.line() == b"after"

            assert asyncio.get_running_loop().time() >= pace.resume_at - 0.002

    run(main())


def test_a_client_that_does_not_wait_fills_no_memory_and_loses_nothing(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"mute 60")
            await until(lambda: bool(server.gateways and server.gateways[0].begun))
            gateway = server.gateways[0]

            client.send(*[b"quiet " + b"x" * 2**16] * 512, b"echo all of it")
            for _ in range(200):
                await asyncio.sleep(0)
            assert gateway.unfinished_bytes <= 2**20
            assert len(gateway.begun) == 1

            for connection in server.listener._connections:
                connection._resume(gateway.pace.resume_at)
            assert await client.line() == b"all of it"
            assert len(gateway.begun) == 514

    run(main())


def test_who_waits_as_told_is_not_idle(run: Run) -> None:
    async def main() -> None:
        async with line_server(connection_idle_ms_max=50) as server:
            client = await server.connect()
            client.send(b"mute 0.3", b"echo patient")

            assert await client.line() == b"patient"

    run(main())


def test_a_closing_listener_does_not_wait_for_open_replies(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"mute 60", b"echo never")
            await until(lambda: bool(server.gateways and server.gateways[0].begun))

            await server.listener.stop()

            assert await client.is_ended()
            assert server.gateways[0].is_closed

    run(main())


# -- ends ------------------------------------------------------------------------------------------


def test_a_client_that_has_said_all_still_gets_its_replies(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"wait a", b"echo b")
            client.writer.write_eof()
            await until(lambda: bool(server.gateways and len(server.gateways[0].begun) == 2))

            server.happen(b"a")

            assert await client.remainder() == b"a\nb\n"

    run(main())


@pytest.mark.parametrize("wrong", [b"nonsense", b"late_nonsense", b"cut nonsense"])
def test_nonsense_is_the_end_after_the_replies_before_it(run: Run, wrong: bytes) -> None:
    async def main() -> None:
        async with line_server() as server:
            client, other = await server.connect(), await server.connect()
            client.send(b"wait a", b"echo b", wrong, b"echo never")
            await until(lambda: any(len(g.begun) >= 2 for g in server.gateways))
            server.happen(b"a")

            assert await client.remainder() == b"a\nb\n"
            await _ask_elsewhere(other)

    run(main())


@pytest.mark.parametrize("wrong", [b"bug", b"late_bug"])
def test_a_bug_ends_one_connection_and_is_logged(
    run: Run, wrong: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with line_server() as server:
            client, other = await server.connect(), await server.connect()
            client.send(b"echo before", wrong, b"echo never")

            assert await client.remainder() == b"before\n"
            await _ask_elsewhere(other)

    with caplog.at_level(logging.ERROR, "millstream"):
        run(main())
    assert "a bug" in caplog.text


def test_a_client_that_vanishes_leaves_nothing_waiting(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            client = await server.connect()
            client.send(b"wait for ever", b"wait too", b"echo a")
            await until(lambda: bool(server.gateways and server.gateways[0].awaited))

            client.reset()

            await until(lambda: server.listener.connection_count == 0)
            assert server.gateways[0].is_closed
            assert server.gateways[0].awaited == [b"for ever"]

    run(main())


def test_a_reset_is_the_end_even_with_bytes_on_the_way(run: Run) -> None:
    async def main() -> None:
        async with line_server(write_buffer_bytes_max=2**16) as server:
            server.blocks = blocks = [Block(BIG), Block(BIG)]
            client, other = await server.connect(), await server.connect()
            client.pause_reading()
            client.send(b"send", b"send")
            await until(lambda: blocks[0].bytes_read > 0)

            client.reset()

            await until(lambda: server.listener.connection_count == 1)
            assert blocks[1].bytes_read == 0
            await _ask_elsewhere(other)

    run(main())
