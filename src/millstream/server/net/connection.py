"""One client connection: bytes in, a gateway, bytes out, in order and within bounds.

Owns the socket's side of a conversation. The gateway turns bytes into requests and requests into
replies, and never sees a socket. Requests begin in the order they arrived; replies leave in the
same order. The connection stops reading from a client that sends faster than it is answered or
reads slower than it is written to, until it has caught up, and from a client that its gateway
throttles, until the throttle time is over. It drops a client that does nothing for long, or that
holds most of the memory when there is no more. So memory has a bound that no client can move.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from millstream.engine.access.login import Login
from millstream.errors import ProtocolError, StorageError
from millstream.model import Buffer, Session
from millstream.server.net.admission import Guard, Unwelcome
from millstream.server.net.clients import Clients
from millstream.server.net.push_channel import PushChannel
from millstream.server.net.writer import BUFFER_TYPES, Range, Reply, Writer
from millstream.server.system.descriptors import keep_alive

_log = logging.getLogger(__name__)


class Address(NamedTuple):
    host: str
    port: int


class Pending(Protocol):
    """A reply on its way. Every coroutine is one; a list never is."""

    # Any: PEP 492 leaves the yield type to the loop.
    def __await__(self) -> Generator[Any, Any, Reply | None]: ...

    def close(self) -> None:
        """The reply is no longer needed."""


Outcome: TypeAlias = Pending | list[Buffer | Range] | list[Buffer] | None


class Gateway(Protocol):
    """One client's conversation, without a socket."""

    @property
    def unfinished_bytes(self) -> int:
        """Bytes that have been received and not been returned as part of a request."""

    def receive(self, data: bytes) -> Iterable[Sized]:
        """Return the whole requests that `data` completes; raise `ProtocolError` on nonsense.

        The length of a request is that of its bytes.
        """

    def begin(self, request: Sized, /) -> Outcome:
        """Do now what must keep its order; awaiting does the rest. None means no reply.

        A reply that is known at once may be returned as it is: a list of buffers costs neither a
        wait nor a turn of the loop. `ProtocolError`, now or later, closes the
        connection after the replies before it.
        """

    def close(self) -> None:
        """The client is gone."""


