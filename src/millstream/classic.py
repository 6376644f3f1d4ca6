"""A client of the classic protocol: create, publish, subscribe, each one blocking call.

Owns one connection and two threads: one reads answers and records, one sends heartbeats. Calls that
ask the broker for something return whether it was done, and `last_error` says why not; who is not
connected gets a `ConnectionError`. The one thing to know: handlers run in the reading thread, one
record after the other, and records wait in the broker while one of them is busy.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import NamedTuple, Self

from millstream.errors import ProtocolError
from millstream.protocols.classic.wire import Frame, Frames, Kind, decode, encode, spellable

_log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_S = 30.0
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
FRAME_BYTES_MAX = 100 * 2**20
_READ_BYTES = 256 * 1024


class Message(NamedTuple):
    message_type: int
    body: bytes
    properties: Mapping[str, str]
    sequence_number: int  # Of a record: its offset.
    timestamp: int  # In milliseconds.


Handler = Callable[[Message], object]


class BrokerClient:
    def __init__(
        self, host: str = "127.0.0.1", port: int = 9999, client_id: str | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id or f"client_{int(time.time())}"
        self.heartbeat_interval = HEARTBEAT_INTERVAL_S
        self.request_timeout = REQUEST_TIMEOUT_S
        self.last_error = ""  # Why the last call returned False.
        self._socket: socket.socket | None = None
        self._ended = threading.Event()
        self._sending = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sequence = 0
        self._answers: dict[int, SimpleQueue[Frame | None]] = {}  # By the request's number.
        self._handlers: dict[str, Handler | None] = {}  # By subscription.
        self._legacy: dict[tuple[str, int], str] = {}  # Subscriptions made by `subscribe`.

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.disconnect()

    @property
    def is_connected(self) -> bool:
        return self._socket is not None and not self._ended.is_set()

    def connect(self) -> bool:
        """Connect, or raise `ConnectionError`."""
        if self._socket is not None:
            return True
        try:
            self._socket = socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_S)
        except OSError as problem:
            raise ConnectionError(
                f"no classic broker at {self.host}:{self.port}: {problem.strerror or problem}"
            ) from problem
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=work, args=(self._socket, self._ended), daemon=True)
            for work in (self._read, self._beat)
        ]
        for thread in self._threads:
            thread.start()
        return True

    def disconnect(self) -> None:
        """Leave; durable subscriptions stay with the broker."""
        connection, self._socket = self._socket, None
        if connection is None:
            return
        self._ended.set()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        connection.close()
        self._handlers.clear()
        self._legacy.clear()

    # -- what the broker is asked ------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 1, retention_hours: int = 24) -> bool:
        return self._done(
            Kind.CREATE_TOPIC, topic=topic, partitions=partitions, retention_hours=retention_hours
        )

    def create_subscription(self, subscription_id: str, topic: str, start_offset: int = 0) -> bool:
        return self._done(
            Kind.CREATE_SUBSCRIPTION,
            subscription_id=subscription_id,
            topic=topic,
            start_offset=start_offset,
        )

    def delete_subscription(self, subscription_id: str) -> bool:
        return self._done(Kind.DELETE_SUBSCRIPTION, subscription_id=subscription_id)

    def publish(
        self, topic: str, data: bytes, partition: int | None = None, **properties: object
    ) -> bool:
        """Write a record; True once it is durable."""
        asked: dict[str, object] = {"topic": topic, "client_id": self.client_id, **properties}
        if partition is not None:
            asked["partition"] = partition
        return self._ask(Kind.PUBLISH, asked, data) is not None

    def publish_text(
        self, topic: str, text: str, partition: int | None = None, **properties: object
    ) -> bool:
        return self.publish(topic, text.encode(), partition, **properties)

    def subscribe_to_subscription(
        self, subscription_id: str, handler: Handler | None = None
    ) -> bool:
        """Join a subscription: its records are shared by all who have joined it."""
        known = subscription_id in self._handlers
        self._handlers[subscription_id] = handler
        is_done = self._done(
            Kind.SUBSCRIBE, subscription_id=subscription_id, subscriber_id=self.client_id
        )
        if not is_done and not known:
            self._handlers.pop(subscription_id, None)
        return is_done

    def unsubscribe_from_subscription(self, subscription_id: str) -> bool:
        is_done = self._done(
            Kind.UNSUBSCRIBE, subscription_id=subscription_id, subscriber_id=self.client_id
        )
        self._handlers.pop(subscription_id, None)
        return is_done

    def create_and_subscribe(
        self,
        subscription_id: str,
        topic: str,
        start_offset: int = 0,
        handler: Handler | None = None,
    ) -> bool:
        return self.create_subscription(
            subscription_id, topic, start_offset
        ) and self.subscribe_to_subscription(subscription_id, handler)

    def subscribe(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        auto_ack: bool = True,
        handler: Handler | None = None,
    ) -> bool:
        """Read a topic through a subscription of this client's own; `auto_ack` changes nothing."""
        name = f"{self.client_id}_{topic}_{partition}_{int(time.time())}"
        if not self.create_and_subscribe(name, topic, offset, handler):
            return False
        self._legacy[topic, partition] = name
        return True

    def unsubscribe(self, topic: str, partition: int = 0) -> bool:
        name = self._legacy.pop((topic, partition), None)
        if name is None:
            self.last_error = f"not subscribed to {topic}"
            return False
        return self.unsubscribe_from_subscription(name) and self.delete_subscription(name)

    # -- parts -------------------------------------------------------------------------------------

    def _done(self, kind: Kind, **properties: object) -> bool:
        return self._ask(kind, properties) is not None

    def _ask(
        self, kind: Kind, properties: Mapping[str, object], body: bytes = b""
    ) -> Mapping[str, str] | None:
        """What the broker answers; None if it refuses, `last_error` says why."""
        spelt = {name: str(value) for name, value in properties.items()}
        for name, value in spelt.items():
            if not spellable(name, value):
                raise ValueError(f"{name}={value!r} cannot be a property: '=' and NUL are its ends")
        connection = self._socket
        if connection is None or self._ended.is_set():
            raise ConnectionError(f"not connected to {self.host}:{self.port}: call connect()")
        answers: SimpleQueue[Frame | None] = SimpleQueue()
        with self._sending:
            self._sequence += 1
            sequence = self._sequence
            self._answers[sequence] = answers
            self._write(connection, Frame(kind, sequence, _now_ms(), spelt, body))
        try:
            answer = answers.get(timeout=self.request_timeout)
        except Empty:
            self.last_error = f"no answer within {self.request_timeout:g} s"
            return None
        finally:
            self._answers.pop(sequence, None)
        if answer is None:
            raise ConnectionError(f"{self.host}:{self.port} closed the connection")
        if answer.properties.get("status") != "success":
            self.last_error = answer.properties.get("error", "refused")
            return None
        return answer.properties

    def _write(self, connection: socket.socket, frame: Frame) -> None:
        try:
            connection.sendall(encode(frame))
        except OSError as problem:
            raise ConnectionError(f"{self.host}:{self.port} is gone: {problem}") from problem

    def _read(self, connection: socket.socket, ended: threading.Event) -> None:
        frames = Frames(frame_bytes_max=FRAME_BYTES_MAX)
        try:
            while data := connection.recv(_READ_BYTES):
                for whole in frames.feed(data):
                    self._take(decode(whole))
        except (OSError, ProtocolError) as problem:
            if not ended.is_set():
                _log.warning("lost the broker at %s:%d: %s", self.host, self.port, problem)
        finally:
            ended.set()
            for answers in list(self._answers.values()):
                answers.put(None)

    def _take(self, frame: Frame) -> None:
        if frame.kind == Kind.DATA:
            handler = self._handlers.get(frame.properties.get("subscription_id", ""))
            if handler is not None:
                self._handle(handler, frame)
        elif frame.kind == Kind.ACK:
            answers = self._answers.get(frame.sequence)
            if answers is not None:
                answers.put(frame)

    def _handle(self, handler: Handler, frame: Frame) -> None:
        message = Message(
            frame.kind, frame.body, frame.properties, frame.sequence, frame.timestamp_ms
        )
        try:
            handler(message)
        except Exception:
            # The next record is not to blame; the broker takes this one as delivered.
            _log.exception("a handler failed at offset %d", frame.sequence)

    def _beat(self, connection: socket.socket, ended: threading.Event) -> None:
        while not ended.wait(self.heartbeat_interval):
            with suppress(ConnectionError), self._sending:
                self._write(connection, Frame(Kind.HEARTBEAT, 0, _now_ms(), {}))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
