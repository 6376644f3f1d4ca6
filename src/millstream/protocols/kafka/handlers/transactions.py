"""Handlers of producer ids and transactions, for producers and for the tools that watch them.

Translates between Kafka's requests and the engine's transactions. TxnOffsetCommit, which writes
offsets, is with the other commits. A producer retries only after the codes of a coordinator; any
other code, however temporary its reason, ends it.
"""

from collections.abc import Awaitable, Iterable, Sequence

from millstream.codec.markers import ControlKind, Marker
from millstream.engine.gate import Operation
from millstream.engine.transactions.service import Outcomes
from millstream.errors import InvalidRequest, RequestError
from millstream.internal_topics.transactions import TransactionState
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
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.model import NO_PRODUCER, SYSTEM_SESSION, Appended, Producer, TopicPartition
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

_MANY_TRANSACTIONS = 4
_BUMPS_EPOCH = 5
_NEWER_MARKERS = 2
# The first versions with PRODUCER_FENCED; before, the epoch of the producer is merely wrong.
_TELLS_FENCED = {22: 4, 24: 2, 25: 2, 26: 2}
_ASK_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}

STATES: dict[TransactionState, str] = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
}
# A state of Kafka's that is passed here in one step: nothing is ever found in it.
_UNUSED_STATES = {"PrepareEpochFence"}

_AddTopic = AddPartitionsToTxnRequest.Topic | AddPartitionsToTxnRequest.Transaction.Topic
_AddResult = AddPartitionsToTxnResponse.Transaction
_Described = DescribeTransactionsResponse.Transaction
_Producers = DescribeProducersResponse.Topic.Partition
_Marked = WriteTxnMarkersResponse.Marker


# -- producers ---------------------------------------------------------------------------------


async def init_producer_id(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    expected = Producer(request.producer_id, request.producer_epoch)
    try:
        if (expected.producer_id < 0) != (expected.epoch < 0):
            raise InvalidRequest("a producer id without its epoch, or an epoch without its id")
        if request.transactional_id is None:
            # The number is all that an idempotent producer needs: a new one starts over.
            producer = Producer(await context.broker.producer_ids.next(context.session), 0)
        else:
            producer = await context.broker.transactions.init(
                context.session,
                request.transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                expected=NO_PRODUCER if expected.producer_id < 0 else expected,
            )
    except RequestError as problem:
        context.end_if_cut_off()
        return InitProducerIdResponse(error_code=_code(context, problem))
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


async def add_partitions_to_txn(
    context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.version >= _MANY_TRANSACTIONS:
        try:
            context.broker.topics.admit_to_cluster(context.session, Operation.CLUSTER_ACTION)
        except RequestError as problem:
            return AddPartitionsToTxnResponse(
                error_code=code_for(problem), results_by_transaction=[]
            )
        context = context._replace(session=SYSTEM_SESSION)  # As brokers ask one another.
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                _AddResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=await _added(
                        context,
                        transaction.transactional_id,
                        Producer(transaction.producer_id, transaction.producer_epoch),
                        transaction.topics,
                        is_question=transaction.verify_only,
                    ),
                )
                for transaction in request.transactions
            ]
        )
    results = await _added(
        context,
        request.v3_and_below_transactional_id,
        Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        request.v3_and_below_topics,
        is_question=False,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponse.TopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.TopicResult.PartitionResult(
                        partition_index=part.partition_index,
                        partition_error_code=part.partition_error_code,
                    )
                    for part in topic.results_by_partition
                ],
            )
            for topic in results
        ]
    )


async def _added(
    context: Context,
    transactional_id: str,
    producer: Producer,
    topics: Sequence[_AddTopic],
    *,
    is_question: bool,
) -> list[_AddResult.TopicResult]:
    targets = [TopicPartition(topic.name, at) for topic in topics for at in topic.partitions]
    transactions = context.broker.transactions
    outcomes: Outcomes
    try:
        if is_question:
            outcomes = transactions.check_partitions(
                context.session, transactional_id, producer, targets
            )
        else:
            outcomes = await transactions.add_partitions(
                context.session, transactional_id, producer, targets
            )
    except RequestError as problem:
        outcomes = dict.fromkeys(targets, problem)
    return [
        _AddResult.TopicResult(
            name=topic.name,
            results_by_partition=[
                _AddResult.TopicResult.PartitionResult(
                    partition_index=at,
                    partition_error_code=_code(context, outcomes[TopicPartition(topic.name, at)]),
                )
                for at in topic.partitions
            ],
        )
        for topic in topics
    ]


