"""One member of a subscription: its acknowledgements, its flow, its statistics.

The handle that `Deliveries.subscribe` returns. Once it is closed, `ack`, `nack` and `reject` return
False.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from millstream.engine.push.dispatcher import REJECTED
from millstream.engine.push.specs import check_flow
from millstream.engine.push.values import Delivered, Send, Statistics, SubscriptionSpec
from millstream.engine.push.window import Window
from millstream.internal_topics.deliveries import FlowPolicy
from millstream.model import Offset, Session, TopicPartition

if TYPE_CHECKING:
    from millstream.engine.push.subscription import Subscription


class Member:
    def __init__(
        self, subscription: "Subscription", window: Window, session: Session, send: Send
    ) -> None:
        self.session = session
        self.send = send
        self.window = window
        self.is_closed = False
        # Called once if the subscription ends while this member is open: it was deleted, or this
        # node no longer leads its shard.
        self.on_end: Callable[[], None] | None = None
        # Called with what `send` or `on_end` raised: it ends one client, not the pump.
        self.on_failure: Callable[[Exception], None] | None = None
        self._subscription = subscription

    @property
    def spec(self) -> SubscriptionSpec:
        """The specification that the subscription was created with."""
        return self._subscription.spec

    def ack(self, target: TopicPartition, offset: Offset) -> bool:
        """Settle the record. False if this member does not hold it: it is acknowledged already, or
        was sent to another member since."""
        if self.is_closed or not self._subscription.dispatcher.ack(self.window, target, offset):
            return False
        self._subscription.acknowledged += 1
        self._subscription.touch()
        return True

    def nack(self, target: TopicPartition, offset: Offset, delay_ms: int | None = None) -> bool:
        """The record could not be processed: it is delivered again, to any member, after the retry
        policy's delay or after `delay_ms`."""
        return not self.is_closed and self._subscription.nack(self, target, offset, delay_ms)

    def reject(
        self, target: TopicPartition, offset: Offset, reason: str = REJECTED, error: str = ""
    ) -> bool:
        """The record is bad: it becomes a dead letter without further attempts."""
        dispatcher = self._subscription.dispatcher
        if self.is_closed or not dispatcher.reject(self.window, target, offset, reason, error):
            return False
        self._subscription.touch()
        return True

    def want(self, count: int) -> None:
        """Request that many more records, in pull mode."""
        self.window.requested += max(0, count)
        self._subscription.touch()

    def limit(self, count: int) -> None:
        """Send at most `count` records in all, including those already sent."""
        self.window.left = max(0, count - self.window.delivered)
        self._subscription.touch()

    @property
    def is_done(self) -> bool:
        """Whether its limit is reached and every record is acknowledged."""
        return self.window.left == 0 and self.window.in_flight_count == 0

    def resume(self) -> None:
        """Send again: there is room after `send` returned False."""
        self.window.is_open = True
        self._subscription.touch()

    def set_flow(self, flow: FlowPolicy) -> None:
        """Change how fast and how much this member gets, or raise `InvalidSubscription`."""
        check_flow(flow)
        if not self.is_closed:
            self._subscription.set_flow(self, flow)

    def statistics(self) -> Statistics:
        return self._subscription.statistics(self)

    def push(self, records: Sequence[Delivered]) -> bool:
        """Send records; False if there was no room, or the client failed."""
        try:
            return self.send(records)
        except Exception as problem:
            self._fail(problem)
            return False

    def end(self) -> None:
        """Close the member because its subscription ended."""
        self.is_closed = True
        try:
            if self.on_end is not None:
                self.on_end()
        except Exception as problem:
            self._fail(problem)

    def expel(self) -> None:
        """Close the member because its session may not have the records any more."""
        self.close()
        self.end()

    def _fail(self, problem: Exception) -> None:
        if self.on_failure is None:
            raise problem
        self.close()
        self.on_failure(problem)

    def close(self) -> None:
        """Leave: unacknowledged records go to the other members at once, or wait for the next one.
        A subscription that is not durable ends with its last member."""
        if not self.is_closed:
            self.is_closed = True
            self._subscription.leave(self)
