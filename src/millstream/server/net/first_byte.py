"""Chooses the protocol of a connection by the first byte that the client sends.

From the second read on, the connection calls the chosen gateway directly.
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
        self.chosen: Gateway | None = None  # The connection calls it from then on.
        # Attributes, so that they can become the gateway's own.
        self.receive: Callable[[bytes], Iterable[Sized]] = self._choose
        self.begin: Callable[[Sized], Outcome] = _nothing_to_begin
        self.close: Callable[[], None] = _nobody_spoke

    @property
    def unfinished_bytes(self) -> int:
        return 0 if self.chosen is None else self.chosen.unfinished_bytes

    def _choose(self, data: bytes) -> Iterable[Sized]:
        self.chosen = gateway = self._by_first_byte.get(data[0], self._otherwise)()
        self.receive = gateway.receive
        self.begin = gateway.begin
        self.close = gateway.close
        return gateway.receive(data)


def _nothing_to_begin(request: Sized) -> Outcome:
    raise AssertionError("nothing was received yet")


def _nobody_spoke() -> None:
    return
