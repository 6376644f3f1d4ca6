"""Tables of what only Millstream has: batches that end as one, dead letters, logs, delayed records.

The keys lie far behind Kafka's own, and are advertised only to clients that call themselves
Millstream's: other clients never see a key that they do not know.
"""

from millstream.kafka_wire.schema import Bool, Bytes, Int16, Int32, Int64, Message, String, empty


class OwnResponse(Message, kw_only=True):
    """Every response here begins so; the message says more than Kafka's code can."""

    error_code: Int16 = 0
    error_message: String | None = None


class BeginBatchRequest(Message, kw_only=True):
    group: String


class BeginBatchResponse(OwnResponse, kw_only=True):
    term: Int64 = -1
    series: String = ""
    last_committed_batch: Int64 = -1


class EndBatchRequest(Message, kw_only=True):
    class Member(Message, kw_only=True):
        transactional_id: String
        producer_id: Int64
        producer_epoch: Int16

    group: String
    term: Int64
    series: String
    batch_id: Int64
    committed: Bool
    members: list[Member]


class EndBatchResponse(OwnResponse, kw_only=True):
    pass


class RenewBatchRequest(Message, kw_only=True):
    """From a task of the batch: renews the lease of all transactions of the term.

    With the task's own transaction, if it has begun one, the answer says whether that is lost.
    """

    group: String
    term: Int64
    transactional_id: String | None
    producer_id: Int64
    producer_epoch: Int16


class RenewBatchResponse(OwnResponse, kw_only=True):
    pass


class ListDeadLettersRequest(Message, kw_only=True):
    topic: String  # The one that failed, or the one with its dead letters.
    count_max: Int32


class ListDeadLettersResponse(OwnResponse, kw_only=True):
    class Letter(Message, kw_only=True):
        class Header(Message, kw_only=True):
            name: String
            value: Bytes | None

        partition: Int32
        offset: Int64
        timestamp_ms: Int64
        key: Bytes | None
        value: Bytes | None
        headers: list[Header]
        origin_topic: String
        origin_partition: Int32
        origin_offset: Int64
        group: String
        attempts: Int32
        reason: String
        error: String

    topic: String = ""
    letters: list[Letter] = empty()
    has_more: Bool = False


class DescribeDeadLettersRequest(Message, kw_only=True):
    topic: String


class DescribeDeadLettersResponse(OwnResponse, kw_only=True):
    class Count(Message, kw_only=True):
        name: String
        count: Int64

    topic: String = ""
    waiting: Int64 = 0
    by_reason: list[Count] = empty()
    by_group: list[Count] = empty()
    oldest_ms: Int64 = -1
    newest_ms: Int64 = -1
    is_complete: Bool = True


class ReplayDeadLetterRequest(Message, kw_only=True):
    topic: String
    partition: Int32
    offset: Int64
    to: String | None


class ReplayDeadLetterResponse(OwnResponse, kw_only=True):
    topic: String = ""
    partition: Int32 = -1
    offset: Int64 = -1


class RedriveDeadLettersRequest(Message, kw_only=True):
    """One step of a redrive: the client asks again until it has what it wants, at its own pace."""

    topic: String
    filter: String | None
    group: String | None
    to: String | None
    count_max: Int32
    is_dry_run: Bool


class RedriveDeadLettersResponse(OwnResponse, kw_only=True):
    sent: Int64 = 0
    skipped: Int64 = 0


class PurgeDeadLettersRequest(Message, kw_only=True):
    topic: String


class PurgeDeadLettersResponse(OwnResponse, kw_only=True):
    count: Int64 = 0


class DescribeLogsRequest(Message, kw_only=True):
    topic: String


class DescribeLogsResponse(OwnResponse, kw_only=True):
    class Partition(Message, kw_only=True):
        partition: Int32
        leader_id: Int32
        leader_epoch: Int32
        low_watermark: Int64
        high_watermark: Int64
        last_stable_offset: Int64
        end_offset: Int64
        segment_count: Int32
        size_bytes: Int64
        index_entries: Int64
        index_stretch_bytes_max: Int64
        index_gaps: Int32

    partitions: list[Partition] = empty()


class DescribeStorageRequest(Message, kw_only=True):
    pass


class DescribeStorageResponse(OwnResponse, kw_only=True):
    class Problem(Message, kw_only=True):
        topic: String
        partition: Int32
        is_disk_full: Bool
        is_transient: Bool
        reason: String

    problems: list[Problem] = empty()


class DescribeFilteredReadsRequest(Message, kw_only=True):
    topic: String  # A view, or a topic with a filter behind its name.


class DescribeFilteredReadsResponse(OwnResponse, kw_only=True):
    read_bytes: Int64 = 0
    skipped_bytes: Int64 = 0


class ListDelayedRequest(Message, kw_only=True):
    topic: String | None  # None: all of them.
    after: String | None  # The id of the last one that is known.
    count_max: Int32


class ListDelayedResponse(OwnResponse, kw_only=True):
    class Delayed(Message, kw_only=True):
        id: String
        topic: String
        partition: Int32
        due_ms: Int64

    delayed: list[Delayed] = empty()
    next_after: String | None = None  # None: there are no more.


class DescribeDelayedRequest(Message, kw_only=True):
    id: String


class DescribeDelayedResponse(OwnResponse, kw_only=True):
    class Header(Message, kw_only=True):
        name: String
        value: Bytes | None

    topic: String = ""
    partition: Int32 = -1
    due_ms: Int64 = -1
    key: Bytes | None = None
    value: Bytes | None = None
    headers: list[Header] = empty()


class CancelDelayedRequest(Message, kw_only=True):
    id: String


class CancelDelayedResponse(OwnResponse, kw_only=True):
    topic: String = ""
    partition: Int32 = -1
    due_ms: Int64 = -1


class ListDamageRequest(Message, kw_only=True):
    pass


class ListDamageResponse(OwnResponse, kw_only=True):
    class Damaged(Message, kw_only=True):
        topic: String
        partition: Int32
        base_offset: Int64
        end_offset: Int64
        file: String
        position: Int64
        size: Int64
        reason: String

    class Skipped(Message, kw_only=True):
        topic: String
        partition: Int32
        base_offset: Int64
        end_offset: Int64
        file: String
        position: Int64
        size: Int64
        reason: String
        time_ms: Int64
        kept_in: String

    class Closed(Message, kw_only=True):
        topic: String
        partition: Int32
        problem: String

    damaged: list[Damaged] = empty()
    skipped: list[Skipped] = empty()
    closed: list[Closed] = empty()
    scrub_bytes_per_second: Int64 = 0
    scrub_started_ms: Int64 = -1
    scrub_last_full_pass_ms: Int64 = -1
    scrub_bytes: Int64 = 0


class SkipDamageRequest(Message, kw_only=True):
    topic: String
    partition: Int32
    offset: Int64


class SkipDamageResponse(OwnResponse, kw_only=True):
    base_offset: Int64 = -1
    end_offset: Int64 = -1
    file: String = ""
    position: Int64 = -1
    size: Int64 = -1
    reason: String = ""
    time_ms: Int64 = -1
    kept_in: String = ""
