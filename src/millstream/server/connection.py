"""One client connection: bytes in, a gateway, bytes out, in order and within bounds.

Owns the socket's side of a conversation. The gateway turns bytes into requests and requests into
replies, and never sees a socket. Requests begin in the order they arrived; replies leave in the
same order. A client that asks faster than it is answered, or reads slower than it is written to, is
not read from until it has caught up; one that does nothing for long, or holds most of the memory
when there is no more, is dropped. So nothing here grows with what a client does.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence, Sized
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from millstream.config import Limits
from millstream.errors import ProtocolError
from millstream.model import Buffer
from millstream.server.request_memory import RequestMemory

_log = logging.getLogger(__name__)

BUFFERS = (bytes, bytearray, memoryview)
PIECE_BYTES_MAX = 2**20


class Range(Protocol):
    """Bytes that lie in a file and are read when it is their turn to be sent."""

    def read(self) -> bytes: ...

    def pieces(self, bytes_max: int, /) -> Iterable["Range"]: ...


Reply: TypeAlias = Sequence[Buffer | Range]


class Address(NamedTuple):
    host: str
    port: int


class Pending(Protocol):
    """A reply on its way. Every coroutine is one."""

    # What a coroutine yields to its loop is between the two of them.
    def __await__(self) -> Generator[Any, Any, Reply | None]: ...

    def close(self) -> None:
        """Nobody will await it any more."""


class Gateway(Protocol):
    """One client's conversation, without a socket."""

    @property
    def unfinished_bytes(self) -> int:
        """How much has been received and not been returned as part of a request."""

    def receive(self, data: bytes) -> Iterable[Sized]:
        """Return the whole requests that `data` completes; raise `ProtocolError` on nonsense.

        The length of a request is that of its bytes.
        """

    def begin(self, request: Sized, /) -> Pending:
        """Do now what must keep its order; awaiting does the rest. None means no reply.

        `ProtocolError`, now or later, closes the connection after the replies before it.
        """

    def close(self) -> None:
        """The client is gone."""


class Greeter(Protocol):
    """Makes the gateway for a new client."""

    def __call__(self, *, dialled: Address, peer: str) -> Gateway: ...


class Connection(asyncio.Protocol):
    """`run` it until it ends; the transport calls the rest."""

    def __init__(self, greet: Greeter, limits: Limits, memory: RequestMemory) -> None:
        self._greet = greet
        self._limits = limits
        self._memory = memory
        self._gateway: Gateway | None = None
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[object] | None = None
        self._requests: Iterator[Sized] = iter(())  # Arrived, but not begun: there is no room.
        self._pending: deque[tuple[Pending, int]] = deque()  # The first one is being answered.
        self._pending_bytes = 0  # Of their requests.
        self._wake = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_reading = True
        self._is_ending = False  # Nothing more is read; what is pending is still answered.
        self._moved_at = 0.0  # When bytes last came or went, by the loop's clock.
        self._idle_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Answer requests in their order until the client goes or breaks the protocol."""
        self._task = asyncio.current_task()
        try:
            await self._converse()
            if self._transport is not None:
                self._transport.close()
                # Until the last bytes are sent this still counts as open; then we are cancelled.
                await asyncio.get_running_loop().create_future()
        finally:
            self._end()

    def stop(self) -> None:
        """End after what is pending."""
        self._is_ending = True
        self._wake.set()

    def drop(self) -> None:
        """End now, whatever is pending."""
        if self._transport is not None:
            self._transport.abort()

    # -- what the transport tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do all that asyncio's do, but are not of its class.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes_max)
        host, port = transport.get_extra_info("sockname")[:2]
        peer = transport.get_extra_info("peername")
        self._gateway = self._greet(dialled=Address(host, port), peer=str(peer[0]) if peer else "")
        self._note_movement()
        self._drop_if_idle()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        assert self._gateway is not None
        self._note_movement()
        self._requests = iter(self._gateway.receive(data))
        self._begin()
        self._wake.set()

    def eof_received(self) -> bool:
        self.stop()
        return True  # Keep the way back open for the replies that are pending.

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.stop()
        if self._task is not None:
            self._task.cancel()  # Nobody is left to be answered.

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._note_movement()
        self._may_write.set()

    # -- parts -------------------------------------------------------------------------------------

    async def _converse(self) -> None:
        try:
            while self._pending or not self._is_ending:
                if not self._pending:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                pending, size = self._pending[0]
                await self._answer(pending)
                self._pending.popleft()
                self._pending_bytes -= size
                self._begin()
        except ProtocolError as problem:
            _log.info("closed a connection problem=%s", problem)
        except Exception:
            # A bug of ours, met by one client: the others must not pay for it.
            _log.exception("closed a connection after an unexpected error")

    def _begin(self) -> None:
        """Begin what has arrived, as far as there is room; read on once all of it has begun."""
        assert self._gateway is not None
        room = self._limits.pipeline_requests_max
        try:
            while len(self._pending) < room and not self._is_ending:
                request = next(self._requests, None)
                if request is None:
                    break
                self._pending.append((self._gateway.begin(request), len(request)))
                self._pending_bytes += len(request)
        except ProtocolError as problem:
            _log.info("client broke the protocol problem=%s", problem)
            self._is_ending = True
        except Exception:
            _log.exception("ended a connection after an unexpected error")
            self._is_ending = True
        if len(self._pending) >= room:
            self._set_reading(False)
        elif 2 * len(self._pending) <= room:
            self._set_reading(True)
        self._memory.hold(self, self._gateway.unfinished_bytes + self._pending_bytes)

    async def _answer(self, pending: Pending) -> None:
        buffers: list[Buffer] = []
        for part in await pending or ():
            if isinstance(part, BUFFERS):
                buffers.append(part)
                continue
            # A piece at a time: the next is read when the client has taken enough of this one.
            for piece in part.pieces(PIECE_BYTES_MAX):
                buffers.append(piece.read())
                await self._write(buffers)
                buffers = []
        if buffers:
            await self._write(buffers)

    async def _write(self, buffers: Sequence[Buffer]) -> None:
        if self._transport is not None:
            self._transport.writelines(buffers)
            self._note_movement()
            await self._may_write.wait()

    def _set_reading(self, is_reading: bool) -> None:
        if self._transport is None or self._is_ending or self._is_reading is is_reading:
            return
        self._is_reading = is_reading
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _note_movement(self) -> None:
        self._moved_at = asyncio.get_running_loop().time()

    def _drop_if_idle(self) -> None:
        """Also finds peers that vanished without a word, and those who take nothing we send."""
        loop = asyncio.get_running_loop()
        drop_at = self._moved_at + self._limits.connection_idle_ms_max / 1000
        if loop.time() >= drop_at:
            _log.info("dropped a connection on which nothing moved")
            self.drop()
        else:
            self._idle_timer = loop.call_at(drop_at, self._drop_if_idle)

    def _end(self) -> None:
        self._is_ending = True
        for pending, _ in self._pending:
            pending.close()
        self._pending.clear()
        self._requests = iter(())
        self._memory.release(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._gateway is not None:
            self._gateway.close()
        self._gateway = None  # With all that it has buffered, at once and not when cycles are.
        self.drop()