class Pace:
    """Throttles a client: no request is begun or read before `resume_at`."""

    __slots__ = (
        "_resume",
        "end",
        "ends_with_client",
        "has_ended",
        "is_held",
        "on_stop",
        "recount",
        "resume_at",
    )

    def __init__(
        self,
        recount: Callable[[], None] = lambda: None,
        resume: Callable[[], None] = lambda: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.recount = recount  # Called when the gateway holds more or less than it did.
        self.is_held = False  # Nothing is read until the gateway has taken what came.
        self.on_stop: Callable[[], None] | None = None
        self._resume = resume
        self.resume_at = 0.0  # By the loop's clock. It may move on at any time, and never back.
        self.has_ended = self.ends_with_client = False
        self.end = end

    def hold_reading(self, is_held: bool) -> None:
        if self.is_held is not is_held:
            self.is_held = is_held
            self._resume()


class NewClient(NamedTuple):
    """A client that has connected, with what its gateway may use: pace and push channel.

    `session` is whose it is; `login` is there if it must log in first.
    """

    dialled: Address
    peer: str
    pace: Pace
    push_channel: PushChannel
    session: Session = Session()
    login: Login | None = None
    hang_up: Callable[[], None] = lambda: None  # Ends the connection after what is pending.


# How a TLS handshake record begins. No protocol here does: to Kafka it is a frame of 352 MiB.
TLS_HANDSHAKE = b"\x16\x03"
# A fatal alert, protocol_version (RFC 8446, section 6).
TLS_ALERT = bytes([0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46])

GatewayFactory: TypeAlias = Callable[[NewClient], Gateway]


class Connection(asyncio.Protocol):
    """`run` it until it ends; the transport calls the rest."""

    def __init__(self, make_gateway: GatewayFactory, clients: Clients, guard: Guard) -> None:
        self.number = clients.next_number()
        self.received_bytes = 0
        self._guard = guard
        self._peer = ""
        self._is_admitted = False
        self._room = clients.limits.pipeline_requests_max  # Requests that may be under way.
        self._make_gateway = make_gateway
        self._clients = clients
        self._limits = clients.limits
        self._memory = clients.memory
        self._monitor = clients.monitor
        self._loop = asyncio.get_running_loop()
        self.opened_at = self._loop.time()
        self._session = Session()
        self._login: Login | None = None
        self._gateway: Gateway | None = None
        self._transport: asyncio.Transport | None = None
        self._writer: Writer | None = None
        self._task: asyncio.Task[object] | None = None
        self._requests: Iterator[Sized] = iter(())  # Arrived, but not begun: there is no room.
        # With the size of their requests. The first one is being answered.
        self._pending: deque[tuple[Outcome, int]] = deque()
        self._pending_bytes = 0
        self._held_bytes = 0  # As `RequestMemory` knows it.
        self._wake: asyncio.Future[None] | None = None  # Set while `run` has nothing to do.
        self._is_behind = False  # Requests are there that only wait for others to have a turn.
        self._is_first = True  # No bytes have come yet.
        self._is_reading = True
        self._is_ending = False  # Nothing more is read; what is pending is still answered.
        self._received_at = 0.0  # When bytes last came, by the loop's clock.
        self._idle_timer: asyncio.TimerHandle | None = None
        self._push_channel = PushChannel()
        self._pace = Pace(self._count_memory, self._follow_pace, self.stop)
        self._resumed_at = 0.0  # The `resume_at` that has been obeyed.
        self._resume_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Answer requests in their order until the client goes or breaks the protocol."""
        self._task = asyncio.current_task()
        try:
            await self._converse()
            if self._transport is not None and self._writer is not None:
                self._writer.flush()
                self._transport.close()
                # Until the last bytes are sent this still counts as open; then we are cancelled.
                await self._loop.create_future()
        finally:
            self._end()

    @property
    def session(self) -> Session:
        known = getattr(self._gateway, "session", None)
        return known or (self._session if self._login is None else self._login.session)

    @property
    def is_throttled(self) -> bool:
        return self._pace.resume_at > self._loop.time()

    def stop(self) -> None:
        """End after what is pending."""
        self._is_ending = True
        self._wake_up()
        if self._pace.on_stop is not None:
            self._pace.on_stop()

    def drop(self) -> None:
        """End now, whatever is pending."""
        self._is_ending = True
        if self._transport is not None:
            self._transport.abort()

    def logged_in(self) -> None:
        """Serve requests side by side from here on."""
        self._room = self._limits.pipeline_requests_max
        self._loop.call_soon(self._follow_pace)  # Reads on: more requests may be under way now.

    # -- callbacks of the transport ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do all that asyncio's do, but are not of its class.
        self._transport = transport = cast(asyncio.Transport, transport)
        if self._is_ending:
            transport.abort()  # The listener has stopped already.
            return
        socket = transport.get_extra_info("socket")
        if not self._clients.may_keep(socket.fileno(), self._guard.spec.name):
            transport.close()
            self.stop()
            return
        self._writer = Writer(
            transport,
            self._clients.threads,
            buffered_bytes_max=self._limits.write_buffer_bytes_max,
        )
        self._writer.start()
        host, port = transport.get_extra_info("sockname")[:2]
        peer = transport.get_extra_info("peername")
        # Long polls are silent; TCP keep-alive finds peers that are gone.
        keep_alive(socket)
        self._push_channel.open(self._writer, self._fail)
        try:
            session, login = self._admit(str(peer[0]) if peer else "", transport)
            self._session, self._login = session, login
            dialled, push = Address(host, port), self._push_channel
            client = NewClient(dialled, self._peer, self._pace, push, session, login, self.stop)
            self._gateway = self._make_gateway(client)
        except Unwelcome as problem:
            _log.info("refused a connection problem=%s", problem)
            transport.close()
            self.stop()
            return
        except Exception as problem:
            self._fail(problem)
            return
        self._received_at = self._loop.time()
        self._drop_if_idle()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        assert self._gateway is not None
        assert self._writer is not None
        if self._monitor is not None and self._monitor.is_resting:
            self._monitor.wake()
        self._received_at = self._loop.time()
        self.received_bytes += len(data)
        is_first, self._is_first = self._is_first, False
        if is_first and data.startswith(TLS_HANDSHAKE):
            self._refuse_tls()
            return
        try:
            self._requests = iter(self._gateway.receive(data))
            if is_first:  # A gateway that chose another by these bytes is not asked any more.
                self._gateway = getattr(self._gateway, "chosen", self._gateway)
        except ProtocolError as problem:
            _log.info("client broke the protocol problem=%s", problem)
            self.stop()
        except Exception as problem:
            self._fail(problem)
        else:
            self._begin_and_wake()

    def eof_received(self) -> bool:
        self.stop()
        self._pace.has_ended = True
        if self._pace.ends_with_client:
            self.drop()
            return False
        # Keep the way back open for the replies that are pending; TLS ends both ways at once.
        return not self._guard.spec.transport.is_tls

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.stop()
        if self._task is not None:
            self._task.cancel()  # No client is left to answer.

    def pause_writing(self) -> None:
        assert self._writer is not None
        self._writer.pause()

    def resume_writing(self) -> None:
        assert self._writer is not None
        self._writer.resume()
        try:
            self._push_channel.resume()
        except Exception as problem:
            self._fail(problem)

    # -- parts -------------------------------------------------------------------------------------

    async def _converse(self) -> None:
        try:
            while self._pending or self._is_behind or not self._is_ending:
                if self._pending:
                    await self._answer_first()
                elif self._is_behind:
                    await asyncio.sleep(0)
                    self._begin_more()
                else:
                    self._wake = self._loop.create_future()
                    await self._wake
        except ProtocolError as problem:
            _log.info("closed a connection problem=%s", problem)
        except ConnectionError:
            self.drop()
        except StorageError as problem:
            # The reply has begun, so that only its end can say so. The next request for these
            # records is refused with the reason.
            _log.error("closed a connection whose records cannot be read problem=%s", problem)
            self.drop()
        except Exception as problem:
            self._clients.faults.report(problem)

    async def _answer_first(self) -> None:
        assert self._writer is not None
        pending, size = self._pending[0]
        reply = pending if pending is None or isinstance(pending, list) else await pending
        if reply is not None:
            await self._writer.send(reply)
        self._pending.popleft()
        self._pending_bytes -= size
        self._begin_more()

    def _admit(self, peer: str, transport: asyncio.Transport) -> tuple[Session, Login | None]:
        certificate = None
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            certificate = ssl_object.getpeercert(binary_form=True)
        session, login = self._guard.admit(self, peer, certificate)
        self._peer = peer
        self._is_admitted = True
        if login is not None:
            self._room = 1
        return session, login

    def _refuse_tls(self) -> None:
        """Answer as TLS servers do, so that the client names the reason and does not wait."""
        assert self._writer is not None
        self._guard.note_mismatch(
            self._peer,
            f"expects plain text; {self._peer} spoke TLS: set security.protocol=PLAINTEXT or "
            "SASL_PLAINTEXT there, or use a listener with TLS",
        )
        self._writer.put([TLS_ALERT])
        self._is_ending = True
        self._begin_and_wake()

    def _begin_and_wake(self) -> None:
        assert self._writer is not None
        self._begin()
        self._writer.flush()
        if self._pending or self._is_behind or self._is_ending:
            self._wake_up()

    def _wake_up(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)

    def _begin_more(self) -> None:
        assert self._writer is not None
        self._begin()
        if self._pending:
            self._writer.flush_soon()  # The next reply may be known already, and go along.
        else:
            self._writer.flush()

    def _begin(self) -> None:
        """Begin what has arrived, as far as there is room; read on once all of it has begun."""
        gateway, pending, pace = self._gateway, self._pending, self._pace
        assert gateway is not None
        room = self._room
        self._is_behind = False
        try:
            for _ in range(room):
                if (
                    len(pending) >= room
                    or self._is_ending
                    or pace.resume_at > self._resumed_at
                    or (request := next(self._requests, None)) is None
                ):
                    break
                self._note(gateway.begin(request), len(request))
            else:
                self._is_behind = True
        except ProtocolError as problem:
            _log.info("client broke the protocol problem=%s", problem)
            self._is_ending = True
        except Exception as problem:
            self._clients.faults.report(problem)
            self._is_ending = True
        is_muted = pace.resume_at > self._resumed_at
        if is_muted:
            self._resume_later(pace.resume_at)
        if len(pending) >= room or self._is_behind or is_muted or pace.is_held:
            self._set_reading(False)
        elif not self._is_reading and 2 * len(pending) <= room:
            self._set_reading(True)
        self._count_memory()

    def _count_memory(self) -> None:
        if self._gateway is None:
            return  # The client is gone, and its memory was released.
        held_bytes = self._gateway.unfinished_bytes + self._pending_bytes
        if held_bytes != self._held_bytes:
            self._held_bytes = held_bytes
            self._memory.hold(self, held_bytes)

    def _follow_pace(self) -> None:
        if self._pace.is_held:
            self._set_reading(False)
        elif self._gateway is not None:
            self._begin_and_wake()

    def _resume_later(self, resume_at: float) -> None:
        if self._resume_timer is None and not self._is_ending:
            self._resume_timer = self._loop.call_at(resume_at, self._resume, resume_at)

    def _resume(self, resume_at: float) -> None:
        self._resume_timer = None
        self._resumed_at = resume_at
        self._begin_and_wake()

    def _note(self, outcome: Outcome, size: int) -> None:
        """Let a reply go out that is there and whose turn it is; keep any other in order."""
        assert self._writer is not None
        if not self._pending and self._writer.has_room:
            if outcome is None:
                return
            if isinstance(outcome, list) and BUFFER_TYPES.issuperset(map(type, outcome)):
                self._writer.put(outcome)  # type: ignore[arg-type]  # It holds no range.
                return
        self._pending.append((outcome, size))
        self._pending_bytes += size

    def _set_reading(self, is_reading: bool) -> None:
        if self._transport is None or self._is_ending or self._is_reading is is_reading:
            return
        self._is_reading = is_reading
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _drop_if_idle(self) -> None:
        """Also detects peers that vanished silently, and those that read nothing we send."""
        assert self._writer is not None
        moved_at = max(self._received_at, self._writer.moved_at, self._pace.resume_at)
        drop_at = moved_at + self._limits.connection_idle_ms_max / 1000
        if self._push_channel.is_awaited and self._writer.has_room:
            drop_at = self._loop.time() + self._limits.connection_idle_ms_max / 1000
        if self._loop.time() >= drop_at:
            _log.info("dropped a connection on which nothing moved")
            self.drop()
        else:
            self._idle_timer = self._loop.call_at(drop_at, self._drop_if_idle)

    def _end(self) -> None:
        self._is_ending = True
        self._task = None  # It keeps what cancelled it, and that keeps our frames: a cycle.
        for pending, _ in self._pending:
            if pending is not None and not isinstance(pending, list):
                pending.close()
        self._pending.clear()
        self._requests = iter(())
        self._push_channel.close()
        self._memory.release(self)
        if self._is_admitted:
            self._is_admitted = False
            self._guard.leave(self, self._peer)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        gateway, self._gateway = self._gateway, None  # With all that it has buffered.
        try:
            if gateway is not None:
                gateway.close()
        except Exception as problem:
            self._clients.faults.report(problem)
        self.drop()

    def _fail(self, problem: Exception) -> None:
        """End now, after an error in what the gateway does for this client."""
        self._clients.faults.report(problem)
        self.drop()
