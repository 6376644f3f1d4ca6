"""One classic client's conversation: requests in, acknowledgements out.

Disconnects clients that have fallen silent. The engine publishes and chooses subscribers; `Pusher`
pushes records between the answers. Invariant: requests of a connection are executed in the order
they came, so a client need not wait for an answer before it sends what builds on it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sized
from functools import partial
from typing import Any

from millstream.engine.access.login import Login
from millstream.engine.action import ACTION
from millstream.engine.publish.receipts import Receipt
from millstream.engine.push import AckMode, AtOffset, RetryPolicy, SubscriptionSpec
from millstream.errors import InvalidRequest, RequestError, TopicExists, UnknownTopic
from millstream.errors.access import LoginFailed
from millstream.errors.deliveries import SubscriptionExists, UnknownSubscription
from millstream.model import Buffer, Session
from millstream.protocols.classic.context import Name, Services
from millstream.protocols.classic.pushing import Pusher
from millstream.protocols.classic.translation import publication
from millstream.protocols.classic.wire import (
    Frame,
    Frames,
    InvalidProperties,
    Kind,
    decode,
    encode,
)
from millstream.protocols.conversation import PushChannel

NAME_LENGTH_MAX = 255
FAILURES_MAX = 3  # Failed logins of one connection, before it is closed.
FAILED = "invalid username or password"
_BEFORE_LOGIN = (Kind.HEARTBEAT, Kind.AUTHENTICATE)
_HOUR_MS = 60 * 60 * 1000
# The protocol has no word for DATA that could not be worked on: a record that was sent is done, one
# that was not is sent again, for ever.
_AGAIN = RetryPolicy(max_retries=-1, ack_timeout_ms=10 * 365 * 24 * _HOUR_MS)

Reply = list[Buffer]
Properties = Mapping[str, str]
Answer = Coroutine[Any, Any, Properties]


class ClassicGateway:
    def __init__(
        self,
        services: Services,
        *,
        push_channel: PushChannel,
        session: Session,
        login: Login | None = None,
        is_audited: bool = False,
    ) -> None:
        """`login` is None on listeners without SASL, whose clients are who `session` says."""
        self.unfinished_bytes = 0
        self._login = login
        self._is_audited = is_audited  # Then requests are named for the trail.
        self._guard = login  # None once there is nothing to guard.
        if login is not None:
            login.done_also = self._logged_in
        self._services = services
        self._settings = services.config.classic
        self._push_channel = push_channel
        self._session = session
        limits = services.config.limits
        self._frames = Frames(
            frame_bytes_max=limits.frame_bytes_max
            if login is None
            else limits.unauthenticated_frame_bytes_max
        )
        self._loop = asyncio.get_running_loop()
        self._pusher = Pusher(
            push_channel, services.roster, pause_s=self._settings.subscribe_pause_ms / 1000
        )
        self._undone = 0  # Requests that are carried out only when it is their turn.
        self._heard_at = self._loop.time()
        self._beating = self._loop.call_soon(self._beat)
        self._requests: dict[int, Callable[[Frame], Answer]] = {
            Kind.CREATE_TOPIC: self._create_topic,
            Kind.PUBLISH: self._publish,
            Kind.CREATE_SUBSCRIPTION: self._create_subscription,
            Kind.DELETE_SUBSCRIPTION: self._delete_subscription,
            Kind.SUBSCRIBE: self._subscribe,
            Kind.UNSUBSCRIBE: self._unsubscribe,
            Kind.AUTHENTICATE: self._authenticate,
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
        if self._guard is not None:
            self._guard.count_request()
            if frame.kind not in _BEFORE_LOGIN:
                return [self._refused(frame.sequence, "Authentication required")]
        if frame.kind == Kind.HEARTBEAT:
            return [self._encode(Kind.HEARTBEAT, frame.sequence, {})]
        self._pusher.heard(frame.sequence)
        answer = self._requests.get(frame.kind)
        if answer is None:
            return [self._refused(frame.sequence, "Unknown message type")]
        self._name_action(frame)
        if frame.kind == Kind.PUBLISH and not self._undone:
            # Written now, so that those behind it are written together with it.
            try:
                answer = partial(self._published, self._write(frame))
            except RequestError as problem:
                return [self._refused(frame.sequence, _sentence(problem))]
            self._pusher.asked()
            return self._answer(frame, answer)
        self._undone += 1
        self._pusher.asked()
        return self._in_turn(frame, answer)

    def close(self) -> None:
        if self._login is not None:
            self._login.close()
        self._beating.cancel()
        self._pusher.close()
        self._requests.clear()  # They refer to this object: free their bytes at once.

    # -- answers -----------------------------------------------------------------------------------

    async def _in_turn(self, frame: Frame, answer: Callable[[Frame], Answer]) -> Reply:
        try:
            return await self._answer(frame, answer)
        finally:
            self._undone -= 1

    async def _answer(self, frame: Frame, answer: Callable[[Frame], Answer]) -> Reply:
        self._name_action(frame)
        try:
            properties = await answer(frame)
        except RequestError as problem:
            return [self._refused(frame.sequence, _sentence(problem))]
        finally:
            self._pusher.answered()
        return [self._encode(Kind.ACK, frame.sequence, {"status": "success", **properties})]

    async def _authenticate(self, frame: Frame) -> Properties:
        login = self._login
        if login is None:
            raise InvalidRequest("this listener has no login")
        user, password = _required(frame, "user"), _required(frame, "password")
        try:
            session = await login.by_password(user, password)
        except LoginFailed as problem:
            login.failures += 1
            if login.failures >= FAILURES_MAX:
                login.hang_up()
            is_clear = problem.reason == "clear password"
            raise InvalidRequest(str(problem) if is_clear else FAILED) from None
        return {"user": user, "roles": ",".join(self._services.users.access.roles_of(session))}

    def _logged_in(self) -> None:
        """Follow a login: requests may be large, and are the new session's."""
        assert self._login is not None
        self._guard = None
        self._session = self._login.session
        self._frames.allow(self._services.config.limits.frame_bytes_max)

    async def _create_topic(self, frame: Frame) -> Properties:
        topic = _required(frame, "topic")
        partitions = _number(frame, "partitions", 1)
        hours = _number(frame, "retention_hours", 0)
        settings = {"retention_ms": str(hours * _HOUR_MS)} if hours else {}
        await self._services.topics.create(
            self._session, topic, partitions=partitions, settings=settings
        )
        return {"topic": topic}

    async def _publish(self, frame: Frame) -> Properties:
        return await self._published(self._write(frame), frame)

    def _write(self, frame: Frame) -> "asyncio.Future[Receipt]":
        topic = _required(frame, "topic")
        try:
            self._services.topics.describe(self._session, topic)
        except UnknownTopic:
            raise InvalidRequest(f"Topic '{topic}' does not exist") from None
        partition = _number(frame, "partition", None)
        (receipt,) = self._services.publisher.publish(
            self._session, [publication(frame, topic, partition)]
        )
        return receipt

    async def _published(self, receipt: "asyncio.Future[Receipt]", frame: Frame) -> Properties:
        topic, offset = frame.properties["topic"], (await receipt).offset
        reached = self._services.roster.reached(topic)
        return {"topic": topic, "offset": str(offset), "delivered_to": str(reached)}

    async def _create_subscription(self, frame: Frame) -> Properties:
        name, topic = _required(frame, "subscription_id"), _required(frame, "topic")
        start = _number(frame, "start_offset", 0)
        spec = SubscriptionSpec(
            name=name,
            topics=(topic,),
            start=AtOffset(start),
            acks=AckMode.EXPLICIT,  # By the pusher.
            retry=_AGAIN,
        )
        await self._services.deliveries.create(self._session, spec)
        return {"subscription_id": name, "topic": topic, "start_offset": str(start)}

    async def _delete_subscription(self, frame: Frame) -> Properties:
        name = _required(frame, "subscription_id")
        await self._services.deliveries.delete(self._session, name)
        return {"subscription_id": name}

    async def _subscribe(self, frame: Frame) -> Properties:
        name = Name(_required(frame, "subscription_id"), _required(frame, "subscriber_id"))
        joined = len(self._pusher.names)
        if joined >= self._settings.subscriptions_max:
            raise InvalidRequest(f"{joined} subscriptions on one connection already")
        deliveries, roster = self._services.deliveries, self._services.roster
        view = await deliveries.describe(self._session, name.subscription)
        if name in roster:
            raise InvalidRequest(f"Subscriber '{name.subscriber}' already exists")
        topics = view.spec.topics
        roster.enter(name, topics)
        try:
            member = await deliveries.join(
                self._session, name.subscription, self._pusher.send_for(name)
            )
        except BaseException:
            roster.leave(name)
            raise
        self._pusher.add(name, member)
        answered = {"subscription_id": name.subscription, "subscriber_id": name.subscriber}
        return answered | ({"topic": topics[0]} if topics else {})

    async def _unsubscribe(self, frame: Frame) -> Properties:
        """Of one subscription, or of all that it has joined if none is named."""
        subscriber = _required(frame, "subscriber_id")
        subscription = frame.properties.get("subscription_id")
        for name in self._pusher.names:
            if name.subscriber == subscriber and subscription in (None, name.subscription):
                self._pusher.remove(name)
        return {"subscriber_id": subscriber}

    def _name_action(self, frame: Frame) -> None:
        if self._is_audited:
            ACTION.set(Kind(frame.kind).name)

    # -- time --------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Send a heartbeat; disconnect a client that has been silent for too long."""
        silent_s = self._loop.time() - self._heard_at
        if silent_s * 1000 > self._settings.subscriber_silence_ms_max:
            for name in self._pusher.names:
                self._pusher.remove(name)
        self._push_channel.send([self._encode(Kind.HEARTBEAT, 0, {})])
        self._beating = self._loop.call_later(
            self._settings.heartbeat_interval_ms / 1000, self._beat
        )

    # -- parts -------------------------------------------------------------------------------------

    def _encode(self, kind: Kind, sequence: int, properties: Properties) -> bytes:
        return encode(Frame(kind, sequence, self._services.clock.now_ms(), properties))

    def _refused(self, sequence: int, sentence: str) -> bytes:
        text = sentence.replace("\0", "")
        return self._encode(Kind.ACK, sequence, {"status": "error", "error": text})


def _required(frame: Frame, name: str) -> str:
    value = frame.properties.get(name, "")
    if not value:
        raise InvalidRequest(f"Missing '{name}' property")
    if len(value) > NAME_LENGTH_MAX:
        raise InvalidRequest(f"'{name}' has {len(value)} characters, at most {NAME_LENGTH_MAX}")
    return value


def _number(frame: Frame, name: str, default: Any) -> Any:  # An int, or the default.
    text = frame.properties.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidRequest(f"'{name}' is {text[:80]!r}, not a whole number")
    return int(text)


def _sentence(problem: RequestError) -> str:
    """The error's text, in the words of the original where it has some."""
    match problem:
        case TopicExists():
            return f"Topic '{problem.name}' already exists"
        case SubscriptionExists():
            return f"Subscription '{problem.name}' already exists"
        case UnknownSubscription():
            return f"Subscription '{problem.name}' does not exist"
    return str(problem)
