"""The way of a request through a gateway: when it is decoded, when it acts, what comes back."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from millstream.config import Limits
from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, ApiVersionsResponse
from millstream.kafka_wire.apis.groups import HeartbeatRequest, HeartbeatResponse
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.frames import LENGTH
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_request
from millstream.kafka_wire.schema import Message
from millstream.model import CLIENT_ID_LENGTH_MAX, Session
from millstream.protocols.kafka.context import Context, Endpoint
from millstream.protocols.kafka.gateway import Handler, KafkaGateway
from millstream.server.net.connection import Pace
from tests.support.virtual_loop import run

HEARTBEAT, API_VERSIONS = 12, 18


class Handlers:
    """What was asked, and how each kind of handler answers."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.sessions: list[Session] = []
        self.is_silent = False

    def ordered(self, context: Context, request: HeartbeatRequest) -> Coroutine[Any, Any, Any]:
        """Acts at once, answers later, as Produce does."""
        self.seen.append(request.group_id)
        return self._later()

    async def waiting(self, context: Context, request: HeartbeatRequest) -> Message | None:
        self.seen.append(request.group_id)
        self.sessions.append(context.session)
        return await self._later()

    def quick(self, context: Context, request: HeartbeatRequest) -> Message:
        self.seen.append(request.group_id)
        return HeartbeatResponse(error_code=3)

    async def _later(self) -> Message | None:
        await asyncio.sleep(1)
        return None if self.is_silent else HeartbeatResponse(error_code=7)


def gateway_with(handler: Handler) -> KafkaGateway:
    def api_versions(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=[])

    return KafkaGateway(
        None,  # type: ignore[arg-type]  # These handlers ask no broker.
        {HEARTBEAT: handler, API_VERSIONS: api_versions},
        Limits(frame_bytes_max=1_000),
        dialled=Endpoint("here", 9092),
        session=Session(address="10.0.0.7", protocol="kafka"),
        pace=Pace(),
    )


def heartbeat(group: str, *, number: int = 1, client_id: str = "test") -> bytes:
    request = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    chunks = encode_request(RequestHeader(HEARTBEAT, 4, number, client_id), request)
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]


def begin(gateway: KafkaGateway, raw: bytes) -> Any:
    (frame,) = gateway.receive(raw)
    return gateway.begin(frame)


async def reply_of(outcome: Any) -> Any:
    """The reply, whether it came at once or is still to come."""
    return outcome if outcome is None or isinstance(outcome, list) else await outcome


async def answer(gateway: KafkaGateway, raw: bytes) -> tuple[int, Message]:
    reply = await reply_of(begin(gateway, raw))
    return decode_response(APIS[HEARTBEAT], 4, b"".join(reply)[LENGTH.size :])


@pytest.mark.parametrize(
    ("kind", "seen_at_arrival", "code"),
    [("ordered", ["g"], 7), ("waiting", [], 7), ("quick", ["g"], 3)],
)
def test_a_plain_handler_acts_at_arrival_and_an_async_one_when_it_is_its_turn(
    kind: str, seen_at_arrival: list[str], code: int
) -> None:
    async def main() -> None:
        handlers = Handlers()
        pending = begin(gateway_with(getattr(handlers, kind)), heartbeat("g", number=42))
        assert handlers.seen == seen_at_arrival

        reply = b"".join(await reply_of(pending))

        assert handlers.seen == ["g"]
        assert LENGTH.unpack_from(reply) == (len(reply) - LENGTH.size,)
        number, response = decode_response(APIS[HEARTBEAT], 4, reply[LENGTH.size :])
        assert (number, response.error_code) == (42, code)  # type: ignore[attr-defined]

    run(main())


@pytest.mark.parametrize("kind", ["ordered", "waiting"])
def test_a_handler_may_answer_nothing(kind: str) -> None:
    async def main() -> None:
        handlers = Handlers()
        handlers.is_silent = True

        assert await begin(gateway_with(getattr(handlers, kind)), heartbeat("g")) is None

    run(main())


