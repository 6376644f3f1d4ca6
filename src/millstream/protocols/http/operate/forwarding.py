"""Passes requests on to the node that can answer them, and answers those of other nodes.

A handler that raises `NotCoordinator` has found out that another node has the group, transaction or
registry: the whole request goes there, with the session that was let in here, and the response
comes back. A list of what each node has of its own is put together from the pages of all nodes.

Invariant: a request is passed on once.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from http import HTTPStatus
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.engine.cluster.peer_calls import HTTP_METHOD
from millstream.engine.cluster.relay.callers import Caller, caller_of, first_hand
from millstream.errors import CallRefused, NotCoordinator, PeerUnreachable
from millstream.model import NodeId, Session
from millstream.ports import Calls
from millstream.protocols.http.calls import Page
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import Route
from millstream.protocols.http.wire.requests import Request

if TYPE_CHECKING:
    from millstream.protocols.http.serving import Server

BODY_BYTES_MAX = 3 * 2**20  # Of a request that is passed on: it has to fit into a call.
ANSWER_S_MAX = 30.0
# The session says who asks; another node needs no password for it.
_SECRET_HEADERS = {"authorization", "cookie"}


class ForwardedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it crosses in a call."""

    caller: Caller
    method: str
    parts: tuple[str, ...]
    raw_parts: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    headers: dict[str, str]
    body: bytes
    version: str
    is_last: bool


class Forwarding:
    def __init__(
        self,
        calls: Calls,
        *,
        me: NodeId,
        others: Callable[[], Iterable[NodeId]],
    ) -> None:
        """`others` are the nodes that can be reached now."""
        self._calls = calls
        self._me = me
        self._others = others

    async def ask_instead(
        self, request: Request, session: Session, request_id: str, problem: NotCoordinator
    ) -> bytes:
        """The response of the node that `problem` names; raise it again if there is none."""
        node = problem.leader
        if node is None or node == self._me or len(request.body) > BODY_BYTES_MAX:
            raise problem
        try:
            return await self._ask(NodeId(node), _encode(request, session, request_id))
        except (CallRefused, PeerUnreachable) as refusal:
            raise problem from refusal

    async def gather(
        self,
        request: Request,
        session: Session,
        request_id: str,
        own: Page[Any],  # Any: items of the route's own type.
        route: Route,
        limit: int,
    ) -> Page[Any]:
        """A page of what all nodes have, in the order of a field; 503 if one does not say."""
        nodes = list(self._others())
        if not nodes:
            return own
        payload = _encode(request, session, request_id)
        pages = await asyncio.gather(*(self._page(node, payload, route) for node in nodes))
        known = [own, *(page for page in pages if page is not None)]
        return merged(known, route.gathered_by, limit)

    async def _page(self, node: NodeId, payload: bytes, route: Route) -> Page[Any] | None:
        """None from a node that went away: what it had is another one's by then."""
        try:
            answer = await self._ask(node, payload)
        except PeerUnreachable:
            return None
        except CallRefused as refusal:
            raise _incomplete(node, str(refusal)) from refusal
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise _incomplete(node, head.partition(b"\r\n")[0].decode("latin-1"))
        page: Page[Any] = msgspec.json.decode(body, type=route.reply, strict=False)
        return page

    async def _ask(self, node: NodeId, payload: bytes) -> bytes:
        return await self._calls.ask(node, HTTP_METHOD, payload, timeout_s=ANSWER_S_MAX)


async def answer_forwarded(server: "Server", payload: bytes) -> bytes:
    """The response to a request that another node has let in and passed on."""
    asked = _decoder().decode(payload)
    request = Request(
        method=asked.method,
        parts=asked.parts,
        raw_parts=asked.raw_parts,
        query=asked.query,
        headers=asked.headers,
        body=asked.body,
        version=asked.version,
        is_last=asked.is_last,
        size=len(payload),
    )
    return b"".join(await server.answer_forwarded(request, first_hand(asked.caller.session())))


# Any: as above.
def merged(pages: Sequence[Page[Any]], order: str, limit: int) -> Page[Any]:
    """One page of several that begin at the same place. Ends where the first of them ends: what
    the others have behind that is shown by the next page."""
    key = attrgetter(order)
    items = {key(item): item for page in pages for item in page.items}
    ends = [place_of(page.next, str) for page in pages if page.next is not None]
    end = min((place[0] for place in ends if place is not None), default=None)
    names = sorted(name for name in items if end is None or name <= end)
    shown = names[:limit]
    if len(names) > limit:
        end = shown[-1]
    following = None if end is None else cursor_of(end)
    return Page(items=[items[name] for name in shown], next=following)


def _encode(request: Request, session: Session, request_id: str) -> bytes:
    headers = {
        name: value for name, value in request.headers.items() if name not in _SECRET_HEADERS
    }
    return msgspec.msgpack.encode(
        ForwardedRequest(
            caller=caller_of(session),
            method=request.method,
            parts=request.parts,
            raw_parts=request.raw_parts,
            query=request.query,
            headers={**headers, "x-request-id": request_id},
            body=request.body,
            version=request.version,
            is_last=request.is_last,
        )
    )


@cache
def _decoder() -> "msgspec.msgpack.Decoder[ForwardedRequest]":
    return msgspec.msgpack.Decoder(ForwardedRequest)


def _incomplete(node: NodeId, reason: str) -> HttpProblem:
    return HttpProblem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "node_unavailable",
        f"node {node} did not list its part: {reason[:200]}",
        retry_after_ms=1_000,
    )
