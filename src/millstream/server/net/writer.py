"""Writes replies and pushes to a socket, in order, no faster than the client reads.

Owns the buffers that wait to be written. Small replies are gathered and leave in one write; ranges
of files go from the page cache into the socket with what was gathered before them, or are read a
piece at a time where that cannot be (TLS, files in memory, ranges too small to be worth it).
Invariant: the transport reports whatever it could not write at once, so "drained" means that the
socket has taken everything; only then may bytes go past the transport.
"""

import asyncio
import errno
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from millstream.model import Buffer
from millstream.ports import Threads
from millstream.server.system.descriptors import can_send, is_cached, send_mapped

BUFFERS = (bytes, bytearray, memoryview)
BUFFER_TYPES = frozenset(BUFFERS)

PIECE_BYTES_MAX = 2**20  # Of a file, in memory or in one system call.
GATHERED_BYTES_MAX = 64 * 1024  # Of small replies, before they leave without waiting for others.
# Measured over loopback: a range of 64 KiB costs 17 us to read and write, and 28 to map and write;
# one of a megabyte 303 and 256, and a sendfile of it 340, because its reader finds cold pages.
MAPPED_BYTES_MIN = 256 * 1024
# Handed to TLS at once. OpenSSL's buffer grows to what it is handed and never shrinks: a connection
# that has fetched a megabyte kept 1,400 KiB with pieces of a megabyte, and keeps 470 with these.
ENCRYPTED_BYTES_MAX = 64 * 1024
TURN_BYTES_MAX = 4 * 2**20  # Encrypted before other connections have a turn: about 2 ms.
# What goes through the transport when the socket is full: the transport knows how to wait for it.
NUDGE_BYTES = 64 * 1024


