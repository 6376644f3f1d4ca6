"""A client of the classic protocol: create, publish, subscribe, each one blocking call.

Owns one connection and two threads: one reads answers and records, one sends heartbeats. Calls that
ask the broker for something return whether it was done, and `last_error` says why not; without a
connection they raise `ConnectionError`. Invariant: handlers run in the reading thread, one
record after the other, and records wait in the broker while one of them is busy. A handler may ask
the broker itself: it then reads from the connection until the answer is there.
"""

import logging
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import NamedTuple, Self

from millstream.errors import ProtocolError
from millstream.protocols.classic.wire import Frame, Frames, Kind, decode, encodable, encode

_log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_S = 30.0
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
END_TIMEOUT_S = 5.0
FRAME_BYTES_MAX = 100 * 2**20
_READ_BYTES = 256 * 1024


class Message(NamedTuple):
    message_type: Kind
    body: bytes
    properties: Mapping[str, str]
    sequence_number: int  # Of a record: its offset.
    timestamp: float  # In seconds.


Handler = Callable[[Message], object]


class BrokerClient:
    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9999,
        client_id: str | None = None,
        *,
        user: str | None = None,
        password: str = "",
    ) -> None:
        """With a `user` the client logs in when it connects."""
        self._user = user
        self._password = password
        self.host = host
        self.port = port
        self.client_id = client_id or f"client_{int(time.time())}_{secrets.token_hex(4)}"
        self.heartbeat_interval = HEARTBEAT_INTERVAL_S
        self.request_timeout = REQUEST_TIMEOUT_S
        self.last_error = ""  # Why the last call returned False.
        self._link: _Link | None = None
        self._threads: list[threading.Thread] = []
        self._sequence = 0
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
        return self._link is not None and not self._link.ended.is_set()

    def connect(self) -> bool:
        """Connect, also after the broker was lost, or raise `ConnectionError`.

        After that nothing is joined: the broker has let go of who was gone.
        """
        if self.is_connected:
            return True
        self.disconnect()
        try:
            connection = socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_S)
        except (OSError, OverflowError) as problem:  # The latter for a port that cannot be.
            why = getattr(problem, "strerror", None) or problem
            raise ConnectionError(
                f"no classic broker at {self.host}:{self.port}: {why}"
            ) from problem
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link = link = _Link(connection)
        self._threads = [
            threading.Thread(target=work, args=(link,), daemon=True)
            for work in (self._read, self._beat)
        ]
        link.reader = self._threads[0]
        for thread in self._threads:
            thread.start()
        if self._user is not None:
            self._log_in(self._user)
        return True

    def _log_in(self, user: str) -> None:
        if not self._done(Kind.AUTHENTICATE, user=user, password=self._password):
            reason = self.last_error
            self.disconnect()
            raise ConnectionError(f"{self.host}:{self.port} refuses user {user!r}: {reason}")

    def disconnect(self) -> None:
        """Leave; durable subscriptions stay with the broker."""
        link, self._link = self._link, None
        if link is None:
            return
        link.end("")
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(END_TIMEOUT_S)  # A handler may be at work, even for ever.
        link.socket.close()
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
        before = self._handlers.get(subscription_id)
        self._handlers[subscription_id] = handler
        is_done = self._done(
            Kind.SUBSCRIBE, subscription_id=subscription_id, subscriber_id=self.client_id
        )
        if not is_done:
            self._handlers[subscription_id] = before
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
            if not encodable(name, value):
                shown = "[hidden]" if name == "password" else repr(value)
                raise ValueError(f"{name}={shown} cannot be a property: '=' and NUL are its ends")
        link = self._link
        if link is None or link.ended.is_set():
            raise ConnectionError(f"not connected to {self.host}:{self.port}: call connect()")
        with link.sending:
            self._sequence += 1
            asked = Frame(kind, self._sequence, _now_ms(), spelt, body)
            try:
                answer = link.ask(asked)
            except OSError as problem:
                raise ConnectionError(f"{self.host}:{self.port} is gone: {problem}") from problem
        try:
            reply = link.wait_for(answer, self.request_timeout)
        except TimeoutError:
            waited = f"{self.request_timeout:g} s"
            self.last_error = f"no answer from {self.host}:{self.port} within {waited}"
            return None
        finally:
            link.answers.pop(asked.sequence, None)
        if reply is None:
            why = f": {link.problem}" if link.problem else ""
            raise ConnectionError(f"{self.host}:{self.port} closed the connection{why}")
        if reply.properties.get("status") != "success":
            self.last_error = reply.properties.get("error", "refused")
            return None
        return reply.properties

    def _read(self, link: "_Link") -> None:
        while link.receive():
            while link.records:
                self._handle(link.records.popleft())
        if link.problem:
            _log.warning("lost the broker at %s:%d: %s", self.host, self.port, link.problem)

    def _handle(self, frame: Frame) -> None:
        handler = self._handlers.get(frame.properties.get("subscription_id", ""))
        if handler is None:
            return
        message = Message(
            Kind.DATA, frame.body, frame.properties, frame.sequence, frame.timestamp_ms / 1000
        )
        try:
            handler(message)
        except Exception:
            # The next record is not to blame; the broker takes this one as delivered.
            _log.exception("a handler failed at offset %d", frame.sequence)

    def _beat(self, link: "_Link") -> None:
        while not link.ended.wait(self.heartbeat_interval):
            with suppress(OSError), link.sending:
                link.socket.sendall(encode(Frame(Kind.HEARTBEAT, 0, _now_ms(), {})))


