"""One FlyMQ client's conversation: frames in, handlers, frames out, strictly one after the other.

Owns the way of a request through it: cut, unpack, decode, hand to its handler, encode what comes
back, and make a client wait that has used more than its quota. Invariant: requests act
in the order of their arrival. A handler that is a plain function acts at once, so that produces on
their way share a sync, but only as long as nothing before it waits for its turn; one that is
`async` does nothing before its turn to reply has come.
"""

import asyncio
import inspect
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sized,
)
from functools import cache, partial
from typing import Any

from millstream.codec.compression import Codec, decompress, decompress_small, unpacked_bytes_max
from millstream.config import Limits
from millstream.control.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millstream.engine.access.login import Login
from millstream.engine.action import ACTION
from millstream.engine.runtime.backoff import Backoff
from millstream.errors import (
    CoordinatorLoading,
    Denied,
    InvalidRequest,
    NotLeader,
    ProtocolError,
    RequestError,
    UnknownTopic,
    UnpackedTooLarge,
)
from millstream.errors.access import LoginRequired, UnknownUser, UserExists
from millstream.framing import Cutter
from millstream.model import Buffer, Session, TopicPartition
from millstream.protocols.conversation import Pace
from millstream.protocols.flymq.context import (
    Context,
    Conversation,
    Endpoint,
    Services,
    acks_for,
)
from millstream.protocols.flymq.wire.bodies import Fetched
from millstream.protocols.flymq.wire.frames import (
    COMPRESSION_BITS,
    GZIP,
    HEAD,
    PAYLOAD_BYTES_MAX,
    UNCOMPRESSED,
    Body,
    Opcode,
    decode_request,
    encode_error,
    encode_reply,
    measure,
    opcode_of,
)

# A handler takes its own request type; the router pairs each with the opcode that decodes to it.
Handler = Callable[[Context, Any], Body | Awaitable[Body]]

Reply = list[Buffer]

THROTTLE_MS_MAX = 5_000  # Clients give up on a reply after ten seconds; a longer debt stays.
LOADING_S_MAX = 5.0
EMPTY_FETCHES_MAX = 100  # In a row, until a client is slowed down.
EMPTY_FETCH_PAUSE_S = 0.01

_BEFORE_LOGIN = {Opcode.AUTH, Opcode.WHOAMI}
_WRITES = {
    Opcode.PRODUCE,
    Opcode.PRODUCE_DELAYED,
    Opcode.PRODUCE_TX,
    Opcode.PRODUCE_WITH_SCHEMA,
    Opcode.PRODUCE_WITH_TTL,
}
_READS = {
    Opcode.CONSUME,
    Opcode.CONSUME_ZERO_COPY,
    Opcode.FETCH,
    Opcode.FETCH_BINARY,
    Opcode.FETCH_DLQ,
}


