"""Requests from node to node over their peer links.

Owns the calls that wait for an answer, and the tasks that answer those of peers.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from millstream.errors import (
    CallRefused,
    InvalidRequest,
    Overloaded,
    PeerUnreachable,
    RequestError,
    TimedOut,
)
from millstream.model import NodeId
from millstream.peers.conversation import CALL_BYTES_MAX, METHOD_LENGTH_MAX, Answer, Call, Cancel
from millstream.ports import CallHandler
from millstream.server.peering.sockets import PeerSockets

CALLS_MAX = 1_000  # In flight to one peer, and being answered for one.
ERROR_LENGTH_MAX = 2_000


class PeerCalls:
    def __init__(self, sockets: PeerSockets, handlers: Mapping[str, CallHandler]) -> None:
        self._sockets = sockets
        self._handlers = handlers
        self._number = 0
        self._waiting: dict[int, tuple[NodeId, asyncio.Future[bytes]]] = {}
        self._counts: Counter[NodeId] = Counter()
        self._answering: dict[tuple[NodeId, int], asyncio.Task[None]] = {}
        self._telling: set[asyncio.Task[None]] = set()
        sockets.on_call = self.receive

    async def ask(self, node: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes:
        _check_size(method, payload)
        if not self._sockets.is_up(node):
            raise PeerUnreachable(node, was_sent=False)
        if self._counts[node] >= CALLS_MAX:
            raise Overloaded(f"node {node} has {CALLS_MAX} calls to answer")
        self._number += 1
        number = self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = node, answer
        self._counts[node] += 1
        time_left_ms = min(int(timeout_s * 1000), 2**32 - 1)
        self._sockets.send(node, Call(number, method, time_left_ms, payload))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self._sockets.send(node, Cancel(number))
            raise TimedOut(f"node {node} did not answer {method} in {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self._sockets.send(node, Cancel(number))
            raise
        finally:
            del self._waiting[number]
            self._counts[node] -= 1

    def tell(self, node: NodeId, method: str, payload: bytes) -> None:
        _check_size(method, payload)
        self._sockets.send(node, Call(0, method, 0, payload))

    def receive(self, node: NodeId, item: Call | Answer | Cancel) -> None:
        match item:
            case Call():
                self._begin(node, item)
            case Answer():
                self._complete(node, item)
            case Cancel():
                task = self._answering.get((node, item.number))
                if task is not None:
                    task.cancel()

    def link_lost(self, node: NodeId) -> None:
        """Fail the calls to this node; those of the node go on, and are not answered."""
        for peer, answer in self._waiting.values():
            if peer == node and not answer.done():
                answer.set_exception(PeerUnreachable(node, was_sent=True))
        self._answering = {key: task for key, task in self._answering.items() if key[0] != node}

    def close(self) -> None:
        for task in [*self._answering.values(), *self._telling]:
            task.cancel()

    # -- parts -------------------------------------------------------------------------------------

    def _begin(self, node: NodeId, call: Call) -> None:
        if len(self._telling) >= 2 * CALLS_MAX:
            if call.number:
                self._sockets.send(node, Answer(call.number, "Overloaded", b"too many calls"))
            return
        task = asyncio.get_running_loop().create_task(self._answer(node, call))
        self._telling.add(task)
        if call.number:
            self._answering[node, call.number] = task
        task.add_done_callback(lambda done: self._forget(node, call.number, done))

    def _forget(self, node: NodeId, number: int, task: asyncio.Task[None]) -> None:
        self._telling.discard(task)
        if self._answering.get((node, number)) is task:
            del self._answering[node, number]

    async def _answer(self, node: NodeId, call: Call) -> None:
        handler = self._handlers.get(call.method)
        answer = Answer(call.number, "InvalidRequest", f"no method {call.method}".encode())
        try:
            if handler is not None:
                limit_s = call.time_left_ms / 1000 if call.number else None
                async with asyncio.timeout(limit_s):
                    answer = _answer_of(call, await handler(node, call.payload))
        except RequestError as problem:
            text = str(problem)[:ERROR_LENGTH_MAX].encode()
            answer = Answer(call.number, type(problem).__name__, text)
        except TimeoutError:
            return  # The caller does not wait any more.
        except Exception as problem:
            # As an error in a callback of the loop: a fatal one stops the node.
            message = f"the call {call.method} of node {node} failed"
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": message, "exception": problem})
            answer = Answer(call.number, "InternalError", b"the node met an error of its own")
        task = asyncio.current_task()
        if call.number and self._answering.get((node, call.number)) is task:
            self._sockets.send(node, answer)

    def _complete(self, node: NodeId, item: Answer) -> None:
        peer, answer = self._waiting.get(item.number, (None, None))
        if answer is None or answer.done() or peer != node:
            return  # It is no longer waited for.
        if item.error:
            answer.set_exception(CallRefused(item.error, item.payload.decode(errors="replace")))
        else:
            answer.set_result(item.payload)


def _answer_of(call: Call, payload: bytes) -> Answer:
    if len(payload) > CALL_BYTES_MAX:
        text = f"the answer to {call.method} has {len(payload)} bytes, at most {CALL_BYTES_MAX}"
        return Answer(call.number, "InvalidRequest", text.encode())
    return Answer(call.number, "", payload)


def _check_size(method: str, payload: bytes) -> None:
    if len(method) > METHOD_LENGTH_MAX or len(payload) > CALL_BYTES_MAX:
        raise InvalidRequest(
            f"a call of {method[:METHOD_LENGTH_MAX]} with {len(payload)} bytes, at most "
            f"{CALL_BYTES_MAX}"
        )
