"""What FlyMQ's two client libraries send, and how they read what comes back.

Neither is in a package registry, so these stand for them: written from their wire behaviour, with
nothing of our own codec, and as unforgiving as they are. What each is known to do is said where it
does it; FINDINGS.md says where that knowledge is from, and what was run of the libraries.
"""

import gzip
import socket
import struct
from typing import Any, NamedTuple

from tests.support.sockets import receive_exactly

HEAD = struct.Struct(">BBBBI")
ERROR, AUTH, AUTH_RESPONSE, WHOAMI = 0xFF, 0x70, 0x71, 0x72
SECONDS_MAX = 30  # The Python library gives up after ten; a busy machine is no fault of anybody's.

# Any other opcode in a reply makes the Python library raise.
KNOWN_TO_PYTHON = {
    *range(0x01, 0x0A),
    *range(0x10, 0x16),
    *(0x20, 0x21, 0x22, 0x30, 0x31, 0x35),
    *range(0x40, 0x44),
    *range(0x50, 0x54),
    *range(0x60, 0x67),
    *(0x70, 0x71, 0x72, 0xA0, 0xA1, 0xFF),
}


class ServerError(Exception):
    """What both raise, whatever the broker refused."""


class ConnectionLost(Exception):
    """The broker went away. The next call finds it again, if it is back."""


