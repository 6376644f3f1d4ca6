"""Tables of committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from typing import Annotated

from millstream.kafka_wire.schema import (
    NO_ID,
    Bool,
    Id,
    Int16,
    Int32,
    Int64,
    Message,
    Since,
    String,
    empty,
)


class OffsetCommitRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Annotated[Int32, Since(6)] = -1
            committed_metadata: String | None = None

        name: Annotated[String, Since(until=9)] = ""
        topic_id: Annotated[Id, Since(10)] = NO_ID
        partitions: list[Partition]

    group_id: String
    generation_id_or_member_epoch: Annotated[Int32, Since(1)] = -1
    member_id: Annotated[String, Since(1)] = ""
    group_instance_id: Annotated[String | None, Since(7)] = None
    retention_time_ms: Annotated[Int64, Since(2, until=4)] = -1
    topics: list[Topic]


class OffsetCommitResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            error_code: Int16 = 0

        name: Annotated[String, Since(until=9)] = ""
        topic_id: Annotated[Id, Since(10)] = NO_ID
        partitions: list[Partition]

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: list[Topic]


class OffsetFetchRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        name: String
        partition_indexes: list[Int32]

    class Group(Message, kw_only=True):
        class Topic(Message, kw_only=True):
            name: Annotated[String, Since(until=9)] = ""
            topic_id: Annotated[Id, Since(10)] = NO_ID
            partition_indexes: list[Int32]

        group_id: String
        member_id: Annotated[String | None, Since(9)] = None
        member_epoch: Annotated[Int32, Since(9)] = -1
        topics: list[Topic] | None = None

    group_id: Annotated[String, Since(until=7)] = ""
    topics: Annotated[list[Topic] | None, Since(until=7, nullable=2)] = None
    groups: Annotated[list[Group], Since(8)] = empty()
    require_stable: Annotated[Bool, Since(7)] = False


class OffsetFetchResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Annotated[Int32, Since(5)] = -1
            metadata: String | None = None
            error_code: Int16 = 0

        name: String
        partitions: list[Partition]

    class Group(Message, kw_only=True):
        class Topic(Message, kw_only=True):
            class Partition(Message, kw_only=True):
                partition_index: Int32
                committed_offset: Int64
                committed_leader_epoch: Int32 = -1
                metadata: String | None = None
                error_code: Int16 = 0

            name: Annotated[String, Since(until=9)] = ""
            topic_id: Annotated[Id, Since(10)] = NO_ID
            partitions: list[Partition]

        group_id: String
        topics: list[Topic]
        error_code: Int16 = 0

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[list[Topic], Since(until=7)] = empty()
    error_code: Annotated[Int16, Since(2, until=7)] = 0
    groups: Annotated[list[Group], Since(8)] = empty()


class OffsetDeleteRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32

        name: String
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


class OffsetDeleteResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            error_code: Int16 = 0

        name: String
        partitions: list[Partition]

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[Topic]
