"""Bytes that the Flux protocol does not expect: answered, bounded, at no other client's cost."""

import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from select import select

from tests.hostile.broker import SECONDS_MAX, Broker

MIB = 2**20


class Talker:
    def __init__(self, broker: Broker) -> None:
        self.socket = socket.create_connection(broker.flux_address, timeout=SECONDS_MAX)
        self.heard = b""

    def __enter__(self) -> "Talker":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self, end: bytes) -> bytes:
        """Listen until this has been said."""
        while end not in self.heard:
            more = self.socket.recv(2**16)
            assert more, f"closed after {self.heard[-200:]!r}"
            self.heard += more
        said, _, self.heard = self.heard.partition(end)
        return said + end

    def ask(self, line: bytes, end: bytes = b"\r\n") -> bytes:
        self.send(line + b"\r\n")
        return self.hear(end)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def eventually(condition: Callable[[], bool]) -> bool:
    """Another process has to get round to it: ask for a while."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_random_bytes_are_answered_and_the_connection_kept(broker: Broker) -> None:
    random = Random(7)
    with Talker(broker) as talker:
        for _ in range(50):
            # No P and no p: a PUB by accident would take what follows for its payload.
            garbage = random.randbytes(2_000).translate(None, b"Pp")
            talker.send(garbage + b"\r\n")
            talker.ask(b"PING", b"PONG\r\n")


def test_a_line_without_end_takes_no_memory(broker: Broker) -> None:
    before = broker.resident_bytes()
    with Talker(broker) as talker:
        for _ in range(64):
            talker.send(b"x" * MIB)
        assert b"-ERR a line of more than 4096 bytes" in talker.ask(b"\r\nPING", b"PONG\r\n")

    assert broker.resident_bytes() - before < 16 * MIB


def test_a_payload_too_large_is_skipped_and_takes_no_memory(broker: Broker) -> None:
    before = broker.resident_bytes()
    with Talker(broker) as talker:
        talker.send(b"PUB a %d\r\n" % (128 * MIB))
        for _ in range(128):
            talker.send(bytes(MIB))
        talker.send(b"\r\n")
        assert b"-ERR a payload of more than" in talker.ask(b"PING", b"PONG\r\n")

    assert broker.resident_bytes() - before < 16 * MIB


def test_a_large_payload_that_is_only_announced_takes_no_memory(broker: Broker) -> None:
    before = broker.resident_bytes()
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(Talker(broker)).send(b"PUB a %d\r\nsome" % (90 * MIB))
        with Talker(broker) as other:
            assert other.ask(b"PUB a 1\r\nx") == b"+OK\r\n"

    assert broker.resident_bytes() - before < 16 * MIB


def test_commands_may_come_one_byte_at_a_time(broker: Broker) -> None:
    with Talker(broker) as talker:
        for byte in b"PUB a.b 2\r\nhi\r\nPING\r\n":
            talker.send(bytes([byte]))

        assert talker.hear(b"PONG\r\n") == b"+OK\r\nPONG\r\n"


def test_clients_that_vanish_halfway_leave_nothing(broker: Broker) -> None:
    files = broker.open_files()
    whole = b"SUB a.> s1\r\nHPUB a 13 15\r\nMsg-ID: 1\r\n\r\nhi\r\nPULL a 5\r\n"
    for cut in range(1, len(whole)):
        talker = Talker(broker)
        talker.send(whole[:cut])
        talker.reset()

    assert eventually(lambda: broker.open_files() <= files)


def test_who_publishes_and_never_reads_the_replies_is_not_read_on(broker: Broker) -> None:
    before = broker.resident_bytes()
    with Talker(broker) as talker, Talker(broker) as other:
        talker.socket.setblocking(False)
        flood = b"x\r\n" * 50_000  # Each line is answered with ten times its bytes.
        sent = 0
        while sent < 40 * MIB and select([], [talker.socket], [], 1.0)[1]:
            sent += talker.socket.send(flood)

        assert other.ask(b"PING") == b"PONG\r\n"
        assert broker.resident_bytes() - before < 96 * MIB


def test_who_subscribes_and_never_reads_costs_the_others_nothing(broker: Broker) -> None:
    before = broker.resident_bytes()
    with Talker(broker) as deaf, Talker(broker) as good:
        deaf.ask(b"SUB flood.> s1")
        good.ask(b"SUB flood.> s1")
        publication = b"PUB flood.x 10000\r\n" + bytes(10_000) + b"\r\n"
        for _ in range(20):
            good.send(publication * 100)
            while good.heard.count(b"+OK\r\n") < 100:
                good.heard += good.socket.recv(2**20)
            good.heard = b""

        assert good.ask(b"PING", b"PONG\r\n")
        assert broker.resident_bytes() - before < 128 * MIB


def test_many_subjects_fill_no_memory(broker: Broker) -> None:
    before = broker.resident_bytes()
    with Talker(broker) as talker:
        for start in range(0, 50_000, 1_000):
            lines = [
                b"PUB many.%d.%s 1\r\nx\r\n" % (n, b"y" * 200) for n in range(start, start + 1000)
            ]
            talker.send(b"".join(lines))
            while talker.heard.count(b"+OK\r\n") < 1_000:
                talker.heard += talker.socket.recv(2**16)
            talker.heard = b""

    assert broker.resident_bytes() - before < 64 * MIB


def test_subscriptions_and_durable_names_are_bounded(broker: Broker) -> None:
    with Talker(broker) as talker:
        talker.send(b"".join(b"SUB a.%d s%d\r\n" % (n, n) for n in range(1_200)))
        talker.send(b"PING\r\n")

        assert talker.hear(b"PONG\r\n").count(b"-ERR 1000 subscriptions are the most") == 200
