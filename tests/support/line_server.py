"""A listener on a real loopback socket with a scripted protocol of lines, on either event loop."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from millstream.config import Limits
from millstream.errors import ProtocolError
from millstream.metrics import Metrics
from millstream.model import Buffer
from millstream.server.faults import Faults
from millstream.server.net.clients import Clients
from millstream.server.net.connection import Address, NewClient, Pace
from millstream.server.net.listener import Listener, take_port
from millstream.server.net.push_channel import PushChannel
from millstream.server.net.writer import Range, Reply
from millstream.server.system.real_ports import WorkerThreads
from millstream.server.system.tls import TlsContexts
from tests.support.guards import plain_guard

T = TypeVar("T")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
SECONDS_MAX = 20
CERTIFICATE = Path(__file__).with_name("localhost.pem")  # For 127.0.0.1, with its key.


def run_on(loop: str, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a real loop of that name, and fail rather than hang."""

    async def bounded() -> T:
        async with asyncio.timeout(SECONDS_MAX):
            return await main

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until it is so."""
    while not condition():
        await asyncio.sleep(0)


class Block:
    """A range of a file that counts what was read of it."""

    descriptor = -1
    at = 0

    def __init__(self, size: int, whole: "Block | None" = None) -> None:
        self.size = size
        self.bytes_read = 0
        self._whole = whole or self

    def read(self) -> bytes:
        self._whole.bytes_read += self.size
        return b"x" * self.size

    @property
    def source(self) -> "Block":
        return self

    def read_chunks(self) -> list[bytes]:
        return [self.read()]

    def part(self, start: int, size: int) -> "Block":
        return Block(size, self._whole)


@dataclass
class LineGateway:
    """Each line is a request: `echo`, `wait`, `send`, `mute`, or a way to go wrong."""

    server: "LineServer"
    pace: Pace
    push_channel: PushChannel
    unfinished: bytes = b""
    begun: list[bytes] = field(default_factory=list)
    is_closed: bool = False
    awaited: list[bytes] = field(default_factory=list)

    @property
    def unfinished_bytes(self) -> int:
        return len(self.unfinished)

    def receive(self, data: bytes) -> Iterable[bytes]:
        self.unfinished += data
        while b"\n" in self.unfinished:
            line, _, self.unfinished = self.unfinished.partition(b"\n")
            if line == b"cut nonsense":
                raise ProtocolError("nonsense")
            yield line

    def begin(
        self, request: Sized
    ) -> Coroutine[Any, Any, Reply | None] | list[Buffer | Range] | None:
        assert isinstance(request, bytes)
        self.begun.append(request)
        word, _, argument = request.partition(b" ")
        if word == b"nonsense":
            raise ProtocolError("nonsense")
        if word == b"bug":
            raise ZeroDivisionError("a bug")
        if word == b"mute":
            self._mute(float(argument))
            return None
        if self.server.answers_at_once and word in {b"echo", b"quiet"}:
            return [argument, b"\n"] if word == b"echo" else None
        return self._reply(word, argument)

    def close(self) -> None:
        self.is_closed = True

    def _mute(self, seconds: float) -> None:
        self.pace.resume_at = asyncio.get_running_loop().time() + seconds

    async def _reply(self, word: bytes, argument: bytes) -> Reply | None:
        self.awaited.append(argument)
        match word:
            case b"wait":
                await self.server.happened(argument)
            case b"send":
                return self.server.blocks
            case b"late_nonsense":
                raise ProtocolError("nonsense")
            case b"late_bug":
                raise ZeroDivisionError("a bug")
            case b"late_mute":
                self._mute(float(argument))
            case b"quiet":
                return None
        return [argument, b"\n"]


class LineServer:
    """The listener, the gateways of those who came, and the events that requests wait for."""

    def __init__(self, limits: Limits, *, has_tls: bool = False) -> None:
        self._tls = _Certificates() if has_tls else None
        self.clients = Clients(limits, Metrics(), WorkerThreads(), Faults())
        self.gateways: list[LineGateway] = []
        self.blocks: Reply = []
        self.answers_at_once = False  # What can be answered so.
        self._clients: list[LineClient] = []
        self._events: dict[bytes, asyncio.Event] = {}

    @cached_property
    def listener(self) -> Listener:
        port = take_port("lines", Address("127.0.0.1", 0))
        guard = plain_guard(is_tls=self._tls is not None)
        return Listener(port, self._make_gateway, self.clients, guard, self._tls)

    def happen(self, name: bytes) -> None:
        self._events.setdefault(name, asyncio.Event()).set()

    def happened(self, name: bytes) -> Awaitable[object]:
        return self._events.setdefault(name, asyncio.Event()).wait()

    async def connect(self) -> "LineClient":
        host, port = self.listener.address
        trusting = self._tls and ssl.create_default_context(cafile=CERTIFICATE)
        streams = await asyncio.open_connection(host, port, limit=2**20, ssl=trusting)
        self._clients.append(LineClient(*streams))
        return self._clients[-1]

    async def close(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()
        for _ in range(10):
            await asyncio.sleep(0)

    def _make_gateway(self, client: NewClient) -> LineGateway:
        self.gateways.append(LineGateway(self, client.pace, client.push_channel))
        return self.gateways[-1]


class _Certificates(TlsContexts):
    """The certificate of tests, which no file of settings names."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(CERTIFICATE)


class LineClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *lines: bytes) -> None:
        self.writer.write(b"".join(line + b"\n" for line in lines))

    def pause_reading(self) -> None:
        """Leave what arrives in the socket. The transport reads as well; its type does not say."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def resume_reading(self) -> None:
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]

    def reset(self) -> None:
        """Go without a goodbye, as a killed process does with bytes unread."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def line(self) -> bytes:
        return (await self.reader.readline()).rstrip(b"\n")

    async def is_ended(self) -> bool:
        """Whether the server has closed, with nothing more to read."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def remainder(self) -> bytes:
        return await self.reader.read()


@asynccontextmanager
async def line_server(*, has_tls: bool = False, **limits: int) -> AsyncIterator[LineServer]:
    server = LineServer(Limits(**limits), has_tls=has_tls)
    async with asyncio.TaskGroup() as group:
        opened = asyncio.Event()
        serving = group.create_task(server.listener.run(opened))
        await opened.wait()
        try:
            yield server
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await server.close()
