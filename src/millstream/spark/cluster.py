"""What the source asks of a cluster: topics, offsets, records, committed offsets.

Owns who leads what, the connections, and patience: leaders move, brokers restart, and all of that
is tried again until `patience_ms` is over. The one thing to know: a deleted topic looks like one
that is not there yet, so it is believed to be gone only when asked several times.
"""

import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar
from uuid import UUID

from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.data import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from millstream.kafka_wire.apis.discovery import MetadataRequest, MetadataResponse
from millstream.kafka_wire.error_codes import RETRIABLE, ErrorCode
from millstream.kafka_wire.schema import NO_ID
from millstream.model import TopicPartition
from millstream.spark.errors import Refused, UnknownPartition, Unreachable
from millstream.spark.options.kafka import ClientSettings
from millstream.spark.read.fetched import Aborted
from millstream.spark.wire import Connection

CLUSTERS_MAX = 8  # Kept open by one process.
BACKOFF_MS_MAX = 1_000
UNKNOWN_TRIES_MAX = 4  # Before a topic that nobody knows is taken for deleted.

log = logging.getLogger(__name__)
_T = TypeVar("_T")
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Again(Exception):
    """A broker said something that a moment, or another broker, will change."""


_ASKED_AGAIN = (OSError, ProtocolError, Again, UnknownPartition)


class OutOfRange(Exception):
    """The offset asked for is not in the log, or not any more."""


class Damaged(Exception):
    """The broker refuses to read at this offset: the bytes on its disk are not what was written."""


class Fetched(NamedTuple):
    """A piece of a partition's log, and the transactions in it that were aborted."""

    records: memoryview
    aborted: list[Aborted]


@lru_cache(maxsize=CLUSTERS_MAX)
def cluster_for(settings: ClientSettings) -> "Cluster":
    """The one client of this process with these settings: Spark uses a worker for many tasks."""
    return Cluster(settings)