class Range(Protocol):
    """Bytes that lie in a file and are read when it is their turn to be sent."""

    @property
    def descriptor(self) -> int:
        """The descriptor of the file; -1 where there is none."""

    @property
    def at(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def source(self) -> "Range":
        """The range of a file that `read` reads: the same, unless it has to be decrypted."""

    def read(self) -> bytes: ...

    def read_chunks(self) -> Sequence[Buffer]:
        """The same in as many pieces as it happens to be in."""

    def part(self, start: int, size: int, /) -> "Range":
        """Some of the same bytes, which need not be whole of anything."""


Reply: TypeAlias = Sequence[Buffer | Range]


class Writer:
    def __init__(
        self, transport: asyncio.Transport, threads: Threads, *, buffered_bytes_max: int
    ) -> None:
        self.moved_at = 0.0  # When bytes last left, by the loop's clock.
        self.has_room = True  # Whether a reply may be put in without waiting for the client.
        self._transport = transport
        self._threads = threads
        self._buffered_bytes_max = buffered_bytes_max
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Buffer] = []
        self._gathered_bytes = 0
        self._is_leaving_soon = False
        self._is_drained = asyncio.Event()
        self._is_drained.set()
        self._turn_bytes = 0  # Encrypted in this turn of the loop, or soon before.
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        socket = transport.get_extra_info("socket")
        self._descriptor: int = -1 if self._is_tls or socket is None else socket.fileno()

    def start(self) -> None:
        """Have the transport report what the socket did not take, from now on.

        A transport of TLS may call `pause` now, for the rest of its handshake.
        """
        # A transport of TCP pauses above `high`, one of TLS from `high` on: with 0 the latter would
        # pause while it holds nothing, and resume when something is written.
        self._transport.set_write_buffer_limits(high=1 if self._is_tls else 0, low=0)

    def put(self, buffers: Iterable[Buffer]) -> None:
        """Take buffers; they leave with the next `flush`, or at once if they are many."""
        for buffer in buffers:
            self._gathered.append(buffer)
            self._gathered_bytes += len(buffer)
        if self._gathered_bytes >= GATHERED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        self._is_leaving_soon = False
        if not self._gathered or self._transport.is_closing():
            return
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        self.moved_at = self._loop.time()
        self._transport.writelines(gathered)

    def _flush_if_many(self) -> None:
        if self._gathered_bytes >= GATHERED_BYTES_MAX:
            self.flush()

    def flush_soon(self) -> None:
        """Flush when all that can be answered now has been: one write serves them all."""
        if self._gathered and not self._is_leaving_soon:
            self._is_leaving_soon = True
            self._loop.call_soon(self.flush)

    async def send(self, reply: Reply) -> None:
        """Take a reply of any size; return when there is room for the next one.

        The end of it leaves with the next `flush`, if it is small.
        """
        for part in reply:
            if isinstance(part, BUFFERS):
                self._gathered.append(part)
                self._gathered_bytes += len(part)
            elif part.size < MAPPED_BYTES_MIN or not self._may_bypass(part):
                await self._copy(part)
            else:
                await self._bypass(part)
        self._flush_if_many()
        if self._transport.get_write_buffer_size() > self._buffered_bytes_max:
            await self._is_drained.wait()

    def pause(self) -> None:
        """The transport holds bytes that the socket did not take."""
        self.has_room = False
        self._is_drained.clear()

    def resume(self) -> None:
        self.moved_at = self._loop.time()
        self.has_room = True
        self._is_drained.set()

    # -- ranges ------------------------------------------------------------------------------------

    def _may_bypass(self, part: Range) -> bool:
        return self._descriptor >= 0 and can_send(part.descriptor)

    async def _copy(self, part: Range) -> None:
        # A piece at a time: the next is read when the client has taken enough of this one.
        for piece in (part,) if part.size <= PIECE_BYTES_MAX else _pieces(part):
            # The piece before leaves with the few bytes behind it, before the next one is read: no
            # more than one is held here.
            self._flush_if_many()
            if self._transport.get_write_buffer_size() > self._buffered_bytes_max:
                await self._is_drained.wait()
            for data in await self._read(piece):
                if self._is_tls:
                    await self._encrypt(data)
                else:
                    self._gathered.append(data)
                    self._gathered_bytes += len(data)

    async def _encrypt(self, data: Buffer) -> None:
        """Hand over a slice at a time, each when the transport has sent the one before."""
        for slice_of_data in (data,) if len(data) <= ENCRYPTED_BYTES_MAX else _slices(data):
            self._gathered.append(slice_of_data)
            self._gathered_bytes += len(slice_of_data)
            if self._gathered_bytes < GATHERED_BYTES_MAX:
                continue
            self._turn_bytes += self._gathered_bytes
            self.flush()
            if not self.has_room:
                await self._is_drained.wait()
            elif self._turn_bytes > TURN_BYTES_MAX:
                await asyncio.sleep(0)
            else:
                continue
            self._turn_bytes = 0

    async def _bypass(self, part: Range) -> None:
        for piece in _pieces(part):
            await self._is_drained.wait()
            if is_cached(piece.descriptor, piece.at, piece.size):
                await self._send_mapped(piece)
            else:
                chunks = await self._read(piece)
                self.flush()
                self._write(b"".join(chunks))

    async def _send_mapped(self, piece: Range) -> None:
        """Send what is gathered, and the piece behind it."""
        head = b"".join(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        sent = -len(head)  # Of the piece.
        while sent < piece.size:
            if self._transport.is_closing():
                raise ConnectionResetError  # Its descriptor may soon be another connection's.
            begun = max(sent, 0)
            try:
                sent += send_mapped(
                    self._descriptor,
                    head[sent:] if sent < 0 else b"",
                    piece.descriptor,
                    piece.at + begun,
                    piece.size - begun,
                )
            except OSError as problem:
                if problem.errno != errno.EFAULT:
                    raise
                # The file's, not the socket's. Reading tells, and takes note of it.
                data = b"".join(await self._read(piece.part(begun, piece.size - begun)))
                self._write(head[sent:] + data if sent < 0 else data)
                break
            if sent == piece.size:
                break
            if sent < 0:
                self._write(head[sent:])
                sent = 0
            else:
                nudge = piece.part(sent, min(NUDGE_BYTES, piece.size - sent)).read()
                self._write(nudge)
                sent += len(nudge)
            await self._is_drained.wait()
        self.moved_at = self._loop.time()

    def _write(self, data: bytes) -> None:
        self.moved_at = self._loop.time()
        self._transport.write(data)

    async def _read(self, piece: Range) -> Sequence[Buffer]:
        """Read on the loop what is in memory, elsewhere what the disk must be asked for."""
        source = piece.source
        if source.descriptor < 0 or is_cached(source.descriptor, source.at, source.size):
            return piece.read_chunks()
        return await self._threads.run(piece.read_chunks)


def _slices(data: Buffer) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), ENCRYPTED_BYTES_MAX):
        yield view[start : start + ENCRYPTED_BYTES_MAX]


def _pieces(part: Range) -> Iterator[Range]:
    for start in range(0, part.size, PIECE_BYTES_MAX):
        yield part.part(start, min(PIECE_BYTES_MAX, part.size - start))
