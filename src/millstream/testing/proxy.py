"""A TCP proxy in front of a node, which stalls directions, and a network of them for a cluster.

Directions are "to" the node and "from" it. A stalled direction passes nothing on, as a line that
loses every packet; what was stalled passes when the stall ends.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Literal

Direction = Literal["to", "from"]
CHUNK_BYTES = 256 * 1024
CALL_S_MAX = 30.0  # For the thread of a network to do what it is asked.


class Proxy:
    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.port = 0
        self.is_refusing = False
        self._flows = {"to": asyncio.Event(), "from": asyncio.Event()}
        for flow in self._flows.values():
            flow.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def stall(self, *directions: Direction) -> None:
        for direction in directions:
            self._flows[direction].clear()

    def heal(self) -> None:
        self.is_refusing = False
        for flow in self._flows.values():
            flow.set()

    def reset(self) -> None:
        """Break every connection at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self.is_refusing:
            return
        await self._flows["to"].wait()  # A connection needs both ways.
        await self._flows["from"].wait()
        other_reader, other_writer = await asyncio.open_connection(*self.target)
        self._writers.add(other_writer)
        try:
            ways = [
                asyncio.ensure_future(self._pump(reader, other_writer, "to")),
                asyncio.ensure_future(self._pump(other_reader, writer, "from")),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            other_writer.transport.abort()
            self._writers.discard(other_writer)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._flows[direction].wait()
            writer.write(data)
            await writer.drain()


class Network:
    """The lines between the nodes of a cluster: a proxy for each two of them, in a thread.

    Of two nodes the one with the greater id dials, so the line of a pair is a proxy in front of the
    lesser one.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        pairs = [(dialler, target) for dialler in nodes for target in nodes if target < dialler]
        # The address of a node is known once it has joined.
        self._lines = {pair: Proxy(("127.0.0.1", 0)) for pair in pairs}
        for line in self._lines.values():
            self._run(line.start())

    def addresses(self, dialler: int) -> tuple[str, ...]:
        """Where a node reaches those that it dials, as `peers.addresses` takes it."""
        lines = self._lines.items()
        return tuple(f"{pair[1]}={line.address}" for pair, line in lines if pair[0] == dialler)

    def place(self, node: int, address: tuple[str, int]) -> None:
        """Have the lines to a node end at this address."""
        for (_, target), line in self._lines.items():
            if target == node:
                line.target = address

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        """Let nothing pass between two nodes, without a word; `one_way`: from `a` to `b`."""
        line = self._lines[max(a, b), min(a, b)]
        ways: tuple[Direction, ...] = ("to", "from")
        if one_way:
            ways = ("to",) if a > b else ("from",)
        self._loop.call_soon_threadsafe(line.stall, *ways)

    def heal(self) -> None:
        """End all cuts."""
        for line in self._lines.values():
            self._loop.call_soon_threadsafe(line.heal)

    def close(self) -> None:
        for line in self._lines.values():
            self._run(line.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S_MAX)
