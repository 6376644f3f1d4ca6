"""Reading through a filter is reading everything and dropping the rest, whatever the records are.

A filter is made together with the Python that means the same. The log is read as a client reads it:
from where the last batch ended, in answers of any size.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.engine.filters import filtered_read
from millstream.engine.filters.filter import parse
from millstream.engine.partitions.slices import Want
from millstream.errors.views import InvalidFilter
from millstream.model import Acks, TopicPartition
from millstream.server.node import Node
from tests.support.filtered_slices import next_offset, shown
from tests.support.nodes import NOW_MS, ORDERS, SESSION, running_node
from tests.support.tiers import sized
from tests.support.virtual_loop import run

VIEW = TopicPartition("view", 0)
WORDS = ["a", "b", "ab", "ba", "x y", "it's", "", "ü"]


class Wanted(NamedTuple):
    text: str
    holds: Callable[[Record], bool]


def quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def last_header(record: Record, name: str) -> bytes | None:
    collected = [content for given_name, content in record.headers if given_name == name]
    return collected[-1] if collected else None


def document(record: Record) -> object:
    try:
        return json.loads(record.value or b"")
    except ValueError:
        return None


def member(record: Record) -> object:
    parsed = document(record)
    return parsed.get("m") if isinstance(parsed, dict) else None


def number(content: bytes | None) -> float | None:
    try:
        return None if content is None else float(content)
    except ValueError:
        return None


def is_less(record: Record, bound: int) -> bool:
    value = number(last_header(record, "n"))
    return value is not None and value < bound


def is_number(record: Record, bound: int) -> bool:
    value = member(record)
    return isinstance(value, int) and not isinstance(value, bool) and value == bound


words = st.sampled_from(WORDS)
small = st.integers(-3, 3)
atoms = st.one_of(
    words.map(
        lambda w: Wanted(
            f"value contains {quoted(w)}",
            lambda r: r.value is not None and w.encode() in r.value,
        )
    ),
    words.map(lambda w: Wanted(f"key == {quoted(w)}", lambda r: r.key == w.encode())),
    words.map(lambda w: Wanted(f"key != {quoted(w)}", lambda r: r.key != w.encode())),
    words.map(
        lambda w: Wanted(f"header.h == {quoted(w)}", lambda r: last_header(r, "h") == w.encode())
    ),
    small.map(lambda n: Wanted(f"header.n < {n}", lambda r: is_less(r, n))),
    words.map(lambda w: Wanted(f"$.m == {quoted(w)}", lambda r: member(r) == w)),
    small.map(lambda n: Wanted(f"$.m == {n}", lambda r: is_number(r, n))),
    st.just(Wanted("value == null", lambda r: r.value is None)),
    st.just(Wanted("header.h", lambda r: last_header(r, "h") is not None)),
)


def joined(parts: list[Wanted], word: str) -> Wanted:
    decide = all if word == "and" else any
    return Wanted(
        f" {word} ".join(f"({part.text})" for part in parts),
        lambda r: decide(part.holds(r) for part in parts),
    )


filters = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map(
            lambda inner_filter: Wanted(
                f"not ({inner_filter.text})", lambda r: not inner_filter.holds(r)
            )
        ),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: joined(parts, "and")),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: joined(parts, "or")),
    ),
    max_leaves=5,
)
contents = st.one_of(
    st.none(),
    words.map(str.encode),
    st.binary(max_size=5),
    st.one_of(words, small, st.booleans(), st.none()).map(lambda m: json.dumps({"m": m}).encode()),
)
headers = st.lists(
    st.tuples(
        st.sampled_from(["h", "n"]),
        st.one_of(st.none(), words.map(str.encode), small.map(lambda n: b"%d" % n)),
    ),
    max_size=3,
).map(tuple)
records = st.builds(
    Record,
    st.just(0),
    st.just(NOW_MS),
    st.one_of(st.none(), words.map(str.encode)),
    contents,
    headers,
)
batches = st.tuples(st.lists(records, min_size=1, max_size=6), st.sampled_from(list(Codec)))


async def write(node: Node, log: list[tuple[list[Record], Codec]]) -> list[Record]:
    written: list[Record] = []
    for given_records, codec in log:
        placed = [record._replace(offset=at) for at, record in enumerate(given_records)]
        written += [r._replace(offset=len(written) + r.offset) for r in placed]
        await node.partitions.append(SESSION, ORDERS, encode_batch(placed, codec=codec), Acks.ALL)
    return written


async def read_to_the_end(
    node: Node, target: TopicPartition, *, bytes_max: int, end: int
) -> list[tuple[int, bytes | None]]:
    collected: list[tuple[int, bytes | None]] = []
    offset = 0
    while offset < end:
        (part,) = await node.partitions.read(SESSION, [Want(target, offset, bytes_max)])
        assert part.error is None
        assert next_offset(part, offset) > offset, "a reader must always get on"
        collected += [row for row in shown(part) if row[0] >= offset]
        offset = next_offset(part, offset)
    return collected


@pytest.fixture
def _short_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that one answer seldom reaches to the end of even these logs."""
    monkeypatch.setattr(filtered_read, "SCAN_BYTES_MAX", 300)
    monkeypatch.setattr(filtered_read, "SCAN_BYTES_MIN", 300)
    monkeypatch.setattr(filtered_read, "CHUNK_BYTES", 200)


