"""A blocking client of one cluster: topics, offsets, records.

Owns the leaders, the connections and the retries: leaders move and brokers restart, so an operation
is tried again until `patience_ms` is over. A deleted topic looks like one that is not there yet, so
it counts as gone only after `UNKNOWN_TRIES_MAX` answers.
"""

import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

from millstream.errors import ProtocolError
from millstream.kafka_client.answers import Aborted, Fetched
from millstream.kafka_client.connection import Connection
from millstream.kafka_client.errors import (
    CorruptMessage,
    OutOfRange,
    Refused,
    TransientError,
    UnknownPartition,
    Unreachable,
)
from millstream.kafka_client.settings import ClientSettings
from millstream.kafka_wire.apis.data import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from millstream.kafka_wire.apis.discovery import MetadataRequest, MetadataResponse
from millstream.kafka_wire.error_codes import RETRIABLE, ErrorCode, name_of
from millstream.kafka_wire.schema import NO_ID
from millstream.model import TopicPartition

CLUSTERS_MAX = 8  # Kept open by one process.
BACKOFF_MS_MAX = 1_000
UNKNOWN_TRIES_MAX = 4  # Before a topic that no broker knows counts as deleted.

log = logging.getLogger(__name__)
_T = TypeVar("_T")
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


# Errors after which a request is sent again.
RETRIED = (OSError, ProtocolError, TransientError)
_FETCH_RETRIED = (*RETRIED, UnknownPartition)


@lru_cache(maxsize=CLUSTERS_MAX)
def cluster_for(settings: ClientSettings) -> "Cluster":
    """This process's client with these settings: Spark runs many tasks in one worker."""
    return Cluster(settings)


