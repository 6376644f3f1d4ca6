"""The Java clients behind the driver: short words for what the tests do with them."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, NamedTuple

from tests.interop.java.driver import Driver, JavaError
from tests.interop.samples import Sample

SECONDS_MAX = 30
_names = count()
# A member learns of a rebalance from its heartbeat, and a consumer that closes waits for its fetch.
CLASSIC = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
READING = {"auto.offset.reset": "earliest", "enable.auto.commit": "false", "fetch.max.wait.ms": 100}
PATIENCE = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_type: str
    sample: Sample


class Client:
    """A client that is open in the driver, under a name of its own."""

    kind = "client"

    def __init__(self, driver: Driver, config: dict[str, object], **flags: object) -> None:
        self._driver = driver
        self._is_closed = False
        self.name = f"{self.kind}-{next(_names)}"
        self.ask("open", config=config, **flags)

    def close(self) -> Any:
        """Once; a test may close a client before the end of its block."""
        if self._is_closed:
            return None
        self._is_closed = True
        return self.ask("close")

    def ask(self, verb: str, **parameters: object) -> Any:  # JSON, as it comes.
        return self._driver.ask(f"{self.kind}.{verb}", self._written(parameters))

    def _written(self, parameters: dict[str, object]) -> dict[str, object]:
        written: dict[str, object] = {"name": self.name}
        for key, value in parameters.items():
            if isinstance(value, dict):
                written |= {f"{key}.{name}": inner for name, inner in value.items()}
            else:
                written[key] = value
        return written


class Producer(Client):
    kind = "producer"

    def send(self, topic: str, samples: Iterable[Sample], partition: int | None = 0) -> list[Any]:
        """Where each record lies, or the names of what Java threw for it."""
        self.start_sending(topic, samples, partition)
        return self.finish_sending()

    def start_sending(
        self, topic: str, samples: Iterable[Sample], partition: int | None = 0
    ) -> None:
        records = [written(item, partition) for item in samples]
        parameters = self._written({"topic": topic, "record": records})
        self._driver.tell("producer.send", parameters)

    @property
    def has_finished_sending(self) -> bool:
        return self._driver.has_answered

    def finish_sending(self) -> list[Any]:
        reports = self._driver.hear()
        return [report["errors"] if "errors" in report else tuple(report) for report in reports]

    def send_offset(self, consumer: "Consumer", topic: str, partition: int, offset: int) -> None:
        at = f"{topic},{partition}"
        self.ask("offsets", consumer=consumer.name, partition=at, offset=offset)


class Consumer(Client):
    kind = "consumer"

    def assign(self, topic: str, *partitions: int) -> None:
        expected = [f"{topic},{partition}" for partition in partitions or (0,)]
        self.ask("assign", partition=expected, from_beginning=True)

    def poll(self, count: int = 1, ms: int = 20) -> tuple[list[Record], list[Any]]:
        """At least `count` records, or fewer when so much time passed; and what the group did."""
        answer = self.ask("poll", count=count, ms=ms)
        return [as_record(fields) for fields in answer["records"]], answer["events"]

    def take(self, count: int) -> list[Record]:
        records, _ = self.poll(count, SECONDS_MAX * 1_000)
        assert len(records) >= count, f"{len(records)} of {count} records came"
        return records

    def drain(self) -> list[Record]:
        """All that is in its partitions now; waits for transactions that are being ended."""
        return [as_record(fields) for fields in self.ask("drain")]

    def committed(self, topic: str, partition: int = 0) -> Any:
        return self.ask("committed", partition=f"{topic},{partition}")[f"{topic}-{partition}"]


class Admin(Client):
    kind = "admin"


class Java:
    """One release of the client, against whatever broker a test names."""

    def __init__(self, line: str, driver: Driver) -> None:
        self.line, self._driver = line, driver

    @contextmanager
    def producer(self, address: str, **settings: object) -> Iterator[Producer]:
        config = {"bootstrap.servers": address, "linger.ms": 5, **PATIENCE, **dotted(settings)}
        with closing(Producer(self._driver, config)) as producer:
            yield producer

    @contextmanager
    def consumer(
        self, address: str, *, commits_when_revoked: bool = False, **settings: object
    ) -> Iterator[Consumer]:
        config = {"bootstrap.servers": address, **PATIENCE, **READING, **dotted(settings)}
        if config.get("group.protocol") != "consumer":
            config = CLASSIC | config
        flags = {"commits_when_revoked": True} if commits_when_revoked else {}
        with closing(Consumer(self._driver, config, **flags)) as consumer:
            yield consumer

    @contextmanager
    def admin(self, address: str) -> Iterator[Admin]:
        config = {"bootstrap.servers": address, **PATIENCE}
        with closing(Admin(self._driver, config)) as admin:
            yield admin

    def write(
        self, address: str, topic: str, samples: Sequence[Sample], **settings: object
    ) -> list[Any]:
        with self.producer(address, **settings) as producer:
            reports = producer.send(topic, samples)
        assert [report for report in reports if isinstance(report, list)] == []
        return reports

    def read(self, address: str, topic: str, count: int, **settings: Any) -> list[Record]:
        with self.consumer(address, **settings) as consumer:
            consumer.assign(topic)
            return consumer.take(count)


@contextmanager
def closing(client: Client) -> Iterator[Any]:
    """Close it; after a failure, whatever the close says is not what went wrong."""
    try:
        yield client
    except BaseException:
        with suppress(JavaError, AssertionError):
            client.close()
        raise
    client.close()


def dotted(settings: dict[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def written(sample: Sample, partition: int | None) -> str:
    headers = [f"{encoded(name.encode())}:{encoded(value)}" for name, value in sample.headers]
    at = "" if partition is None else partition
    timestamp = "" if sample.timestamp_ms < 0 else sample.timestamp_ms
    return ",".join([str(at), str(timestamp), encoded(sample.key), encoded(sample.value), *headers])


def encoded(data: bytes | None) -> str:
    return "~" if data is None else base64.urlsafe_b64encode(data).decode()


def as_record(fields: dict[str, Any]) -> Record:
    headers: list[Any] = [(name, decoded(value)) for name, value in fields["headers"]]
    sample = Sample(decoded(fields["key"]), decoded(fields["value"]), headers, fields["timestamp"])
    return Record(
        fields["topic"], fields["partition"], fields["offset"], fields["timestamp_type"], sample
    )


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
