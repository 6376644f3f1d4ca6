"""Binds ports, and accepts connections on them.

A port is bound before anything else of a node is touched, so that a node that cannot listen leaves
nothing behind. Owns the server sockets and the tasks of the connections. The gateway factory
decides which protocol a connection speaks.
"""

import asyncio
import errno
import logging

from millstream.errors import StartupError
from millstream.server.net.admission import Guard
from millstream.server.net.clients import Clients
from millstream.server.net.connection import TLS_HANDSHAKE, Address, Connection, GatewayFactory
from millstream.server.system.descriptors import Socket, bind, first_byte, send_at_once
from millstream.server.system.tls import TlsContexts

_log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPT_PAUSE_S = 0.1  # After a failure to accept, such as a lack of descriptors.
FLYMQ_FIRST_BYTE = b"\xaf"
HTTP_REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 36\r\n\r\nthis port speaks TLS: use https://\r\n"
)


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
    def __init__(
        self,
        port: Port,
        make_gateway: GatewayFactory,
        clients: Clients,
        guard: Guard,
        tls: TlsContexts | None = None,
    ) -> None:
        self._guard = guard
        self._tls = tls
        self._greetings: set[_Greeting] = set()  # TLS handshakes under way.
        self.name = port.name
        self.address = port.address
        self._port = port
        self._make_gateway = make_gateway
        self._clients = clients
        clients.open(port.name)
        self._connections: set[Connection] = set()
        self._group: asyncio.TaskGroup | None = None
        self._servers: list[asyncio.Server] = []
        self._is_stopping = False
        self._is_empty = asyncio.Event()  # Set when the last has gone, once it is stopping.

    @property
    def protocols(self) -> tuple[str, ...]:
        return self._guard.spec.protocols

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections)

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
        for greeting in list(self._greetings):
            greeting.drop()
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
        if self._tls is not None:
            assert self._group is not None
            for bound in sockets:
                try:
                    bound.listen(BACKLOG)
                except OSError as problem:
                    raise _refused(self.name, self.address, problem) from problem
                self._port.sockets.append(bound)
                self._group.create_task(self._accept_tls(bound))
            return
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
        if not self._clients.enter(self.name):
            return _Refusal()
        assert self._group is not None
        connection = Connection(self._make_gateway, self._clients, self._guard)
        self._connections.add(connection)
        task = self._group.create_task(connection.run())
        task.add_done_callback(lambda _: self._forget(connection))
        return connection

    # -- TLS ---------------------------------------------------------------------------------------

    async def _accept_tls(self, bound: Socket) -> None:
        """Accept by hand: the first byte tells plain text apart, which OpenSSL drops in silence,
        and each connection gets the certificate of the moment."""
        loop = asyncio.get_running_loop()
        assert self._group is not None
        while True:
            try:
                accepted, address = await loop.sock_accept(bound)
            except OSError as problem:
                if self._is_stopping or bound.fileno() < 0:
                    return
                _log.warning("cannot accept connections listener=%s problem=%s", self.name, problem)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if self._is_stopping or not self._clients.enter(self.name):
                accepted.close()
                continue
            greeting = _Greeting(accepted, str(address[0]))
            self._greetings.add(greeting)
            self._guard.admission.watch(greeting, self.name)
            greeting.task = self._group.create_task(self._greet(greeting))

    async def _greet(self, greeting: "_Greeting") -> None:
        """Shake hands with one client, then serve it."""
        assert self._tls is not None
        connection = Connection(self._make_gateway, self._clients, self._guard)
        try:
            first = await first_byte(greeting.socket)
            if first != TLS_HANDSHAKE[:1]:
                self._refuse_plain(greeting, first)
                return
            loop = asyncio.get_running_loop()
            limit_s = self._guard.admission.limits.authentication_ms_max / 1000
            await loop.connect_accepted_socket(
                lambda: connection,
                greeting.socket,
                ssl=self._tls.context,
                ssl_handshake_timeout=max(limit_s, 0.1),
            )
            self._guard.admission.trust(greeting)
            self._greetings.discard(greeting)
            self._connections.add(connection)
            if self._is_stopping:
                connection.stop()
            await connection.run()
        except (OSError, asyncio.CancelledError) as problem:
            # A handshake that failed, or was given up: that of this client only.
            _log.debug("a TLS handshake failed problem=%s", problem)
            if isinstance(problem, asyncio.CancelledError) and not greeting.is_dropped:
                raise
        finally:
            greeting.socket.close()
            self._guard.admission.trust(greeting)
            self._greetings.discard(greeting)
            self._forget(connection)

    def _refuse_plain(self, greeting: "_Greeting", first: bytes) -> None:
        """Answer plain text in its own words, as far as its protocol has any."""
        protocols = self._guard.spec.protocols
        spoken, answer = "plain text", b""
        if first == FLYMQ_FIRST_BYTE:
            from millstream.protocols.flymq.wire.frames import encode_error

            spoken, answer = "plain FlyMQ", bytes(encode_error("this port speaks TLS"))
        elif first.isalpha():
            spoken, answer = "plain text", b"-ERR this port speaks TLS\r\n"
            if "http" in protocols:
                spoken, answer = "plain HTTP", HTTP_REFUSAL
        elif first and "kafka" in protocols:
            spoken = "plain Kafka"
        if not first:
            return  # It went without a word.
        self._guard.note_mismatch(
            greeting.address,
            f"expects TLS; {greeting.address} spoke {spoken}: set security.protocol=SSL or "
            "SASL_SSL there",
        )
        send_at_once(greeting.socket, answer)

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._clients.leave(self.name)
        connection.drop()  # A task that is cancelled before it begins tidies up nothing.
        if self._is_stopping and not self._connections:
            self._is_empty.set()


class _Greeting:
    """A client of a TLS listener whose handshake is not over."""

    def __init__(self, socket: Socket, address: str) -> None:
        self.socket = socket
        self.address = address
        self.task: asyncio.Task[None] | None = None
        self.is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True
        if self.task is not None:
            self.task.cancel()


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
