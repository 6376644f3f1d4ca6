"""Sends batches to brokers: several requests at a time, each batch written once.

Owns the connections that a task writes over, the requests that have no response yet and the
sequence of every partition. After any failure all batches without a response are sent again, in
order and one request after the other. A broker that has a batch already says so, because no
partition ever has more unanswered batches than brokers remember.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from millstream.errors import ProtocolError
from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.connection import Connection
from millstream.kafka_client.errors import Refused, TransientError, UnknownPartition
from millstream.kafka_wire.apis.data import ProduceRequest, ProduceResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Producer, TopicPartition
from millstream.spark.options.sink import SinkOptions
from millstream.spark.write.encoding import Piece, batch, next_sequence
from millstream.spark.write.partitioner import Share
from millstream.spark.write.transactions import check_unfenced

REQUEST_BYTES_MAX = 8 * 2**20  # Of one request, unless a single batch is larger.
_ALL = -1
# A broker has the batch: from the time before the answer got lost.
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})

Address = tuple[str, int]


class Batch(NamedTuple):
    target: TopicPartition
    data: bytes


class Pipeline:
    """Writes batches of one producer; with a transactional id, in its transaction."""

    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        producer: Producer,
        transactional_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._producer = producer
        self._transactional_id = transactional_id
        self._sequences: dict[TopicPartition, int] = {}
        self._connections: dict[Address, Connection] = {}
        self._unanswered: dict[Address, deque[list[Batch]]] = {}
        self.bytes_count = 0

    def send(self, pieces: Iterable[Piece], shares: list[Share]) -> None:
        """Send pieces, those of one partition in their order; waits when too many have no answer.

        Raises `Refused`, `UnknownPartition` and `Unreachable`; then the pipeline is of no use.
        """
        waiting: dict[TopicPartition, deque[Batch]] = {}
        for piece in pieces:
            made = self._batch(piece, shares[piece.share_index].target)
            waiting.setdefault(made.target, deque()).append(made)
        while waiting:
            # One batch of each partition: a request has no more than that.
            round_ = [queue.popleft() for queue in waiting.values()]
            waiting = {target: queue for target, queue in waiting.items() if queue}
            for batches in _bounded(round_):
                self._send(batches)

    def flush(self) -> None:
        """Return when every batch is answered for."""
        while address := next((a for a, queue in self._unanswered.items() if queue), None):
            self._receive(address)

    def close(self) -> None:
        """Give the connections back; those that still wait for an answer are closed."""
        for connection in self._connections.values():
            self._cluster.give_back(connection)
        self._connections.clear()

    # -- sending ---------------------------------------------------------------------------------

    def _batch(self, piece: Piece, target: TopicPartition) -> Batch:
        sequence = self._sequences.get(target, 0)
        self._sequences[target] = next_sequence(sequence, piece.count)
        data = batch(
            piece,
            self._producer,
            sequence,
            codec=self._options.codec,
            is_transactional=self._transactional_id is not None,
            now_ms=time.time_ns() // 1_000_000,
        )
        self.bytes_count += len(data)
        return Batch(target, data)

    def _send(self, batches: list[Batch]) -> None:
        try:
            led = self._cluster.leader_addresses([b.target for b in batches])
        except (OSError, ProtocolError, TransientError, UnknownPartition):
            self._recover()
            self._write_patiently(batches)
            return
        by_target = {b.target: b for b in batches}
        for address, targets in led.items():
            while len(self._unanswered.get(address, ())) >= self._options.in_flight_max:
                self._receive(address)
            part = [by_target[target] for target in targets]
            self._unanswered.setdefault(address, deque()).append(part)
            try:
                self._connection(address).send(self._request(part))
            except (OSError, ProtocolError):
                self._recover()

    def _receive(self, address: Address) -> None:
        """Take the oldest answer; start over with all unanswered batches if it has an error."""
        queue = self._unanswered[address]
        try:
            _check(self._connections[address].receive(ProduceResponse), queue[0])
            queue.popleft()
        except (OSError, ProtocolError, TransientError, UnknownPartition):
            self._recover()

    # -- when things go wrong --------------------------------------------------------------------

    def _recover(self) -> None:
        """Have every unanswered batch written, one request at a time."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        unanswered, self._unanswered = self._unanswered, {}
        self._cluster.forget()
        for queue in unanswered.values():
            for batches in queue:
                self._write_patiently(batches)

    def _write_patiently(self, batches: list[Batch]) -> None:
        left = {b.target: b for b in batches}

        def write() -> None:
            for address, targets in self._cluster.leader_addresses(list(left)).items():
                part = [left[target] for target in targets]
                connection = self._cluster.connection(address)
                _check(connection.call(self._request(part), ProduceResponse), part)
                for target in targets:
                    del left[target]

        self._cluster.retry(f"write to {', '.join(sorted(map(str, left)))}", write)

    # -- parts -----------------------------------------------------------------------------------

    def _request(self, batches: list[Batch]) -> ProduceRequest:
        topics: dict[str, list[ProduceRequest.Topic.Partition]] = {}
        for target, data in batches:
            part = ProduceRequest.Topic.Partition(index=target.partition, records=data)
            topics.setdefault(target.topic, []).append(part)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=_ALL,
            timeout_ms=self._options.client.request_ms_max,
            topic_data=[
                ProduceRequest.Topic(name=name, partition_data=parts)
                for name, parts in topics.items()
            ],
        )

    def _connection(self, address: Address) -> Connection:
        """One of its own: the cluster's is closed when something else is asked meanwhile."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self._cluster.take_connection(address)
        return connection


def _bounded(batches: list[Batch]) -> Iterable[list[Batch]]:
    part: list[Batch] = []
    size = 0
    for unsent in batches:
        if part and size + len(unsent.data) > REQUEST_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(unsent)
        size += len(unsent.data)
    yield part


def _check(response: ProduceResponse, batches: list[Batch]) -> None:
    codes = {
        TopicPartition(topic.name, part.index): part.error_code
        for topic in response.responses
        for part in topic.partition_responses
    }
    for target, data in batches:
        code = codes.get(target)
        if code is None:
            raise TransientError(f"an answer without {target}")
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            raise Refused(
                f"{target} takes no batch of {len(data)} bytes: set kafka.batch.size to less, or "
                "max.message.bytes of the topic to more"
            )
        if code not in _WRITTEN:
            check_unfenced(code, target)
