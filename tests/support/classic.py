"""A bare connection to the classic listener: sends what a test passes, reads frame by frame."""

import socket
from types import TracebackType
from typing import Self

from millstream.protocols.classic.wire import Frame, Frames, Kind, decode, encode

SECONDS_MAX = 60


class ClassicSocket:
    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = Frames(frame_bytes_max=2**24)
        self._arrived: list[Frame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def next(self) -> Frame:
        """The next frame; raises `ConnectionError` at the end."""
        while not self._arrived:
            data = self._socket.recv(2**16)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._arrived += [decode(bytes(frame)) for frame in self._frames.feed(data)]
        return self._arrived.pop(0)

    def next_but_greetings(self) -> Frame:
        """The next frame that is no heartbeat of the broker's own."""
        while (frame := self.next()).kind == Kind.HEARTBEAT and not frame.sequence:
            pass
        return frame

    def ask(self, kind: int, body: bytes = b"", **properties: str) -> dict[str, str]:
        """What a request is answered with, but for what every frame says."""
        self.send(encode(Frame(kind, 2**40, 0, properties, body)))
        answer = self.next_but_greetings()
        assert (answer.kind, answer.sequence) == (Kind.ACK, 2**40)
        return {k: v for k, v in answer.properties.items() if k not in {"created_at", "version"}}

    def close(self) -> None:
        self._socket.close()
