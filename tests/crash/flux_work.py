"""Flux clients that go on whatever happens: one publishes numbers, one works on them.

Both reconnect until they are told to stop. The publisher sends a number until it is acknowledged,
under an id of its own, the last number too; the worker acknowledges all numbers but those it always
fails at.
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
            while not self._is_finished():
                with suppress(OSError, EOFError):  # The broker is dead: try again.
                    self._converse()
                self._is_over.wait(0.01)
        except BaseException as problem:
            self.problems.append(problem)

    def _is_finished(self) -> bool:
        return self._is_over.is_set()

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
        self.is_unanswered = False
        # Numbers that the broker had already when they were sent again: a kill came after the
        # append was durable, and before its answer.
        self.answers_lost: list[int] = []

    def _is_finished(self) -> bool:
        return super()._is_finished() and not self.is_unanswered

    def _talk(self, connection: socket.socket, stream: BufferedReader) -> None:
        while not self._is_finished():
            number = b"%d" % self.acknowledged
            headers = b"Msg-ID: " + number + b"\r\n\r\n"
            sizes = len(headers), len(headers) + len(number)
            self.is_unanswered = True
            connection.sendall(b"HPUB jobs.new %d %d\r\n" % sizes + headers + number + b"\r\n")
            answer = _line(stream)
            if not answer.startswith(b"+OK"):
                raise AssertionError(f"refused: {answer!r}")
            if answer == b"+OK DUP\r\n":
                self.answers_lost.append(self.acknowledged)
            self.acknowledged += 1
            self.is_unanswered = False


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
