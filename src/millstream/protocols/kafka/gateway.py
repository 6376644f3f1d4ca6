"""One Kafka client's conversation: frames in, handlers, frames out.

Owns the connection's state and the path of a request: split, decode, call its handler, encode the
response. The router maps APIs to handlers; the engine does the work. Invariant: a handler that is a
plain function does its ordered part at once, and answers at once if it can; one that is `async`
does nothing before its turn to reply has come. Its request is not even decoded before, because a
request of many small parts takes a hundred times the memory of its bytes.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sized
from dataclasses import replace
from functools import cache
from typing import Any

from millstream.config import Limits
from millstream.engine.access.login import Login
from millstream.engine.action import ACTION
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.frames import LENGTH, Frames
from millstream.kafka_wire.headers import (
    RequestHeader,
    UnsupportedRequest,
    decode_request,
    encode_response,
    refusal,
)
from millstream.kafka_wire.schema import Chunk, Message
from millstream.model import CLIENT_ID_LENGTH_MAX, NEVER_EXPIRES, Buffer, Session
from millstream.protocols.conversation import Pace
from millstream.protocols.kafka.context import Broker, Context, Endpoint
from millstream.protocols.kafka.login import KafkaLogin

# A handler takes its own request type; the table below pairs each with the key that decodes to it.
Outcome = Message | Awaitable[Message | None] | None
Handler = Callable[[Context, Any], Outcome]

# Metrics, quotas and groups know a client by this much of its id; the protocol allows 32 KiB.


class KafkaGateway:
    def __init__(
        self,
        broker: Broker,
        handlers: Mapping[int, Handler],
        limits: Limits,
        *,
        dialled: Endpoint,
        session: Session,
        pace: Pace,
        login: Login | None = None,
        is_audited: bool = False,
    ) -> None:
        """`login` is None on listeners without SASL, whose clients are who `session` says."""
        self.unfinished_bytes = 0
        self._broker = broker
        self._handlers = handlers
        self._frame_bytes_max = limits.frame_bytes_max
        self._frames = Frames(
            frame_bytes_max=self._frame_bytes_max
            if login is None
            else limits.unauthenticated_frame_bytes_max
        )
        self._dialled = dialled
        self._pace = pace
        self._session = session
        self._login = login
        self._is_audited = is_audited  # Then requests are named for the trail.
        # None once there is nothing to guard: after a login that lasts, or without SASL.
        self._guard = None if login is None else KafkaLogin(login, self._opened)

    def receive(self, data: bytes) -> Iterator[memoryview]:
        self.unfinished_bytes += len(data)
        sole = self._frames.sole(data)
        if sole is not None:
            self.unfinished_bytes -= len(data)
            yield sole
            return
        for frame in self._frames.feed(data):
            self.unfinished_bytes -= LENGTH.size + len(frame)
            yield frame

    def begin(
        self, frame: Sized
    ) -> "Coroutine[Any, Any, list[Chunk] | None] | _Coming | list[Chunk] | None":
        assert isinstance(frame, memoryview)
        if self._guard is not None and (answer := self._guard.begin(frame)) is not None:
            return answer
        handler = self._handlers.get(int.from_bytes(frame[:2], signed=True))
        if handler is not None and _waits_for_its_turn(handler):
            return self._answer(bytes(frame))  # A view would keep all that came with it.
        try:
            header, outcome = self._handle(frame)
        except UnsupportedRequest as problem:
            answer = refusal(problem)
            if answer is None:
                raise
            return answer
        if outcome is None or isinstance(outcome, Message):
            return _encode(header, outcome)
        return _Coming(header, outcome, is_audited=self._is_audited)

    def close(self) -> None:
        if self._login is not None:
            self._login.close()

    def _opened(self) -> None:
        """Follow a login: requests may be large, and are the new session's."""
        assert self._login is not None
        self._session = self._login.session
        self._frames.allow(self._frame_bytes_max)
        if self._session.expires_at == NEVER_EXPIRES:
            self._guard = None

    async def _answer(self, frame: bytes) -> list[Chunk] | None:
        header, outcome = self._handle(frame)
        assert outcome is not None
        assert not isinstance(outcome, Message)
        return _encode(header, await outcome)

    def _handle(self, frame: Buffer) -> tuple[RequestHeader, Outcome]:
        header, request = decode_request(frame, self._handlers.keys())
        session = self._session_of(header)
        context = Context(self._broker, session, header, self._dialled, self._pace, len(frame))
        if self._is_audited:
            ACTION.set((APIS[header.api_key].name, header.api_version))
        return header, self._handlers[header.api_key](context, request)

    def _session_of(self, header: RequestHeader) -> Session:
        client_id = header.client_id or ""
        if len(client_id) > CLIENT_ID_LENGTH_MAX:
            client_id = client_id[:CLIENT_ID_LENGTH_MAX]
        if self._session.client_id != client_id:
            self._session = replace(self._session, client_id=client_id)
        return self._session


class _Coming:
    """The reply to a request whose ordered part is done. Closing it closes what it waits for."""

    def __init__(
        self, header: RequestHeader, outcome: Awaitable[Message | None], *, is_audited: bool
    ) -> None:
        self._is_audited = is_audited
        self._header = header
        self._outcome = outcome

    # Any: PEP 492 leaves the yield type to the loop.
    def __await__(self) -> Generator[Any, Any, list[Chunk] | None]:
        if self._is_audited:  # In the task that goes on with it.
            ACTION.set((APIS[self._header.api_key].name, self._header.api_version))
        return _encode(self._header, (yield from self._outcome.__await__()))

    def close(self) -> None:
        if inspect.iscoroutine(self._outcome):
            self._outcome.close()


@cache
def _waits_for_its_turn(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler)


def _encode(header: RequestHeader, response: Message | None) -> list[Chunk] | None:
    return None if response is None else encode_response(header, response)
