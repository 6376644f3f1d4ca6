"""One HTTP client's conversation: bytes to requests, in order, and its time limits.

A request that cannot be served is answered before the connection is closed: HTTP clients show that
answer to their users.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sized
from enum import Enum
from http import HTTPStatus
from typing import Any

from millstream.errors import ProtocolError
from millstream.model import Buffer
from millstream.protocols.http.decoding import is_line_stream
from millstream.protocols.http.problems import Problem, problem_details
from millstream.protocols.http.serving import Client, Server
from millstream.protocols.http.streams import Incoming
from millstream.protocols.http.wire.requests import (
    BadRequest,
    BodyPiece,
    BodyRules,
    Continue,
    Head,
    Limits,
    Request,
    Requests,
    raw_parts,
)
from millstream.protocols.http.wire.responses import CONTINUE, response

Reply = list[Buffer]


class _Refusal(tuple[BadRequest]):
    """Bytes that are no request, in the place of one: their answer keeps its order."""


class _End(tuple[()]):
    """The connection ends here, after the answers before it."""


class _Wait(Enum):
    """What a connection waits for, with the setting that limits the wait."""

    REQUEST = "idle_ms_max"
    HEAD = "header_ms_max"
    BODY = "body_idle_ms_max"
    ANSWER = ""


class HttpGateway:
    """Connections are persistent: every response has a length, or is sent in chunks."""

    def __init__(self, server: Server, client: Client, hang_up: Callable[[], None]) -> None:
        self._server = server
        self._client = client
        self._hang_up = hang_up
        settings = server.settings
        limits = Limits(settings.header_bytes_max, settings.headers_max, settings.body_bytes_max)
        self._requests = Requests(limits, self._body_rules)
        self._incoming: Incoming | None = None
        self._open_count = 0  # Requests that are not answered yet.
        self._loop = asyncio.get_running_loop()
        self._wait = _Wait.REQUEST
        self._since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._is_refused = not server.enter(self)
        self._watch()

    @property
    def unfinished_bytes(self) -> int:
        held = 0 if self._incoming is None else self._incoming.held_bytes
        return self._requests.unfinished_bytes + held

    @property
    def idle_since(self) -> float | None:
        """Since when the connection waits for a request; None while it does not."""
        return self._since if self._wait is _Wait.REQUEST else None

    def receive(self, data: bytes) -> Iterable[Sized]:
        # Parsed at once: what is received must not depend on how soon it is begun.
        items = list(self._received(data))
        self._note_wait()
        return items

    # Any: PEP 492 leaves the yield and send types of a coroutine to the loop.
    def begin(self, item: Sized) -> Coroutine[Any, Any, Reply] | Reply:
        match item:
            case Request() if self._is_refused:
                return [self._problem(_FULL, is_last=True)]
            case Request():
                return self._answer(item)
            case Continue():
                return [CONTINUE]
            case _Refusal((problem,)):
                refusal = Problem(problem.status, "bad_request", str(problem))
                return [self._problem(refusal, is_last=True)]
            case _:
                raise ProtocolError("the last request was answered")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._server.leave(self)
        if self._client.login is not None:
            self._client.login.close()

    def cut(self) -> None:
        """End an idle connection, to make room for another one."""
        self._hang_up()

    # -- requests ----------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Coroutine[Any, Any, Reply] | Reply:
        incoming = self._incoming if request.is_streamed else None
        outcome = self._server.begin(self._client, request, incoming)
        if isinstance(outcome, list):
            self._end_if_last(request)
            return outcome
        self._open_count += 1
        self._note_wait()
        return self._awaited(outcome, request)

    async def _awaited(self, outcome: Coroutine[Any, Any, Reply], request: Request) -> Reply:
        try:
            return await outcome
        finally:
            self._open_count -= 1
            self._note_wait()
            self._end_if_last(request)

    def _end_if_last(self, request: Request) -> None:
        """A request may become the last one while it is answered: then the connection ends."""
        if request.is_last:
            self._hang_up()

    def _received(self, data: bytes) -> Iterator[Sized]:
        try:
            for item in self._requests.feed(data):
                match item:
                    case Request():
                        if item.is_streamed:
                            self._incoming = self._open_incoming()
                        yield item
                        if item.is_last and not item.is_streamed:
                            yield _End()
                    case BodyPiece(piece):
                        assert self._incoming is not None
                        self._incoming.feed(piece)
                    case _:
                        yield item
        except BadRequest as problem:
            yield _Refusal((problem,))
            yield _End()

    def _open_incoming(self) -> Incoming:
        return Incoming(
            self._client.pace.hold_reading,
            held_bytes_max=self._server.settings.stream_held_bytes_max,
        )

    def _body_rules(self, head: Head) -> BodyRules:
        """How large a body may be: small before a login, larger for records, endless for lines."""
        settings = self._server.settings
        headers = head.headers
        if self._client.login is not None and not (
            headers.get("authorization") or headers.get("cookie")
        ):
            return BodyRules(settings.login_body_bytes_max)
        parts = raw_parts(head.target.partition("?")[0])
        is_records = parts[-1:] == ("records",)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if is_records and head.method == "POST" and is_line_stream(kind):
            return BodyRules(settings.records_body_bytes_max, is_streamed=True)
        return BodyRules(settings.records_body_bytes_max if is_records else settings.body_bytes_max)

    # -- time limits -------------------------------------------------------------------------------

    def _note_wait(self) -> None:
        if self._open_count:
            wait = _Wait.ANSWER
        elif self._requests.is_in_body:
            wait = _Wait.BODY
        elif self._requests.has_begun or self._requests.unfinished_bytes:
            wait = _Wait.HEAD
        else:
            wait = _Wait.REQUEST
        # The time for a head runs from its first byte, the others from the last thing that came.
        if wait is not self._wait or wait is not _Wait.HEAD:
            self._wait, self._since = wait, self._loop.time()

    def _watch(self) -> None:
        """End a connection that waits for too long; look again when the next limit ends."""
        settings = self._server.settings
        name = self._wait.value or _Wait.REQUEST.value
        due = self._since + getattr(settings, name) / 1000
        now = self._loop.time()
        if self._wait is _Wait.ANSWER:
            due = now + settings.header_ms_max / 1000
        elif now >= due:
            if self._wait is not _Wait.REQUEST:
                late = Problem(
                    HTTPStatus.REQUEST_TIMEOUT,
                    "request_timeout",
                    f"the request was not whole in time (http.{name})",
                )
                self._client.channel.send([self._problem(late, is_last=True)])
            self._hang_up()
            return
        # A shorter limit may begin meanwhile.
        soonest = min(settings.header_ms_max, settings.body_idle_ms_max, settings.idle_ms_max)
        self._timer = self._loop.call_at(min(due, now + soonest / 1000), self._watch)

    def _problem(self, problem: Problem, *, is_last: bool) -> bytes:
        kind, body = problem_details(problem, "")
        return response(problem.status, body, kind=kind, is_last=is_last)


_FULL = Problem(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too_many_connections",
    "as many connections are busy as http.connections_max allows",
    retriable=True,
    retry_after_ms=1_000,
)