async def add_offsets_to_txn(
    context: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    try:
        await context.broker.transactions.add_offsets(
            context.session,
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            request.group_id,
        )
    except RequestError as problem:
        return AddOffsetsToTxnResponse(error_code=_code(context, problem))
    return AddOffsetsToTxnResponse()


async def end_txn(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    try:
        producer = await context.broker.transactions.end(
            context.session,
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            commits=request.committed,
            bumps=context.version >= _BUMPS_EPOCH,
        )
    except RequestError as problem:
        return EndTxnResponse(error_code=_code(context, problem))
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


# -- tools -------------------------------------------------------------------------------------


async def write_txn_markers(
    context: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            _Marked(
                producer_id=marker.producer_id,
                topics=[
                    _Marked.Topic(
                        name=topic.name,
                        partitions=[
                            _Marked.Topic.Partition(
                                partition_index=at,
                                error_code=await _marked(
                                    context, TopicPartition(topic.name, at), marker
                                ),
                            )
                            for at in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


async def _marked(
    context: Context, target: TopicPartition, marker: WriteTxnMarkersRequest.Marker
) -> ErrorCode:
    try:
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise InvalidRequest("a marker is of a producer with an epoch")
        written: Awaitable[Appended] = context.broker.partitions.write_marker(
            context.session,
            target,
            Marker(
                ControlKind.COMMIT if marker.transaction_result else ControlKind.ABORT,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
            ),
            must_be_newer=marker.transaction_version >= _NEWER_MARKERS,
        )
        await written
    except RequestError as problem:
        return code_for(problem)
    return ErrorCode.NONE


async def describe_producers(
    context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.Topic(
                name=topic.name,
                partitions=[
                    await _producers(context, TopicPartition(topic.name, at))
                    for at in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


async def _producers(context: Context, target: TopicPartition) -> _Producers:
    try:
        producers = await context.broker.partitions.producers(context.session, target)
    except RequestError as problem:
        return _Producers(
            partition_index=target.partition,
            error_code=code_for(problem),
            error_message=str(problem),
            active_producers=[],
        )
    return _Producers(
        partition_index=target.partition,
        active_producers=[
            _Producers.ActiveProducer(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer in producers
        ],
    )


async def describe_transactions(
    context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            await _described(context, transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


async def _described(context: Context, transactional_id: str) -> _Described:
    try:
        view = await context.broker.transactions.describe(context.session, transactional_id)
    except RequestError as problem:
        return _Described(
            error_code=code_for(problem),
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=-1,
            producer_id=-1,
            producer_epoch=-1,
            topics=[],
        )
    return _Described(
        transactional_id=transactional_id,
        transaction_state=STATES[view.state],
        transaction_timeout_ms=view.timeout_ms,
        transaction_start_time_ms=view.started_ms,
        producer_id=view.producer.producer_id,
        producer_epoch=view.producer.epoch,
        topics=_by_topic(view.targets),
    )


def _by_topic(targets: Iterable[TopicPartition]) -> list[_Described.Topic]:
    partitions: dict[str, list[int]] = {}
    for target in targets:
        partitions.setdefault(target.topic, []).append(target.partition)
    return [_Described.Topic(topic=topic, partitions=at) for topic, at in partitions.items()]


def list_transactions(
    context: Context, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    known = {name: state for state, name in STATES.items()}
    filters = set(request.state_filters)
    answer = ListTransactionsResponse(
        unknown_state_filters=sorted(filters - known.keys() - _UNUSED_STATES), transaction_states=[]
    )
    states = [known[name] for name in filters & known.keys()]
    if filters and not states:
        return answer
    try:
        transactions = context.broker.transactions.list(
            context.session,
            states=states,
            producer_ids=request.producer_id_filters,
            running_ms_min=request.duration_filter,
            pattern=request.transactional_id_pattern,
        )
    except RequestError as problem:
        answer.error_code = code_for(problem)
        return answer
    answer.transaction_states = [
        ListTransactionsResponse.Transaction(
            transactional_id=view.transactional_id,
            producer_id=view.producer.producer_id,
            transaction_state=STATES[view.state],
        )
        for view in transactions
    ]
    return answer


def _code(context: Context, problem: RequestError | None) -> ErrorCode:
    if problem is None:
        return ErrorCode.NONE
    code = code_for(problem)
    api_key, version = context.header.api_key, context.version
    if code is ErrorCode.PRODUCER_FENCED and version < _TELLS_FENCED[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if problem.retriable and code not in _ASK_AGAIN:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code


HANDLERS: dict[int, Handler] = {
    22: init_producer_id,
    24: add_partitions_to_txn,
    25: add_offsets_to_txn,
    26: end_txn,
    27: write_txn_markers,
    61: describe_producers,
    65: describe_transactions,
    66: list_transactions,
}