class Reader:
    """Reads fields one after the other; past the end it fails, as theirs do."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(f">{form}", self.data, self.at)
        self.at += struct.calcsize(f">{form}")
        return value

    def raw(self, length: str) -> bytes:
        size = self.number(length)
        assert self.at + size <= len(self.data)
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self, length: str = "H") -> str:
        return self.raw(length).decode()

    def items(self, read: Any) -> list[Any]:
        return [read() for _ in range(self.number("I"))]


class Metadata(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key_bytes: int
    value_bytes: int


def text(value: str, length: str = "H") -> bytes:
    return struct.pack(f">{length}", len(value.encode())) + value.encode()


def data(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


class _Client:
    def __init__(self, host: str, port: int) -> None:
        self.address = host, port
        self.socket = self._connect()

    def _connect(self) -> socket.socket:
        connected = socket.create_connection(self.address, timeout=SECONDS_MAX)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, opcode: int, payload: bytes = b"", *, flags: int = 1) -> Reader:
        raise NotImplementedError

    def send(self, opcode: int, payload: bytes, flags: int) -> None:
        self.socket.sendall(HEAD.pack(0xAF, 1, opcode, flags, len(payload)) + payload)

    # -- what both do alike ----------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int) -> bool:
        return bool(self.ask(0x03, text(topic) + struct.pack(">i", partitions)).number("B") == 1)

    def list_topics(self) -> list[str]:
        reply = self.ask(0x08)
        return reply.items(reply.text)

    def produce(self, topic: str, value: bytes, key: bytes = b"") -> Metadata:
        payload = text(topic) + data(key) + data(value) + struct.pack(">i", -1)
        return self._metadata(self.ask(0x01, payload))

    def produce_delayed(self, topic: str, value: bytes, delay_ms: int) -> Metadata:
        payload = text(topic) + data(value) + struct.pack(">Q", delay_ms)
        return self._metadata(self.ask(0x30, payload))

    def produce_with_ttl(self, topic: str, value: bytes, ttl_ms: int) -> Metadata:
        payload = text(topic) + data(value) + struct.pack(">Q", ttl_ms)
        return self._metadata(self.ask(0x35, payload))

    def consume(self, topic: str, partition: int, offset: int) -> tuple[bytes, bytes]:
        reply = self.ask(0x02, text(topic) + struct.pack(">iQ", partition, offset))
        assert len(reply.data) >= 8
        return reply.raw("I"), reply.raw("I")

    def fetch(
        self, topic: str, partition: int, offset: int, count: int, where: str = ""
    ) -> tuple[list[tuple[int, bytes, bytes]], int]:
        payload = text(topic) + struct.pack(">iQi", partition, offset, count) + text(where)
        reply = self.ask(0x07, payload)
        total, next_offset = reply.number("I"), reply.number("Q")
        rows = [(reply.number("Q"), reply.raw("I"), reply.raw("I")) for _ in range(total)]
        return rows, next_offset

    def subscribe(self, topic: str, group: str, partition: int, mode: str) -> int:
        payload = text(topic) + text(group) + struct.pack(">i", partition) + text(mode, "B")
        return int(self.ask(0x05, payload).number("Q"))

    def commit(self, topic: str, group: str, partition: int, offset: int) -> bool:
        payload = text(topic) + text(group) + struct.pack(">iQ", partition, offset)
        return bool(self.ask(0x06, payload).number("B") == 1)

    def get_offset(self, topic: str, group: str, partition: int) -> int:
        payload = text(topic) + text(group) + struct.pack(">i", partition)
        return int(self.ask(0x60, payload).number("Q"))

    def get_lag(self, topic: str, group: str, partition: int) -> tuple[int, ...]:
        reply = self.ask(0x64, text(topic) + text(group) + struct.pack(">i", partition))
        return struct.unpack(">QQQQ", reply.data[:32])

    def list_groups(self) -> list[tuple[str, str, int, list[tuple[int, int]]]]:
        reply = self.ask(0x62)
        return reply.items(lambda: self._group(reply))

    def begin(self) -> str:
        return self.ask(0x40).text()

    def produce_in(self, transaction: str, topic: str, value: bytes) -> Metadata:
        return self._metadata(self.ask(0x43, text(transaction) + text(topic) + data(value)))

    def end(self, transaction: str, *, commits: bool) -> None:
        self.ask(0x41 if commits else 0x42, text(transaction))  # The reply is not looked at.

    def fetch_dead_letters(self, topic: str, count: int) -> list[tuple[str, bytes, str, int]]:
        reply = self.ask(0x20, text(topic) + struct.pack(">I", count))
        return reply.items(lambda: (reply.text(), reply.raw("I"), reply.text(), reply.number("I")))

    def partitions_of(self, topic: str) -> list[tuple[int, str, str]]:
        reply = self.ask(0x53, text(topic))
        reply.text()

        def partition() -> tuple[int, str, str]:
            number, leader, address = reply.number("I"), reply.text(), reply.text()
            assert reply.number("Q") >= 1
            assert reply.text() == "online"
            assert reply.items(reply.text) == reply.items(reply.text) == [leader]
            return number, leader, address

        ((name, partitions),) = reply.items(lambda: (reply.text(), reply.items(partition)))
        assert name == topic
        return list(partitions)

    def _group(self, reply: Reader) -> tuple[str, str, int, list[tuple[int, int]]]:
        topic, group, members = reply.text(), reply.text(), reply.number("I")
        offsets = reply.items(lambda: (reply.number("I"), reply.number("Q")))
        return topic, group, members, offsets

    def _metadata(self, reply: Reader) -> Metadata:
        return Metadata(reply.text(), *(reply.number(form) for form in "iQqii"))

    def _login(self, reply: Reader) -> tuple[bool, str, list[str], str]:
        is_in, user = reply.number("B") == 1, reply.text()
        return is_in, user, reply.items(lambda: reply.text("B")), reply.text()


class PythonClient(_Client):
    """pyflymq."""

    def ask(self, opcode: int, payload: bytes = b"", *, flags: int = 1) -> Reader:
        if self.socket.fileno() < 0:
            self.socket = self._connect()
        try:
            answered, body = self._exchange(opcode, payload, flags)
        except OSError as problem:
            self.socket.close()
            raise ConnectionLost from problem
        if answered == ERROR:
            # It believes in the code and the length.
            raise ServerError(body[6 : 6 + struct.unpack_from(">H", body, 4)[0]].decode())
        return Reader(body)

    def _exchange(self, opcode: int, payload: bytes, flags: int) -> tuple[int, bytes]:
        self.send(opcode, payload, flags)
        # A buffered file for every request, thrown away after it: what it read ahead is lost.
        with self.socket.makefile("rb") as file:
            head = file.read(HEAD.size)
            if len(head) < HEAD.size:
                raise ConnectionResetError
            magic, version, answered, _, size = HEAD.unpack(head)
            assert (magic, version) == (0xAF, 1)
            assert answered in KNOWN_TO_PYTHON
            return answered, file.read(size)

    def delete_group(self, topic: str, group: str) -> None:
        self.ask(0x65, text(topic) + text(group))

    def who_am_i(self) -> tuple[bool, str, list[str], list[str]]:
        reply = self.ask(WHOAMI)
        is_in, user = reply.number("B") == 1, reply.text()
        return is_in, user, reply.items(reply.text), reply.items(reply.text)

    def log_in(self, user: str, password: str) -> tuple[bool, str, list[str], str]:
        return self._login(self.ask(AUTH, text(user) + text(password)))

    def produce_with_schema(self, topic: str, value: bytes, schema: str) -> Metadata:
        return self._metadata(self.ask(0x14, text(topic) + data(value) + text(schema)))

    def replay(self, topic: str, offset: int) -> tuple[bool, str]:
        reply = self.ask(0x21, text(topic) + struct.pack(">Q", offset))
        return reply.number("B") == 1, reply.text("I")


class PythonConsumer:
    """pyflymq's `Consumer`: it never asks where its group was, and moves on only with records."""

    def __init__(
        self, client: PythonClient, topic: str, group: str, reset: str, *, where: str = ""
    ) -> None:
        self.client, self.topic, self.group, self.where = client, topic, group, where
        self.offset = client.subscribe(topic, group, 0, reset)

    def poll(self, count: int) -> list[bytes]:
        rows, next_offset = self.client.fetch(self.topic, 0, self.offset, count, self.where)
        if rows:
            self.offset = next_offset
        return [value for _, _, value in rows]

    def commit(self) -> None:
        self.client.commit(self.topic, self.group, 0, self.offset)


