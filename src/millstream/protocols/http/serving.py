"""Answers requests: finds the route, checks the head, asks for a login, calls the handler.

Shared by all connections. A reply that is known at once is returned as it is; anything else is a
coroutine. Errors become the body that the API of the path has for them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Generator
from dataclasses import dataclass
from http import HTTPStatus
from inspect import isawaitable
from typing import Any, NamedTuple, Protocol

from millstream.base_error import MillstreamError
from millstream.engine.access.login import Login
from millstream.errors import NotCoordinator, ProtocolError
from millstream.metrics import HTTP_SECONDS, Histogram
from millstream.model import Buffer, Session
from millstream.protocols.conversation import REQUEST_ID, Pace, PushChannel
from millstream.protocols.http.browsers import (
    check_host,
    check_origin,
    cors_headers,
    preflight_headers,
)
from millstream.protocols.http.calls import Call
from millstream.protocols.http.context import Services, State
from millstream.protocols.http.decoding import accepted_type, read_body, read_params
from millstream.protocols.http.encoding import encode_reply
from millstream.protocols.http.identity import session_of
from millstream.protocols.http.operate.forwarding import Forwarding
from millstream.protocols.http.problems import HttpProblem, Problem, problem_of
from millstream.protocols.http.remembered import Remembered, fingerprint, key_of
from millstream.protocols.http.router import (
    EVENTS_TYPE,
    NDJSON_TYPE,
    Api,
    Match,
    Needs,
    Route,
    Router,
)
from millstream.protocols.http.streams import (
    Incoming,
    OpenStreams,
    Outgoing,
    chained,
    first_of,
    last_chunk,
    send_events,
    send_lines,
)
from millstream.protocols.http.turns import turns_of
from millstream.protocols.http.wire.requests import Request
from millstream.protocols.http.wire.responses import response, stream_head

_log = logging.getLogger(__name__)

REQUEST_ID_LENGTH_MAX = 100
HEALTH_NOUNS = {"health", "healthz", "livez", "readyz"}

Reply = list[Buffer]
# Any: a request that was passed on opens no stream, so it has no channel.
_NOWHERE: Any = None
# Any: PEP 492 leaves the yield and send types of a coroutine to the loop.
Outcome = Coroutine[Any, Any, Reply] | Reply


@dataclass(slots=True)
class Client:
    """One connection, as far as answers need it."""

    session: Session
    login: Login | None
    channel: PushChannel
    pace: Pace


class Idle(Protocol):
    """A connection, as far as making room needs it."""

    @property
    def idle_since(self) -> float | None: ...

    def cut(self) -> None: ...


class Exchange(NamedTuple):
    """A request that is being answered."""

    client: Client
    request: Request
    request_id: str
    api: Api
    match: Match | None
    refusal: HttpProblem | None  # Of the path or the method, told after the login.
    incoming: Incoming | None
    began_s: float
    is_forwarded: bool = False  # Another node has let it in, and passed it on.


class Server:
    def __init__(
        self, services: Services, router: Router, forwarding: Forwarding | None = None
    ) -> None:
        """`forwarding` passes on what other nodes have to answer."""
        self.services = services
        self._forwarding = forwarding
        self.router = router
        self.settings = services.config.http
        self._turns = turns_of(services)
        self._remembered = Remembered(self.settings.answers_remembered_max)
        self._streams = OpenStreams(self.settings)
        # By route, method and class of the status.
        self._seconds: dict[tuple[str, str, str], Histogram] = {}
        self._gateways: set[Idle] = set()
        self._request_count = 0
        self._request_prefix = f"{services.entropy.getrandbits(32):08x}"

    def enter(self, gateway: Idle) -> bool:
        """Count a connection; close the longest idle one if there are too many, else refuse."""
        if len(self._gateways) >= self.settings.connections_max:
            idle = [(since, other) for other in self._gateways if (since := other.idle_since)]
            if not idle:
                return False
            min(idle, key=lambda pair: pair[0])[1].cut()
        self._gateways.add(gateway)
        return True

    def leave(self, gateway: Idle) -> None:
        self._gateways.discard(gateway)

    def begin(self, client: Client, request: Request, incoming: Incoming | None) -> Outcome:
        """Answer now, or return the coroutine that does."""
        return self._begin_exchange(self._open(client, request, incoming))

    async def answer_forwarded(self, request: Request, session: Session) -> Reply:
        """Answer a request that another node has let in and passed on."""
        client = Client(session, None, _NOWHERE, _NOWHERE)
        exchange = self._open(client, request, None)._replace(is_forwarded=True)
        outcome = self._begin_exchange(exchange)
        return outcome if isinstance(outcome, list) else await outcome

    def _begin_exchange(self, exchange: Exchange) -> Outcome:
        client, request = exchange.client, exchange.request
        token = REQUEST_ID.set(exchange.request_id)
        if _log.isEnabledFor(logging.DEBUG):
            # Without query and body, which may hold records and passwords.
            path = "/".join(("", *request.raw_parts))
            _log.debug("request %s %s from %s", request.method, path, client.session.address)
        try:
            outcome = self._begin(client, exchange)
        except MillstreamError as error:
            outcome = self._refuse(exchange, problem_of(error))
        except Exception as error:
            outcome = self._fail(exchange, error)
        finally:
            REQUEST_ID.reset(token)
        if isinstance(outcome, list):
            self._observe(exchange, outcome)
            return outcome
        return self._guarded(exchange, outcome)

    def _begin(self, client: Client, exchange: Exchange) -> Outcome:
        answer = self._check(exchange)
        if answer is not None:
            return answer
        if client.login is not None and not self._is_public(exchange):
            return self._after_login(client.login, exchange)
        return self._call(exchange, client.session)

    async def _guarded(self, exchange: Exchange, outcome: Coroutine[Any, Any, Reply]) -> Reply:
        token = REQUEST_ID.set(exchange.request_id)
        try:
            reply = await outcome
        except ProtocolError:
            raise
        except MillstreamError as error:
            reply = self._refuse(exchange, problem_of(error))
        except Exception as error:
            reply = self._fail(exchange, error)
        finally:
            REQUEST_ID.reset(token)
        self._observe(exchange, reply)
        return reply

    def _observe(self, exchange: Exchange, reply: Reply) -> Histogram | None:
        """Note how long an answer took. The end of a stream is none: its head was."""
        head = bytes(reply[0][:10])
        if head[:9] != b"HTTP/1.1 ":
            return None
        route, method = "(unknown)", "-"  # Clients choose paths and methods: one series for all.
        if exchange.match is not None:
            route, method = exchange.match.route.path, exchange.match.route.method
        key = route, method, f"{head[9:].decode()}xx"
        seconds = self._seconds.get(key)
        if seconds is None:
            seconds = self._seconds[key] = self.services.metrics.histogram(HTTP_SECONDS, *key)
        seconds.observe(self.services.elapsed_s() - exchange.began_s)
        return seconds

    # -- before the handler ------------------------------------------------------------------------

    def _open(self, client: Client, request: Request, incoming: Incoming | None) -> Exchange:
        request_id = request.headers.get("x-request-id", "")
        if not (0 < len(request_id) <= REQUEST_ID_LENGTH_MAX and request_id.isprintable()):
            self._request_count += 1
            request_id = f"{self._request_prefix}-{self._request_count:x}"
        began_s = self.services.elapsed_s()
        try:
            match = self.router.find(request.method, request.raw_parts)
            api = match.api
            return Exchange(client, request, request_id, api, match, None, incoming, began_s)
        except HttpProblem as refusal:
            api = self.router.api_of(request.raw_parts)
            return Exchange(client, request, request_id, api, None, refusal, incoming, began_s)

    def _check(self, exchange: Exchange) -> Reply | None:
        """Raise what keeps a request out whatever it asks for; answer a browser's preflight."""
        request = exchange.request
        if not exchange.is_forwarded:
            check_host(request, self.settings)
        state = self.services.state()
        if state is not State.READY and not _is_health(request):
            raise HttpProblem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                state.value,
                f"the node is {state.value}",
                retry_after_ms=1_000,
            )
        if request.method == "OPTIONS" and exchange.match is None:
            headers = preflight_headers(request, self.settings)
            if headers is not None:
                return [response(HTTPStatus.NO_CONTENT, b"", headers=headers)]
        if not exchange.is_forwarded:
            check_origin(request, self.settings, is_tls=exchange.client.session.is_tls)
        return None

    def _is_public(self, exchange: Exchange) -> bool:
        match = exchange.match
        if match is None:
            return False
        if match.api.name == "monitoring" and exchange.request.parts[:1] == ("metrics",):
            return self.services.config.security.public_metrics
        return match.route.needs is Needs.NOTHING

    async def _after_login(self, login: Login, exchange: Exchange) -> Reply:
        login.count_request()
        session = await session_of(
            exchange.request,
            exchange.client.session,
            self.services.logins,
            changes=exchange.request.method not in {"GET", "HEAD", "OPTIONS"},
        )
        login.admit()
        answer = self._call(exchange, session)
        return answer if isinstance(answer, list) else await answer

    # -- the handler -------------------------------------------------------------------------------

    def _call(self, exchange: Exchange, session: Session) -> Outcome:
        if exchange.refusal is not None:
            raise exchange.refusal
        match, request = exchange.match, exchange.request
        assert match is not None
        api, route, values = match
        kind = accepted_type(request, api, route)
        params, wants_text = read_params(request, api, route, values)
        call = Call(
            services=self.services,
            session=session,
            request_id=exchange.request_id,
            is_login_required=exchange.client.login is not None,
            is_known=exchange.client.login is None or session is not exchange.client.session,
            revision=_revision(request),
            key=key_of(request),
            cursor=request.headers.get("last-event-id", ""),
            accept=kind,
            receive=None if exchange.incoming is None else exchange.incoming.receive,
            query=request.query,
            extra=request.headers,
        )
        if exchange.incoming is not None:
            if route.stream_handler is None:
                raise HttpProblem(
                    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                    "unsupported_media_type",
                    f"{route.path} takes no lines of JSON",
                )
            lines = route.stream_handler(call, params)
            return self._stream(exchange, session, NDJSON_TYPE, lines)
        arguments = [call, params]
        if route.body is not None:
            arguments.append(read_body(request, api, route))
        elif request.body and api.is_strict and route.body is None:
            raise HttpProblem(
                HTTPStatus.BAD_REQUEST, "invalid_request", f"{route.method} here takes no body"
            )
        finish = _Finish(self, exchange, kind, wants_text)
        if (
            call.key
            and route.method == "POST"
            and not route.is_stream
            and exchange.incoming is None
        ):
            return self._once(exchange, session, call.key, route, arguments, finish)
        return self._run(exchange, session, route, arguments, finish)

    def _run(
        self,
        exchange: Exchange,
        session: Session,
        route: Route,
        arguments: list[Any],
        finish: "_Finish",
    ) -> Outcome:
        result = route.handler(*arguments)
        if route.is_stream:
            return self._stream(exchange, session, route.sends, result)
        if isinstance(result, Generator):
            result = self._turns.run(result, route.path)
        elif not isawaitable(result):
            return finish.reply(route, result)
        return self._later(exchange, session, route, result, arguments[1], finish)

    # Any: an awaitable of whatever the handler returns, and the route's own parameters.
    async def _later(
        self,
        exchange: Exchange,
        session: Session,
        route: Route,
        result: Any,
        params: Any,
        finish: "_Finish",
    ) -> Reply:
        forwarding = None if exchange.is_forwarded else self._forwarding
        asked = exchange.request, session, exchange.request_id
        try:
            value = await result
            if isinstance(value, Generator):
                value = await self._turns.run(value, route.path)
        except NotCoordinator as problem:
            if forwarding is None:
                raise
            return [await forwarding.ask_instead(*asked, problem)]
        if route.gathered_by and forwarding is not None:
            value = await forwarding.gather(*asked, value, route, params.limit)
        return finish.reply(route, value)

    async def _once(
        self,
        exchange: Exchange,
        session: Session,
        key: str,
        route: Route,
        arguments: list[Any],
        finish: "_Finish",
    ) -> Reply:
        """The answer to the first request with this key; a repetition gets the same."""
        request = exchange.request
        now = asyncio.get_running_loop().time()
        place = (str(session.principal), request.method, request.path, key)
        slot = self._remembered.open(place, fingerprint(request), now)
        if slot.is_taken:
            return [await slot.answer()]
        try:
            outcome = self._run(exchange, session, route, arguments, finish)
            reply = outcome if isinstance(outcome, list) else await outcome
        except MillstreamError as error:
            reply = self._refuse(exchange, problem_of(error))
        except BaseException:
            slot.forget()
            raise
        whole = b"".join(reply)
        slot.keep(whole, is_final=not whole.startswith((b"HTTP/1.1 5", b"HTTP/1.1 429")))
        return reply

    async def _stream(
        self, exchange: Exchange, session: Session, kind: str, items: AsyncIterator[Any]
    ) -> Reply:
        with self._streams.open(str(session.principal)):
            # The first items come before the head: what is refused is an answer, not a stream.
            first = [item async for item in first_of(items)]
            return await self._send_stream(exchange, kind, first, items)

    # Any: items of a stream, which only its sender knows.
    async def _send_stream(
        self, exchange: Exchange, kind: str, first: list[Any], items: AsyncIterator[Any]
    ) -> Reply:
        client = exchange.client
        outgoing = Outgoing(
            client.channel, client.pace, held_bytes_max=self.settings.stream_held_bytes_max
        )
        until = asyncio.timeout(None)
        loop = asyncio.get_running_loop()
        outgoing.open()
        client.pace.on_stop = lambda: until.reschedule(loop.time()) if not until.expired() else None
        try:
            headers = self._headers(exchange) | {"X-Accel-Buffering": "no"}
            head = stream_head(kind, headers=headers)
            client.channel.send([head])
            self._observe(exchange, [head])
            if kind == EVENTS_TYPE:
                await send_events(outgoing, chained(first, items), until)
            else:
                await send_lines(outgoing, chained(first, items), until)
        except Exception as error:
            self.services.report(error)
            raise ProtocolError("a stream was cut by an unexpected error") from error
        finally:
            client.pace.on_stop = None
            outgoing.close()
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()
        return last_chunk()

    # -- answers -----------------------------------------------------------------------------------

    def _headers(self, exchange: Exchange) -> dict[str, str]:
        headers = {"X-Request-Id": exchange.request_id}
        if self.settings.cors_origins:
            headers |= cors_headers(exchange.request, self.settings)
        return headers

    def _refuse(self, exchange: Exchange, problem: Problem) -> Reply:
        if exchange.incoming is not None:
            exchange.request.is_last = True  # Its body was not read: nothing behind it can be.
        kind, body = exchange.api.shape(problem, exchange.request_id)
        headers = self._headers(exchange) | dict(problem.headers)
        if problem.retry_after_ms:
            headers["Retry-After"] = str(-(-problem.retry_after_ms // 1000))
        return [
            response(
                problem.status,
                body,
                kind=kind,
                headers=headers,
                is_head=exchange.request.method == "HEAD",
                is_last=exchange.request.is_last,
            )
        ]

    def _fail(self, exchange: Exchange, error: Exception) -> Reply:
        """Our own mistake: an answer with the id that the log line has, then the end."""
        request_id = exchange.request_id
        _log.error("a request failed id=%s request=%r", request_id, exchange.request)
        self.services.report(error)
        exchange.request.is_last = True
        problem = Problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "internal_error",
            f"a mistake of the broker; its log has the request id {request_id}",
        )
        return self._refuse(exchange, problem)


class _Finish:
    """Encodes the handler's result as the response."""

    __slots__ = ("_exchange", "_kind", "_server", "_wants_text")

    def __init__(self, server: Server, exchange: Exchange, kind: str, wants_text: bool) -> None:
        self._server = server
        self._exchange = exchange
        self._kind = kind
        self._wants_text = wants_text  # Numbers as strings.

    # Any: whatever the route declares as its reply.
    def reply(self, route: Route, value: Any) -> Reply:
        request = self._exchange.request
        status, kind, body, headers = encode_reply(
            route, value, self._kind, numbers_as_text=self._wants_text
        )
        return [
            response(
                status,
                body,
                kind=kind,
                headers=self._server._headers(self._exchange) | headers,
                is_head=request.method == "HEAD",
                is_last=request.is_last,
            )
        ]


def _is_health(request: Request) -> bool:
    parts = request.parts
    return parts[:1] != () and (parts[0] in HEALTH_NOUNS or parts == ("api", "v1", "health"))


def _revision(request: Request) -> str | None:
    tag = request.headers.get("if-match")
    return None if tag is None else tag.removeprefix("W/").strip('"')
