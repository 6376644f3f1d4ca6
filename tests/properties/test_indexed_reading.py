"""A read that an index of keys and headers makes shorter shows what a full scan shows.

The log is written in small segments, indexed as far as the broker came, and read like a client
reads it. Filters, records and the way there are drawn; the model is the plain meaning of a filter.
"""

import asyncio
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config
from millstream.engine.filters import filtered_read
from millstream.engine.filters.filter import parse
from millstream.engine.partitions.slices import Want
from millstream.metrics import FILTER_SKIPPED_BYTES
from millstream.model import Acks, Isolation
from millstream.server.node import Node
from millstream.settings import TopicSettings
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.secondary_index import builder, search
from millstream.storage.secondary_index.terms import Term, hash_content, number_content, seed_of
from tests.support.filtered_slices import next_offset, shown
from tests.support.nodes import NOW_MS, ORDERS, SESSION, running_node
from tests.support.tiers import sized
from tests.support.transactions import Writer, committed, stable
from tests.support.virtual_loop import run

CONTENTS = [b"a", b"b", b"7", b"07", b" 7", b"7.0", b"70e-1", b"-7", b"", b"\xff", b"order-7"]
TEXTS = ["a", "b", "7", "07", "order-7", "none"]
FILTERS = [
    *[f"key == '{text}'" for text in TEXTS],
    *[f"header.h == '{text}'" for text in TEXTS],
    "key == 7",
    "header.h == 7",
    "header.h == -7.0",
    "header.other == 'a'",
    "key == 'a' and header.h == 'b'",
    "key == 'a' or header.h == 'b'",
    "key == 'a' or value contains 'z'",
    "key == 'a' and value contains 'z'",
    "not (key == 'a')",
    "key != 'a'",
    "(key == 'a' or key == 'b') and not (header.h == '7')",
    "key == null",
    "key > 'a'",
]
contents = st.one_of(st.none(), st.sampled_from(CONTENTS))
records = st.builds(
    lambda key, value, headers: Record(0, NOW_MS, key, value, tuple(headers)),
    contents,
    st.sampled_from([b"x", b"xyz"]),
    st.lists(st.tuples(st.sampled_from(["h", "other"]), contents), max_size=3),
)
batches = st.tuples(st.lists(records, min_size=1, max_size=4), st.sampled_from(list(Codec)))
INDEXED = {"index_key": "true", "index_headers": "h"}
SMALL = Config(topic_defaults=TopicSettings(segment_bytes=1024))


async def append(node: Node, log: list[tuple[list[Record], Codec]]) -> None:
    for given_records, codec in log:
        placed = [record._replace(offset=at) for at, record in enumerate(given_records)]
        data = encode_batch(placed, codec=codec)
        await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)


async def read_all(
    node: Node, text: str, *, bytes_max: int, end: int, isolation: Isolation
) -> list[tuple[int, bytes | None]]:
    collected: list[tuple[int, bytes | None]] = []
    offset = 0
    while offset < end:
        (part,) = await node.partitions.read(
            SESSION, [Want(ORDERS, offset, bytes_max)], filter=parse(text), isolation=isolation
        )
        assert next_offset(part, offset) > offset, "a reader must always get on"
        collected += [row for row in shown(part) if row[0] >= offset]
        offset = next_offset(part, offset)
    return collected


@settings(max_examples=sized(60), deadline=None)
@given(
    text=st.sampled_from(FILTERS),
    before=st.lists(batches, max_size=12),
    between=st.lists(batches, max_size=12),
    after=st.lists(batches, max_size=3),
    bytes_max=st.sampled_from([1, 200, 2**20]),
    run_entries=st.sampled_from([1, 5, 2**18]),
    is_late=st.booleans(),
)
def test_an_indexed_read_shows_what_a_full_scan_shows(
    text: str,
    before: list[tuple[list[Record], Codec]],
    between: list[tuple[list[Record], Codec]],
    after: list[tuple[list[Record], Codec]],
    bytes_max: int,
    run_entries: int,
    is_late: bool,
) -> None:
    """Some is indexed before a restart, some after it, and the last of it not at all."""

    async def story() -> None:
        files = MemoryFiles()
        log = [*before, *between, *after]
        flat = [record for group, _ in log for record in group]
        written = [record._replace(offset=at) for at, record in enumerate(flat)]
        async with running_node(SMALL, files=files) as node:
            first = {} if is_late else INDEXED
            await node.topics.create(SESSION, "orders", settings=first)
            await append(node, before)
            await asyncio.sleep(5)
        async with running_node(SMALL, files=files) as node:
            if is_late:
                await node.topics.alter(SESSION, "orders", dict(INDEXED))
            await append(node, between)
            await asyncio.sleep(5)
            await append(node, after)

            rows = await read_all(
                node,
                text,
                bytes_max=bytes_max,
                end=len(written),
                isolation=Isolation.READ_UNCOMMITTED,
            )

            compiled = parse(text)
            kept = [(r.offset, r.value) for r in written if compiled.matches(r, "orders")]
            assert rows == kept

    with (
        patch.object(builder, "RUN_ENTRIES", run_entries),
        patch.object(builder, "STEP_BYTES", 300),
        patch.object(search, "CANDIDATES_ENOUGH", 3),
        patch.object(filtered_read, "NEAR_OFFSETS", 1),
    ):
        run(story())


