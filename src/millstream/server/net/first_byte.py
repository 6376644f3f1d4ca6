"""Chooses the protocol of a connection by the first byte that the client sends.

From that byte on, the connection calls the chosen gateway directly.
"""

from collections.abc import Callable, Iterable, Mapping, Sized

from millstream.server.net.connection import Gateway, Outcome


class FirstByteGateway:
    """Stands for a gateway until it is known which."""

    def __init__(
        self, by_first_byte: Mapping[int, Callable[[], Gateway]], otherwise: Callable[[], Gateway]
    ) -> None:
        self._by_first_byte = by_first_byte
        self._otherwise = otherwise
        self._gateway: Gateway | None = None
        # Attributes, so that they can become the gateway's own.
        self.receive: Callable[[bytes], Iterable[Sized]] = self._choose
        self.begin: Callable[[Sized], Outcome] = _nothing_to_begin
        self.close: Callable[[], None] = _nobody_spoke

    @property
    def unfinished_bytes(self) -> int:
        return 0 if self._gateway is None else self._gateway.unfinished_bytes

    def _choose(self, data: bytes) -> Iterable[Sized]:
        self._gateway = gateway = self._by_first_byte.get(data[0], self._otherwise)()
        self.receive = gateway.receive
        self.begin = gateway.begin
        self.close = gateway.close
        return gateway.receive(data)


def _nothing_to_begin(request: Sized) -> Outcome:
    raise AssertionError("nothing was received yet")


def _nobody_spoke() -> None:
    return
