"""As much of a FlyMQ client as producing and fetching take: one request, one reply."""

import socket
from struct import Struct

from benchmarks.kafka.job import Broken
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import HEAD, Body, Opcode, encode_request, measure
from millstream.protocols.flymq.wire.shapes import fields_of

SECONDS_MAX = 30
FETCH_COUNT = 10_000

_OFFSET = Struct(">Q")
_PARTITION_BYTES = 4
_TOPIC_SIZE = Struct(">H")
_FETCHED = Struct(">IQ")  # How many records follow, and where to go on.


class FlymqConnection:
    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "FlymqConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def produce(self, request: bytes) -> int:
        """Send a request made of `produce_request`; return the record's offset."""
        return offset_in(self._ask(request, Opcode.PRODUCE))

    def fetch(self, topic: str, offset: int, where: str) -> tuple[int, int]:
        """How many records matched, and the offset to go on at. They are not looked at."""
        request = _spelled(Opcode.FETCH, bodies.Fetch(topic, 0, offset, FETCH_COUNT, where))
        count, next_offset = _FETCHED.unpack_from(self._ask(request, Opcode.FETCH), HEAD.size)
        return count, next_offset

    def _ask(self, request: bytes, opcode: Opcode) -> bytes:
        self._socket.sendall(request)
        frame = self._socket.recv(65_536)
        while len(frame) < HEAD.size or len(frame) < measure(frame[: HEAD.size]):
            more = self._socket.recv(2**20)
            if not more:
                raise Broken("the broker closed the connection")
            frame += more
        if frame[2] != opcode:
            raise Broken(frame[HEAD.size :].decode(errors="replace"))
        return frame


def produce_request(topic: str, size: int) -> tuple[bytes, bytes]:
    """What stands before and behind a value of `size` bytes in a request to produce it."""
    mark = b"?" * size
    head, marked, tail = _spelled(Opcode.PRODUCE, bodies.Produce(topic, b"", mark, 0)).partition(
        mark
    )
    assert marked
    return head, tail


def offset_in(reply: bytes) -> int:
    """The offset in a reply to PRODUCE: it stands behind the topic and the partition."""
    (topic_bytes,) = _TOPIC_SIZE.unpack_from(reply, HEAD.size)
    at = HEAD.size + _TOPIC_SIZE.size + topic_bytes + _PARTITION_BYTES
    offset: int = _OFFSET.unpack_from(reply, at)[0]
    return offset


def _spelled(opcode: Opcode, body: Body) -> bytes:
    payload = bytearray()
    fields_of(type(body)).write(payload, body)
    return encode_request(opcode, payload)
