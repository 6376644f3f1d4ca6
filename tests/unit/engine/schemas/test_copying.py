"""A copy of the registry follows the leader's log, and is read anew when it cannot go on."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.schemas.copying import METHOD, RegistryCopy
from millstream.errors import NotCoordinator, OffsetOutOfRange, RequestError
from millstream.internal_topics.schemas import (
    Key,
    KeyType,
    SchemaText,
    SchemaValue,
    encode_key,
    encode_schema,
)
from millstream.model import NodeId
from millstream.schemas.definition import SchemaType

TOPIC = UUID(int=1)
LEADER = 2


class Leader(PeerCalls):
    """Answers as the node does that leads `_schemas`, a batch for each call."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.asked: list[int] = []
        self.refusal: RequestError | None = None

    def register(self, subject: str) -> None:
        at = len(self.batches)
        text = f'{{"type":"record","name":"{subject}","fields":[]}}'
        value = SchemaValue(subject, 1, at + 1, SchemaText(SchemaType.AVRO, text))
        key = encode_key(Key(KeyType.SCHEMA, subject, 1))
        self.batches.append(
            encode_batch([Record(at, 0, key, encode_schema(value))], base_offset=at)
        )

    def serve(self, *_: object) -> None:
        return

    # Any: the copy's own types, which no other module knows.
    async def ask(
        self,
        node: NodeId,
        method: str,
        question: Any,
        answer: Callable[..., Any],
        *,
        timeout_s: float = 1.0,
    ) -> Any:
        assert (node, method) == (LEADER, METHOD)
        await asyncio.sleep(0)
        self.asked.append(question.offset)
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        end = len(self.batches)
        if question.offset >= end:
            return answer(data=b"", next_offset=question.offset, end_offset=end)
        data = self.batches[question.offset]
        return answer(data=data, next_offset=question.offset + 1, end_offset=end)


def copy_of(leader: Leader) -> RegistryCopy:
    # Any: this side asks only.
    unused: Any = None
    return RegistryCopy(unused, leader, unused, {".": 7}, unpacked_bytes_max=2**20)


def test_a_copy_has_what_the_leader_has_and_reads_it_once() -> None:
    async def run() -> None:
        leader = Leader()
        leader.register("a")
        leader.register("b")
        copy = copy_of(leader)
        state = await copy.current(LEADER, TOPIC)
        assert list(state.subjects()) == ["a", "b"]
        assert state.id_max(".") == 7  # As the control log has it.
        leader.register("c")
        assert list((await copy.current(LEADER, TOPIC)).subjects()) == ["a", "b", "c"]
        assert leader.asked == [0, 1, 2]

    asyncio.run(run())


def test_reads_that_come_together_ask_the_leader_together() -> None:
    async def run() -> None:
        leader = Leader()
        leader.register("a")
        copy = copy_of(leader)
        await asyncio.gather(*(copy.current(LEADER, TOPIC) for _ in range(50)))
        # The first asks; all that came before its read was begun share the same one or the next.
        assert len(leader.asked) <= 2

    asyncio.run(run())


def test_another_topic_is_read_from_its_beginning() -> None:
    async def run() -> None:
        leader = Leader()
        leader.register("a")
        copy = copy_of(leader)
        await copy.current(LEADER, TOPIC)
        assert copy.recent(TOPIC) is not None
        leader.batches.clear()
        leader.register("z")
        other = UUID(int=2)
        assert copy.recent(other) is None
        assert list((await copy.current(LEADER, other)).subjects()) == ["z"]

    asyncio.run(run())


def test_a_copy_that_is_ahead_of_the_leader_is_read_anew() -> None:
    async def run() -> None:
        leader = Leader()
        leader.register("a")
        copy = copy_of(leader)
        await copy.current(LEADER, TOPIC)
        leader.refusal = OffsetOutOfRange("_schemas", 1, 0, 0)
        leader.batches.clear()
        leader.register("b")
        assert list((await copy.current(LEADER, TOPIC)).subjects()) == ["b"]

    asyncio.run(run())


def test_what_the_leader_says_is_raised_and_the_next_read_goes_on() -> None:
    async def run() -> None:
        leader = Leader()
        leader.register("a")
        copy = copy_of(leader)
        leader.refusal = NotCoordinator("", 3)
        with pytest.raises(NotCoordinator):
            await copy.current(LEADER, TOPIC)
        assert copy.recent(TOPIC) is None
        assert list((await copy.current(LEADER, TOPIC)).subjects()) == ["a"]

    asyncio.run(run())