@pytest.mark.parametrize("kind", ["ordered", "waiting"])
def test_a_reply_to_a_closed_connection_is_dropped_silently(kind: str) -> None:
    """Warnings are errors here, and that of a coroutine never awaited comes with the collector."""

    async def main() -> None:
        begin(gateway_with(getattr(Handlers(), kind)), heartbeat("g")).close()

    run(main())
    gc.collect()


def test_a_broken_request_is_refused_at_arrival_where_order_counts() -> None:
    with pytest.raises(ProtocolError, match="Heartbeat request v4"):
        begin(gateway_with(Handlers().ordered), _cut(heartbeat("g")))


def test_a_broken_request_is_refused_at_its_turn_where_it_does_not() -> None:
    async def main() -> None:
        pending = begin(gateway_with(Handlers().waiting), _cut(heartbeat("g")))

        with pytest.raises(ProtocolError, match="Heartbeat request v4"):
            await pending

    run(main())


@pytest.mark.parametrize("kind", ["ordered", "waiting"])
@pytest.mark.parametrize(("key", "version"), [(0, 9), (999, 0), (-1, 0), (HEARTBEAT, 5)])
def test_what_is_not_in_the_table_is_refused(kind: str, key: int, version: int) -> None:
    async def main() -> None:
        body = key.to_bytes(2, signed=True) + version.to_bytes(2) + bytes(20)
        gateway = gateway_with(getattr(Handlers(), kind))

        with pytest.raises(ProtocolError, match="is not served here"):
            await begin(gateway, LENGTH.pack(len(body)) + body)

    run(main())


def test_api_versions_of_any_version_is_answered_as_v0() -> None:
    async def main() -> None:
        body = API_VERSIONS.to_bytes(2) + (77).to_bytes(2) + (5).to_bytes(4) + b"from the future"

        reply = await reply_of(begin(gateway_with(Handlers().quick), LENGTH.pack(len(body)) + body))

        number, response = decode_response(APIS[API_VERSIONS], 0, b"".join(reply)[LENGTH.size :])
        assert (number, response.error_code) == (5, 35)  # type: ignore[attr-defined]

    run(main())


def test_bytes_count_as_unfinished_until_their_request_is_whole() -> None:
    gateway = gateway_with(Handlers().quick)
    first, second = heartbeat("one"), heartbeat("two")

    assert list(gateway.receive(first[:9])) == []
    assert gateway.unfinished_bytes == 9
    assert len(list(gateway.receive(first[9:] + second + b"\0\0"))) == 2
    assert gateway.unfinished_bytes == 2


def test_the_session_says_who_asks_and_from_where() -> None:
    async def main() -> None:
        handlers = Handlers()
        gateway = gateway_with(handlers.waiting)

        for client_id in ("a", "a", "b"):
            await answer(gateway, heartbeat("g", client_id=client_id))

        assert [session.client_id for session in handlers.sessions] == ["a", "a", "b"]
        assert handlers.sessions[0] is handlers.sessions[1]
        assert {(session.address, session.protocol) for session in handlers.sessions} == {
            ("10.0.0.7", "kafka")
        }

    run(main())


def test_a_long_client_id_is_cut_and_its_client_is_served() -> None:
    async def main() -> None:
        handlers = Handlers()
        gateway = gateway_with(handlers.waiting)
        long_id = "x" * CLIENT_ID_LENGTH_MAX + "y"

        for _ in range(2):
            await answer(gateway, heartbeat("g", client_id=long_id))

        first, second = handlers.sessions
        assert first.client_id == "x" * CLIENT_ID_LENGTH_MAX
        assert first is second

    run(main())


def _cut(raw: bytes) -> bytes:
    return LENGTH.pack(len(raw) - LENGTH.size - 1) + raw[LENGTH.size : -1]
