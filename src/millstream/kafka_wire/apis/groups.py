"""Tables of groups: joining, syncing, leaving and describing them, classic and KIP-848."""

from typing import Annotated

from millstream.kafka_wire.schema import (
    NO_OPERATIONS,
    Bool,
    Bytes,
    Id,
    Int8,
    Int16,
    Int32,
    Message,
    Since,
    String,
    empty,
)


class JoinGroupRequest(Message, kw_only=True):
    class Protocol(Message, kw_only=True):
        name: String
        metadata: Bytes

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    member_id: String
    group_instance_id: Annotated[String | None, Since(5)] = None
    protocol_type: String
    protocols: list[Protocol]
    reason: Annotated[String | None, Since(8)] = None


class JoinGroupResponse(Message, kw_only=True):
    class Member(Message, kw_only=True):
        member_id: String
        group_instance_id: Annotated[String | None, Since(5)] = None
        metadata: Bytes

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, Since(7)] = None
    protocol_name: Annotated[String | None, Since(nullable=7)]
    leader: String
    skip_assignment: Annotated[Bool, Since(9)] = False
    member_id: String
    members: list[Member]


class SyncGroupRequest(Message, kw_only=True):
    class Assignment(Message, kw_only=True):
        member_id: String
        assignment: Bytes

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[String | None, Since(3)] = None
    protocol_type: Annotated[String | None, Since(5)] = None
    protocol_name: Annotated[String | None, Since(5)] = None
    assignments: list[Assignment]


class SyncGroupResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, Since(5)] = None
    protocol_name: Annotated[String | None, Since(5)] = None
    assignment: Bytes


class HeartbeatRequest(Message, kw_only=True):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[String | None, Since(3)] = None


class HeartbeatResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


class LeaveGroupRequest(Message, kw_only=True):
    class Member(Message, kw_only=True):
        member_id: String
        group_instance_id: String | None = None
        reason: Annotated[String | None, Since(5)] = None

    group_id: String
    member_id: Annotated[String, Since(until=2)] = ""
    members: Annotated[list[Member], Since(3)] = empty()


class LeaveGroupResponse(Message, kw_only=True):
    class Member(Message, kw_only=True):
        member_id: String
        group_instance_id: String | None = None
        error_code: Int16 = 0

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[Member], Since(3)] = empty()


class DescribeGroupsRequest(Message, kw_only=True):
    groups: list[String]
    include_authorized_operations: Annotated[Bool, Since(3)] = False


class DescribeGroupsResponse(Message, kw_only=True):
    class Group(Message, kw_only=True):
        class Member(Message, kw_only=True):
            member_id: String
            group_instance_id: Annotated[String | None, Since(4)] = None
            client_id: String
            client_host: String
            member_metadata: Bytes
            member_assignment: Bytes

        error_code: Int16 = 0
        error_message: Annotated[String | None, Since(6)] = None
        group_id: String
        group_state: String
        protocol_type: String
        protocol_data: String
        members: list[Member]
        authorized_operations: Annotated[Int32, Since(3)] = NO_OPERATIONS

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: list[Group]


class ListGroupsRequest(Message, kw_only=True):
    states_filter: Annotated[list[String], Since(4)] = empty()
    types_filter: Annotated[list[String], Since(5)] = empty()


class ListGroupsResponse(Message, kw_only=True):
    class Group(Message, kw_only=True):
        group_id: String
        protocol_type: String
        group_state: Annotated[String, Since(4)] = ""
        group_type: Annotated[String, Since(5)] = ""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: list[Group]


class DeleteGroupsRequest(Message, kw_only=True):
    groups_names: list[String]


class DeleteGroupsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        group_id: String
        error_code: Int16 = 0

    throttle_time_ms: Int32 = 0
    results: list[Result]


class ConsumerGroupHeartbeatRequest(Message, kw_only=True):
    class TopicPartitions(Message, kw_only=True):
        topic_id: Id
        partitions: list[Int32]

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: Annotated[String | None, Since(1)] = None
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Message, kw_only=True):
    class Assignment(Message, kw_only=True):
        class TopicPartitions(Message, kw_only=True):
            topic_id: Id
            partitions: list[Int32]

        topic_partitions: list[TopicPartitions]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


class ConsumerGroupDescribeRequest(Message, kw_only=True):
    group_ids: list[String]
    include_authorized_operations: Bool = False


class ConsumerGroupDescribeResponse(Message, kw_only=True):
    class Group(Message, kw_only=True):
        class Member(Message, kw_only=True):
            class Assignment(Message, kw_only=True):
                class TopicPartitions(Message, kw_only=True):
                    topic_id: Id
                    topic_name: String
                    partitions: list[Int32]

                topic_partitions: list[TopicPartitions]

            member_id: String
            instance_id: String | None = None
            rack_id: String | None = None
            member_epoch: Int32
            client_id: String
            client_host: String
            subscribed_topic_names: list[String]
            subscribed_topic_regex: String | None = None
            assignment: Assignment
            target_assignment: Assignment
            member_type: Annotated[Int8, Since(1)] = -1

        error_code: Int16 = 0
        error_message: String | None = None
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: String
        members: list[Member]
        authorized_operations: Int32 = NO_OPERATIONS

    throttle_time_ms: Int32 = 0
    groups: list[Group]
