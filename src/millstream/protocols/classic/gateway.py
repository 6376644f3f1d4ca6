"""One classic client's conversation: requests in, acknowledgements out, and records pushed.

Owns the answers and when records may be pushed between them. Unmodified clients take any frame
whose number is that of a request they wait for as its answer, and register a handler only after
the answer to SUBSCRIBE; so nothing is pushed while a request is unanswered, nor right after a
SUBSCRIBE. What is published and who gets what is the engine's.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence, Sized
from typing import Any

from millstream.engine.delivery import AckMode, AtOffset, Delivered, Member, SubscriptionSpec
from millstream.engine.receipts import Receipt
from millstream.errors import InvalidRequest, RequestError, TopicExists, UnknownTopic
from millstream.errors.deliveries import SubscriptionExists, UnknownSubscription
from millstream.model import Buffer, Session
from millstream.protocols.classic.context import Name, Services
from millstream.protocols.classic.translation import data_frame, publication
from millstream.protocols.classic.wire import (
    Frame,
    Frames,
    InvalidProperties,
    Kind,
    decode,
    encode,
)
from millstream.protocols.conversation import Outbox

NAME_LENGTH_MAX = 255
_HOUR_MS = 60 * 60 * 1000

Reply = list[Buffer]
Properties = Mapping[str, str]
Answer = Coroutine[Any, Any, Properties]


class ClassicGateway:
    def __init__(self, services: Services, *, outbox: Outbox, peer: str) -> None:
        self.unfinished_bytes = 0
        self._services = services
        self._settings = services.config.classic
        self._outbox = outbox
        self._session = Session(address=peer, door="classic")
        self._frames = Frames(frame_bytes_max=services.config.limits.frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._members: dict[Name, Member] = {}  # By subscription and subscriber.
        self._unanswered = 0
        self._push_at = 0.0  # Nothing is pushed before; by the loop's clock.
        self._heard_at = self._loop.time()
        self._resuming: asyncio.TimerHandle | None = None
        self._beating = self._loop.call_soon(self._beat)
        outbox.on_room = self._resume
        self._requests: dict[int, Callable[[Frame], Answer]] = {
            Kind.CREATE_TOPIC: self._create_topic,
            Kind.PUBLISH: self._publish,
            Kind.CREATE_SUBSCRIPTION: self._create_subscription,
            Kind.DELETE_SUBSCRIPTION: self._delete_subscription,
            Kind.SUBSCRIBE: self._subscribe,
            Kind.UNSUBSCRIBE: self._unsubscribe,
        }

    def receive(self, data: bytes) -> Iterator[memoryview]:
        self.unfinished_bytes += len(data)
        self._heard_at = self._loop.time()
        for frame in self._frames.feed(data):
            self.unfinished_bytes -= len(frame)
            yield frame

    def begin(self, request: Sized) -> Coroutine[Any, Any, Reply] | Reply | None:
        assert isinstance(request, memoryview)
        try:
            frame = decode(request)
        except InvalidProperties as problem:
            return [self._refused(problem.sequence, str(problem))]
        if frame.kind == Kind.HEARTBEAT:
            return [self._spell(Kind.HEARTBEAT, frame.sequence, {})]
        answer = self._requests.get(frame.kind)
        if answer is None:
            return [self._refused(frame.sequence, "Unknown message type")]
        try:
            answering = answer(frame)
        except RequestError as problem:
            return [self._refused(frame.sequence, _sentence(problem))]
        self._unanswered += 1
        return self._answer(frame.sequence, answering)

    def close(self) -> None:
        self._beating.cancel()
        if self._resuming is not None:
            self._resuming.cancel()
        for name in list(self._members):
            self._leave(name)
        self._requests.clear()  # They lead back here: what was received is to be freed at once.

    # -- answers -----------------------------------------------------------------------------------

    async def _answer(self, sequence: int, answering: Answer) -> Reply:
        try:
            properties = await answering
        except RequestError as problem:
            return [self._refused(sequence, _sentence(problem))]
        finally:
            self._unanswered -= 1
            self._resume_later(0)  # After the reply is out, which is the very next thing.
        return [self._spell(Kind.ACK, sequence, {"status": "success", **properties})]

    def _create_topic(self, frame: Frame) -> Answer:
        topic = _required(frame, "topic")
        partitions = _number(frame, "partitions", 1)
        hours = _number(frame, "retention_hours", 0)
        settings = {"retention_ms": str(hours * _HOUR_MS)} if hours else {}

        async def create() -> Properties:
            await self._services.topics.create(
                self._session, topic, partitions=partitions, settings=settings
            )
            return {"topic": topic}

        return create()

    def _publish(self, frame: Frame) -> Answer:
        """The record is written now, so that records keep the order they were sent in."""
        topic = _required(frame, "topic")
        try:
            self._services.topics.describe(self._session, topic)
        except UnknownTopic:
            raise InvalidRequest(f"Topic '{topic}' does not exist") from None
        partition = _number(frame, "partition", None)
        (receipt,) = self._services.publisher.publish(
            self._session, [publication(frame, topic, partition)]
        )
        return self._published(topic, receipt)

    async def _published(self, topic: str, receipt: "asyncio.Future[Receipt]") -> Properties:
        offset = (await receipt).offset
        reached = self._services.roster.reached(topic)
        return {"topic": topic, "offset": str(offset), "delivered_to": str(reached)}

    def _create_subscription(self, frame: Frame) -> Answer:
        name, topic = _required(frame, "subscription_id"), _required(frame, "topic")
        start = _number(frame, "start_offset", 0)
        spec = SubscriptionSpec(
            name=name, topics=(topic,), start=AtOffset(start), acks=AckMode.ON_SEND
        )

        async def create() -> Properties:
            await self._services.deliveries.create(self._session, spec)
            return {"subscription_id": name, "topic": topic, "start_offset": str(start)}

        return create()

    def _delete_subscription(self, frame: Frame) -> Answer:
        name = _required(frame, "subscription_id")

        async def delete() -> Properties:
            await self._services.deliveries.delete(self._session, name)
            return {"subscription_id": name}

        return delete()

    def _subscribe(self, frame: Frame) -> Answer:
        name = _name(frame)
        if len(self._members) >= self._settings.subscriptions_max:
            raise InvalidRequest(f"{len(self._members)} subscriptions on one connection already")
        return self._join(name)

    async def _join(self, name: Name) -> Properties:
        deliveries, roster = self._services.deliveries, self._services.roster
        view = await deliveries.describe(self._session, name.subscription)
        if name in roster:
            raise InvalidRequest(f"Subscriber '{name.subscriber}' already exists")
        topics = view.spec.topics
        roster.enter(name, topics)
        try:
            self._members[name] = await deliveries.join(
                self._session, name.subscription, self._send_for(name.subscription)
            )
        except BaseException:
            roster.leave(name)
            raise
        self._outbox.is_awaited = True
        self._push_at = self._loop.time() + self._settings.subscribe_pause_ms / 1000
        answered = {"subscription_id": name.subscription, "subscriber_id": name.subscriber}
        return answered | ({"topic": topics[0]} if topics else {})

    def _unsubscribe(self, frame: Frame) -> Answer:
        name = _name(frame)

        async def leave() -> Properties:
            self._leave(name)
            return {"subscriber_id": name.subscriber}

        return leave()

    def _leave(self, name: Name) -> None:
        member = self._members.pop(name, None)
        if member is not None:
            member.close()
            self._services.roster.leave(name)
        self._outbox.is_awaited = bool(self._members)

    # -- what is pushed ----------------------------------------------------------------------------

    def _send_for(self, subscription: str) -> Callable[[Sequence[Delivered]], bool]:
        def send(delivered: Sequence[Delivered]) -> bool:
            left_s = self._push_at - self._loop.time()
            if self._unanswered:
                return False
            if left_s > 0:
                self._resume_later(left_s)
                return False
            return self._outbox.send([encode(data_frame(one, subscription)) for one in delivered])

        return send

    def _resume_later(self, delay_s: float) -> None:
        if self._resuming is None and self._members:
            self._resuming = self._loop.call_later(delay_s, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        for member in list(self._members.values()):
            member.resume()

    def _beat(self) -> None:
        """Tell the client that we are here; let go of those who have long said nothing."""
        silent_s = self._loop.time() - self._heard_at
        if silent_s * 1000 > self._settings.subscriber_silence_ms_max:
            for name in list(self._members):
                self._leave(name)
        self._outbox.send([self._spell(Kind.HEARTBEAT, 0, {})])
        self._beating = self._loop.call_later(
            self._settings.heartbeat_interval_ms / 1000, self._beat
        )

    # -- parts -------------------------------------------------------------------------------------

    def _spell(self, kind: Kind, sequence: int, properties: Properties) -> bytes:
        return encode(Frame(kind, sequence, self._services.clock.now_ms(), properties))

    def _refused(self, sequence: int, sentence: str) -> bytes:
        text = sentence.replace("\0", "")
        return self._spell(Kind.ACK, sequence, {"status": "error", "error": text})


def _required(frame: Frame, name: str) -> str:
    value = frame.properties.get(name, "")
    if not value:
        raise InvalidRequest(f"Missing '{name}' property")
    if len(value) > NAME_LENGTH_MAX:
        raise InvalidRequest(f"'{name}' has {len(value)} characters, at most {NAME_LENGTH_MAX}")
    return value


def _name(frame: Frame) -> Name:
    return Name(_required(frame, "subscription_id"), _required(frame, "subscriber_id"))


def _number(frame: Frame, name: str, default: Any) -> Any:  # An int, or what stands for none.
    text = frame.properties.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidRequest(f"'{name}' is {text[:80]!r}, not a whole number")
    return int(text)


def _sentence(problem: RequestError) -> str:
    """What is wrong, in the words of the original where it has some."""
    match problem:
        case TopicExists():
            return f"Topic '{problem.name}' already exists"
        case SubscriptionExists():
            return f"Subscription '{problem.name}' already exists"
        case UnknownSubscription():
            return f"Subscription '{problem.name}' does not exist"
    return str(problem)
