"""Transactions as Kafka clients ask for them, in old words and new ones."""

import asyncio

import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.kafka_wire.apis.data import ProduceRequest, ProduceResponse
from millstream.kafka_wire.apis.table import APIS, FEATURES, FINALIZED, api_versions
from millstream.kafka_wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Producer
from millstream.server.node import Node
from tests.support.nodes import NOW_MS
from tests.support.transactions import committed, running_transactions, stable
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import ask

_Topic = AddPartitionsToTxnRequest.Topic
_Transaction = AddPartitionsToTxnRequest.Transaction


async def init(node: Node, **changes: object) -> InitProducerIdResponse:
    version = changes.pop("version", 5)
    fields: dict[str, object] = {
        "transactional_id": "billing",
        "transaction_timeout_ms": 60_000,
        **changes,
    }
    request = InitProducerIdRequest(**fields)  # type: ignore[arg-type]
    return await ask(node, request, InitProducerIdResponse, version=version)  # type: ignore[arg-type]


async def producer_of(node: Node) -> Producer:
    answer = await init(node)
    assert answer.error_code == ErrorCode.NONE
    return Producer(answer.producer_id, answer.producer_epoch)


async def add(node: Node, producer: Producer, *, version: int = 3, partition: int = 0) -> int:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="billing",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[_Topic(name="orders", partitions=[partition])],
    )
    answer = await ask(node, request, AddPartitionsToTxnResponse, version=version)
    (topic,) = answer.results_by_topic_v3_and_below
    return topic.results_by_partition[0].partition_error_code


async def end(
    node: Node, producer: Producer, *, version: int = 4, commits: bool = True
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id="billing",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commits,
    )
    return await ask(node, request, EndTxnResponse, version=version)


async def produce(
    node: Node,
    producer: Producer,
    *,
    version: int = 11,
    sequence: int = 0,
    transactional_id: str | None = "billing",
) -> ErrorCode:
    records = encode_batch(
        [Record(0, NOW_MS, None, b"a")],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.Topic(
                name="orders",
                partition_data=[ProduceRequest.Topic.Partition(index=0, records=records)],
            )
        ],
    )
    answer = await ask(node, request, ProduceResponse, version=version)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_older_clients_add_write_and_end_without_a_new_epoch() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            producer = await producer_of(node)
            for number in range(3):
                assert await patiently_ok(lambda: add(node, producer)) == ErrorCode.NONE
                assert await produce(node, producer, sequence=number) is ErrorCode.NONE
                answer = await end(node, producer)
                assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, -1)

            await stable(node)
            assert await committed(node) == [b"a", b"a", b"a"]

    run(story())


async def patiently_ok(ask_once: object) -> int:
    """Ask again while the transaction before is being ended, as clients do."""
    while True:
        code: int = await ask_once()  # type: ignore[operator]
        if code != ErrorCode.CONCURRENT_TRANSACTIONS:
            return code
        await asyncio.sleep(0.02)


def test_newer_clients_write_and_end_with_a_new_epoch_each_time() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            producer = await producer_of(node)
            for number in range(3):
                before = producer

                async def write(producer: Producer = producer) -> int:
                    return await produce(node, producer, version=12)

                assert await patiently_ok(write) == ErrorCode.NONE
                answer = await end(node, producer, version=5)
                assert answer.error_code == ErrorCode.NONE
                producer = Producer(answer.producer_id, answer.producer_epoch)
                assert producer == (before.producer_id, number + 1)

            await stable(node)
            assert await committed(node) == [b"a", b"a", b"a"]
            assert await produce(node, Producer(producer.producer_id, 0), version=12) is (
                ErrorCode.INVALID_PRODUCER_EPOCH
            )

    run(story())


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_the_word_for_a_fenced_producer_depends_on_the_version(
    version: int, code: ErrorCode
) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            zombie = await producer_of(node)
            await producer_of(node)

            assert await add(node, zombie, version=version) == code
            assert (await end(node, zombie, version=version)).error_code == code
            request = AddOffsetsToTxnRequest(
                transactional_id="billing",
                producer_id=zombie.producer_id,
                producer_epoch=zombie.epoch,
                group_id="readers",
            )
            answer = await ask(node, request, AddOffsetsToTxnResponse, version=version)
            assert answer.error_code == code

    run(story())