steps = st.lists(
    st.tuples(st.booleans(), st.sampled_from([b"a", b"b"]), st.sampled_from(["write", "end"])),
    min_size=1,
    max_size=25,
)


@settings(max_examples=sized(40), deadline=None)
@given(steps=steps, outcomes=st.lists(st.booleans(), min_size=27, max_size=27))
def test_readers_of_committed_records_get_every_marker_that_they_need(
    steps: list[tuple[bool, bytes, str]], outcomes: list[bool]
) -> None:
    """A Kafka client drops a producer's records until it sees the marker of its transaction."""

    async def story() -> None:
        async with running_node(SMALL) as node:
            await node.topics.create(SESSION, "orders", settings=INDEXED)
            writers = [Writer(node, transactional_id=name) for name in ("p", "q")]
            for writer in writers:
                await writer.init()
            are_open = [False, False]
            ends = iter(outcomes)
            for number, (which, key, action) in enumerate(steps):
                if action == "write":
                    await writers[which].write(ORDERS, b"%d" % number + b"v" * 100, key=key)
                    are_open[which] = True
                elif are_open[which]:
                    await writers[which].end(commits=next(ends))
                    are_open[which] = False
            for writer, is_open in zip(writers, are_open, strict=True):
                if is_open:
                    await writer.end(commits=next(ends))
            await stable(node)
            await asyncio.sleep(5)

            rows = await committed(node, where=parse("key == 'a'"))

            # No index helps with the other half of this filter: it is a full scan.
            assert rows == await committed(node, where=parse("key == 'a' or value == 'none'"))

    with patch.object(filtered_read, "NEAR_OFFSETS", 1):
        run(story())


def test_the_marker_of_an_aborted_transaction_is_not_passed_over() -> None:
    async def story() -> None:
        async with running_node(SMALL) as node:
            await node.topics.create(SESSION, "orders", settings=INDEXED)
            writer = Writer(node)
            await writer.init()
            await writer.write(ORDERS, b"undone", key=b"a")
            await append(node, [([Record(0, NOW_MS, b"b", b"v" * 200)], Codec.NONE)] * 20)
            await writer.abort()
            await append(node, [([Record(0, NOW_MS, b"b", b"v" * 200)], Codec.NONE)] * 20)
            await writer.write(ORDERS, b"done", key=b"a")
            await writer.commit()
            await stable(node)
            await asyncio.sleep(5)

            rows = await committed(node, where=parse("key == 'a'"))

            assert rows == [b"done"]
            assert node.metrics.value(FILTER_SKIPPED_BYTES) > 5_000

    with patch.object(filtered_read, "NEAR_OFFSETS", 1):
        run(story())


number_texts = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False).map(repr),
    st.sampled_from(["7", "+7", " 7\n", "007", "7.", ".7e1", "70e-1", "inf", "Infinity", "1e400"]),
    st.text(max_size=6),
)


@settings(max_examples=sized(500), deadline=None)
@given(content=number_texts, other=number_texts)
def test_contents_that_a_filter_takes_as_one_number_have_one_hash(content: str, other: str) -> None:
    seed = seed_of("n")
    record = Record(0, 0, None, None, (("n", content.encode()),))
    for literal in (_number(content), _number(other)):
        if literal is None or not parse(f"header.n == {literal!r}").matches(record):
            continue
        assert hash_content(seed, content.encode()) == Term("n", number_content(literal)).hash


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if number != number or number in (float("inf"), float("-inf")):
        return None
    return int(number) if number.is_integer() else number


def test_a_rare_key_is_found_without_reading_the_log() -> None:
    async def story() -> None:
        async with running_node(SMALL) as node:
            await node.topics.create(SESSION, "orders", settings=INDEXED)
            rows = [([Record(0, NOW_MS, b"%d" % at, b"v" * 200)], Codec.NONE) for at in range(200)]
            await append(node, rows)
            await asyncio.sleep(30)

            (part,) = await node.partitions.read(
                SESSION, [Want(ORDERS, 0, 2**20)], filter=parse("key == '150'")
            )

            assert [offset for offset, _ in shown(part)] == [150]
            assert next_offset(part, 0) == 200
            assert node.metrics.value(FILTER_SKIPPED_BYTES) > 40_000

    run(story())
