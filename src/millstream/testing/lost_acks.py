"""Loses acknowledgements: the broker executes a request, and the client gets no reply.

Wraps the gateway of each connection and cuts the connection instead of sending the reply. It waits
for the reply first, so the record is written, and durable if acks=all, before the client is cut
off.
"""

from collections.abc import Generator, Iterable, Sized
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self

from millstream.server.net.connection import Gateway, Outcome
from millstream.server.net.writer import Reply

What = Literal["produce", "commit", "transaction"]

# Kafka's keys: Produce; OffsetCommit and TxnOffsetCommit; EndTxn.
API_KEYS: dict[What, frozenset[int]] = {
    "produce": frozenset({0}),
    "commit": frozenset({8, 28}),
    "transaction": frozenset({26}),
}


class LostAcks:
    """Acknowledgements are lost from now on, until `stop` or the end of a `with` block."""

    def __init__(self, of: What, count: int | None) -> None:
        if of not in API_KEYS:
            raise ValueError(f"of = {of!r} is not one of {', '.join(API_KEYS)}")
        self._api_keys = API_KEYS[of]
        self._left = count  # None: all of them.
        self._lock = Lock()  # The broker counts in its thread, the test looks from another.
        self.count = 0  # How many were lost so far.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Let acknowledgements through again."""
        with self._lock:
            self._left = 0

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def takes(self, api_key: int) -> bool:
        """Whether the reply to this request is to be lost; if so, it counts."""
        with self._lock:
            if api_key not in self._api_keys or self._left == 0:
                return False
            self._left = None if self._left is None else self._left - 1
            self.count += 1
            return True


class AckLoss:
    """All losses of acknowledgements that a test has begun, over all connections of a broker."""

    def __init__(self) -> None:
        self._losses: list[LostAcks] = []

    def begin(self, of: What, count: int | None) -> LostAcks:
        loss = LostAcks(of, count)
        # Another list: the broker may be walking the old one. Those that are over lose nothing.
        self._losses = [*(other for other in self._losses if not other.is_over), loss]
        return loss

    def end_all(self) -> None:
        for loss in self._losses:
            loss.stop()
        self._losses = []

    def takes(self, api_key: int) -> bool:
        return any(loss.takes(api_key) for loss in self._losses)

    def interpose(self, gateway: Gateway) -> Gateway:
        return _LossyGateway(gateway, self)


class _LossyGateway:
    def __init__(self, gateway: Gateway, losses: AckLoss) -> None:
        self._gateway = gateway
        self._losses = losses

    @property
    def unfinished_bytes(self) -> int:
        return self._gateway.unfinished_bytes

    def receive(self, data: bytes) -> Iterable[Sized]:
        return self._gateway.receive(data)

    def begin(self, request: Sized, /) -> Outcome:
        assert isinstance(request, memoryview)
        api_key = int.from_bytes(request[:2], signed=True)
        reply = self._gateway.begin(request)
        if reply is None or not self._losses.takes(api_key):
            return reply  # With acks=0 there is no acknowledgement to lose.
        return _Lost(reply)

    def close(self) -> None:
        self._gateway.close()


class _Lost:
    """A reply that is waited for, and then not sent."""

    def __init__(self, reply: Outcome) -> None:
        # One that is known already needs no waiting for.
        self._reply = None if isinstance(reply, list) else reply

    # Any: PEP 492 leaves the yield type to the loop.
    def __await__(self) -> Generator[Any, Any, Reply | None]:
        if self._reply is not None:
            yield from self._reply.__await__()
        raise ConnectionResetError("the acknowledgement was lost, as the test asked")

    def close(self) -> None:
        if self._reply is not None:
            self._reply.close()
