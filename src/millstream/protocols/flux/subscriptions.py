"""SUB, UNSUB, ACK, NACK, REJECT, FLOWCTL and STATS: one connection's subscriptions.

Owns the sids of the connection; `engine.push` decides deliveries and redeliveries. Invariant: a
subscription is silent until its `+OK` is on its way, because a client reads the answer first.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from millstream.config import Flux
from millstream.engine.publish.sequence_numbers import OFFSET_BITS, place_of
from millstream.engine.publish.subjects import Pattern
from millstream.engine.push import (
    AckMode,
    Delivered,
    FlowPolicy,
    Member,
    Overflow,
    RetryPolicy,
    Statistics,
    SubscriptionSpec,
)
from millstream.engine.push.specs import check_flow
from millstream.errors import RequestError
from millstream.model import Offset, Session, TopicPartition
from millstream.names import FLUX_DURABLE_PREFIX, FLUX_GROUP_PREFIX
from millstream.protocols.conversation import PushChannel
from millstream.protocols.flux.context import Services
from millstream.protocols.flux.messages import Messages
from millstream.protocols.flux.metering import Meter
from millstream.protocols.flux.wire import replies
from millstream.protocols.flux.wire.commands import (
    Ack,
    FlowControl,
    Nack,
    Pull,
    Reject,
    Subscribe,
    Unsubscribe,
)

OFFSET_MASK = 2**OFFSET_BITS - 1  # Of a number: the offset, plus one.


class WayOut:
    """How messages leave: in one write for many, and not while the client is over its quota."""

    def __init__(self, push_channel: PushChannel, messages: Messages, meter: Meter) -> None:
        self.push_channel = push_channel
        self.messages = messages
        self._meter = meter
        self._is_muted = False

    def send(self, delivered: Sequence[Delivered], sid: bytes) -> bool:
        if self._is_muted:
            return False
        frames = self.messages.encode(delivered, sid)
        if not self.push_channel.send((frames,)):
            return False
        wait_s = self._meter.delivered(len(frames))
        if wait_s:
            self._is_muted = True
            asyncio.get_running_loop().call_later(wait_s, self._resume)
        return True

    def _resume(self) -> None:
        self._is_muted = False
        if self.push_channel.on_room is not None:
            self.push_channel.on_room()


class Subscription:
    """One sid. Records go out through `send` once it is open."""

    def __init__(self, command: Subscribe, way_out: WayOut) -> None:
        self.sid = command.sid
        self.names = {command.sid}  # The names of it in an ACK.
        if command.durable is not None:
            self.names |= {command.durable, f"{command.pattern}:{command.durable}"}
        self.member: Member | None = None
        self.on_sent: Callable[[], None] | None = None  # Called soon after each time.
        self._encoded_sid = command.sid.encode()
        self._way_out = way_out
        self._is_open = False

    def send(self, delivered: Sequence[Delivered]) -> bool:
        if not (self._is_open and self._way_out.send(delivered, self._encoded_sid)):
            return False
        if self.on_sent is not None:
            asyncio.get_running_loop().call_soon(self.on_sent)
        return True

    def open(self) -> None:
        self._is_open = True
        self.resume()

    def resume(self) -> None:
        if self.member is not None and self._is_open:
            self.member.resume()

    def close(self) -> None:
        self._is_open = False
        if self.member is not None:
            self.member.close()
            self.member = None


class Subscriptions:
    def __init__(self, services: Services, session: Session, way_out: WayOut) -> None:
        self._services = services
        self._config = services.config.flux
        self._session = session
        self._way_out = way_out
        self._push_channel = way_out.push_channel
        self._by_sid: dict[str, Subscription] = {}
        self._ending: dict[Subscription, None] = {}  # After so many messages.
        self._flows: dict[str, FlowPolicy] = {}  # Set by FLOWCTL, before or after the SUB.
        way_out.push_channel.on_room = self._resume

    async def subscribe(self, command: Subscribe) -> bytes:
        if command.sid in self._by_sid:
            return replies.error(f"sid {command.sid} is in use")
        if len(self._by_sid) >= self._config.subscriptions_max:
            return replies.error(f"{self._config.subscriptions_max} subscriptions are the most")
        held = self._by_sid[command.sid] = Subscription(command, self._way_out)
        try:
            spec = specification(command, self._config, self._flows.get(command.sid))
            member = await self._services.deliveries.subscribe(self._session, spec, held.send)
        except RequestError as problem:
            # `close` may have cleared the table while the engine was asked.
            self._by_sid.pop(command.sid, None)
            return replies.refusal(problem)
        if self._by_sid.get(command.sid) is not held:
            member.close()  # The client left while we waited.
            return b""
        held.member = member
        member.on_failure = self._push_channel.fail
        self._push_channel.is_awaited = True
        # The answer is written before the loop's next turn, the first message after it.
        asyncio.get_running_loop().call_soon(held.open)
        return replies.OK

    def unsubscribe(self, command: Unsubscribe) -> bytes:
        """End a subscription, or let it end by itself after so many messages."""
        held = self._by_sid.get(command.sid)
        if held is None or held.member is None:
            self._flows.pop(command.sid, None)
            return replies.error(f"unknown sid {command.sid}")
        if command.count_max is None:
            self._end(held)
        else:
            held.member.limit(command.count_max)
            self._ending[held] = None
            held.on_sent = self._end_those_done
            self._end_those_done()
        return replies.OK

    def close(self) -> None:
        for held in self._by_sid.values():
            held.close()
        self._by_sid.clear()
        self._ending.clear()

    # -- delivered records -------------------------------------------------------------------------

    def ack(self, acks: Iterable[Ack]) -> bytes | None:
        """Settle messages; there is an answer only where something is wrong."""
        problems = []
        all_members = self._members(None)
        # Asked for each batch: a topic of the same name may be another one by now.
        targets: dict[int, TopicPartition | None] = {}
        for sequence, holder in acks:
            members = all_members if holder is None else self._members(holder)
            if holder is not None and not members:
                problems.append(replies.error(f"unknown subscription {holder}"))
                continue
            number = sequence >> OFFSET_BITS
            if number not in targets:
                targets[number] = self._target(sequence)
            target = targets[number]
            if target is not None:  # Unknown or settled before: nothing is left to do.
                offset = (sequence & OFFSET_MASK) - 1
                for member in members:
                    member.ack(target, offset)
        self._end_those_done()
        return b"".join(problems) or None

    def nack(self, command: Nack) -> bytes | None:
        def nack(member: Member, target: TopicPartition, offset: Offset) -> None:
            member.nack(target, offset, command.delay_ms)

        return self._tell(command.ack, nack)

    def reject(self, command: Reject) -> bytes | None:
        def reject(member: Member, target: TopicPartition, offset: Offset) -> None:
            member.reject(target, offset, error=command.error)

        return self._tell(command.ack, reject)

    def want(self, command: Pull) -> bytes | None:
        """Let a subscription in pull mode send more; None: the command names a subject instead."""
        held = self._by_sid.get(command.subject)
        flow = self._flows.get(command.subject)
        if held is None or held.member is None or flow is None or not flow.is_pull:
            return None
        held.member.want(command.count)
        return replies.OK

    # -- flow --------------------------------------------------------------------------------------

    def control_flow(self, command: FlowControl) -> bytes:
        held = self._by_sid.get(command.sid)
        if held is None and len(self._flows) >= self._config.subscriptions_max:
            return replies.error(f"{self._config.subscriptions_max} subscriptions are the most")
        flow = flow_policy(command, self._config)
        try:
            check_flow(flow)
        except RequestError as problem:
            return replies.refusal(problem)
        if held is not None and held.member is not None:
            held.member.set_flow(flow)
        self._flows[command.sid] = flow
        mode = "PULL" if flow.is_pull else "PUSH"
        return replies.ok(
            f"mode={mode} rate={flow.rate:.0f} burst={flow.burst} buffer={flow.buffer}"
        )

    def statistics(self, sid: str | None) -> bytes:
        """By their sids, of one or of all; a sid that is not there has none."""
        return replies.statistics(
            {
                held.sid: _figures(held.sid, held.member.statistics())
                for held in self._by_sid.values()
                if held.member is not None and sid in (None, held.sid)
            }
        )

    # -- parts -------------------------------------------------------------------------------------

    def _end(self, held: Subscription) -> None:
        del self._by_sid[held.sid]
        self._flows.pop(held.sid, None)
        self._ending.pop(held, None)
        held.close()
        self._push_channel.is_awaited = bool(self._by_sid)

    def _end_those_done(self) -> None:
        for held in list(self._ending):
            if held.member is not None and held.member.is_done:
                self._end(held)

    def _members(self, holder: str | None) -> list[Member]:
        return [
            held.member
            for held in self._by_sid.values()
            if held.member is not None and (holder is None or holder in held.names)
        ]

    def _target(self, sequence: int) -> TopicPartition | None:
        """The partition of a message; None if there is none of that number."""
        place = place_of(sequence)
        if place is None:
            return None
        try:
            topic = self._services.topics.describe_number(self._session, place.topic_number)
        except RequestError:
            return None
        return TopicPartition(topic.name, place.partition)

    def _tell(
        self, ack: Ack, report: Callable[[Member, TopicPartition, Offset], None]
    ) -> bytes | None:
        """Report the outcome of a message to the members that may have it."""
        sequence, holder = ack
        members = self._members(holder)
        if holder is not None and not members:
            return replies.error(f"unknown subscription {holder}")
        target = self._target(sequence)
        if target is not None:
            for member in members:
                report(member, target, (sequence & OFFSET_MASK) - 1)
        self._end_those_done()
        return None

    def _resume(self) -> None:
        for held in self._by_sid.values():
            held.resume()


def _figures(sid: str, figures: Statistics) -> dict[str, object]:
    return {
        "id": sid,
        "mode": int(figures.flow.is_pull),
        "active": True,
        "rate_limit_tokens": round(figures.tokens, 3),
        "buffered": figures.buffered,
        "dropped": figures.dropped,
        "delivered": figures.delivered,
        "buffer_usage": round(figures.buffer_usage, 3),
        "slow_consumer": figures.is_slow,
        "redelivered": figures.redelivered,
        "acknowledged": figures.acknowledged,
        "unacknowledged": figures.in_flight,
        "dead_lettered": figures.dead_lettered,
    }


def specification(command: Subscribe, config: Flux, flow: FlowPolicy | None) -> SubscriptionSpec:
    """The engine's options for a SUB.

    Groups and durable names belong to their subject: the same word under another subject is another
    subscription.
    """
    name = None
    if command.durable is not None:
        name = f"{FLUX_DURABLE_PREFIX}{command.pattern}:{command.durable}"
    elif command.group is not None:
        name = f"{FLUX_GROUP_PREFIX}{command.pattern}:{command.group}"
    return SubscriptionSpec(
        name=name,
        is_durable=command.durable is not None,
        pattern=Pattern.parse(command.pattern),
        acks=AckMode.EXPLICIT if config.ack_timeout_ms else AckMode.ON_SEND,
        retry=_retry_policy(config),
        flow=flow or _flow_policy(config),
    )


def flow_policy(command: FlowControl, config: Flux) -> FlowPolicy:
    return replace(
        _flow_policy(config),
        rate=command.rate or float(config.flow_rate),
        burst=command.burst or config.flow_burst,
        buffer=command.buffer or config.flow_buffer,
        is_pull=command.is_pull,
    )


def _flow_policy(config: Flux) -> FlowPolicy:
    """Of a subscription that has no FLOWCTL: as fast as its client reads."""
    return FlowPolicy(
        window=config.unacknowledged_max,
        buffer=config.flow_buffer,
        overflow=Overflow(config.flow_overflow),
        slow_threshold=config.flow_slow_threshold,
    )


def _retry_policy(config: Flux) -> RetryPolicy:
    policy = RetryPolicy(
        max_retries=config.max_retries,
        ack_timeout_ms=config.ack_timeout_ms or RetryPolicy().ack_timeout_ms,
        retry_delay_ms=config.retry_delay_ms,
    )
    return policy if config.dead_letters else replace(policy, dead_letter_topic=None)
