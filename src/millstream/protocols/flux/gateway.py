"""One Flux client's conversation: commands in, engine calls, replies and messages out.

Publications in a row are written at once, and their replies follow when they are stored. Invariant:
a command that must wait for something (SUB, PULL, REPLAY) is executed when its turn to reply has
come, and later commands are not begun before: a client that subscribes and then publishes in one
write gets its message.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Sized
from typing import Any, assert_never

from millstream import __version__
from millstream.config import Limits
from millstream.engine.access.login import Login
from millstream.engine.action import ACTION
from millstream.engine.gate import Operation
from millstream.errors import Denied
from millstream.errors.access import LoginFailed
from millstream.model import Session
from millstream.protocols.conversation import Pace, PushChannel
from millstream.protocols.flux.access import VERBS
from millstream.protocols.flux.context import Services
from millstream.protocols.flux.messages import Messages
from millstream.protocols.flux.metering import Meter
from millstream.protocols.flux.publishing import publish
from millstream.protocols.flux.replaying import Replays
from millstream.protocols.flux.subscriptions import Subscriptions, WayOut
from millstream.protocols.flux.wire import replies
from millstream.protocols.flux.wire.commands import (
    Acks,
    Command,
    Connect,
    FlowControl,
    Headers,
    Info,
    Join,
    Leave,
    Mistake,
    Nack,
    Ping,
    Pong,
    Pull,
    Reject,
    ReplayFirst,
    ReplayFrom,
    ReplayLast,
    ReplayOne,
    ReplayTime,
    Simple,
    Statistics,
    SubOrder,
    Subscribe,
    Unsubscribe,
)
from millstream.protocols.flux.wire.frames import Bounds, Parser, Publications, Request
from millstream.protocols.flux.wire.replies import Reply

FAILURES_MAX = 3  # Failed logins of one connection, before it is closed.

# Any: PEP 492 leaves the yield type to the loop.
_Later = Coroutine[Any, Any, Reply | None]


class FluxGateway:
    def __init__(
        self,
        services: Services,
        limits: Limits,
        *,
        push_channel: PushChannel,
        dialled: str,
        session: Session,
        pace: Pace,
        login: Login | None = None,
        is_audited: bool = False,
    ) -> None:
        """`login` is None on listeners without SASL, whose clients are who `session` says."""
        config = services.config.flux
        self._services = services
        self._limits = limits
        self._push_channel = push_channel
        self._pace = pace
        self._dialled = dialled
        self._login = login
        self._is_audited = is_audited  # Then commands are named for the trail.
        self._guard = login  # None once there is nothing to guard.
        bytes_max = limits.frame_bytes_max
        if login is not None:
            bytes_max = limits.unauthenticated_frame_bytes_max
            login.done_also = self._logged_in
        self._parser = Parser(services.known, self._bounds(bytes_max), SubOrder(config.sub_order))
        self._use(session)
        self._is_held = False  # A command is not through that nothing may overtake.
        self._following: deque[_Following] = deque()  # The commands after it.

    def _use(self, session: Session) -> None:
        """Make all parts anew for a session; none of them has begun anything."""
        services = self._services
        self._session = session
        self._meter = Meter(services.usage, session, self._pace)
        self._messages = Messages(services.topics, session)
        way_out = WayOut(self._push_channel, self._messages, self._meter)
        self._subscriptions = Subscriptions(services, session, way_out)
        self._replays = Replays(services, session, self._messages, self._meter)

    def _bounds(self, payload_bytes_max: int) -> Bounds:
        config = self._services.config.flux
        return Bounds(
            line_bytes_max=config.line_bytes_max,
            header_bytes_max=config.header_bytes_max,
            payload_bytes_max=payload_bytes_max,
        )

    @property
    def unfinished_bytes(self) -> int:
        return self._parser.unfinished_bytes

    def receive(self, data: bytes) -> Iterable[Request]:
        return self._parser.feed(data)

    def begin(self, request: Sized) -> "_Outcome":
        assert isinstance(request, Request)
        if not self._is_held:
            return self._begin(request)
        following = _Following(request)
        self._following.append(following)
        return following

    def close(self) -> None:
        self._subscriptions.close()
        if self._login is not None:
            self._login.close()

    # -- logins ------------------------------------------------------------------------------------

    def _refuse(self, command: Command | Publications) -> Reply | None:
        """Answer what needs a login; None if the command may pass."""
        assert self._guard is not None
        self._guard.count_request()
        if isinstance(command, Connect | Ping | Pong | Info | Mistake):
            return None
        count = len(command.payloads) if isinstance(command, Publications) else 1
        return [replies.error("AUTHENTICATION_REQUIRED log in with CONNECT or AUTH")] * count

    async def _connect(self, command: Connect) -> Reply:
        login = self._login
        if not (command.user or command.token):
            return [replies.OK]
        if login is None:
            return [replies.error("this listener has no login")]
        try:
            if command.token:
                await login.by_token(command.token)
            else:
                await login.by_password(command.user, command.password)
        except LoginFailed as problem:
            login.failures += 1
            if login.failures >= FAILURES_MAX:
                login.hang_up()
            return [replies.error(f"AUTHENTICATION_FAILED {problem}")]
        return [replies.OK]

    def _logged_in(self) -> None:
        """Follow a login: requests may be large, and are the new session's."""
        assert self._login is not None
        if self._guard is not None:
            self._guard = None
            self._parser.allow(self._bounds(self._limits.frame_bytes_max))
            self._use(self._login.session)

    # -- order -------------------------------------------------------------------------------------

    def _begin(self, request: Request) -> "_Outcome":
        command = request.command
        if self._guard is not None and (refused := self._refuse(command)) is not None:
            return refused
        if self._is_audited:
            ACTION.set(VERBS[type(command)])
        if isinstance(command, Publications):
            self._meter.published(request.size)
            answer, is_waiting = publish(self._services, self._session, command)
            if isinstance(answer, list) or not is_waiting:
                return answer
            return self._hold(answer)
        outcome = self._do(command)
        if outcome is None:
            return None
        return [outcome] if isinstance(outcome, bytes) else self._hold(outcome)

    def _hold(self, work: _Later) -> "_Alone":
        """Let nothing begin before this is through."""
        self._is_held = True
        return _Alone(work, self._release)

    def _release(self) -> None:
        """Begin the commands that came meanwhile, up to the next one that must be alone."""
        self._is_held = False
        while self._following and not self._is_held:
            following = self._following.popleft()
            following.outcome = self._begin(following.request)

    # -- commands ----------------------------------------------------------------------------------

    def _do(self, command: Command) -> _Later | bytes | None:
        match command:
            case Acks(acks):
                return self._subscriptions.ack(acks)
            case Nack():
                return self._subscriptions.nack(command)
            case Reject():
                return self._subscriptions.reject(command)
            case Subscribe():
                return self._subscribe(command)
            case Connect():
                return self._connect(command)
            case Unsubscribe():
                return self._subscriptions.unsubscribe(command)
            case Pull():
                return self._subscriptions.want(command) or self._replays.pull(command)
            case FlowControl():
                return self._subscriptions.control_flow(command)
            case Statistics(sid):
                return self._subscriptions.statistics(sid)
            case ReplayOne() | ReplayFrom() | ReplayFirst() | ReplayLast() | ReplayTime():
                return self._replays.replay(command)
            case _:
                return self._answer(command)

    def _answer(self, command: Simple) -> bytes | None:
        """Run a command that needs nothing but this connection."""
        match command:
            case Headers(is_on):
                self._messages.has_headers = is_on
                return replies.OK
            case Ping():
                return replies.PONG
            case Pong():
                return None
            case Info():
                return self._info()
            case Join() | Leave():
                try:
                    self._services.topics.admit_to_cluster(self._session, Operation.ALTER)
                except Denied as denied:
                    return replies.refusal(denied)
                return replies.error("clustering not enabled")
            case Mistake(text):
                return replies.error(text)
            case _:
                assert_never(command)

    async def _subscribe(self, command: Subscribe) -> Reply:
        return [await self._subscriptions.subscribe(command)]

    def _info(self) -> bytes:
        config = self._services.config
        if self._guard is not None:
            return replies.info(
                {
                    "version": __version__,
                    "auth_required": True,
                    "tls_required": self._session.is_tls,
                }
            )
        return replies.info(
            {
                "server_id": self._dialled,
                "version": __version__,
                "cluster_id": self._services.cluster_id,
                "node_id": str(config.node_id),
                "leader": self._dialled,
                "is_leader": True,
                "headers": True,
                "max_payload": config.topic_defaults.max_message_bytes,
            }
        )


class _Alone:
    """The reply to a command that runs in its turn; then the next commands may begin."""

    __slots__ = ("_release", "_work")

    def __init__(self, work: _Later, release: Callable[[], None]) -> None:
        self._work = work
        self._release = release

    # Any: PEP 492 leaves the yield type to the loop.
    def __await__(self) -> Generator[Any, Any, Reply | None]:
        reply = yield from self._work.__await__()
        self._release()  # Not if it was cut short: the client is gone, and nothing more begins.
        return reply

    def close(self) -> None:
        self._work.close()


class _Following:
    """The reply to a command that could not begin when it came. It has begun by its turn."""

    __slots__ = ("outcome", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.outcome: _Outcome = None

    def __await__(self) -> Generator[Any, Any, Reply | None]:
        outcome = self.outcome
        if outcome is None or isinstance(outcome, list):
            return outcome
        return (yield from outcome.__await__())

    def close(self) -> None:
        if self.outcome is not None and not isinstance(self.outcome, list):
            self.outcome.close()


_Outcome = _Later | _Alone | _Following | Reply | None
