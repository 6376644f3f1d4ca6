"""Publications of any kind in one breath: what is stored, and what each is answered."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.records import Record
from millstream.engine.push import read_records
from millstream.model import TopicPartition
from millstream.server.node import Node
from tests.support.flux import FluxTalk
from tests.support.nodes import SESSION, running_node
from tests.support.tiers import sized
from tests.support.virtual_loop import run

PARTITIONS = {"orders": 3, "bills": 1}


class Said(NamedTuple):
    """How a message is published, and what must come of it."""

    subject: bytes
    header: bytes = b""
    is_stored: bool = True

    def spelled(self, number: int) -> bytes:
        # Some are longer than others, so that not all neighbours are of one size.
        value = self.value(number)
        if not self.header:
            return b"PUB %b %d\r\n%b\r\n" % (self.subject, len(value), value)
        block = self.header + b"\r\n\r\n"
        sizes = len(block), len(block) + len(value)
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (self.subject, *sizes, block, value)

    def value(self, number: int) -> bytes:
        return b"%d" % number

    def stored(self, number: int) -> tuple[object, ...]:
        headers: list[tuple[str, bytes]] = [("ms-subject", self.subject)]
        if self.header:
            name, _, content = self.header.partition(b": ")
            headers.append((name.decode(), content))
        return self.subject, self.value(number), tuple(headers)


WAYS = [
    Said(b"orders.us"),
    Said(b"orders.eu"),
    Said(b"orders"),
    Said(b"bills.us"),
    Said(b"orders.us", b"Trace-ID: 1"),
    Said(b"orders..us", is_stored=False),
    Said(b"orders.us", b"ms-delay-ms: soon", is_stored=False),
]


async def stored(node: Node, subject: bytes) -> list[Record]:
    topic = subject.decode().partition(".")[0]
    collected = []
    for partition in range(PARTITIONS[topic]):
        target = TopicPartition(topic, partition)
        chunk = await read_records(node.partitions, SESSION, target, 0)
        collected.append([record for record in chunk.records if record.key == subject])
    (only,) = [some for some in collected if some] or [[]]  # They are all in one partition.
    return only


@settings(deadline=None, max_examples=sized(25))
@given(st.lists(st.tuples(st.sampled_from(WAYS), st.integers(1, 120)), min_size=1, max_size=12))
def test_all_is_stored_in_order_and_answered_in_order(rows: list[tuple[Said, int]]) -> None:
    order = [said for said, count in rows for _ in range(count)]

    async def story() -> None:
        async with running_node() as node:
            for topic, count in PARTITIONS.items():
                await node.topics.create(SESSION, topic, partitions=count)
            talk = FluxTalk(node)

            breath = b"".join(said.spelled(number) for number, said in enumerate(order))
            replies = (await talk.say(breath)).split(b"\r\n")

            answers = [reply == b"+OK" for reply in replies if reply]
            assert answers == [said.is_stored for said in order]
            for subject in {said.subject for said in order if said.is_stored}:
                expected = [
                    said.stored(number)
                    for number, said in enumerate(order)
                    if said.subject == subject and said.is_stored
                ]
                records = await stored(node, subject)
                assert [
                    (record.key, record.value, record.headers) for record in records
                ] == expected

    run(story())


@settings(deadline=None, max_examples=sized(10))
@given(st.permutations([*WAYS[:5]] * 30))
def test_publications_in_any_order_keep_the_order_of_each_subject(order: list[Said]) -> None:
    async def story() -> None:
        async with running_node() as node:
            for topic, count in PARTITIONS.items():
                await node.topics.create(SESSION, topic, partitions=count)
            talk = FluxTalk(node)
            # Twice: what is known of a line from the first time is used at the second.
            for first in (0, len(order)):
                await talk.say(b"".join(said.spelled(first + at) for at, said in enumerate(order)))

            for subject in {said.subject for said in order}:
                records = await stored(node, subject)
                expected = [n for n, said in enumerate(order * 2) if said.subject == subject]
                assert [int(record.value or b"") for record in records] == expected

    run(story())
