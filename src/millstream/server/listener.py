"""An open port: accepts connections, bounds how many there are, and lets them go in order.

Owns the server socket and the tasks of its connections. What is spoken on it is the greeter's.
"""

import asyncio
import errno
import logging

from millstream.config import Limits
from millstream.errors import StartupError
from millstream.server.connection import Address, Connection, Greeter
from millstream.server.request_memory import RequestMemory

_log = logging.getLogger(__name__)

BACKLOG = 1024


class Listener:
    def __init__(self, name: str, address: Address, greet: Greeter, limits: Limits) -> None:
        self.name = name
        self.address = address  # With port 0: the one that was asked for, until it is open.
        self._greet = greet
        self._limits = limits
        self._memory = RequestMemory(limits.request_bytes_max)
        self._connections: set[Connection] = set()
        self._group: asyncio.TaskGroup | None = None
        self._server: asyncio.Server | None = None
        self._is_stopping = False
        self._is_empty = asyncio.Event()  # Set when the last has gone, once it is stopping.

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def run(self, opened: asyncio.Event) -> None:
        """Serve until cancelled; `opened` is set once clients can connect."""
        self._server = await self._open()
        try:
            async with asyncio.TaskGroup() as self._group:
                await self._server.start_serving()
                opened.set()
                await asyncio.get_running_loop().create_future()
        finally:
            self._server.close()

    async def stop(self) -> None:
        """Accept nobody more, and wait until those who are here have what they wait for."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.stop()
        if self._connections:
            await self._is_empty.wait()

    async def _open(self) -> asyncio.Server:
        try:
            server = await asyncio.get_running_loop().create_server(
                self._accept,
                *self.address,
                backlog=BACKLOG,
                reuse_address=True,
                start_serving=False,
            )
        except OSError as problem:
            why = problem.strerror or problem
            if problem.errno == errno.EADDRINUSE:
                why = "another program has this port; stop that one, or choose another port"
            raise StartupError(
                f"cannot listen on {self.address.host}:{self.address.port} for {self.name}: {why}"
            ) from problem
        self.address = Address(*server.sockets[0].getsockname()[:2])
        return server

    def _accept(self) -> asyncio.Protocol:
        if self._is_stopping:
            return _Refusal()  # It was in the queue when the port was closed.
        if len(self._connections) >= self._limits.connections_max:
            _log.warning("refused a connection: %d are open", len(self._connections))
            return _Refusal()
        assert self._group is not None
        connection = Connection(self._greet, self._limits, self._memory)
        self._connections.add(connection)
        task = self._group.create_task(connection.run())
        task.add_done_callback(lambda _: self._forget(connection))
        return connection

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        connection.drop()  # A task that is cancelled before it begins tidies up nothing.
        if self._is_stopping and not self._connections:
            self._is_empty.set()


class _Refusal(asyncio.Protocol):
    """Closes at once: the client sees an end instead of a wait."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