# What becomes of a request: its answer, or None if none will come.
_Answer = SimpleQueue[Frame | None]


class _Link:
    """One connection, and what has arrived on it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.sending = threading.Lock()
        self.reader: threading.Thread | None = None  # Who alone may `receive`.
        self.answers: dict[int, _Answer] = {}  # By the request's number.
        self.records: deque[Frame] = deque()  # Arrived, and not handled yet.
        self.ended = threading.Event()
        self.problem = ""  # Why it ended, unless that is what somebody wanted.
        self._frames = Frames(frame_bytes_max=FRAME_BYTES_MAX)

    def ask(self, frame: Frame) -> _Answer:
        answer: _Answer = SimpleQueue()
        spelt = encode(frame)
        self.answers[frame.sequence] = answer
        self.socket.sendall(spelt)
        return answer

    def wait_for(self, answer: _Answer, timeout_s: float) -> Frame | None:
        """The answer, or None if the connection ends before; raises `TimeoutError`."""
        deadline = time.monotonic() + timeout_s
        if threading.current_thread() is self.reader:
            while answer.empty() and self._is_readable(deadline) and self.receive():
                pass
        elif self.ended.is_set():
            answer.put(None)  # It may have ended before it knew of the question.
        try:
            return answer.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise TimeoutError from None

    def receive(self) -> bool:
        """Take what arrives next; False if that is the end."""
        try:
            data = b"" if self.ended.is_set() else self.socket.recv(_READ_BYTES)
            for whole in self._frames.feed(data):
                frame = decode(whole)
                if frame.kind == Kind.DATA:
                    self.records.append(frame)
                elif frame.kind == Kind.ACK and frame.sequence in self.answers:
                    self.answers[frame.sequence].put(frame)
        except (OSError, ProtocolError) as problem:
            self.end(str(problem))
            return False
        if not data:
            self.end("")
        return bool(data)

    def end(self, problem: str) -> None:
        if self.ended.is_set():
            return
        self.problem = problem
        self.ended.set()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        for answer in list(self.answers.values()):
            answer.put(None)

    def _is_readable(self, deadline: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            return bool(selector.select(max(0.0, deadline - time.monotonic())))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
