"""`client.health`: watermarks, segments and index of a topic's logs, and how far groups are behind.

The figures are not of one moment: those of a topic that is being written to are a little apart.
"""

from typing import TYPE_CHECKING

from millstream.client.admin import Admin
from millstream.client.extensions.requests import BrokerRequests
from millstream.client.models import (
    FilterFigures,
    GroupLag,
    PartitionHealth,
    StorageProblem,
    TopicHealth,
)
from millstream.view_names import filtered_name

# Here and below imported late: the tables take a while, and few programs need them.
if TYPE_CHECKING:
    from millstream.kafka_wire.apis import millstream as own


def topic_health(requests: BrokerRequests, admin: Admin, topic: str) -> TopicHealth:
    from millstream.kafka_wire.apis import millstream as own

    answer = requests.call(
        own.DescribeLogsRequest(topic=topic),
        own.DescribeLogsResponse,
        feature="figures of logs",
        doing=f"look at the logs of {topic!r}",
    )
    partitions = tuple(_partition(partition) for partition in answer.partitions)
    by_index = {health.partition: health for health in partitions}
    lags = []
    for group in admin.list_groups():
        for at, offset in sorted(admin.committed(group.group_id).items()):
            health = by_index.get(at.partition)
            if at.topic == topic and health is not None:
                low = max(offset, health.low_watermark)
                behind = max(0, health.high_watermark - low)
                lags.append(
                    GroupLag(
                        group_id=group.group_id,
                        partition=at.partition,
                        committed_offset=offset,
                        records=behind,
                    )
                )
    return TopicHealth(topic=topic, partitions=partitions, lags=tuple(lags))


def storage_problems(requests: BrokerRequests) -> tuple[StorageProblem, ...]:
    from millstream.kafka_wire.apis import millstream as own

    answer = requests.call(
        own.DescribeStorageRequest(),
        own.DescribeStorageResponse,
        feature="problems of storage",
        doing="look at the storage",
    )
    return tuple(
        StorageProblem(
            topic=problem.topic,
            partition=problem.partition,
            is_disk_full=problem.is_disk_full,
            is_transient=problem.is_transient,
            reason=problem.reason,
        )
        for problem in answer.problems
    )


def filter_figures(requests: BrokerRequests, topic: str, where: str) -> FilterFigures:
    from millstream.kafka_wire.apis import millstream as own

    answer = requests.call(
        own.DescribeFilteredReadsRequest(topic=filtered_name(topic, where)),
        own.DescribeFilteredReadsResponse,
        feature="figures of filtered reads",
        doing=f"look at filtered reads of {topic!r}",
    )
    return FilterFigures(read_bytes=answer.read_bytes, skipped_bytes=answer.skipped_bytes)


def _partition(described: "own.DescribeLogsResponse.Partition") -> PartitionHealth:
    return PartitionHealth(
        partition=described.partition,
        leader_id=None if described.leader_id < 0 else described.leader_id,
        leader_epoch=described.leader_epoch,
        low_watermark=described.low_watermark,
        high_watermark=described.high_watermark,
        last_stable_offset=described.last_stable_offset,
        end_offset=described.end_offset,
        segment_count=described.segment_count,
        size_bytes=described.size_bytes,
        index_entries=described.index_entries,
        index_stretch_bytes_max=described.index_stretch_bytes_max,
        index_gaps=described.index_gaps,
    )
