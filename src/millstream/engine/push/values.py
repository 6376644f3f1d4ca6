"""Values of push delivery: specifications, delivered records, statistics and views.

A protocol makes a `SubscriptionSpec`, gets `Delivered` records, and shows the views.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.codec.records import Record
from millstream.engine.partitions.slices import Latest, Place
from millstream.engine.publish.subjects import Pattern
from millstream.internal_topics.deliveries import AckMode, FlowPolicy, RetryPolicy
from millstream.model import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class AtOffset:
    """From this offset on, in every partition."""

    offset: Offset


Start = Place | AtOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSpec:
    """Which records, from where on, and how they are delivered.

    Without `topics` a record belongs to it if its subject matches `pattern`, in whichever topic;
    with `topics` only theirs do, and `pattern` may narrow that. Topics need not exist yet.
    A subscription without a name ends with its only member. A named one is shared by all members
    that subscribe under the name: each record goes to one of them. A durable one stays when the
    last member leaves, and remembers what was acknowledged; others end with their last member.
    """

    name: str | None = None
    is_durable: bool = True  # Ignored without a name.
    pattern: Pattern | None = None
    topics: tuple[str, ...] = ()
    start: Start = field(default_factory=Latest)  # For partitions that exist now.
    filter: str | None = None  # In the language of `engine.filters`.
    acks: AckMode = AckMode.EXPLICIT
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    flow: FlowPolicy = field(default_factory=FlowPolicy)


class Delivered(NamedTuple):
    """A record as a member gets it; `target` and `record.offset` identify it in an ack."""

    target: TopicPartition
    record: Record
    subject: str
    attempt: int  # From 1.


class DeliveredRun(list[Delivered]):
    """Records of one partition that several members get at the same time.

    `encoded` belongs to the protocols: what one member's frames share with another's is made once.
    """

    __slots__ = ("encoded",)

    def __init__(self, records: Iterable[Delivered]) -> None:
        super().__init__(records)
        self.encoded: dict[object, list[bytes]] = {}


# Takes all records; or takes none and returns False: nothing is sent until `Member.resume`.
Send = Callable[[Sequence[Delivered]], bool]


class Statistics(NamedTuple):
    """A member's figures since it subscribed; buffered records wait for any member."""

    delivered: int
    redelivered: int
    acknowledged: int
    dropped: int
    dead_lettered: int
    in_flight: int
    buffered: int
    buffer_usage: float  # 0 to 1.
    tokens: float  # Records that the rate allows now; 0 without a rate.
    is_slow: bool
    flow: FlowPolicy


class CursorView(NamedTuple):
    """How far a subscription is in one partition."""

    floor: Offset  # Every record before it is settled.
    next_offset: Offset  # Next to read from the log.
    unsettled: int  # Records between the two that are not settled.


class SubscriptionView(NamedTuple):
    spec: SubscriptionSpec
    members: tuple[Statistics, ...]
    cursors: Mapping[TopicPartition, CursorView]
