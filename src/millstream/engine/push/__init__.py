"""Delivery with acknowledgement: records of a log pushed to members of subscriptions.

The public face: `Deliveries` (the service), `Member` (one subscriber), the values of `values`, and
`read_records` for plain reads such as replays and pulls.

    member = await deliveries.subscribe(session, spec, send)   # send(list[Delivered]) -> bool
    member.ack(target, offset) -> bool                         # False: this member does not hold it
    member.nack(target, offset, delay_ms=None) -> bool         # again, after the policy's delay
    member.reject(target, offset, reason="rejected", error="") -> bool  # to the dead letters
    member.want(count)                                         # pull mode: send that many more
    member.resume()                                            # there is room after a refused send
    member.set_flow(flow)
    member.statistics() -> Statistics
    member.on_end = callback                                   # the subscription was deleted
    member.close()                                             # returns at once; frees its records

    await deliveries.create(session, spec)                     # durable, without members yet
    await deliveries.join(session, name, send, flow=None)      # a subscription that exists
    await deliveries.delete(session, name)
    deliveries.list(session), deliveries.describe(session, name) -> SubscriptionView

    chunk = await read_records(partitions, session, target, offset, count_max=...)
"""

from millstream.engine.push.member import Member
from millstream.engine.push.records import Chunk, read_records
from millstream.engine.push.service import Deliveries
from millstream.engine.push.values import (
    AtOffset,
    CursorView,
    Delivered,
    DeliveredRun,
    Send,
    Start,
    Statistics,
    SubscriptionSpec,
    SubscriptionView,
)
from millstream.internal_topics.deliveries import AckMode, FlowPolicy, Overflow, RetryPolicy

__all__ = [
    "AckMode",
    "AtOffset",
    "Chunk",
    "CursorView",
    "Deliveries",
    "Delivered",
    "DeliveredRun",
    "FlowPolicy",
    "Member",
    "Overflow",
    "RetryPolicy",
    "Send",
    "Start",
    "Statistics",
    "SubscriptionSpec",
    "SubscriptionView",
    "read_records",
]
