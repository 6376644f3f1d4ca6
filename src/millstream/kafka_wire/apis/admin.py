"""Tables of administration: topics, partitions, their placement and their directories."""

from typing import Annotated

from millstream.kafka_wire.schema import (
    NO_ID,
    Bool,
    Id,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Since,
    String,
    empty,
)


class CreateTopicsRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Assignment(Message, kw_only=True):
            partition_index: Int32
            broker_ids: list[Int32]

        class Config(Message, kw_only=True):
            name: String
            value: String | None

        name: String
        num_partitions: Int32
        replication_factor: Int16
        assignments: list[Assignment]
        configs: list[Config]

    topics: list[Topic]
    timeout_ms: Int32 = 60_000
    validate_only: Annotated[Bool, Since(1)] = False


class CreateTopicsResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Config(Message, kw_only=True):
            name: String
            value: String | None
            read_only: Bool
            config_source: Int8 = -1
            is_sensitive: Bool

        name: String
        topic_id: Annotated[Id, Since(7)] = NO_ID
        error_code: Int16 = 0
        error_message: Annotated[String | None, Since(1)] = None
        topic_config_error_code: Annotated[Int16, Since(5, tag=0)] = 0
        num_partitions: Annotated[Int32, Since(5)] = -1
        replication_factor: Annotated[Int16, Since(5)] = -1
        configs: Annotated[list[Config] | None, Since(5)] = None

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: list[Topic]


class DeleteTopicsRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        name: String | None = None
        topic_id: Id = NO_ID

    topics: Annotated[list[Topic], Since(6)] = empty()
    topic_names: Annotated[list[String], Since(until=5)] = empty()
    timeout_ms: Int32


class DeleteTopicsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        name: Annotated[String | None, Since(nullable=6)]
        topic_id: Annotated[Id, Since(6)] = NO_ID
        error_code: Int16 = 0
        error_message: Annotated[String | None, Since(5)] = None

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    responses: list[Result]


class CreatePartitionsRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Assignment(Message, kw_only=True):
            broker_ids: list[Int32]

        name: String
        count: Int32
        assignments: list[Assignment] | None = None

    topics: list[Topic]
    timeout_ms: Int32
    validate_only: Bool = False


class CreatePartitionsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        name: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    results: list[Result]


class ElectLeadersRequest(Message, kw_only=True):
    class TopicPartitions(Message, kw_only=True):
        topic: String
        partitions: list[Int32]

    election_type: Annotated[Int8, Since(1)] = 0
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60_000


class ElectLeadersResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_id: Int32
            error_code: Int16 = 0
            error_message: String | None = None

        topic: String
        partition_result: list[Partition]

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(1)] = 0
    replica_election_results: list[Topic]


class AlterPartitionReassignmentsRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            replicas: list[Int32] | None = None

        name: String
        partitions: list[Partition]

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[Bool, Since(1)] = True
    topics: list[Topic]


class AlterPartitionReassignmentsResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, Since(1)] = True
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[Topic]


class ListPartitionReassignmentsRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        name: String
        partition_indexes: list[Int32]

    timeout_ms: Int32 = 60_000
    topics: list[Topic] | None = None


class ListPartitionReassignmentsResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            replicas: list[Int32]
            adding_replicas: list[Int32]
            removing_replicas: list[Int32]

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: list[Topic]


class AlterReplicaLogDirsRequest(Message, kw_only=True):
    class Directory(Message, kw_only=True):
        class Topic(Message, kw_only=True):
            name: String
            partitions: list[Int32]

        path: String
        topics: list[Topic]

    dirs: list[Directory]


class AlterReplicaLogDirsResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            error_code: Int16 = 0

        topic_name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    results: list[Topic]


class DescribeLogDirsRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        topic: String
        partitions: list[Int32]

    topics: list[Topic] | None


class DescribeLogDirsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        class Topic(Message, kw_only=True):
            class Partition(Message, kw_only=True):
                partition_index: Int32
                partition_size: Int64
                offset_lag: Int64
                is_future_key: Bool = False

            name: String
            partitions: list[Partition]

        error_code: Int16 = 0
        log_dir: String
        topics: list[Topic]
        total_bytes: Annotated[Int64, Since(4)] = -1
        usable_bytes: Annotated[Int64, Since(4)] = -1
        is_cordoned: Annotated[Bool, Since(5)] = False

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: list[Result]