def test_what_a_producer_may_not_write_is_told_in_the_words_of_produce() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            early = await produce(node, Producer(3, 0))
            producer = await producer_of(node)

            assert early is ErrorCode.NOT_ENOUGH_REPLICAS  # No coordinator yet: asked again.
            assert await produce(node, producer) is ErrorCode.INVALID_TXN_STATE
            assert await produce(node, producer, transactional_id=None) is (
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
            assert await produce(node, Producer(99, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            await producer_of(node)
            assert await produce(node, producer) is ErrorCode.INVALID_PRODUCER_EPOCH

    run(story())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5, "producer_epoch": 5}, ErrorCode.PRODUCER_FENCED),
        (
            {"producer_id": 5, "producer_epoch": 5, "version": 3},
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ),
    ],
)
def test_an_id_that_cannot_be_taken_over_is_refused(
    changes: dict[str, object], code: ErrorCode
) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            await producer_of(node)

            assert (await init(node, **changes)).error_code == code

    run(story())


def test_brokers_ask_for_many_transactions_at_once() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            producer = await producer_of(node)

            def transaction(name: str, partition: int, *, asks: bool) -> _Transaction:
                return _Transaction(
                    transactional_id=name,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    verify_only=asks,
                    topics=[_Transaction.Topic(name="orders", partitions=[partition])],
                )

            request = AddPartitionsToTxnRequest(
                transactions=[
                    transaction("billing", 0, asks=True),
                    transaction("billing", 0, asks=False),
                    transaction("billing", 0, asks=True),
                    transaction("billing", 9, asks=False),
                    transaction("nobody", 0, asks=False),
                ]
            )
            answer = await ask(node, request, AddPartitionsToTxnResponse, version=5)

            codes = [
                result.topic_results[0].results_by_partition[0].partition_error_code
                for result in answer.results_by_transaction
            ]
            assert codes == [
                ErrorCode.INVALID_TXN_STATE,
                ErrorCode.NONE,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ]

    run(story())


def test_tools_see_a_hanging_transaction_and_end_it() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            producer = await producer_of(node)
            await add(node, producer)
            await produce(node, producer)

            described = await ask(
                node,
                DescribeTransactionsRequest(transactional_ids=["billing", "nobody"]),
                DescribeTransactionsResponse,
            )
            seen = await ask(
                node,
                DescribeProducersRequest(
                    topics=[DescribeProducersRequest.Topic(name="orders", partition_indexes=[0, 9])]
                ),
                DescribeProducersResponse,
            )
            ours, missing = seen.topics[0].partitions
            (active,) = ours.active_producers
            marked = await ask(node, markers(active), WriteTxnMarkersResponse)

            billing, nobody = described.transaction_states
            assert (billing.transaction_state, billing.topics[0].partitions) == ("Ongoing", [0])
            assert nobody.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (active.producer_epoch, active.current_txn_start_offset) == (0, 0)
            assert [
                partition.error_code for partition in marked.markers[0].topics[0].partitions
            ] == [
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert marked.markers[1].topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
            await stable(node)
            assert await committed(node) == []

    run(story())


def markers(
    active: DescribeProducersResponse.Topic.Partition.ActiveProducer,
) -> WriteTxnMarkersRequest:
    marker = WriteTxnMarkersRequest.Marker
    return WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer_id,
                producer_epoch=active.producer_epoch,
                transaction_result=False,
                coordinator_epoch=active.coordinator_epoch,
                topics=[marker.Topic(name="orders", partition_indexes=[0, 9])],
            )
            for producer_id in (active.producer_id, -1)
        ]
    )


def test_transactions_are_listed_and_unknown_filters_named() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            producer = await producer_of(node)
            await add(node, producer)

            async def listed(*states: str, pattern: str | None = None) -> tuple[object, ...]:
                request = ListTransactionsRequest(
                    state_filters=list(states),
                    producer_id_filters=[],
                    transactional_id_pattern=pattern,
                )
                answer = await ask(node, request, ListTransactionsResponse)
                collected = [state.transactional_id for state in answer.transaction_states]
                return answer.error_code, answer.unknown_state_filters, collected

            assert await listed() == (0, [], ["billing"])
            assert await listed("Ongoing", "Odd") == (0, ["Odd"], ["billing"])
            assert await listed("PrepareEpochFence") == (0, [], [])
            assert await listed("Odd") == (0, ["Odd"], [])
            assert await listed(pattern="b.*") == (0, [], ["billing"])
            code, _, _ = await listed(pattern="(")
            assert code == ErrorCode.INVALID_REGULAR_EXPRESSION

    run(story())


def test_the_newer_protocol_is_switched_on_by_a_finalized_feature() -> None:
    answer = api_versions(4, APIS.keys(), FEATURES, FINALIZED)
    older = api_versions(3, APIS.keys(), FEATURES, FINALIZED)

    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert finalized == {"transaction.version": 2, "group.version": 1, "metadata.version": 25}
    assert answer.finalized_features_epoch >= 0
    assert {feature.name for feature in answer.supported_features} == {*finalized, "kraft.version"}
    # Clients below v4 fail to parse a supported feature whose minimum is 0.
    assert [feature.name for feature in older.supported_features] == ["metadata.version"]
    assert older.finalized_features == answer.finalized_features