class GoClient(_Client):
    """pkg/client, and so flymq-cli."""

    def ask(self, opcode: int, payload: bytes = b"", *, flags: int = 1) -> Reader:
        if flags & 0x02:
            payload = gzip.compress(payload)
        self.send(opcode, payload, flags)
        _, _, answered, _, size = HEAD.unpack(self._exactly(HEAD.size))
        body = self._exactly(size)
        if answered == ERROR:
            reply = Reader(body)
            assert reply.number("i") == 1
            raise ServerError(reply.text())
        expected = {AUTH: AUTH_RESPONSE, WHOAMI: WHOAMI}.get(opcode, answered)
        assert answered == expected
        return Reader(body)

    def send(self, opcode: int, payload: bytes, flags: int) -> None:
        """The head leaves by itself, before its payload."""
        self.socket.sendall(HEAD.pack(0xAF, 1, opcode, flags, len(payload)))
        self.socket.sendall(payload)

    def who_am_i(self) -> tuple[bool, str, list[str], str]:
        return self._login(self.ask(WHOAMI))

    def log_in(self, user: str, password: str) -> tuple[bool, str, list[str], str]:
        return self._login(self.ask(AUTH, text(user) + text(password)))

    def produce_with_schema(self, topic: str, value: bytes, schema: str) -> Metadata:
        return self._metadata(self.ask(0x14, text(topic) + text(schema) + data(value)))

    def produce_compressed(self, topic: str, value: bytes) -> Metadata:
        payload = text(topic) + data(b"") + data(value) + struct.pack(">i", -1)
        return self._metadata(self.ask(0x01, payload, flags=0x03))

    def describe_group(self, group: str) -> tuple[str, str, int, list[tuple[int, int]]]:
        """The topic is left empty."""
        return self._group(self.ask(0x63, text("") + text(group)))

    def delete_group(self, group: str) -> None:
        self.ask(0x65, text("") + text(group))

    def replay(self, topic: str, name: str) -> tuple[bool, str]:
        reply = self.ask(0x21, text(topic) + text(name))
        return reply.number("B") == 1, reply.text()

    def _exactly(self, size: int) -> bytes:
        return receive_exactly(self.socket, size)
