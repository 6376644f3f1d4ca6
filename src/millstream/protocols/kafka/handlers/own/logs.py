"""Handlers of figures of logs, for clients that know Millstream: more than DescribeLogDirs has.

The figures are those of the replicas on this node, leaders or not.
"""

from millstream.engine.partitions.service import PartitionHealth
from millstream.errors import RequestError
from millstream.kafka_wire.apis.millstream import (
    DescribeFilteredReadsRequest,
    DescribeFilteredReadsResponse,
    DescribeLogsRequest,
    DescribeLogsResponse,
    DescribeStorageRequest,
    DescribeStorageResponse,
)
from millstream.kafka_wire.error_codes import code_for
from millstream.model import TopicPartition
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

NO_LEADER = -1
PROBLEMS_MAX = 1_000  # Partitions in one answer.
REASON_LENGTH_MAX = 500


def describe_logs(context: Context, request: DescribeLogsRequest) -> DescribeLogsResponse:
    broker, session = context.broker, context.session
    try:
        count = broker.topics.describe(session, request.topic).partition_count
        targets = [TopicPartition(request.topic, index) for index in range(count)]
        figures = [_figures(at, broker.partitions.health(session, at)) for at in targets]
    except RequestError as problem:
        return DescribeLogsResponse(error_code=code_for(problem), error_message=str(problem))
    return DescribeLogsResponse(partitions=figures)


def _figures(target: TopicPartition, health: PartitionHealth) -> DescribeLogsResponse.Partition:
    log = health.log
    return DescribeLogsResponse.Partition(
        partition=target.partition,
        leader_id=NO_LEADER if health.leader is None else health.leader,
        leader_epoch=health.leader_epoch,
        low_watermark=log.start_offset,
        high_watermark=health.high_watermark,
        last_stable_offset=health.last_stable_offset,
        end_offset=log.end_offset,
        segment_count=log.segment_count,
        size_bytes=log.size_bytes,
        index_entries=log.index_entries,
        index_stretch_bytes_max=log.index_bytes_per_entry_max,
        index_gaps=log.index_gaps,
    )


def describe_storage(context: Context, request: DescribeStorageRequest) -> DescribeStorageResponse:
    try:
        problems = context.broker.partitions.storage_problems(context.session)
    except RequestError as problem:
        return DescribeStorageResponse(error_code=code_for(problem), error_message=str(problem))
    return DescribeStorageResponse(
        problems=[
            DescribeStorageResponse.Problem(
                topic=problem.target.topic,
                partition=problem.target.partition,
                is_disk_full=problem.is_disk_full,
                is_transient=problem.is_transient,
                reason=problem.reason[:REASON_LENGTH_MAX],
            )
            for problem in problems[:PROBLEMS_MAX]
        ]
    )


def describe_filtered_reads(
    context: Context, request: DescribeFilteredReadsRequest
) -> DescribeFilteredReadsResponse:
    try:
        figures = context.broker.partitions.filter_figures(context.session, request.topic)
    except RequestError as problem:
        return DescribeFilteredReadsResponse(
            error_code=code_for(problem), error_message=str(problem)
        )
    return DescribeFilteredReadsResponse(
        read_bytes=figures.read_bytes, skipped_bytes=figures.skipped_bytes
    )


HANDLERS: dict[int, Handler] = {
    10_007: describe_logs,
    10_020: describe_storage,
    10_021: describe_filtered_reads,
}
