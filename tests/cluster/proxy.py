"""A TCP proxy in front of a node: it stalls a direction, cuts connections, or refuses new ones.

`stalled` holds directions: "to" the node, "from" it. A stalled direction reads and passes nothing
on, as a line that loses every packet; what was stalled passes when the stall ends.
"""

import asyncio
from typing import Literal

Direction = Literal["to", "from"]
CHUNK_BYTES = 256 * 1024


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
