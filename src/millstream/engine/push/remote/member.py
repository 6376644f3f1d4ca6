"""A member whose subscription another node owns, or may own tomorrow.

Keeps what its client holds, and says to the owner what the client does. When the owner changes it
joins again: what was not acknowledged comes again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from millstream.engine.push.dispatcher import REJECTED
from millstream.engine.push.member import Member
from millstream.engine.push.remote.messages import Act, ActKind
from millstream.engine.push.specs import check_flow
from millstream.engine.push.values import Delivered, Send, Statistics, SubscriptionSpec
from millstream.internal_topics.deliveries import AckMode, FlowPolicy
from millstream.model import Offset, Session, TopicPartition

Acted = Callable[["RemoteMember", Sequence[Act]], None]


class RemoteMember(Member):
    def __init__(
        self,
        number: int,
        session: Session,
        spec: SubscriptionSpec,
        send: Send,
        acted: Acted,
        closed: Callable[["RemoteMember"], None],
    ) -> None:
        """`acted` takes what the owner is to carry out."""
        self.number = number
        self.session = session
        self.send = send
        self.is_closed = False
        self.on_end = None
        self.on_failure = None
        self.flow = spec.flow
        self.requested = 0  # In pull mode: not delivered yet.
        self._spec = spec
        self._acted = acted
        self._closed = closed
        self._held: set[tuple[TopicPartition, Offset]] = set()
        self._waiting: deque[Delivered] = deque()  # Its client had no room for them.
        self._is_open = True
        self._left: int | None = None  # Of a limit.
        self._delivered_here = 0  # Of the owner in charge.
        self._delivered = self._redelivered = self._acknowledged = self._rejected = 0

    @property
    def spec(self) -> SubscriptionSpec:
        return self._spec

    def set_spec(self, spec: SubscriptionSpec) -> None:
        """The subscription exists with this specification."""
        self._spec = spec

    # -- from the owner --------------------------------------------------------------------------

    def deliver(self, records: Sequence[Delivered]) -> None:
        """Take records from the owner."""
        if self.is_closed:
            return
        self._waiting.extend(records)
        self._flush()

    def restart(self) -> list[Act]:
        """Another owner begins: forget what the client holds; return what the owner must know."""
        self._held.clear()
        self._waiting.clear()
        self._delivered_here = 0
        acts = []
        if self._left is not None:
            acts.append(Act(ActKind.LIMIT, count=self._left))
        if self.requested:
            acts.append(Act(ActKind.WANT, count=self.requested))
        return acts

    def _flush(self) -> None:
        if not self._waiting or not self._is_open or self.is_closed:
            return
        records = list(self._waiting)
        if not self.push(records):
            self._is_open = False
            return
        self._waiting.clear()
        self._delivered += len(records)
        self._delivered_here += len(records)
        self._redelivered += sum(each.attempt > 1 for each in records)
        self.requested = max(0, self.requested - len(records))
        if self._left is not None:
            self._left = max(0, self._left - len(records))
        if self.spec.acks is AckMode.EXPLICIT:
            self._held.update((each.target, each.record.offset) for each in records)
        else:
            self._acknowledged += len(records)
        self._acted(self, [Act(ActKind.TAKEN, count=len(records))])

    # -- from the client -------------------------------------------------------------------------

    def ack(self, target: TopicPartition, offset: Offset) -> bool:
        if not self._settle(target, offset):
            return False
        self._acknowledged += 1
        self._acted(self, [Act(ActKind.ACK, target, offset)])
        return True

    def nack(self, target: TopicPartition, offset: Offset, delay_ms: int | None = None) -> bool:
        if not self._settle(target, offset):
            return False
        self._acted(self, [Act(ActKind.NACK, target, offset, delay_ms=delay_ms)])
        return True

    def reject(
        self, target: TopicPartition, offset: Offset, reason: str = REJECTED, error: str = ""
    ) -> bool:
        if not self._settle(target, offset):
            return False
        self._rejected += 1
        self._acted(self, [Act(ActKind.REJECT, target, offset, reason=reason, error=error)])
        return True

    def want(self, count: int) -> None:
        self.requested += max(0, count)
        self._acted(self, [Act(ActKind.WANT, count=max(0, count))])

    def limit(self, count: int) -> None:
        self._left = max(0, count - self._delivered)
        self._acted(self, [Act(ActKind.LIMIT, count=self._left + self._delivered_here)])

    @property
    def is_done(self) -> bool:
        return self._left == 0 and not self._held and not self._waiting

    def resume(self) -> None:
        self._is_open = True
        # Not within the call: the client may be in the midst of its own turn.
        asyncio.get_running_loop().call_soon(self._flush)

    def set_flow(self, flow: FlowPolicy) -> None:
        check_flow(flow)
        self.flow = flow
        self._acted(self, [Act(ActKind.FLOW, flow=flow)])

    def statistics(self) -> Statistics:
        """What is known on this node: the owner's buffers are not."""
        return Statistics(
            delivered=self._delivered,
            redelivered=self._redelivered,
            acknowledged=self._acknowledged,
            dropped=0,
            dead_lettered=self._rejected,
            in_flight=len(self._held),
            buffered=len(self._waiting),
            buffer_usage=min(1.0, len(self._waiting) / self.flow.buffer),
            tokens=0.0,
            is_slow=len(self._waiting) >= self.flow.slow_threshold * self.flow.buffer,
            flow=self.flow,
        )

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._held.clear()
            self._waiting.clear()
            self._acted(self, [Act(ActKind.CLOSE)])
            self._closed(self)

    def _settle(self, target: TopicPartition, offset: Offset) -> bool:
        if self.is_closed or (target, offset) not in self._held:
            return False
        self._held.remove((target, offset))
        return True