class Cluster:
    """A client of one cluster. Not for use by several threads at once."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}  # As the last metadata of a topic had them.
        self._connections: dict[tuple[str, int], Connection] = {}

    # -- topics ------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics but the brokers' own."""

        def ask() -> list[str]:
            response = self._metadata(None)
            return sorted(t.name for t in response.topics if t.name and not t.is_internal)

        return self.patiently("list topics", ask)

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of these topics; those that do not exist have none."""
        wanted = sorted(set(topics))
        for attempt in range(UNKNOWN_TRIES_MAX):
            found = self.patiently("find partitions", lambda: self._known_partitions(wanted))
            if {target.topic for target in found} >= set(wanted):
                break
            if attempt + 1 < UNKNOWN_TRIES_MAX:
                self._pause(attempt)
        return found

    def _known_partitions(self, topics: list[str]) -> list[TopicPartition]:
        response = self._metadata(topics) if topics else None
        found = []
        for topic in response.topics if response else ():
            if topic.error_code not in _GONE:
                check(topic.error_code, topic.name)
                found += [
                    TopicPartition(topic.name or "", p.partition_index) for p in topic.partitions
                ]
        return sorted(found)

    def last_topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics as of when they were last looked at; old brokers have none."""
        return {name: self._topic_ids[name] for name in set(topics) if name in self._topic_ids}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics as of now; those that are gone have none."""
        wanted = sorted(set(topics))
        if wanted:
            self.patiently("look up topic ids", lambda: self._known_partitions(wanted))
        return self.last_topic_ids(wanted)

    def is_topic(self, name: str, topic_id: str) -> bool:
        """Whether a topic still has this id, or is gone.

        Brokers learn of a new topic one after the other, so another id is believed only when it is
        found several times.
        """
        for attempt in range(UNKNOWN_TRIES_MAX):
            if self.topic_ids([name]).get(name, topic_id) == topic_id:
                return True
            if attempt + 1 < UNKNOWN_TRIES_MAX:
                self._pause(attempt)
        return False

    def partition_count(self, topic: str) -> int:
        """How many partitions there are to write to; a broker may create the topic for that."""

        def ask() -> int:
            (found,) = self._metadata([topic], may_create=True).topics
            check(found.error_code, topic)
            return len(found.partitions)

        return self.patiently(f"find topic {topic}", ask)

    def leader_addresses(
        self, targets: Iterable[TopicPartition]
    ) -> dict[tuple[str, int], list[TopicPartition]]:
        """Who leads what, as far as it is known; asked if it is not. Not patient."""
        found = self._by_leader(targets)
        if not self._brokers.keys() >= found.keys():
            raise Again(f"nodes {sorted(found.keys() - self._brokers.keys())} are not known")
        return {self._brokers[node_id]: led for node_id, led in found.items()}

    # -- offsets -----------------------------------------------------------------------------------

    def offsets(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset at each time in ms, -1 if none is as late; or by `EARLIEST` and `LATEST`.

        Raises `UnknownPartition` if one does not exist.
        """
        found: dict[TopicPartition, int] = {}

        def ask() -> None:
            missing = {target: ms for target, ms in at.items() if target not in found}
            for node_id, targets in self._by_leader(missing).items():
                found.update(self._list_offsets(node_id, {t: missing[t] for t in targets}))

        self.patiently("look up offsets", ask)
        return found

    def _list_offsets(
        self, node_id: int, at: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        parts = ListOffsetsRequest.Topic
        request = ListOffsetsRequest(
            isolation_level=self.settings.isolation.value,
            topics=[
                parts(
                    name=topic,
                    partitions=[
                        parts.Partition(partition_index=t.partition, timestamp=at[t])
                        for t in at
                        if t.topic == topic
                    ],
                )
                for topic in sorted({t.topic for t in at})
            ],
            timeout_ms=self.settings.request_ms_max,
        )
        response = self.node(node_id).call(request, ListOffsetsResponse)
        found = {}
        for topic in response.topics:
            for partition in topic.partitions:
                target = TopicPartition(topic.name, partition.partition_index)
                check(partition.error_code, target)
                found[target] = partition.offset
        return found

    # -- records -----------------------------------------------------------------------------------

    def begin_fetch(self, target: TopicPartition, offset: int) -> Callable[[], Fetched]:
        """Ask for records from `offset` on; call the result to wait for them.

        The answer is on its way meanwhile. What goes wrong with it is asked for again, patiently.
        """
        try:
            connection = self.node(self._leader(target))
            connection.send(self._fetch_request(target, offset, self.settings.fetch_bytes))
        except _ASKED_AGAIN:
            return lambda: self.fetch(target, offset)

        def finish() -> Fetched:
            try:
                return self._fetched(target, connection.receive(FetchResponse))
            except _ASKED_AGAIN:
                return self.fetch(target, offset)

        return finish

    def fetch(
        self, target: TopicPartition, offset: int, *, bytes_max: int | None = None
    ) -> Fetched:
        """Read whole batches from `offset` on.

        Raises `OutOfRange`, `Damaged` and `UnknownPartition`.
        """
        request = self._fetch_request(target, offset, bytes_max or self.settings.fetch_bytes)

        def ask() -> Fetched:
            connection = self.node(self._leader(target))
            return self._fetched(target, connection.call(request, FetchResponse))

        return self.patiently(f"read {target} from offset {offset}", ask)

    def _fetch_request(self, target: TopicPartition, offset: int, bytes_max: int) -> FetchRequest:
        partition = FetchRequest.Topic.Partition(
            partition=target.partition, fetch_offset=offset, partition_max_bytes=bytes_max
        )
        return FetchRequest(
            max_wait_ms=self.settings.fetch_wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=self.settings.isolation.value,
            topics=[FetchRequest.Topic(topic=target.topic, partitions=[partition])],
        )

    def _fetched(self, target: TopicPartition, response: FetchResponse) -> Fetched:
        check(response.error_code, target)
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise OutOfRange
                if partition.error_code == ErrorCode.CORRUPT_MESSAGE:
                    raise Damaged  # Retriable by Kafka's table, but a disk does not mend itself.
                check(partition.error_code, target)
                chunks = partition.records or [b""]
                return Fetched(
                    memoryview(chunks[0]),  # type: ignore[arg-type]  # One view, when read.
                    [
                        Aborted(found.producer_id, found.first_offset)
                        for found in partition.aborted_transactions or ()
                    ],
                )
        if response.throttle_time_ms:
            time.sleep(response.throttle_time_ms / 1000)
        raise Again(f"an answer without {target}")

    # -- patience ----------------------------------------------------------------------------------

    def patiently(self, what: str, ask: Callable[[], _T]) -> _T:
        """Do it again, with everything known of the cluster forgotten, until patience is over."""
        deadline = time.monotonic() + self.settings.patience_ms / 1000
        attempt = unknown_count = 0
        while True:
            try:
                return ask()
            except UnknownPartition:
                unknown_count += 1
                if unknown_count >= UNKNOWN_TRIES_MAX:
                    raise
            except (OSError, ProtocolError, Again) as problem:
                if time.monotonic() > deadline:
                    seconds = self.settings.patience_ms / 1000
                    raise Unreachable(f"could not {what} for {seconds:g} s: {problem}") from problem
                log.debug("trying again to %s: %s", what, problem)
            self.forget()
            self._pause(attempt)
            attempt += 1

    def forget(self) -> None:
        """Close all connections and ask anew who leads what."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()

    def _pause(self, attempt: int) -> None:
        time.sleep(min(self.settings.backoff_ms * 2 ** min(attempt, 10), BACKOFF_MS_MAX) / 1000)

    # -- who is where ------------------------------------------------------------------------------

    def node(self, node_id: int) -> Connection:
        """The connection to a node that metadata named."""
        if node_id not in self._brokers:
            raise Again(f"node {node_id} is not known")
        return self.connection(self._brokers[node_id])

    def connection(self, address: tuple[str, int]) -> Connection:
        found = self._connections.get(address)
        # One that still waits for an answer belongs to a reader that was given up.
        if found is None or not found.is_idle:
            if found is not None:
                found.close()
            found = self._connections[address] = Connection(address, self.settings)
        return found

    def anyone(self) -> Connection:
        """A connection to some broker, an open one first."""
        for found in self._connections.values():
            if found.is_idle:
                return found
        problems = []
        for address in (*self.settings.bootstrap, *self._brokers.values()):
            try:
                return self.connection(address)
            except (OSError, ProtocolError) as problem:
                problems.append(f"{address[0]}:{address[1]} ({problem})")
        raise Again(f"no broker answers: {', '.join(dict.fromkeys(problems))}")

    def _metadata(self, topics: list[str] | None, *, may_create: bool = False) -> MetadataResponse:
        named = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=may_create)
        response = self.anyone().call(request, MetadataResponse)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            self._topic_ids.pop(topic.name or "", None)
            if topic.topic_id != NO_ID and topic.error_code not in _GONE:
                self._topic_ids[topic.name or ""] = _spelt(topic.topic_id)
            for partition in topic.partitions:
                target = TopicPartition(topic.name or "", partition.partition_index)
                self._leaders[target] = partition.leader_id
        return response

    def _leader(self, target: TopicPartition) -> int:
        return next(iter(self._by_leader([target])))

    def _by_leader(self, targets: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        wanted = list(targets)
        unknown = sorted({t.topic for t in wanted if t not in self._leaders})
        if unknown:
            self._metadata(unknown)
        found: dict[int, list[TopicPartition]] = {}
        for target in wanted:
            if target not in self._leaders:
                raise UnknownPartition(target)
            if self._leaders[target] < 0:
                raise Again(f"{target} has no leader at the moment")
            found.setdefault(self._leaders[target], []).append(target)
        return found


def _spelt(topic_id: UUID) -> str:
    """As Kafka's tools print it."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def check(code: int, what: object) -> None:
    if code == ErrorCode.NONE:
        return
    if code in _GONE:
        raise UnknownPartition(what)
    name = ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
    if code in RETRIABLE:
        raise Again(f"{what}: {name}")
    raise Refused(f"the broker refuses {what}: {name}")
