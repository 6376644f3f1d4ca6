"""How the logs of a topic are: watermarks, segments, index, and how far groups are behind.

Owns the request to the broker and what is put together with the offsets of groups. A look, not a
moment: figures of a topic that is written to are a little apart.
"""

from millstream.client.admin import Admin
from millstream.client.answers import Reader, text, understanding
from millstream.client.models import GroupLag, PartitionHealth, StorageProblem, TopicHealth
from millstream.client.own import OwnRequests

DESCRIBE = 10_007
DESCRIBE_STORAGE = 10_020


def topic_health(requests: OwnRequests, admin: Admin, topic: str) -> TopicHealth:
    doing = f"look at the logs of {topic!r}"
    answer = requests.ask(DESCRIBE, text(topic), what="figures of logs", doing=doing)
    with understanding(doing):
        partitions = tuple(answer.array(lambda: _partition(answer)))
    ends = {one.partition: one for one in partitions}
    lags = []
    for group in admin.list_groups():
        for at, offset in sorted(admin.committed(group.group_id).items()):
            health = ends.get(at.partition)
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


def storage_problems(requests: OwnRequests) -> tuple[StorageProblem, ...]:
    doing = "look at the storage"
    answer = requests.ask(DESCRIBE_STORAGE, b"", what="problems of storage", doing=doing)
    with understanding(doing):
        return tuple(answer.array(lambda: _problem(answer)))


def _problem(answer: Reader) -> StorageProblem:
    topic = answer.text()
    return StorageProblem(
        topic=topic,
        partition=answer.number(">i"),
        is_disk_full=answer.truth(),
        is_transient=answer.truth(),
        reason=answer.text(),
    )


def _partition(answer: Reader) -> PartitionHealth:
    partition, leader_id, leader_epoch = answer.numbers(">iii")
    low, high, stable, end = answer.numbers(">qqqq")
    segments, size_bytes, entries, stretch, gaps = answer.numbers(">iqqqi")
    return PartitionHealth(
        partition=partition,
        leader_id=None if leader_id < 0 else leader_id,
        leader_epoch=leader_epoch,
        low_watermark=low,
        high_watermark=high,
        last_stable_offset=stable,
        end_offset=end,
        segment_count=segments,
        size_bytes=size_bytes,
        index_entries=entries,
        index_stretch_bytes_max=stretch,
        index_gaps=gaps,
    )
