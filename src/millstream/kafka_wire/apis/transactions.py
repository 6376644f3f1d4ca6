"""Tables of transactions: producer ids, what joins a transaction, its end, and what tools ask."""

from typing import Annotated

from millstream.kafka_wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Since,
    String,
    empty,
)


class InitProducerIdRequest(Message, kw_only=True):
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1


class InitProducerIdResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


class AddPartitionsToTxnRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        name: String
        partitions: list[Int32]

    class Transaction(Message, kw_only=True):
        class Topic(Message, kw_only=True):
            name: String
            partitions: list[Int32]

        transactional_id: String
        producer_id: Int64
        producer_epoch: Int16
        verify_only: Bool = False
        topics: list[Topic]

    transactions: Annotated[list[Transaction], Since(4)] = empty()
    v3_and_below_transactional_id: Annotated[String, Since(until=3)] = ""
    v3_and_below_producer_id: Annotated[Int64, Since(until=3)] = -1
    v3_and_below_producer_epoch: Annotated[Int16, Since(until=3)] = -1
    v3_and_below_topics: Annotated[list[Topic], Since(until=3)] = empty()


class AddPartitionsToTxnResponse(Message, kw_only=True):
    class TopicResult(Message, kw_only=True):
        class PartitionResult(Message, kw_only=True):
            partition_index: Int32
            partition_error_code: Int16 = 0

        name: String
        results_by_partition: list[PartitionResult]

    class Transaction(Message, kw_only=True):
        class TopicResult(Message, kw_only=True):
            class PartitionResult(Message, kw_only=True):
                partition_index: Int32
                partition_error_code: Int16 = 0

            name: String
            results_by_partition: list[PartitionResult]

        transactional_id: String
        topic_results: list[TopicResult]

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(4)] = 0
    results_by_transaction: Annotated[list[Transaction], Since(4)] = empty()
    results_by_topic_v3_and_below: Annotated[list[TopicResult], Since(until=3)] = empty()


class AddOffsetsToTxnRequest(Message, kw_only=True):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


class EndTxnRequest(Message, kw_only=True):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, Since(5)] = -1
    producer_epoch: Annotated[Int16, Since(5)] = -1


class WriteTxnMarkersRequest(Message, kw_only=True):
    class Marker(Message, kw_only=True):
        class Topic(Message, kw_only=True):
            name: String
            partition_indexes: list[Int32]

        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Bool
        topics: list[Topic]
        coordinator_epoch: Int32
        transaction_version: Annotated[Int8, Since(2)] = 0

    markers: list[Marker]


class WriteTxnMarkersResponse(Message, kw_only=True):
    class Marker(Message, kw_only=True):
        class Topic(Message, kw_only=True):
            class Partition(Message, kw_only=True):
                partition_index: Int32
                error_code: Int16 = 0

            name: String
            partitions: list[Partition]

        producer_id: Int64
        topics: list[Topic]

    markers: list[Marker]


class TxnOffsetCommitRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Annotated[Int32, Since(2)] = -1
            committed_metadata: String | None = None

        name: String
        partitions: list[Partition]

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[String | None, Since(3)] = None
    topics: list[Topic]


class TxnOffsetCommitResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            partition_index: Int32
            error_code: Int16 = 0

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    topics: list[Topic]


class DescribeProducersRequest(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        name: String
        partition_indexes: list[Int32]

    topics: list[Topic]


class DescribeProducersResponse(Message, kw_only=True):
    class Topic(Message, kw_only=True):
        class Partition(Message, kw_only=True):
            class ActiveProducer(Message, kw_only=True):
                producer_id: Int64
                producer_epoch: Int32
                last_sequence: Int32 = -1
                last_timestamp: Int64 = -1
                coordinator_epoch: Int32
                current_txn_start_offset: Int64 = -1

            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None
            active_producers: list[ActiveProducer]

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    topics: list[Topic]


class DescribeTransactionsRequest(Message, kw_only=True):
    transactional_ids: list[String]


class DescribeTransactionsResponse(Message, kw_only=True):
    class Transaction(Message, kw_only=True):
        class Topic(Message, kw_only=True):
            topic: String
            partitions: list[Int32]

        error_code: Int16 = 0
        transactional_id: String
        transaction_state: String
        transaction_timeout_ms: Int32
        transaction_start_time_ms: Int64
        producer_id: Int64
        producer_epoch: Int16
        topics: list[Topic]

    throttle_time_ms: Int32 = 0
    transaction_states: list[Transaction]


class ListTransactionsRequest(Message, kw_only=True):
    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Annotated[Int64, Since(1)] = -1
    transactional_id_pattern: Annotated[String | None, Since(2)] = None


class ListTransactionsResponse(Message, kw_only=True):
    class Transaction(Message, kw_only=True):
        transactional_id: String
        producer_id: Int64
        transaction_state: String

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String]
    transaction_states: list[Transaction]