class Cluster:
    """A client of one cluster. Not for use by several threads at once."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}  # As the last metadata of a topic had them.
        self._connections: dict[tuple[str, int], Connection] = {}
        self._spare: dict[tuple[str, int], Connection] = {}  # Of writers that are done.
        self.coordinators: dict[tuple[int, str], tuple[str, int]] = {}  # By kind and name.

    def __del__(self) -> None:
        # `cluster_for` keeps the last few: a client that it gives up may still serve a task.
        self.forget()

    # -- topics ------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics but the brokers' own."""

        def ask() -> list[str]:
            response = self._metadata(None)
            return sorted(t.name for t in response.topics if t.name and not t.is_internal)

        return self.retry("list topics", ask)

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of these topics; those that do not exist have none."""
        names = sorted(set(topics))
        for attempt in range(UNKNOWN_TRIES_MAX):
            partitions = self.retry("find partitions", lambda: self._known_partitions(names))
            if {target.topic for target in partitions} >= set(names):
                break
            if attempt + 1 < UNKNOWN_TRIES_MAX:
                self._pause(attempt)
        return partitions

    def _known_partitions(self, topics: list[str]) -> list[TopicPartition]:
        response = self._metadata(topics) if topics else None
        partitions = []
        for topic in response.topics if response else ():
            if topic.error_code not in _GONE:
                check(topic.error_code, topic.name)
                partitions += [
                    TopicPartition(topic.name or "", p.partition_index) for p in topic.partitions
                ]
        return sorted(partitions)

    def last_topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics in the last metadata of each; old brokers have none."""
        return {name: self._topic_ids[name] for name in set(topics) if name in self._topic_ids}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics as of now; those that are gone have none."""
        names = sorted(set(topics))
        if names:
            self.retry("look up topic ids", lambda: self._known_partitions(names))
        return self.last_topic_ids(names)

    def recreated(self, topic_ids: Mapping[str, str]) -> set[str]:
        """The topics that have another id by now; one that is gone is not among them.

        Brokers learn of a new topic one after the other, so another id counts only after
        `UNKNOWN_TRIES_MAX` answers.
        """
        for attempt in range(UNKNOWN_TRIES_MAX):
            now = self.topic_ids(topic_ids)
            others = {name for name in now if now[name] != topic_ids[name]}
            if not others:
                break
            if attempt + 1 < UNKNOWN_TRIES_MAX:
                self._pause(attempt)
        return others

    def partition_count(self, topic: str) -> int:
        """The number of partitions to write to; a broker may create the topic for that."""

        def ask() -> int:
            (created,) = self._metadata([topic], may_create=True).topics
            check(created.error_code, topic)
            return len(created.partitions)

        return self.retry(f"find topic {topic}", ask)

    def leader_addresses(
        self, targets: Iterable[TopicPartition]
    ) -> dict[tuple[str, int], list[TopicPartition]]:
        """Partitions by the address of their leader; asks for metadata it lacks. No retries."""
        leaders = self._by_leader(targets)
        if not self._brokers.keys() >= leaders.keys():
            unknown = sorted(leaders.keys() - self._brokers.keys())
            raise TransientError(f"nodes {unknown} are not known")
        return {self._brokers[node_id]: led for node_id, led in leaders.items()}

    # -- offsets -----------------------------------------------------------------------------------

    def offsets(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset at each time in ms, -1 if no record is as late; or the first and last offset.

        Raises `UnknownPartition` if one does not exist.
        """
        offsets: dict[TopicPartition, int] = {}

        def ask() -> None:
            missing = {target: ms for target, ms in at.items() if target not in offsets}
            for node_id, targets in self._by_leader(missing).items():
                offsets.update(self._list_offsets(node_id, {t: missing[t] for t in targets}))

        self.retry("look up offsets", ask)
        return offsets

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
        offsets = {}
        for topic in response.topics:
            for partition in topic.partitions:
                target = TopicPartition(topic.name, partition.partition_index)
                check(partition.error_code, target)
                offsets[target] = partition.offset
        return offsets

    # -- records -----------------------------------------------------------------------------------

    def begin_fetch(self, target: TopicPartition, offset: int) -> Callable[[], Fetched]:
        """Send a fetch from `offset` on; call the result to wait for its answer.

        A fetch that fails is sent again, with the retries of `fetch`.
        """
        try:
            connection = self.node(self._leader(target))
            connection.send(self._fetch_request(target, offset, self.settings.fetch_bytes))
        except _FETCH_RETRIED:
            return lambda: self.fetch(target, offset)

        def finish() -> Fetched:
            try:
                return self._fetched(target, connection.receive(FetchResponse))
            except _FETCH_RETRIED:
                return self.fetch(target, offset)

        return finish

    def fetch(
        self, target: TopicPartition, offset: int, *, bytes_max: int | None = None
    ) -> Fetched:
        """Read whole batches from `offset` on.

        Raises `OutOfRange`, `CorruptMessage` and `UnknownPartition`.
        """
        request = self._fetch_request(target, offset, bytes_max or self.settings.fetch_bytes)

        def ask() -> Fetched:
            connection = self.node(self._leader(target))
            return self._fetched(target, connection.call(request, FetchResponse))

        return self.retry(f"read {target} from offset {offset}", ask)

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
                    raise OutOfRange(f"{target} has no records at the offset")
                if partition.error_code == ErrorCode.CORRUPT_MESSAGE:
                    # Retriable by Kafka's table, but a disk does not mend itself.
                    raise CorruptMessage(f"{target} is damaged at the offset")
                check(partition.error_code, target)
                chunks = partition.records or [b""]
                return Fetched(
                    memoryview(chunks[0]),  # type: ignore[arg-type]  # One view, when read.
                    [
                        Aborted(aborted.producer_id, aborted.first_offset)
                        for aborted in partition.aborted_transactions or ()
                    ],
                )
        if response.throttle_time_ms:
            time.sleep(response.throttle_time_ms / 1000)
        raise TransientError(f"the answer has nothing about {target}")

    # -- retries -----------------------------------------------------------------------------------

    def retry(self, doing: str, ask: Callable[[], _T]) -> _T:
        """Call `ask` until it succeeds, or until `patience_ms` is over; then raise `Unreachable`.

        Connections and leaders are forgotten between two attempts.
        """
        deadline = time.monotonic() + self.settings.patience_ms / 1000
        attempt = unknown_count = 0
        while True:
            try:
                return ask()
            except UnknownPartition:
                unknown_count += 1
                if unknown_count >= UNKNOWN_TRIES_MAX:
                    raise
            except RETRIED as problem:
                if time.monotonic() > deadline:
                    seconds = self.settings.patience_ms / 1000
                    raise Unreachable(
                        f"could not {doing} for {seconds:g} s: {problem}"
                    ) from problem
                log.debug("trying again to %s: %s", doing, problem)
            self.forget()
            self._pause(attempt)
            attempt += 1

    def forget(self) -> None:
        """Close all connections; leaders and coordinators are looked up again."""
        for connection in (*self._connections.values(), *self._spare.values()):
            connection.close()
        self._connections.clear()
        self._spare.clear()
        self._leaders.clear()
        self.coordinators.clear()

    def _pause(self, attempt: int) -> None:
        time.sleep(min(self.settings.backoff_ms * 2 ** min(attempt, 10), BACKOFF_MS_MAX) / 1000)

    # -- connections -------------------------------------------------------------------------------

    def node(self, node_id: int) -> Connection:
        """The connection to a node that metadata named."""
        if node_id not in self._brokers:
            raise TransientError(f"node {node_id} is not known")
        return self.connection(self._brokers[node_id])

    def connection(self, address: tuple[str, int]) -> Connection:
        connection = self._connections.get(address)
        # One that still waits for an answer belongs to a reader that was given up.
        if connection is None or not connection.is_idle:
            if connection is not None:
                connection.close()
            connection = self._connections[address] = Connection(address, self.settings)
        return connection

    def take_connection(self, address: tuple[str, int]) -> Connection:
        """A connection of the caller's own, for requests that are answered later."""
        spare = self._spare.pop(address, None)
        if spare is not None and spare.is_idle:
            return spare
        return Connection(address, self.settings)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection that was taken for the next writer, if it can serve one."""
        if connection.is_idle and connection.address not in self._spare:
            self._spare[connection.address] = connection
        else:
            connection.close()

    def any_broker(self) -> Connection:
        """A connection to any broker, an open one first."""
        for connection in self._connections.values():
            if connection.is_idle:
                return connection
        problems = []
        for address in (*self.settings.bootstrap, *self._brokers.values()):
            try:
                return self.connection(address)
            except (OSError, ProtocolError) as problem:
                problems.append(f"{address[0]}:{address[1]} ({problem})")
        raise TransientError(f"no broker answers: {', '.join(dict.fromkeys(problems))}")

    def _metadata(self, topics: list[str] | None, *, may_create: bool = False) -> MetadataResponse:
        named = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=may_create)
        response = self.any_broker().call(request, MetadataResponse)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            self._topic_ids.pop(topic.name or "", None)
            if topic.topic_id != NO_ID and topic.error_code not in _GONE:
                self._topic_ids[topic.name or ""] = _topic_id_text(topic.topic_id)
            for partition in topic.partitions:
                target = TopicPartition(topic.name or "", partition.partition_index)
                self._leaders[target] = partition.leader_id
        return response

    def _leader(self, target: TopicPartition) -> int:
        return next(iter(self._by_leader([target])))

    def _by_leader(self, targets: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        named = list(targets)
        unknown = sorted({t.topic for t in named if t not in self._leaders})
        if unknown:
            self._metadata(unknown)
        by_leader: dict[int, list[TopicPartition]] = {}
        for target in named:
            if target not in self._leaders:
                raise UnknownPartition(target)
            if self._leaders[target] < 0:
                raise TransientError(f"{target} has no leader at the moment")
            by_leader.setdefault(self._leaders[target], []).append(target)
        return by_leader


def _topic_id_text(topic_id: UUID) -> str:
    """As Kafka's tools print it."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def check(code: int, subject: object) -> None:
    """Raise the error that a code of a broker stands for."""
    if code == ErrorCode.NONE:
        return
    if code in _GONE:
        raise UnknownPartition(subject)
    if code in RETRIABLE:
        raise TransientError(f"{subject}: {name_of(code)}")
    raise Refused(f"the broker refuses {subject}: {name_of(code)}")
