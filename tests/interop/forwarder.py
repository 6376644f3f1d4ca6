"""A TCP port forward in threads: what stands between a client and a broker in the field."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Forwarder:
    """Listens at once; `target_port` may be told later, as the broker must know our port first."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.target_port = 0
        self.connection_count = 0
        self._spawn(self._accept)

    def close(self) -> None:
        # shutdown, not close alone: a close does not wake a thread that waits in accept or recv.
        for opened in [self._listener, *self._sockets]:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)
        for opened in [self._listener, *self._sockets]:
            opened.close()

    def _spawn(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connection_count += 1
            broker = socket.create_connection(("127.0.0.1", self.target_port))
            self._sockets += [client, broker]
            self._spawn(self._carry, client, broker, self.is_question_passed)
            self._spawn(self._carry, broker, client, self.is_answer_passed)

    def is_question_passed(self, data: bytes) -> bool:
        """Told of all that a client sends; False cuts the connection."""
        return True

    def is_answer_passed(self, data: bytes) -> bool:
        """Told of all that the broker sends; False cuts the connection."""
        return True

    def _carry(
        self, source: socket.socket, sink: socket.socket, is_passed: Callable[[bytes], bool]
    ) -> None:
        with suppress(OSError):
            while (data := source.recv(65_536)) and is_passed(data):
                sink.sendall(data)
            if data:
                source.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR if data else socket.SHUT_WR)


@contextmanager
def forwarding() -> Iterator[Forwarder]:
    forwarder = Forwarder()
    try:
        yield forwarder
    finally:
        forwarder.close()