class FlymqGateway:
    def __init__(
        self,
        services: Services,
        handlers: Mapping[Opcode, Handler],
        limits: Limits,
        *,
        dialled: Endpoint,
        session: Session,
        pace: Pace,
        login: Login | None = None,
        is_audited: bool = False,
    ) -> None:
        """`login` is None on listeners without SASL, whose clients are who `session` says."""
        self.unfinished_bytes = 0
        # None once there is nothing to guard.
        self._guard = login
        self._login = login
        self._is_audited = is_audited  # Then requests are named for the trail.
        self._session_bytes_max = min(limits.frame_bytes_max, PAYLOAD_BYTES_MAX)
        if login is not None:
            login.done_also = self._logged_in
        self._payload_bytes_max = self._session_bytes_max
        if login is not None:
            self._payload_bytes_max = limits.unauthenticated_frame_bytes_max
        self._handlers = handlers
        self._unpacking = services.unpacking
        self._usage = services.usage
        self._pace = pace
        self._cutter = Cutter(
            HEAD.size, partial(measure, payload_bytes_max=self._payload_bytes_max)
        )
        self._conversation = Conversation(services.attendance)
        self._context = Context(
            services,
            session,
            dialled,
            self._conversation,
            acks_for(services.config),
            login,
        )
        self._turns = 0  # Requests that have not acted yet.
        self._empty_fetches = 0  # In a row.

    def receive(self, data: bytes) -> Iterable[memoryview]:
        sole = self._cutter.sole(data)
        return self._cut(data) if sole is None else (sole,)

    def _cut(self, data: bytes) -> Iterator[memoryview]:
        self.unfinished_bytes += len(data)
        for frame in self._cutter.feed(data):
            self.unfinished_bytes -= len(frame)
            yield frame

    def begin(self, frame: Sized) -> "Coroutine[Any, Any, Reply] | _Coming | Reply":
        assert isinstance(frame, memoryview)
        try:
            opcode = opcode_of(frame)
            if self._is_audited:
                ACTION.set(opcode.name)
            if self._guard is not None:
                self._guard.count_request()
                if opcode not in _BEFORE_LOGIN:
                    raise LoginRequired
            handler = self._handlers[opcode]
            if self._usage.limited and opcode in _WRITES:
                self._charge(PRODUCER_BYTE_RATE, len(frame))
            if self._turns or frame[3] & COMPRESSION_BITS or _waits_for_its_turn(handler):
                self._turns += 1
                return self._answer(opcode, bytes(frame))  # A view would keep all that came too.
            outcome = handler(self._context, _decode(opcode, frame[HEAD.size :]))
            if isinstance(outcome, tuple):
                return [encode_reply(opcode, outcome)]
        except RequestError as problem:
            return _refusal(problem)
        return _Coming(opcode, outcome)

    def close(self) -> None:
        self._conversation.close()
        if self._login is not None:
            self._login.close()

    def _logged_in(self) -> None:
        """Follow a login: requests may be large, and are the new session's."""
        assert self._login is not None
        self._guard = None
        self._payload_bytes_max = self._session_bytes_max
        self._context = self._context._replace(session=self._login.session)
        self._cutter.remeasure(partial(measure, payload_bytes_max=self._payload_bytes_max))

    async def _answer(self, opcode: Opcode, frame: bytes) -> Reply:
        unpacked_bytes = 0
        if self._is_audited:
            ACTION.set(opcode.name)
        try:
            payload = await self._unpack(frame)
            if frame[3] & COMPRESSION_BITS:
                unpacked_bytes = len(payload)
                self.unfinished_bytes += unpacked_bytes
                self._pace.recount()
            request = _decode(opcode, payload)
            reply = await self._act(self._handlers[opcode], request)
            encoded = encode_reply(opcode, reply)
            if self._usage.limited and opcode in _READS:
                self._charge(CONSUMER_BYTE_RATE, len(encoded))
            if isinstance(reply, Fetched):
                self._calm(reply.record_count)
            return [encoded]
        except RequestError as problem:
            return _refusal(problem)
        finally:
            self.unfinished_bytes -= unpacked_bytes
            self._turns -= 1

    async def _act(self, handler: Handler, request: Body) -> Body:
        """Handle a request once the broker is ready for it: no client would retry."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOADING_S_MAX
        backoff = Backoff()
        while True:
            try:
                outcome = handler(self._context, request)
                return outcome if isinstance(outcome, tuple) else await outcome
            except CoordinatorLoading:
                if loop.time() > deadline:
                    raise
            await backoff.wait()

    def _charge(self, rate: str, size: int) -> None:
        throttle_ms = self._usage.charge(self._context.session, rate, size)
        if throttle_ms:
            self._pause(min(throttle_ms, THROTTLE_MS_MAX) / 1000)

    def _calm(self, record_count: int) -> None:
        """Slow down a client that finds nothing and asks again without a pause of its own."""
        self._empty_fetches = 0 if record_count else self._empty_fetches + 1
        if self._empty_fetches > EMPTY_FETCHES_MAX:
            self._pause(EMPTY_FETCH_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        """This request is served; the next one is not read before its time has come."""
        resume_at = asyncio.get_running_loop().time() + seconds
        self._pace.resume_at = max(self._pace.resume_at, resume_at)

    async def _unpack(self, frame: bytes) -> Buffer:
        payload = memoryview(frame)[HEAD.size :]
        compression = frame[3] & COMPRESSION_BITS
        if compression == UNCOMPRESSED:
            return payload
        if compression != GZIP:
            raise InvalidRequest(f"compression {compression:#04x} is not known, only gzip is")
        limit = min(self._payload_bytes_max, self._unpacking.bytes_max)
        size_max = unpacked_bytes_max(len(payload), limit)
        small = decompress_small(Codec.GZIP, payload, size_max=size_max)
        if small is not None:
            return small
        try:
            return await self._unpacking.run(
                lambda: decompress(Codec.GZIP, payload, size_max=size_max),
                packed_bytes=len(payload),
            )
        except UnpackedTooLarge:
            raise InvalidRequest(
                f"a payload of {len(payload)} bytes of gzip may hold at most {size_max}"
            ) from None


class _Coming:
    """The reply to a request that has acted. Closing it closes the awaited coroutine."""

    def __init__(self, opcode: Opcode, outcome: Awaitable[Body]) -> None:
        self._opcode = opcode
        self._outcome = outcome

    # Any: PEP 492 leaves the yield type to the loop.
    def __await__(self) -> Generator[Any, Any, Reply]:
        try:
            return [encode_reply(self._opcode, (yield from self._outcome.__await__()))]
        except RequestError as problem:
            return _refusal(problem)

    def close(self) -> None:
        if inspect.iscoroutine(self._outcome):
            self._outcome.close()


@cache
def _waits_for_its_turn(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler)


def _decode(opcode: Opcode, payload: Buffer) -> Body:
    """A body that cannot be read is refused; the frames around it are as good as any."""
    try:
        return decode_request(opcode, payload)
    except ProtocolError as problem:
        raise InvalidRequest(f"invalid binary format: {problem}") from problem


def _refusal(problem: RequestError) -> Reply:
    return [encode_error(_words_for(problem))]


def _words_for(problem: RequestError) -> str:
    """The error's text, in FlyMQ's own words where its libraries or its tool look for them."""
    match problem:
        case NotLeader(leader=leader):  # They then try another node.
            named = "" if leader is None else f" leader_id={leader}"
            return f"not leader:{named} ({problem})"
        case Denied():
            return f"unauthorized: {problem}"
        case UnknownTopic(target=TopicPartition(topic, partition)):
            return f"partition {partition} not found in topic {topic}"
        case UnknownTopic(target=topic):
            return f"topic not found: {topic}"
        case UnknownUser(name=name):
            return f'user "{name}" not found'
        case UserExists(name=name):
            return f'user "{name}" already exists'
        case _:
            return str(problem)