@pytest.mark.usefixtures("_short_scans")
@settings(max_examples=sized(60), deadline=None)
@given(
    asked=filters,
    log=st.lists(batches, min_size=1, max_size=8),
    bytes_max=st.sampled_from([1, 150, 2**20]),
)
def test_a_view_shows_what_a_client_would_have_kept(
    asked: Wanted, log: list[tuple[list[Record], Codec]], bytes_max: int
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            view = {"view_of": "orders", "view_where": asked.text}
            await node.topics.create(SESSION, "view", settings=view)
            written = await write(node, log)

            seen = await read_to_the_end(node, VIEW, bytes_max=bytes_max, end=len(written))

            kept = [(record.offset, record.value) for record in written if asked.holds(record)]
            assert seen == kept

    run(story())


@settings(max_examples=sized(300), deadline=None)
@given(asked=filters, log=st.lists(records, min_size=1, max_size=6))
def test_a_batch_that_need_not_be_opened_holds_no_match(asked: Wanted, log: list[Record]) -> None:
    batch = encode_batch([record._replace(offset=at) for at, record in enumerate(log)])
    compiled = parse(asked.text)

    if any(asked.holds(record) for record in log):
        assert compiled.may_match(batch)


lives = st.one_of(st.none(), st.integers(0, 5_000))


@settings(max_examples=sized(40), deadline=None)
@given(
    log=st.lists(
        st.lists(st.tuples(st.integers(-5_000, 0), lives), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    ),
    default_ms=st.one_of(st.just(-1), st.integers(0, 5_000)),
)
def test_a_record_is_shown_until_the_shorter_of_its_times_is_over(
    log: list[list[tuple[int, int | None]]], default_ms: int
) -> None:
    def is_alive(age_ms: int, own_ms: int | None) -> bool:
        times = [default_ms] if default_ms >= 0 else []
        times += [] if own_ms is None else [own_ms]
        return all(time_ms > age_ms for time_ms in times)

    async def story() -> None:
        async with running_node() as node:
            chosen = {"message_ttl_ms": str(default_ms), "message_ttl_headers": "on"}
            await node.topics.create(SESSION, "orders", settings=chosen)
            flat = [record for group in log for record in group]
            made = [
                [
                    Record(
                        0,
                        NOW_MS + at_ms,
                        None,
                        b"v",
                        () if own is None else (("ms-ttl-ms", b"%d" % own),),
                    )
                    for at_ms, own in group
                ]
                for group in log
            ]
            await write(node, [(group, Codec.NONE) for group in made])
            now_ms = node.partitions._clock.now_ms()

            seen = await read_to_the_end(node, ORDERS, bytes_max=2**20, end=len(flat))

            alive = [
                offset
                for offset, (at_ms, own) in enumerate(flat)
                if is_alive(now_ms - NOW_MS - at_ms, own)
            ]
            assert [offset for offset, _ in seen] == alive

    run(story())


signs = st.sampled_from(
    ["value", "key", "header.h", "$.m", "$", "==", "~", "<", "(", ")", "'", '"', "and", "or", "not"]
)


@settings(max_examples=sized(400), deadline=None)
@given(text=st.one_of(st.text(max_size=60), st.lists(signs, max_size=12).map(" ".join)))
def test_any_text_is_a_filter_or_is_refused_with_its_place(text: str) -> None:
    place = 0
    try:
        parse(text).matches(Record(0, 0, b"k", b"{}"))
    except InvalidFilter as refused:
        place = refused.place

    assert 0 <= place <= len(text)
