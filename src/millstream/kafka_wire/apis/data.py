"""Tables of the data path: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from typing import Annotated

from millstream.kafka_wire.schema import (
    NO_ID,
    Id,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    Since,
    Splice,
    String,
    empty,
)


class Leader(Message, kw_only=True):
    """The current leader, beside an error that says "not here"."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Message, kw_only=True):
    """The address of a node that some `Leader` names."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


class ProduceRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            index: Int32
            records: Records | None

        name: String
        partition_data: list[Partition]

    transactional_id: Annotated[String | None, Since(3)] = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[Topic]


class ProduceResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            class RecordError(Message, kw_only=True):
                batch_index: Int32
                batch_index_error_message: String | None = None

            index: Int32
            error_code: Int16 = 0
            base_offset: Int64
            log_append_time_ms: Annotated[Int64, Since(2)] = -1
            log_start_offset: Annotated[Int64, Since(5)] = -1
            record_errors: Annotated[list[RecordError], Since(8)] = empty()
            error_message: Annotated[String | None, Since(8)] = None
            current_leader: Annotated[Leader | None, Since(10, tag=0)] = None

        name: String
        partition_responses: list[Partition]

    responses: list[Topic]
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    node_endpoints: Annotated[list[NodeEndpoint], Since(10, tag=0)] = empty()


class FetchRequest(Message, kw_only=True):
    class ReplicaState(Message, kw_only=True):
        replica_id: Int32 = -1
        replica_epoch: Int64 = -1

    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition: Int32
            current_leader_epoch: Annotated[Int32, Since(9)] = -1
            fetch_offset: Int64
            last_fetched_epoch: Annotated[Int32, Since(12)] = -1
            log_start_offset: Annotated[Int64, Since(5)] = -1
            partition_max_bytes: Int32
            replica_directory_id: Annotated[Id, Since(17, tag=0)] = NO_ID

        topic: Annotated[String, Since(until=12)] = ""
        topic_id: Annotated[Id, Since(13)] = NO_ID
        partitions: list[Partition]

    class ForgottenTopic(Message, kw_only=True):
        topic: Annotated[String, Since(until=12)] = ""
        topic_id: Annotated[Id, Since(13)] = NO_ID
        partitions: list[Int32]

    cluster_id: Annotated[String | None, Since(12, tag=0)] = None
    replica_id: Annotated[Int32, Since(until=14)] = -1
    replica_state: Annotated[ReplicaState | None, Since(15, tag=1)] = None
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Annotated[Int32, Since(3)] = 2**31 - 1
    isolation_level: Annotated[Int8, Since(4)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    session_epoch: Annotated[Int32, Since(7)] = -1
    topics: list[Topic]
    forgotten_topics_data: Annotated[list[ForgottenTopic], Since(7)] = empty()
    rack_id: Annotated[String, Since(11)] = ""


class FetchResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            class DivergingEpoch(Message, kw_only=True):
                epoch: Int32 = -1
                end_offset: Int64 = -1

            class SnapshotId(Message, kw_only=True):
                end_offset: Int64 = -1
                epoch: Int32 = -1

            class AbortedTransaction(Message, kw_only=True):
                producer_id: Int64
                first_offset: Int64

            partition_index: Int32
            error_code: Int16 = 0
            high_watermark: Int64
            last_stable_offset: Annotated[Int64, Since(4)] = -1
            log_start_offset: Annotated[Int64, Since(5)] = -1
            diverging_epoch: Annotated[DivergingEpoch | None, Since(12, tag=0)] = None
            current_leader: Annotated[Leader | None, Since(12, tag=1)] = None
            snapshot_id: Annotated[SnapshotId | None, Since(12, tag=2)] = None
            aborted_transactions: Annotated[list[AbortedTransaction] | None, Since(4)] = None
            preferred_read_replica: Annotated[Int32, Since(11)] = -1
            records: Splice | None = None

        topic: Annotated[String, Since(until=12)] = ""
        topic_id: Annotated[Id, Since(13)] = NO_ID
        partitions: list[Partition]

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    responses: list[Topic]
    node_endpoints: Annotated[list[NodeEndpoint], Since(16, tag=0)] = empty()


class ListOffsetsRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            current_leader_epoch: Annotated[Int32, Since(4)] = -1
            timestamp: Int64

        name: String
        partitions: list[Partition]

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: list[Topic]
    timeout_ms: Annotated[Int32, Since(10)] = 0


class ListOffsetsResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            error_code: Int16 = 0
            timestamp: Int64 = -1
            offset: Int64 = -1
            leader_epoch: Annotated[Int32, Since(4)] = -1

        name: String
        partitions: list[Partition]

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: list[Topic]


class OffsetForLeaderEpochRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition: Int32
            current_leader_epoch: Annotated[Int32, Since(2)] = -1
            leader_epoch: Int32

        topic: String
        partitions: list[Partition]

    replica_id: Annotated[Int32, Since(3)] = -2
    topics: list[Topic]


class OffsetForLeaderEpochResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            error_code: Int16 = 0
            partition: Int32
            leader_epoch: Annotated[Int32, Since(1)] = -1
            end_offset: Int64 = -1

        topic: String
        partitions: list[Partition]

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: list[Topic]


class DeleteRecordsRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            offset: Int64

        name: String
        partitions: list[Partition]

    topics: list[Topic]
    timeout_ms: Int32


class DeleteRecordsResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            low_watermark: Int64
            error_code: Int16 = 0

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    topics: list[Topic]
