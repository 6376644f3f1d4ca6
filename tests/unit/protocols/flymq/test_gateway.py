"""The way of a request through a gateway: when it acts, in which order, and what comes back."""

import asyncio
import gc
import gzip
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.config import Config, Limits
from millstream.engine.produce.unpacking import Unpacking
from millstream.errors import (
    CoordinatorLoading,
    InvalidRequest,
    NotLeader,
    ProtocolError,
    RequestError,
    UnknownTopic,
)
from millstream.metrics import Metrics
from millstream.model import Session, TopicPartition
from millstream.protocols.flymq.context import Attendance, Context, Endpoint, TopicGroup
from millstream.protocols.flymq.gateway import LOADING_S_MAX, FlymqGateway
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import HEAD, Opcode, encode_request
from millstream.protocols.flymq.wire.shapes import fields_of, read_body
from millstream.server.net.connection import Pace
from tests.support.nodes import InlineThreads
from tests.support.virtual_loop import run

GZIP_FLAG, ZSTD_FLAG = 0x02, 0x06
PROMPT, PATIENT, FAILING = Opcode.DELETE_TOPIC, Opcode.CREATE_TOPIC, Opcode.METADATA


class Handlers:
    """What was done, in its order, by a handler of each kind."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.problem: Exception = UnknownTopic("orders")
        self.loaded_at = 0.0

    def prompt(self, context: Context, request: bodies.TopicOnly) -> Awaitable[bodies.Done]:
        """Acts at once and answers later, as PRODUCE does."""
        self.done.append(request.topic)
        return self._later()

    async def patient(self, context: Context, request: bodies.CreateTopic) -> bodies.Done:
        if asyncio.get_running_loop().time() < self.loaded_at:
            raise CoordinatorLoading("g")
        context.conversation.attend(TopicGroup(request.topic, "g"))
        self.done.append(request.topic)
        return await self._later()

    def failing(self, context: Context, request: bodies.TopicOnly) -> bodies.Done:
        raise self.problem

    async def _later(self) -> bodies.Done:
        await asyncio.sleep(1)
        return bodies.Done(True)

    def gateway(
        self, attendance: Attendance | None = None, pace: Pace | None = None, **limits: int
    ) -> FlymqGateway:
        services: Any = SimpleNamespace(
            config=Config(),
            unpacking=Unpacking(InlineThreads(), "produce", limits=Limits(), metrics=Metrics()),
            attendance=attendance or Attendance(),
            usage=SimpleNamespace(limited={}),
        )
        return FlymqGateway(
            services,
            {PROMPT: self.prompt, PATIENT: self.patient, FAILING: self.failing},
            Limits(**limits),
            dialled=Endpoint("here", 9092),
            session=Session(address="10.0.0.7"),
            pace=pace or Pace(),
        )


def prompt(topic: str, flags: int = 1) -> bytes:
    return asking(PROMPT, bodies.TopicOnly(topic), flags)


def patient(topic: str) -> bytes:
    return asking(PATIENT, bodies.CreateTopic(topic, 1))


def asking(opcode: Opcode, request: tuple[Any, ...], flags: int = 1) -> bytes:
    payload = bytearray()
    fields_of(type(request)).write(payload, request)
    packed = gzip.compress(payload) if flags & GZIP_FLAG else bytes(payload)
    return encode_request(opcode, packed, flags=flags)


def begin(gateway: FlymqGateway, raw: bytes) -> list[Any]:
    return [gateway.begin(frame) for frame in gateway.receive(raw)]


async def replies(outcomes: list[Any]) -> list[tuple[int, bytes]]:
    """The opcode and the body of each, as a client gets them."""
    buffers = [outcome if isinstance(outcome, list) else await outcome for outcome in outcomes]
    return [(buffer[2], bytes(buffer[HEAD.size :])) for (buffer,) in buffers]


def text_of(reply: tuple[int, bytes]) -> str:
    opcode, body = reply
    assert opcode == Opcode.ERROR
    return read_body(bodies.Failure, body, is_exact=True).message


def test_an_unpacked_request_counts_as_held_until_it_is_answered() -> None:
    async def main() -> None:
        held: list[int] = []
        gateway = Handlers().gateway(pace=Pace(lambda: held.append(gateway.unfinished_bytes)))
        topic = "a" * 60_000

        (outcome,) = begin(gateway, prompt(topic, flags=1 | GZIP_FLAG))
        assert gateway.unfinished_bytes == 0
        await replies([outcome])

        assert len(held) == 1
        assert 60_000 < held[0] < 61_000
        assert gateway.unfinished_bytes == 0

    run(main())


def test_a_run_of_plain_handlers_acts_before_the_first_is_answered() -> None:
    async def main() -> None:
        handlers = Handlers()

        outcomes = begin(handlers.gateway(), prompt("a") + prompt("b") + prompt("c"))

        assert handlers.done == ["a", "b", "c"]
        assert await replies(outcomes) == [(PROMPT, b"\1")] * 3

    run(main())


def test_a_plain_handler_does_not_overtake_one_that_waits_for_its_turn() -> None:
    async def main() -> None:
        handlers = Handlers()
        gateway = handlers.gateway()

        outcomes = begin(gateway, patient("a") + prompt("b"))
        assert handlers.done == []
        await replies(outcomes)
        assert handlers.done == ["a", "b"]

        begin(gateway, prompt("c"))[0].close()
        assert handlers.done == ["a", "b", "c"]

    run(main())


@pytest.mark.parametrize("raw", [prompt("a"), patient("a"), patient("a") + prompt("b")])
def test_replies_to_a_closed_connection_are_dropped_silently(raw: bytes) -> None:
    """Warnings are errors here, and that of a coroutine never awaited comes with the collector."""

    async def main() -> None:
        for outcome in begin(Handlers().gateway(), raw):
            outcome.close()

    run(main())
    gc.collect()


def test_gzip_is_unpacked() -> None:
    async def main() -> None:
        handlers = Handlers()

        outcomes = begin(handlers.gateway(), prompt("a" * 1_000, flags=1 | GZIP_FLAG))

        assert await replies(outcomes) == [(PROMPT, b"\1")]
        assert handlers.done == ["a" * 1_000]

    run(main())


def test_gzip_has_a_bound_on_what_comes_out() -> None:
    async def main() -> None:
        gateway = Handlers().gateway(frame_bytes_max=1_000)

        outcomes = begin(gateway, prompt("a" * 60_000, flags=1 | GZIP_FLAG))

        assert "at most 1000" in text_of((await replies(outcomes))[0])

    run(main())


@pytest.mark.parametrize(
    "payload",
    [b"", b"not gzip", gzip.compress(b"x", mtime=0)[:-4]],
    ids=["nothing", "text", "cut short"],
)
def test_what_is_not_gzip_is_refused(payload: bytes) -> None:
    async def main() -> None:
        raw = encode_request(PROMPT, payload, flags=1 | GZIP_FLAG)

        assert "gzip" in text_of((await replies(begin(Handlers().gateway(), raw)))[0])

    run(main())


def test_another_compression_is_refused() -> None:
    async def main() -> None:
        raw = encode_request(PROMPT, b"\0\1a", flags=1 | ZSTD_FLAG)

        (reply,) = await replies(begin(Handlers().gateway(), raw))

        assert text_of(reply) == "compression 0x06 is not known, only gzip is"

    run(main())


def test_a_request_without_the_flag_for_binary_is_served() -> None:
    async def main() -> None:
        outcomes = begin(Handlers().gateway(), prompt("a", flags=0))

        assert await replies(outcomes) == [(PROMPT, b"\1")]

    run(main())


def test_what_cannot_be_read_is_refused_and_the_next_request_served() -> None:
    async def main() -> None:
        raw = encode_request(PROMPT, b"\0\5ab") + encode_request(0x0C, b"") + prompt("a")

        malformed, unknown, served = await replies(begin(Handlers().gateway(), raw))

        assert text_of(malformed) == "invalid binary format: 5 bytes at 2, 2 are there"
        assert text_of(unknown) == "unknown opcode: 12"
        assert served == (PROMPT, b"\1")

    run(main())


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (UnknownTopic("orders"), "topic not found: orders"),
        (UnknownTopic(TopicPartition("orders", 3)), "partition 3 not found in topic orders"),
        (InvalidRequest("no such thing"), "no such thing"),
    ],
)
def test_a_refusal_is_told_in_words_that_the_tool_looks_for_or_its_own(
    problem: RequestError, words: str
) -> None:
    async def main() -> None:
        handlers = Handlers()
        handlers.problem = problem

        (reply,) = await replies(
            begin(handlers.gateway(), asking(FAILING, bodies.TopicOnly("orders")))
        )

        assert text_of(reply) == words

    run(main())


@pytest.mark.parametrize(
    ("loading_s", "answered"), [(0.5 * LOADING_S_MAX, PATIENT), (2 * LOADING_S_MAX, Opcode.ERROR)]
)
def test_what_is_still_loading_is_waited_for_a_while(loading_s: float, answered: Opcode) -> None:
    async def main() -> None:
        handlers = Handlers()
        handlers.loaded_at = asyncio.get_running_loop().time() + loading_s

        ((opcode, _),) = await replies(begin(handlers.gateway(), patient("a")))

        assert opcode == answered

    run(main())


def test_who_does_not_lead_says_so_in_the_words_that_clients_look_for() -> None:
    async def main() -> None:
        handlers = Handlers()
        handlers.problem = NotLeader("orders-0", 2)

        (reply,) = await replies(
            begin(handlers.gateway(), asking(FAILING, bodies.TopicOnly("orders")))
        )

        assert text_of(reply) == "not leader: leader_id=2 (orders-0 is led by node 2)"

    run(main())


def test_a_head_that_is_not_flymqs_ends_the_conversation_after_what_came_before() -> None:
    async def main() -> None:
        frames = iter(Handlers().gateway().receive(prompt("a") + b"GET / HTTP/1.1\r\n"))

        assert len(next(frames)) == HEAD.size + 3
        with pytest.raises(ProtocolError, match="not FlyMQ's"):
            next(frames)

    run(main())


def test_what_is_not_whole_yet_is_counted() -> None:
    async def main() -> None:
        gateway = Handlers().gateway()
        raw = prompt("a") + prompt("b")

        begin(gateway, raw[:-2])[0].close()
        assert gateway.unfinished_bytes == len(prompt("b")) - 2
        begin(gateway, raw[-2:])[0].close()
        assert gateway.unfinished_bytes == 0

    run(main())


def test_a_connection_attends_its_groups_until_it_closes() -> None:
    async def main() -> None:
        attendance, group = Attendance(), TopicGroup("a", "g")
        gateways = [Handlers().gateway(attendance) for _ in range(2)]

        for gateway in gateways:
            await replies(begin(gateway, patient("a") + patient("a")))
        assert attendance.count(group) == 2

        gateways[0].close()
        assert attendance.count(group) == 1
        gateways[1].close()
        assert attendance.groups() == set()

    run(main())
