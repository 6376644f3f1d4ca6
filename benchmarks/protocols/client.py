"""The client of all sides: a socket, frames made beforehand, and no more Python than a count.

A publisher sends while fewer than `window` of its records are unanswered; a subscriber reads, and
acknowledges where that is asked for. Both live in one thread around one `poll`. Deliveries are kept
and read after the clock stopped, unless they have to be acknowledged.
"""

import os
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from json import dumps

from benchmarks.kafka.comparison import percentile
from benchmarks.kafka.job import Broken, Go, Stopwatch, deadline, work_as
from benchmarks.protocols import flymq
from benchmarks.protocols.wire import (
    DIALECTS,
    Allowance,
    Counter,
    Dialect,
    Messages,
    deferred_publications,
    publications,
    subjects,
    value,
)

PART_BYTES = 256 * 1024
NO_WINDOW = 2**40
POLL_MS = 1_000
SECONDS_MAX = 30
TRIED_SHARE = 20
LEAD_S_MIN, LEAD_S_MAX = 3.0, 60.0
LEAD_FACTOR = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run of one client."""

    host: str
    port: int
    dialect: str
    topic: str
    size: int
    count: int
    subjects: int = 1
    window: int = NO_WINDOW
    listeners: int = 0
    acknowledges: bool = False
    spread_s: float = 0.0  # Of deferred records: from the first that is due to the last.
    where: str = ""
    cores: Sequence[int] = ()

    def text(self) -> str:
        return dumps(asdict(self))


class Publisher:
    """Says all it has, with a bound on what is unanswered."""

    def __init__(
        self, connection: socket.socket, dialect: Dialect, said: Allowance, count: int
    ) -> None:
        self.socket = connection
        self._allowance = said
        self._answers = Counter(dialect.answer) if dialect.answer else None
        self._error = dialect.error
        self._count = count

    @property
    def is_done(self) -> bool:
        if self._answers is None:
            return self._allowance.is_used_up
        return self._answers.count >= self._count

    @property
    def wants_to_send(self) -> bool:
        return len(self._part()) > 0

    def send(self) -> None:
        self._allowance.sent(self.socket.send(self._part()))

    def receive(self, data: bytes) -> None:
        if self._error in data:
            raise Broken(data[data.index(self._error) :][:200].decode(errors="replace"))
        if self._answers is not None:
            self._answers.feed(data)

    def _part(self) -> memoryview:
        answered = 0 if self._answers is None else self._answers.count
        return self._allowance.part(answered, PART_BYTES)


class Listener:
    """Hears so many messages, and can prove afterwards that it heard each once."""

    def __init__(
        self, connection: socket.socket, dialect: Dialect, task: Task, *, is_timed: bool = False
    ) -> None:
        self.socket = connection
        self.arrivals: list[tuple[float, list[tuple[bytes, bytes]]]] = []
        self._count = task.count
        self._messages = Messages(dialect, task.size)
        self._acknowledges = task.acknowledges
        self._is_read_now = task.acknowledges or is_timed
        self._heard = Counter(b"MSG ")
        self._read_count = 0
        self._unread: list[bytes] = []
        self._outgoing = bytearray()

    @property
    def is_done(self) -> bool:
        heard = self._read_count if self._is_read_now else self._heard.count
        return heard >= self._count and not self._outgoing

    @property
    def wants_to_send(self) -> bool:
        return len(self._outgoing) > 0

    def send(self) -> None:
        del self._outgoing[: self.socket.send(self._outgoing)]

    def receive(self, data: bytes) -> None:
        if not self._is_read_now:
            self._heard.feed(data)
            self._unread.append(data)
            return
        arrived = self._messages.feed(data)
        self.arrivals.append((time.time(), arrived))
        self._read_count += len(arrived)
        if self._acknowledges:
            self._outgoing += b"".join([b"ACK %b\r\n" % token for token, _ in arrived])

    def check(self) -> None:
        """Prove that every number came, and came once."""
        for data in self._unread:
            self.arrivals.append((0.0, self._messages.feed(data)))
        numbers = [number for _, messages in self.arrivals for _, number in messages]
        expected = {b"%016d" % number for number in range(self._count)}
        missing, more = len(expected - set(numbers)), len(numbers) - self._count
        if missing or more:
            raise Broken(f"{missing} of {self._count} missing, {more} more than were published")


def publish(task: Task, go: Go) -> dict[str, object]:
    publisher, _ = prepare(task)
    go()
    watch = Stopwatch()
    pump([publisher])
    return watch.stop()


def fan_out(task: Task, go: Go) -> dict[str, object]:
    """From the first publication to the last delivery."""
    publisher, listeners = prepare(task)
    go()
    watch = Stopwatch()
    pump([publisher, *listeners])
    usage = watch.stop()
    for listener in listeners:
        listener.check()
    return usage


def one_by_one(task: Task, go: Go) -> dict[str, object]:
    """Each record is answered before the next is sent; every answer says where it is."""
    dialect = DIALECTS[task.dialect]
    connection = dial(task, dialect)
    connection.settimeout(SECONDS_MAX)
    said, frame_bytes = publications(
        dialect, subjects(task.topic, 1), size=task.size, count=task.count
    )
    go()
    watch = Stopwatch()
    for number in range(task.count):
        connection.sendall(said[number * frame_bytes : (number + 1) * frame_bytes])
        heard = b""
        while not heard.endswith(b"}\r\n"):
            heard += connection.recv(4096)
        if b'"seq":%d' % (number + 1) not in heard:
            raise Broken(heard.decode(errors="replace"))
    return watch.stop()


def produce_flymq(task: Task, go: Go) -> dict[str, object]:
    with flymq.FlymqConnection(task.host, task.port) as client:
        head, tail = flymq.produce_request(task.topic, task.size)
        values = [value(number, task.size) for number in range(task.count)]
        go()
        watch = Stopwatch()
        for number, content in enumerate(values):
            offset = client.produce(head + content + tail)
            if offset != number:
                raise Broken(f"record {number} was stored at {offset}")
        return watch.stop()


def fetch_flymq(task: Task, go: Go) -> dict[str, object]:
    """Read a topic of `count` records through a filter."""
    with flymq.FlymqConnection(task.host, task.port) as client:
        go()
        watch = Stopwatch()
        offset, matched = 0, 0
        while offset < task.count:
            count, offset = client.fetch(task.topic, offset, task.where)
            matched += count
        return watch.stop() | {"found": matched}


def defer(task: Task, go: Go) -> dict[str, object]:
    """Have records delivered later; how much later than asked for did they arrive?"""
    dialect = DIALECTS[task.dialect]
    listener = subscribed(task, dialect, is_timed=True)
    connection = dial(task, dialect)
    go()
    lead_s = lead(task, time_deferring(task, connection))
    first_ms = int((time.time() + lead_s) * 1000)
    dues = [first_ms + int(at * task.spread_s * 1000 / task.count) for at in range(task.count)]
    usage = publish_deferred(task, connection, subjects(task.topic, 1)[0], dues)
    if time.time() * 1000 >= first_ms:
        raise Broken(f"the first was due before all {task.count} were pending")
    pump([listener])
    listener.check()
    return usage | lateness(listener.arrivals, dues)


def time_deferring(task: Task, connection: socket.socket) -> float:
    """How many seconds a record takes to be taken in: tried with a few that nobody waits for."""
    due_ms = int(time.time() * 1000) + 1_000
    subject = subjects(f"{task.topic}-try", 1)[0]
    count = max(1, task.count // TRIED_SHARE)
    started = time.perf_counter()
    publish_deferred(task, connection, subject, [due_ms] * count)
    return (time.perf_counter() - started) / count


def lead(task: Task, record_s: float) -> float:
    """How far off the first must be so that all are pending before it is due."""
    lead_s = LEAD_S_MIN + LEAD_FACTOR * record_s * task.count
    if lead_s > LEAD_S_MAX:
        raise Broken(f"{task.count} records would take about {lead_s:.0f} s to be taken in")
    return lead_s


def publish_deferred(
    task: Task, connection: socket.socket, subject: bytes, dues_ms: Sequence[int]
) -> dict[str, object]:
    said = deferred_publications(subject, dues_ms, size=task.size)
    publisher = Publisher(
        connection, DIALECTS[task.dialect], Allowance(*said, task.window), len(dues_ms)
    )
    watch = Stopwatch()
    pump([publisher])
    return watch.stop()


def lateness(
    arrivals: Sequence[tuple[float, list[tuple[bytes, bytes]]]], dues_ms: Sequence[int]
) -> dict[str, object]:
    """Percentiles in milliseconds; a record that came early is worse than any."""
    late = sorted(
        at * 1000 - dues_ms[int(number)] for at, messages in arrivals for _, number in messages
    )
    if late[0] < 0:
        raise Broken(f"a record came {-late[0]:.3f} ms before it was due")
    return {
        "p50_ms": percentile(late, 0.5),
        "p99_ms": percentile(late, 0.99),
        "max_ms": late[-1],
        "min_ms": late[0],
    }


def prepare(task: Task) -> tuple[Publisher, list[Listener]]:
    """Connections that are open, and everything that will be said."""
    if task.cores:
        os.sched_setaffinity(0, task.cores)
    dialect = DIALECTS[task.dialect]
    said = publications(
        dialect, subjects(task.topic, task.subjects), size=task.size, count=task.count
    )
    listeners = [subscribed(task, dialect) for _ in range(task.listeners)]
    connection = dial(task, dialect)
    return Publisher(connection, dialect, Allowance(*said, task.window), task.count), listeners


def dial(task: Task, dialect: Dialect) -> socket.socket:
    connection = socket.create_connection((task.host, task.port), timeout=SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if dialect.greeting:
        connection.sendall(dialect.greeting + b"PING\r\n")
        hear(connection, b"PONG\r\n")
    connection.setblocking(False)
    return connection


def subscribed(task: Task, dialect: Dialect, *, is_timed: bool = False) -> Listener:
    connection = dial(task, dialect)
    connection.settimeout(SECONDS_MAX)
    connection.sendall(dialect.subscribe % f"{task.topic}.>".encode())
    hear(connection, dialect.subscribed)
    connection.setblocking(False)
    return Listener(connection, dialect, task, is_timed=is_timed)


def hear(connection: socket.socket, expected: bytes) -> None:
    heard = b""
    while expected not in heard:
        part = connection.recv(4096)
        if not part or b"-ERR" in heard:
            raise Broken(f"no {expected!r} but {heard!r}")
        heard += part


def pump(ends: Sequence[Publisher | Listener]) -> None:
    """Send and receive until all are done."""
    poll = select.poll()
    by_number = {end.socket.fileno(): end for end in ends}
    for number in by_number:
        poll.register(number, select.POLLIN)
    until = deadline()
    asked = dict.fromkeys(by_number, False)
    while not all(end.is_done for end in ends):
        for number, end in by_number.items():
            if end.wants_to_send != asked[number]:
                asked[number] = not asked[number]
                poll.modify(number, select.POLLIN | (select.POLLOUT if asked[number] else 0))
        ready = poll.poll(POLL_MS)
        for number, events in ready:
            end = by_number[number]
            if events & select.POLLIN:
                data = end.socket.recv(PART_BYTES)
                if not data:
                    raise Broken("the broker closed the connection")
                end.receive(data)
            if events & select.POLLOUT and end.wants_to_send:
                end.send()
            if events & ~(select.POLLIN | select.POLLOUT):
                raise Broken("the connection broke")
        if time.monotonic() > until:
            raise Broken("it took too long")


if __name__ == "__main__":
    from benchmarks.protocols.kafka import read_topic

    work_as(
        Task,
        {
            "publish": publish,
            "fan_out": fan_out,
            "one_by_one": one_by_one,
            "produce_flymq": produce_flymq,
            "fetch_flymq": fetch_flymq,
            "defer": defer,
            "read_topic": read_topic,
        },
    )
