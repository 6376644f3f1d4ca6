"""What the node of a member and the owner of its subscription say to each other."""

from collections.abc import Sequence
from enum import Enum

import msgspec

from millstream.engine.cluster.relay.callers import Caller
from millstream.engine.push.cursor import size_of
from millstream.engine.push.values import Delivered
from millstream.internal_topics.deliveries import FlowPolicy, SubscriptionValue
from millstream.model import TopicPartition

JOIN, RECORDS, ACTS, ENDED = "push.join", "push.records", "push.acts", "push.ended"
# Ahead of what a member has taken.
RECORDS_AHEAD_MAX = 1_000
BYTES_AHEAD_MAX = 2**20
MESSAGE_BYTES_MAX = 2**20  # Of records in one message, unless one record is larger.
RECORD_BYTES_MAX = 3 * 2**20  # A larger one does not fit into a call.


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """Become a member. `number` is the name of the member between the two nodes."""

    caller: Caller
    number: int
    name: str
    value: SubscriptionValue | None  # None: of a durable subscription that exists.
    is_durable: bool
    flow: FlowPolicy | None


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    value: SubscriptionValue  # As the subscription was created.


class Records(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    records: list[Delivered]


class ActKind(Enum):
    ACK = 0
    NACK = 1
    REJECT = 2
    WANT = 3
    LIMIT = 4
    TAKEN = 5
    FLOW = 6
    CLOSE = 7


class Act(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One thing that a member does; which fields count depends on its kind."""

    kind: ActKind
    target: TopicPartition | None = None
    offset: int = 0
    count: int = 0
    delay_ms: int | None = None
    reason: str = ""
    error: str = ""
    flow: FlowPolicy | None = None


class Acts(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    acts: list[Act]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The owner has no such member any more."""

    number: int


def bytes_of(records: Sequence[Delivered]) -> int:
    return sum(size_of(each.record) for each in records)
