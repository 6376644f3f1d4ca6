"""A FlyMQ client over a real socket: asks in our own bodies, one request after the other."""

import socket
from typing import TypeVar

from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import (
    BINARY,
    HEAD,
    OPERATIONS,
    Body,
    Opcode,
    encode_request,
    measure,
)
from millstream.protocols.flymq.wire.shapes import fields_of, read_body
from tests.support.sockets import receive_exactly

SECONDS_MAX = 20

B = TypeVar("B", bound=Body)


class Refused(Exception):
    """The broker's sentence."""


def payload_of(body: Body) -> bytes:
    out = bytearray()
    fields_of(type(body)).write(out, body)
    return bytes(out)


def asking(opcode: Opcode, request: Body, *, flags: int = BINARY) -> bytes:
    return encode_request(opcode, payload_of(request), flags=flags)


def reply_in(frame: bytes, opcode: Opcode) -> Body:
    """The body of a reply to `opcode`; raises the refusal that stands in its place."""
    payload = frame[HEAD.size :]
    if frame[2] == Opcode.ERROR:
        raise Refused(read_body(bodies.Failure, payload, is_exact=True).message)
    return read_body(OPERATIONS[opcode].reply, payload, is_exact=True)


class FlymqClient:
    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "FlymqClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, opcode: Opcode, request: Body, answer: type[B]) -> B:
        self.socket.sendall(asking(opcode, request))
        reply = reply_in(self.frame(), opcode)
        assert isinstance(reply, answer)
        return reply

    def produce(self, topic: str, value: bytes, *, key: bytes = b"", partition: int = -1) -> int:
        """Return the offset."""
        request = bodies.Produce(topic, key, value, partition)
        return self.ask(Opcode.PRODUCE, request, bodies.RecordMetadata).offset

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, count: int = 10, where: str = ""
    ) -> bodies.Fetched:
        request = bodies.Fetch(topic, partition, offset, count, where)
        return self.ask(Opcode.FETCH, request, bodies.Fetched)

    def frame(self) -> bytes:
        head = self.exactly(HEAD.size)
        return head + self.exactly(measure(head) - HEAD.size)

    def exactly(self, size: int) -> bytes:
        return receive_exactly(self.socket, size)

    def is_closed(self) -> bool:
        """Wait for the broker to say something or to close; say whether it closed."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
