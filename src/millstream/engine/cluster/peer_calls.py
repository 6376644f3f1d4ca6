"""Typed calls to other nodes: values and refusals cross as msgpack.

A refusal raised by a peer is raised here as the same error, with its sentence and its attributes.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from millstream.errors import InvalidRequest, RequestError
from millstream.model import NodeId
from millstream.ports import Calls

Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)

HTTP_METHOD = "http.request"  # Of requests that HTTP passes on, which decodes them itself.
CALL_S_MAX = 5.0  # How long a peer is waited for, unless the caller says otherwise.


class Nothing(msgspec.Struct, frozen=True):
    """A question or an answer without content."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal as it crosses in an answer."""

    kind: str  # The name of the error's class.
    text: str
    attributes: dict[str, Any]  # Those that msgpack can carry.


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    answer: bytes = b""
    problem: Problem | None = None


class PeerCalls:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def ask(
        self,
        node: NodeId,
        method: str,
        question: msgspec.Struct,
        answer: type[A],
        *,
        timeout_s: float = CALL_S_MAX,
    ) -> A:
        """Return the peer's answer; raise its refusal, or what `Calls.ask` raises."""
        data = await self._calls.ask(
            node, method, msgspec.msgpack.encode(question), timeout_s=timeout_s
        )
        try:
            envelope = msgspec.msgpack.decode(data, type=_Envelope)
            if envelope.problem is None:
                return msgspec.msgpack.decode(envelope.answer, type=answer)
        except msgspec.MsgspecError as problem:
            raise InvalidRequest(f"node {node} answered {method} with nonsense") from problem
        raise decode_problem(envelope.problem)

    def tell(self, node: NodeId, method: str, message: msgspec.Struct) -> None:
        """Send without an answer; lost without a link."""
        self._calls.tell(node, method, msgspec.msgpack.encode(message))

    def serve(
        self, method: str, question: type[Q], handle: Callable[[NodeId, Q], Awaitable[A]]
    ) -> None:
        """Have `handle` answer this method of peers."""

        async def answered(node: NodeId, payload: bytes) -> bytes:
            try:
                asked = msgspec.msgpack.decode(payload, type=question)
                answer = msgspec.msgpack.encode(await handle(node, asked))
                return msgspec.msgpack.encode(_Envelope(answer=answer))
            except msgspec.MsgspecError as problem:
                refusal: RequestError = InvalidRequest(f"{method} was not understood: {problem}")
            except RequestError as problem:
                refusal = problem
            return msgspec.msgpack.encode(_Envelope(problem=encode_problem(refusal)))

        self._calls.serve(method, answered)


def encode_problem(problem: RequestError) -> Problem:
    attributes: dict[str, Any] = {}
    for name, value in vars(problem).items():
        try:
            msgspec.msgpack.encode(value)
        except (TypeError, ValueError, msgspec.MsgspecError):
            continue  # The sentence says what counts.
        attributes[name] = value
    return Problem(kind=type(problem).__name__, text=str(problem), attributes=attributes)


def decode_problem(problem: Problem) -> RequestError:
    """The error that a peer raised; one that this version does not know is a `RequestError`."""
    kind = _error_classes().get(problem.kind, RequestError)
    error = kind.__new__(kind)
    error.args = (problem.text,)
    vars(error).update(problem.attributes)
    return error


def _error_classes() -> dict[str, type[RequestError]]:
    classes: dict[str, type[RequestError]] = {}
    unseen: list[type[RequestError]] = [RequestError]
    while unseen:
        each = unseen.pop()
        classes[each.__name__] = each
        unseen += each.__subclasses__()
    return classes
