"""Flux clients that go on whatever happens: one publishes numbers, one works on them.

Both reconnect until they are told to stop. The publisher sends a number until it is acknowledged,
under an id of its own; the worker acknowledges all numbers but those it always fails at.
"""

import socket
import threading
from abc import abstractmethod
from collections import Counter
from contextlib import suppress
from io import BufferedReader

SECONDS_MAX = 5
FAILS_AT_EVERY = 7


class _Client(threading.Thread):
    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._is_over = threading.Event()
        self.problems: list[BaseException] = []

    def stop(self) -> None:
        self._is_over.set()
        self.join(4 * SECONDS_MAX)

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                with suppress(OSError, EOFError):  # The broker is dead: try again.
                    self._converse()
                self._is_over.wait(0.01)
        except BaseException as problem:
            self.problems.append(problem)

    def _converse(self) -> None:
        address = "127.0.0.1", self._port
        with (
            socket.create_connection(address, SECONDS_MAX) as connection,
            connection.makefile("rb") as stream,
        ):
            self._talk(connection, stream)

    @abstractmethod
    def _talk(self, connection: socket.socket, stream: BufferedReader) -> None:
        """Until it is over, or the broker is gone."""


class Publisher(_Client):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.acknowledged = 0  # So many numbers, from 0 on.

    def _talk(self, connection: socket.socket, stream: BufferedReader) -> None:
        while not self._is_over.is_set():
            number = b"%d" % self.acknowledged
            headers = b"Msg-ID: " + number + b"\r\n\r\n"
            sizes = len(headers), len(headers) + len(number)
            connection.sendall(b"HPUB jobs.new %d %d\r\n" % sizes + headers + number + b"\r\n")
            answer = _line(stream)
            if not answer.startswith(b"+OK"):
                raise AssertionError(f"refused: {answer!r}")
            self.acknowledged += 1


class Worker(_Client):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.is_subscribed = threading.Event()
        self.seen: Counter[int] = Counter()

    def _talk(self, connection: socket.socket, stream: BufferedReader) -> None:
        connection.sendall(b"SUB jobs.> DURABLE:workers w\r\n")
        while not self._is_over.is_set():
            words = _line(stream).split()
            if words[0] == b"+OK":
                self.is_subscribed.set()
                continue
            assert words[0] == b"MSG", words
            number = int(stream.read(int(words[3]) + 2))
            self.seen[number] += 1
            if number % FAILS_AT_EVERY:
                connection.sendall(b"ACK %s w\r\n" % words[4])


def _line(stream: BufferedReader) -> bytes:
    line = stream.readline()
    if not line:
        raise EOFError
    return line
