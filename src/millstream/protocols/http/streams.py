"""Bodies without a known length: events and lines that leave as they come, and bodies that arrive.

A stream of events never waits for its client: what the client does not read in time is held up to
`http.stream_held_bytes_max`, then events are left out and counted in an `event: skipped`. A stream
of lines waits for its client and leaves nothing out. Both end by themselves when the node stops.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from millstream.base_error import MillstreamError
from millstream.config import Http
from millstream.model import Buffer
from millstream.protocols.conversation import Pace, PushChannel
from millstream.protocols.http.problems import HttpProblem, problem_of
from millstream.protocols.http.wire.responses import LAST_CHUNK, chunk

COMMENT_EVERY_S = 15.0  # A stream's iterator yields an empty batch at least this often.
_COMMENT = b": still here\n\n"


class Event(NamedTuple):
    """One server-sent event; `cursor` is the `Last-Event-ID` to go on from."""

    name: str
    data: Any  # Encoded by msgspec.
    cursor: str = ""

    def encode(self) -> bytes:
        identity = f"id: {self.cursor}\n" if self.cursor else ""
        head = f"event: {self.name}\n{identity}data: ".encode()
        return head + msgspec.json.encode(self.data) + b"\n\n"


class OpenStreams:
    """Counts streams, in all and of each principal."""

    def __init__(self, settings: Http) -> None:
        self._settings = settings
        self._counts: Counter[str] = Counter()

    @contextmanager
    def open(self, principal: str) -> Iterator[None]:
        """Count one more while the block lasts; raise 429 if that is too many."""
        settings = self._settings
        is_full = self._counts.total() >= settings.streams_max
        if is_full or self._counts[principal] >= settings.principal_streams_max:
            name = "http.streams_max" if is_full else "http.principal_streams_max"
            raise HttpProblem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_streams",
                f"as many streams are open as {name} allows",
                retry_after_ms=5_000,
            )
        self._counts[principal] += 1
        try:
            yield
        finally:
            self._counts[principal] -= 1
            self._counts += Counter()  # Without those that have none.


Batches = AsyncIterator[Sequence[Event]]
Lines = AsyncIterator[bytes]


class StreamEnded(Exception):
    """The node stops: the stream says so and ends."""


class Outgoing:
    """The client's side of a stream, as far as it takes bytes now."""

    def __init__(self, channel: PushChannel, pace: Pace, *, held_bytes_max: int) -> None:
        self.skipped = 0  # Events left out since the last `skipped` event.
        self._channel = channel
        self._pace = pace
        self._held_bytes_max = held_bytes_max
        self._held: list[Buffer] = []
        self._held_bytes = 0
        self._room: asyncio.Future[None] | None = None

    def open(self) -> None:
        self._channel.is_awaited = True
        self._channel.on_room = self._resume
        self._pace.ends_with_client = True

    def close(self) -> None:
        self._channel.is_awaited = False
        self._channel.on_room = None
        self._pace.ends_with_client = False

    def offer(self, data: bytes, count: int) -> None:
        """Send `count` events, keep them for a moment, or leave them out."""
        if self._held and not self._flush():
            if self._held_bytes + len(data) > self._held_bytes_max:
                self.skipped += count
                return
            self._hold(data)
            return
        if self.skipped:
            event = Event("skipped", {"count": self.skipped}).encode()
            self.skipped = 0
            data = event + data
        if not self._channel.send([chunk(data)]):
            self._hold(data)

    async def write(self, data: bytes) -> None:
        """Send, and wait until the client takes it."""
        while not self._channel.send([chunk(data)]):
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def drain(self) -> None:
        """Wait until everything that is held has left."""
        while self._held and not self._flush():
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _hold(self, data: bytes) -> None:
        self._held.append(chunk(data))
        self._held_bytes += len(data)

    def _flush(self) -> bool:
        if not self._channel.send(self._held):
            return False
        self._held, self._held_bytes = [], 0
        return True

    def _resume(self) -> None:
        if self._held:
            self._flush()
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)


async def send_events(outgoing: Outgoing, batches: Batches, until: asyncio.Timeout) -> None:
    """Send all batches; an error and the end are events of their own."""
    reason = "done"
    try:
        async with until:
            async for events in batches:
                data = b"".join(event.encode() for event in events) if events else _COMMENT
                outgoing.offer(data, len(events))
    except TimeoutError:
        reason = "stopping"
    except MillstreamError as error:
        problem = problem_of(error)
        reason = problem.error
        body = {"error": problem.error, "message": problem.message, "status": problem.status.value}
        outgoing.offer(Event("error", body).encode(), 1)
    await outgoing.drain()
    await outgoing.write(Event("end", {"reason": reason}).encode())


async def send_lines(outgoing: Outgoing, lines: Lines, until: asyncio.Timeout) -> None:
    """Send all lines; an error is the last one, so that no reader takes a part for the whole."""
    try:
        async with until:
            async for data in lines:
                if data:
                    await outgoing.write(data)
    except TimeoutError:
        await outgoing.write(b'{"error":"stopping","message":"the node stops"}\n')
    except MillstreamError as error:
        problem = problem_of(error)
        body = {"error": problem.error, "message": problem.message}
        await outgoing.write(msgspec.json.encode(body) + b"\n")


class Incoming:
    """A body that is read while it arrives; the connection rests while too much of it waits."""

    def __init__(self, hold_reading: Callable[[bool], None], *, held_bytes_max: int) -> None:
        self.held_bytes = 0
        self._hold_reading = hold_reading
        self._held_bytes_max = held_bytes_max
        self._pieces: deque[bytes] = deque()
        self._has_ended = False
        self._wake: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        """Take a piece; an empty one ends the body."""
        if data:
            self._pieces.append(data)
            self.held_bytes += len(data)
            if self.held_bytes > self._held_bytes_max:
                self._hold_reading(True)
        else:
            self._has_ended = True
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def receive(self) -> bytes | None:
        """The next piece; None at the end."""
        while not self._pieces:
            if self._has_ended:
                return None
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        data = self._pieces.popleft()
        self.held_bytes -= len(data)
        if self.held_bytes <= self._held_bytes_max:
            self._hold_reading(False)
        return data


def last_chunk() -> list[Buffer]:
    return [LAST_CHUNK]


# Any: items of a stream, which only its sender knows.
async def first_of(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for item in items:
        yield item
        return


async def chained(first: list[Any], items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    for item in first:
        yield item
    async for item in items:
        yield item
