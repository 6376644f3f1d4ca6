"""Tables of finding one's way: ApiVersions, Metadata, coordinators, the cluster, its quorum."""

from typing import Annotated

from millstream.kafka_wire.schema import (
    NO_ID,
    NO_OPERATIONS,
    Bool,
    Id,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Since,
    String,
    UInt16,
    empty,
)


class ApiVersionsRequest(Message, kw_only=True):
    client_software_name: Annotated[String, Since(3)] = ""
    client_software_version: Annotated[String, Since(3)] = ""


class ApiVersionsResponse(Message, kw_only=True):
    class ApiRange(Message, kw_only=True):
        api_key: Int16
        min_version: Int16
        max_version: Int16

    class SupportedFeature(Message, kw_only=True):
        name: String
        min_version: Int16
        max_version: Int16

    class FinalizedFeature(Message, kw_only=True):
        name: String
        max_version_level: Int16
        min_version_level: Int16

    error_code: Int16 = 0
    api_keys: list[ApiRange]
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    supported_features: Annotated[list[SupportedFeature], Since(3, tag=0)] = empty()
    finalized_features_epoch: Annotated[Int64, Since(3, tag=1)] = -1
    finalized_features: Annotated[list[FinalizedFeature], Since(3, tag=2)] = empty()
    zk_migration_ready: Annotated[Bool, Since(3, tag=3)] = False


class MetadataRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        topic_id: Annotated[Id, Since(10)] = NO_ID
        name: Annotated[String | None, Since(nullable=10)]

    topics: Annotated[list[Topic] | None, Since(nullable=1)]
    allow_auto_topic_creation: Annotated[Bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, Since(8, until=10)] = False
    include_topic_authorized_operations: Annotated[Bool, Since(8)] = False


class MetadataResponse(Message, kw_only=True):
    class Broker(Message, kw_only=True):
        node_id: Int32
        host: String
        port: Int32
        rack: Annotated[String | None, Since(1)] = None

    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            error_code: Int16 = 0
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Annotated[Int32, Since(7)] = -1
            replica_nodes: list[Int32]
            isr_nodes: list[Int32]
            offline_replicas: Annotated[list[Int32], Since(5)] = empty()

        error_code: Int16 = 0
        name: Annotated[String | None, Since(nullable=12)]
        topic_id: Annotated[Id, Since(10)] = NO_ID
        is_internal: Annotated[Bool, Since(1)] = False
        partitions: list[Partition]
        topic_authorized_operations: Annotated[Int32, Since(8)] = NO_OPERATIONS

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: list[Broker]
    cluster_id: Annotated[String | None, Since(2)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: list[Topic]
    cluster_authorized_operations: Annotated[Int32, Since(8, until=10)] = NO_OPERATIONS
    error_code: Annotated[Int16, Since(13)] = 0


class FindCoordinatorRequest(Message, kw_only=True):
    key: Annotated[String, Since(until=3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    coordinator_keys: Annotated[list[String], Since(4)] = empty()


class FindCoordinatorResponse(Message, kw_only=True):
    class Coordinator(Message, kw_only=True):
        key: String
        node_id: Int32
        host: String
        port: Int32
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Since(until=3)] = 0
    error_message: Annotated[String | None, Since(1, until=3)] = None
    node_id: Annotated[Int32, Since(until=3)] = -1
    host: Annotated[String, Since(until=3)] = ""
    port: Annotated[Int32, Since(until=3)] = -1
    coordinators: Annotated[list[Coordinator], Since(4)] = empty()


class DescribeClusterRequest(Message, kw_only=True):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, Since(1)] = 1
    include_fenced_brokers: Annotated[Bool, Since(2)] = False


class DescribeClusterResponse(Message, kw_only=True):
    class Broker(Message, kw_only=True):
        broker_id: Int32
        host: String
        port: Int32
        rack: String | None = None
        is_fenced: Annotated[Bool, Since(2)] = False

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, Since(1)] = 1
    cluster_id: String
    controller_id: Int32 = -1
    brokers: list[Broker]
    cluster_authorized_operations: Int32 = NO_OPERATIONS


class TopicCursor(Message, kw_only=True):
    """Where the next page of DescribeTopicPartitions starts."""

    topic_name: String
    partition_index: Int32


class DescribeTopicPartitionsRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        name: String

    topics: list[Topic]
    response_partition_limit: Int32 = 2000
    cursor: TopicCursor | None = None


class DescribeTopicPartitionsResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            error_code: Int16 = 0
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = -1
            replica_nodes: list[Int32]
            isr_nodes: list[Int32]
            eligible_leader_replicas: list[Int32] | None = None
            last_known_elr: list[Int32] | None = None
            offline_replicas: list[Int32]

        error_code: Int16 = 0
        name: String | None
        topic_id: Id = NO_ID
        is_internal: Bool = False
        partitions: list[Partition]
        topic_authorized_operations: Int32 = NO_OPERATIONS

    throttle_time_ms: Int32 = 0
    topics: list[Topic]
    next_cursor: TopicCursor | None = None


class DescribeQuorumRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32

        topic_name: String
        partitions: list[Partition]

    topics: list[Topic]


class DescribeQuorumResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            class Replica(Message, kw_only=True):
                replica_id: Int32
                replica_directory_id: Annotated[Id, Since(2)] = NO_ID
                log_end_offset: Int64
                last_fetch_timestamp: Annotated[Int64, Since(1)] = -1
                last_caught_up_timestamp: Annotated[Int64, Since(1)] = -1

            partition_index: Int32
            error_code: Int16 = 0
            error_message: Annotated[String | None, Since(2)] = None
            leader_id: Int32 = -1
            leader_epoch: Int32 = -1
            high_watermark: Int64 = -1
            current_voters: list[Replica]
            observers: list[Replica]

        topic_name: String
        partitions: list[Partition]

    class Node(Message, kw_only=True):
        class Listener(Message, kw_only=True):
            name: String
            host: String
            port: UInt16

        node_id: Int32
        listeners: list[Listener]

    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(2)] = None
    topics: list[Topic]
    nodes: Annotated[list[Node], Since(2)] = empty()
