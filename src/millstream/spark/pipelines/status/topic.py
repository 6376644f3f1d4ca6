"""Reads and writes the topic `_pipelines`, by plain Kafka: it works with any broker."""

from collections.abc import Mapping
from typing import Self

import pyarrow as pa

from millstream.codec.records import decode_all
from millstream.kafka_client.cluster import Cluster, check
from millstream.kafka_client.errors import OutOfRange
from millstream.kafka_wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import TopicPartition
from millstream.spark.options.places import EARLIEST, LATEST
from millstream.spark.options.sink import SinkOptions, sink_options
from millstream.spark.pipelines.status.report import TOPIC
from millstream.spark.read.fetched import DECOMPRESSED_BYTES_MAX, select
from millstream.spark.write import transactions
from millstream.spark.write.encoding import encode_rows
from millstream.spark.write.partitioner import Columns, Router
from millstream.spark.write.producing import Pipeline

PATIENCE_MS = 5_000
PARTITION = TopicPartition(TOPIC, 0)

_CREATED = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


class StatusTopic:
    """A context manager: it closes its connections. Not for use by several threads at once."""

    def __init__(self, bootstrap: str, client_options: Mapping[str, str]) -> None:
        options = {name.lower(): text for name, text in client_options.items()}
        options |= {
            "kafka.bootstrap.servers": bootstrap,
            "topic": TOPIC,
            "deliveryguarantee": "at_least_once",
            "kafka.delivery.timeout.ms": str(PATIENCE_MS),
        }
        self._options: SinkOptions = sink_options(options, is_streaming=False)
        self._cluster = Cluster(self._options.client)
        self._values: dict[str, bytes] = {}
        self._position: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.forget()

    def exists(self) -> bool:
        return bool(self._cluster.partitions([TOPIC]))

    def create(self) -> None:
        """Make the topic, compacted and with one partition, unless it is there."""
        topic = CreateTopicsRequest.Topic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=-1,
            assignments=[],
            configs=[CreateTopicsRequest.Topic.Config(name="cleanup.policy", value="compact")],
        )
        request = CreateTopicsRequest(topics=[topic])

        def ask() -> None:
            response = self._cluster.any_broker().call(request, CreateTopicsResponse)
            for created in response.topics:
                if created.error_code not in _CREATED:
                    check(created.error_code, TOPIC)

        self._cluster.retry(f"create topic {TOPIC}", ask)

    def write(self, key: str, value: bytes) -> None:
        columns = Columns(
            values=pa.array([value], pa.binary()), keys=pa.array([key.encode()], pa.binary())
        )
        rows, shares = Router(TOPIC, lambda _: 1).route(columns)
        producer = transactions.new_producer(self._cluster)
        pipeline = Pipeline(self._cluster, self._options, producer)
        try:
            size = self._options.batch_bytes_max
            pipeline.send(encode_rows(rows, shares, bytes_max=size), shares)
            pipeline.flush()
        finally:
            pipeline.close()

    def read(self) -> dict[str, bytes]:
        """The last value of every key, as of now."""
        if self._position is None:
            self._position = self._cluster.offsets({PARTITION: EARLIEST})[PARTITION]
        end = self._cluster.offsets({PARTITION: LATEST})[PARTITION]
        while self._position < end:
            try:
                fetched = self._cluster.fetch(PARTITION, self._position)
            except OutOfRange:  # Compaction has passed the position, or the topic is a new one.
                self._position = self._cluster.offsets({PARTITION: EARLIEST})[PARTITION]
                continue
            selected = select(fetched.records, start=self._position, end=end)
            for _, at in selected.batches:
                for record in decode_all(
                    fetched.records, at, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
                ):
                    self._apply(record.key, record.value)
            if selected.next_offset <= self._position:
                break
            self._position = selected.next_offset
        return dict(self._values)

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode(errors="replace")
        if value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = value
