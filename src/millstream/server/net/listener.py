"""Binds ports, and accepts connections on them.

A port is bound before anything else of a node is touched, so that a node that cannot listen leaves
nothing behind. Owns the server sockets and the tasks of the connections. The gateway factory
decides which protocol a connection speaks.
"""

import asyncio
import errno

from millstream.errors import StartupError
from millstream.server.net.clients import Clients
from millstream.server.net.connection import Address, Connection, GatewayFactory
from millstream.server.system.descriptors import Socket, bind

BACKLOG = 1024


class Port:
    """Made by `take_port`. No client can connect before a listener serves it."""

    def __init__(self, name: str, address: Address, sockets: list[Socket]) -> None:
        self.name = name
        self.address = address
        self.sockets = sockets  # One for each address of the host.

    def close(self) -> None:
        """Release the port."""
        for bound in self.sockets:
            bound.close()


def take_port(name: str, address: Address, *, flag: str = "") -> Port:
    """Take a port, any free one for port 0; `StartupError` if another program has it.

    `flag` is the one of `millstream serve` that chooses another port.
    """
    try:
        sockets = bind(*address)
    except OSError as problem:
        raise _refused(name, address, problem, flag) from problem
    return Port(name, Address(*sockets[0].getsockname()[:2]), sockets)


class Listener:
    def __init__(self, port: Port, make_gateway: GatewayFactory, clients: Clients) -> None:
        self.name = port.name
        self.address = port.address
        self._port = port
        self._make_gateway = make_gateway
        self._clients = clients
        self._connections: set[Connection] = set()
        self._group: asyncio.TaskGroup | None = None
        self._servers: list[asyncio.Server] = []
        self._is_stopping = False
        self._is_empty = asyncio.Event()  # Set when the last has gone, once it is stopping.

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def run(self, opened: asyncio.Event) -> None:
        """Serve until cancelled; `opened` is set once clients can connect."""
        try:
            async with asyncio.TaskGroup() as self._group:
                await self._open()
                opened.set()
                await asyncio.get_running_loop().create_future()
        finally:
            self.close()

    async def stop(self) -> None:
        """Accept no more clients, and wait until all requests in progress are answered."""
        self._is_stopping = True
        self.close()
        for connection in self._connections:
            connection.stop()
        if self._connections:
            await self._is_empty.wait()

    def close(self) -> None:
        """Accept no more clients."""
        for server in self._servers:
            server.close()
        self._port.close()

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        sockets, self._port.sockets = self._port.sockets, []  # Their servers close them.
        for bound in sockets:
            try:
                server = await loop.create_server(
                    self._accept, sock=bound, backlog=BACKLOG, start_serving=False
                )
                self._servers.append(server)
                await server.start_serving()
            except OSError as problem:
                raise _refused(self.name, self.address, problem) from problem

    def _accept(self) -> asyncio.Protocol:
        if self._is_stopping:
            return _Refusal()  # It was in the queue when the port was closed.
        if not self._clients.enter():
            return _Refusal()
        assert self._group is not None
        connection = Connection(self._make_gateway, self._clients)
        self._connections.add(connection)
        task = self._group.create_task(connection.run())
        task.add_done_callback(lambda _: self._forget(connection))
        return connection

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._clients.leave()
        connection.drop()  # A task that is cancelled before it begins tidies up nothing.
        if self._is_stopping and not self._connections:
            self._is_empty.set()


class _Refusal(asyncio.Protocol):
    """Closes at once: the client sees an end instead of a wait."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _refused(name: str, address: Address, problem: OSError, flag: str = "") -> StartupError:
    reason = problem.strerror or str(problem)
    if problem.errno == errno.EADDRINUSE:
        reason = "another program has this port; stop that one, or choose another port"
        if flag:
            reason += f" with {flag}"
    return StartupError(f"cannot listen on {address.host}:{address.port} for {name}: {reason}")
